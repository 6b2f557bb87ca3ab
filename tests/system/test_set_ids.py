"""Programs with privileges lose them when they are changed, as on a local disk.

The kernel leaves that to the mount (FUSE_HANDLE_KILLPRIV_V2), or it would ask for an attribute before
each write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.system.changing_programs import Case, cases, prepare
from tests.system.device import Device

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_ROOT: Final = Path(__file__).parent.parent.parent
_NOBODY: Final = 65534
_GROUP: Final = 1234


def _outcomes(folder: Path, wanted: list[Case], user: int) -> list[tuple[str, str, bool]]:
    """How the calls ended, with the mode afterwards, and whether the file still has capabilities."""
    folder.mkdir()
    folder.chmod(0o755)
    prepare(folder, wanted)
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.changing_programs", folder],
        input=json.dumps([case.call for case in wanted]),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=_ROOT,
        user=user,
        group=user,
        extra_groups=[_GROUP] if user else [],
    )
    return [(error, f"{mode:o}", has) for error, mode, has in json.loads(done.stdout)]


@pytest.mark.parametrize("user", [0, _NOBODY])
def test_programs_that_are_changed_lose_their_privileges(everybodys: Device, user: int) -> None:
    wanted = list(cases(user, _GROUP))
    ours = _outcomes(everybodys.mountpoint / f"of-{user}", wanted, user)
    theirs = _outcomes(everybodys.root / f"of-{user}", wanted, user)
    differ = [
        (case, mine, other) for case, mine, other in zip(wanted, ours, theirs, strict=True) if mine != other
    ]
    assert differ == []
