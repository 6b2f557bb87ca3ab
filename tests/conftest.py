"""Settings for all tests. Hypothesis is quick by default, thorough with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

_SHM: Final = Path("/dev/shm")
_ROOM: Final = 4 << 30  # bytes that must be free there
_ON_DISK: Final = frozenset({"backends", "mirror", "packaging", "system"})
"""Folders of tests that are about what a disk does."""
_FIRST: Final = frozenset({"crash", "simulation", "system"})
"""Folders of files that take minutes: were they the last ones, only one process would have work."""
_LONG: Final = frozenset(
    {
        "checkpoint/test_state_at_vector.py",
        "docs/test_commands.py",
        "docs/test_pages.py",
        "merge/test_saves.py",
        "merge/test_time_bounds.py",
        "volume/test_hostile_members.py",
        "volume/test_older_versions.py",
        "volume/test_refused_deletions.py",
        "volume/test_stolen_device.py",
        "write/test_cut_order.py",
    }
)
"""Such files of other folders."""

# A shell starts background jobs with SIGINT ignored, and what we start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Daemons that tests start show nothing on the desktop of who runs them.
os.environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent"

# Each rig holds files open until it is collected: more at once than an ordinary user may open unasked.
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))

# A machine that is busy with other work makes examples slow, which says nothing about the code.
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("quick", deadline=None, print_blob=True, suppress_health_check=_CALM)
settings.register_profile("ci", settings.get_profile("quick"), max_examples=45)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))


def _in_memory() -> Path | None:
    """A new folder whose files are in memory, where there is room for them and they can have attributes and
    be run; None elsewhere."""
    try:
        facts = os.statvfs(_SHM)
        if facts.f_bavail * facts.f_frsize < _ROOM or facts.f_flag & os.ST_NOEXEC:
            return None
        folder = Path(tempfile.mkdtemp(prefix="hybrisfs-tests-", dir=_SHM))
    except OSError:
        return None
    try:
        os.setxattr(folder, "user.probe", b"")
    except OSError:
        folder.rmdir()
        return None
    folder.chmod(0o755)  # some tests become other users
    return folder


# Most tests that write files do so to have them read again: syncing them costs more than all the rest.
_MEMORY: Final = _in_memory()
if _MEMORY is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # Pytest's own stay on the disk.
    tempfile.tempdir = str(_MEMORY)


def pytest_unconfigure() -> None:
    if _MEMORY is not None:
        shutil.rmtree(_MEMORY, ignore_errors=True)


def _folder(path: Path) -> str:
    """The folder below this one in which a test is."""
    return path.relative_to(Path(__file__).parent).parts[0]


def _comes_late(path: Path) -> bool:
    """Whether a file may be one of the last ones."""
    return _folder(path) not in _FIRST and path.relative_to(Path(__file__).parent).as_posix() not in _LONG


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _comes_late(item.path))


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the test's own, in memory for most."""
    if _MEMORY is None or _folder(request.path) in _ON_DISK:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
