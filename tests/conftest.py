"""Settings of Hypothesis for all tests: quick by default, longer with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A machine that is busy with other work makes examples slow, which says nothing about the code.
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", deadline=None, print_blob=True, suppress_health_check=_CALM)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=60)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))
