"""hybrisfs versions id, verify and diff: on folders of this disk, and of a daemon whose volumes are none."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.content_ids import ChangedError, DiskTree, compare, root_of
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume

_NAMES = st.sampled_from(["a", "b", "a.b", "a-", "é"])
_FILES = st.tuples(st.sampled_from(["file", "program", "link"]), st.sampled_from(["", "x", "y", "xy"]))
_TREES = st.recursive(
    st.dictionaries(_NAMES, _FILES, max_size=3),
    lambda below: st.dictionaries(_NAMES, st.one_of(_FILES, below), max_size=3),
    max_leaves=6,
)


def _make(folder: Path, tree: dict[str, object], *, reverse: bool = False) -> Path:
    folder.mkdir()
    for name, value in sorted(tree.items(), reverse=reverse):
        path = folder / name
        if isinstance(value, dict):
            _make(path, value, reverse=reverse)
            continue
        assert isinstance(value, tuple)
        kind, content = value
        if kind == "link":
            path.symlink_to(content or "nowhere")
        else:
            path.write_text(content)
            path.chmod(0o755 if kind == "program" else 0o644)
    return folder


def _spelled(tree: dict[str, object]) -> dict[str, object]:
    """A tree as it is made: a link to nothing is one to nowhere."""
    return {
        name: _spelled(one) if isinstance(one, dict) else ("link", "nowhere") if one == ("link", "") else one
        for name, one in tree.items()
    }


def _read(path: Path) -> DiskTree:
    return DiskTree.read(bytes(path), lambda read: None)


@given(_TREES, _TREES)
def test_ids_are_equal_when_trees_are(one: dict[str, object], other: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as rig:
        first = _read(_make(Path(rig, "1"), one))
        again = _read(_make(Path(rig, "2"), one, reverse=True))
        second = _read(_make(Path(rig, "3"), other))
    assert first.digest == again.digest
    found = compare(first, second)
    assert (found.first == found.second) == (_spelled(one) == _spelled(other))
    assert (not found.differences) == (found.first == found.second)


@given(st.integers(1, 40))
def test_the_root_is_that_of_rfc_6962(count: int) -> None:
    leaves = [hashlib.sha256(bytes([i])).digest() for i in range(count)]

    def root(some: list[bytes]) -> bytes:
        if len(some) == 1:
            return some[0]
        left = 1 << (len(some) - 1).bit_length() - 1
        return hashlib.sha256(b"\1" + root(some[:left]) + root(some[left:])).digest()

    assert root_of(leaves) == root(leaves)


def test_an_id_stays_what_it_is(tmp_path: Path, run: Run) -> None:
    """As it is cited: another encoding needs another number before the dash."""
    file = tmp_path / "a"
    file.write_bytes(b"hello")
    leaf = hashlib.sha256(b"\0hello").digest()
    expected = hashlib.sha256(b"hybrisfs file 1\0" + (5).to_bytes(8, "big") + leaf)
    assert run("versions", "id", str(file)).stdout == f"f1-{expected.hexdigest()}\n"
    file.chmod(0o755)
    assert run("versions", "id", str(file)).stdout == f"f1-{expected.hexdigest()}\n"
    folder = hashlib.sha256(b"hybrisfs folder 1\0x\0\0\0\1a" + expected.digest())
    assert run("versions", "id", str(tmp_path)).stdout == f"d1-{folder.hexdigest()}\n"


def test_a_damaged_copy_is_found(tmp_path: Path, run: Run) -> None:
    right = _make(tmp_path / "1", {"d": {"f": ("file", "x"), "g": ("file", "y")}, "e": {}})
    copy = _make(tmp_path / "2", {"d": {"f": ("file", "x"), "g": ("file", "y")}, "e": {}})
    name = run("versions", "id", str(right)).stdout.strip()
    assert run("versions", "verify", name, str(copy)).exit_code == 0
    assert run("versions", "diff", str(right), str(copy)).exit_code == 0
    (copy / "d/g").write_text("z")
    (copy / "e/new").touch()
    assert run("versions", "verify", name, str(copy)).exit_code == 1
    facts = json.loads(run("versions", "diff", str(right), str(copy), "--json").stdout)
    assert [(one["what"], one["path"]) for one in facts["differences"]] == [
        ("changed", "d/g"),
        ("added", "e/new"),
    ]
    assert run("versions", "verify", "d1-12", str(copy)).exit_code == 2
    assert run("versions", "verify", name, str(tmp_path / "none")).exit_code == 1


def test_the_daemon_makes_the_ids_of_a_mounted_volume(photos: FakeVolume, tmp_path: Path, run: Run) -> None:
    photos.mountpoint = tmp_path
    (tmp_path / ".hybrisfs/versions/a").mkdir(parents=True)
    assert run("versions", "id", str(tmp_path / "d/a")).stdout == "f1-d/a\n"
    assert run("versions", "id", str(tmp_path / ".hybrisfs/at/2026-11-20/a")).stdout.startswith(
        "f1-.hybrisfs/at/"
    )
    assert run("versions", "id", str(tmp_path / "a"), "--at", "2026-11-20").stdout == "f1-a@2026-11-20\n"
    assert run("versions", "id", str(tmp_path / ".hybrisfs/versions/a")).stdout.startswith("d1-")
    assert run("versions", "id", "/proc/self", "--at", "2026-11-20").exit_code == 2
    assert run("versions", "diff", str(tmp_path / "a"), str(tmp_path / "a")).exit_code == 0
    found = run("versions", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert found.exit_code == 1
    facts = json.loads(found.stdout)
    assert (facts["first"], facts["second"], len(facts["differences"])) == ("f1-a", "f1-b", 2000)
    assert facts["differences"][-1] == {"what": "changed", "path": "1999"}


def test_what_is_not_as_long_as_it_says_has_no_id() -> None:
    with pytest.raises(ChangedError, match="changed while it was read"):
        _read(Path("/proc/self/stat"))  # it says that it is empty
