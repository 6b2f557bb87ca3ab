"""Settings for all tests. Hypothesis is quick by default, thorough with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A shell starts background jobs with SIGINT ignored, and what we start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Daemons that tests start show nothing on the desktop of who runs them.
os.environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent"

# A machine that is busy with other work makes examples slow, which says nothing about the code.
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", deadline=None, print_blob=True, suppress_health_check=_CALM)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=60)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))
