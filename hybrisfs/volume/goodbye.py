"""Telling the clouds that this device goes offline."""

from __future__ import annotations

import logging
import threading
from typing import Final

from hybrisfs.dispersal.errors import DispersalError
from hybrisfs.write.ship import Shipper

__all__ = ["say_goodbye"]

log = logging.getLogger(__name__)

_SECONDS: Final = 2.0


def say_goodbye(name: str, shipper: Shipper, thread: threading.Thread) -> None:
    """Tell the clouds when the shipper's *thread* has ended, if they listen; closing waits for nobody."""

    def say() -> None:
        thread.join(_SECONDS)
        try:
            shipper.say_goodbye()
        except (DispersalError, OSError) as error:
            log.debug("the clouds were not told that this device goes offline: %s", error)

    speaker = threading.Thread(target=say, name=f"{name}-goodbye", daemon=True)
    speaker.start()
    speaker.join(_SECONDS)
