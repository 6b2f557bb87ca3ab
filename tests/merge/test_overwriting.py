"""What others overwrite in mass is shown as it was, until samples are looked at or a person decides."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from hybrisfs.api.decisions import Deletion
from hybrisfs.merge.brake import FEW
from hybrisfs.merge.losses import OLD_NS, YOUNG_NS
from hybrisfs.volume.examiner import PATIENCE, Examiner
from tests.merge.fleet import Device, Fleet
from tests.tree.invariants import check_accounts

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
DAY = 24 * HOUR
VICTIM, SICK, THIRD = range(3)
COUNT = 90


def text(number: int) -> bytes:
    lines = (
        f"chapter {number} line {line}: the water of river {number * line} was cold" for line in range(30)
    )
    return "\n".join(lines).encode()


def photo(number: int, tag: bytes = b"") -> bytes:
    return b"\xff\xd8\xff\xe1" + tag.ljust(64, b"\0") + number.to_bytes(4) * 16 + _noise(number, 6000)


def document(number: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("content.xml", text(number))
    return out.getvalue()


def _noise(seed: int, size: int) -> bytes:
    return b"".join(_hash(seed, block) for block in range(size // 32))


def _hash(seed: int, block: int) -> bytes:
    return hashlib.sha256(b"%d %d" % (seed, block)).digest()


def home() -> dict[str, bytes]:
    """A bit of everything, as people have it."""
    found: dict[str, bytes] = {}
    for number in range(COUNT):
        make = (text, photo, document)[number % 3]
        found[f"file {number}.{('txt', 'jpg', 'docx')[number % 3]}"] = make(number)
    return found


@contextmanager
def past(fleet: Fleet, ago_ns: int) -> Iterator[None]:
    for device in fleet.devices:
        device.rig.around.ahead_ns = -ago_ns
    yield
    for device in fleet.devices:
        device.rig.around.ahead_ns = 0


def fleet_with(files: Mapping[str, bytes], age: int = 30 * DAY) -> Fleet:
    """Three devices, one of which has made these files so long ago."""
    fleet = Fleet(3)
    with past(fleet, age):
        for path, content in files.items():
            fleet[VICTIM].write(path, content)
        fleet.meet()
    return fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = fleet_with(home())
    yield fleet
    fleet.discard()


def examine(device: Device) -> bool:
    """Look at samples; whether all that is suspected is settled."""
    rig = device.rig
    Examiner(rig.fs, rig.sharing.deletions, rig.fetcher).step()
    return not rig.sharing.deletions.suspicions()


def waiting(device: Device) -> list[Deletion]:
    return device.rig.sharing.deletions.all()


def asked(device: Device) -> list[tuple[int, int, bool]]:
    """What a person is asked about: names, of how many, and whether they are overwritten."""
    return [(one.names, one.of, one.overwrites) for one in waiting(device) if one.examined]


def shown(device: Device) -> dict[str, bytes]:
    return {path: one.content for path, one in device.tree().items()}


def encrypt(device: Device, path: str) -> None:
    device.write(path, os.urandom(len(device.read(path)) + 48))


def encrypt_and_rename(device: Device, path: str) -> None:
    encrypt(device, path)
    device.move(path, f"{path}.locked")


def encrypt_beside(device: Device, path: str) -> None:
    device.write(f"{path}.locked", os.urandom(len(device.read(path))))
    device.remove(path)


def encrypt_under_another_ending(device: Device, path: str) -> None:
    device.write(f"{path.rpartition('.')[0]}.crypt", os.urandom(len(device.read(path))))
    device.remove(path)


def encrypt_by_replacing(device: Device, path: str) -> None:
    device.write("temporary", os.urandom(len(device.read(path))))
    device.move("temporary", path)


def encrypt_the_beginning(device: Device, path: str) -> None:
    content = device.read(path)
    device.write(path, os.urandom(min(4096, len(content))) + content[4096:])


WAYS = [
    encrypt,
    encrypt_and_rename,
    encrypt_beside,
    encrypt_under_another_ending,
    encrypt_by_replacing,
    encrypt_the_beginning,
]


def run(
    fleet: Fleet, change: Callable[[Device, str], None], paths: list[str], *, signed_every: int = 10
) -> None:
    """One device changes these files, a few with each update, and the victim gets each update at once."""
    for number, path in enumerate(paths):
        change(fleet[SICK], path)
        if number % signed_every == signed_every - 1:
            fleet.send(SICK, VICTIM)
    fleet.send(SICK, VICTIM)


# -- ransomware ----------------------------------------------------------------------------------


@pytest.mark.parametrize("change", WAYS)
def test_what_ransomware_writes_waits_and_is_undone_everywhere(
    fleet: Fleet, change: Callable[[Device, str], None]
) -> None:
    before = shown(fleet[VICTIM])
    run(fleet, change, sorted(before))
    assert examine(fleet[VICTIM])
    [one] = waiting(fleet[VICTIM])
    assert one.examined
    assert one.names >= COUNT - FEW - 10, "what came before it was too much is shown"
    check_accounts(fleet[VICTIM].rig, [])
    fleet[VICTIM].rig.sharing.deletions.undo(one.id)
    fleet.meet()
    check_accounts(fleet[VICTIM].rig, [])
    for device in fleet.devices:
        found = shown(device)
        assert {path: found[path] for path in before if path in found} == before
        for path in before:
            assert found[path] == before[path]
    assert waiting(fleet[VICTIM]) == []
    if change not in (encrypt_beside, encrypt_under_another_ending):
        assert shown(fleet[SICK]) == before


@pytest.mark.parametrize("change", WAYS)
def test_a_person_may_let_it_happen(fleet: Fleet, change: Callable[[Device, str], None]) -> None:
    run(fleet, change, sorted(shown(fleet[VICTIM])))
    assert examine(fleet[VICTIM])
    for one in waiting(fleet[VICTIM]):
        fleet[VICTIM].rig.sharing.deletions.accept(one.id)
    assert shown(fleet[VICTIM]) == shown(fleet[SICK])
    assert not fleet[VICTIM].rig.fs.changes.held
    check_accounts(fleet[VICTIM].rig, [])


def test_nobody_is_asked_before_samples_are_looked_at(fleet: Fleet) -> None:
    before = shown(fleet[VICTIM])
    run(fleet, encrypt, sorted(before), signed_every=COUNT)
    assert [one.examined for one in waiting(fleet[VICTIM])] == [False]
    assert shown(fleet[VICTIM]) == before
    examine(fleet[VICTIM])
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]


def test_samples_are_looked_at_after_a_restart(fleet: Fleet) -> None:
    before = shown(fleet[VICTIM])
    run(fleet, encrypt, sorted(before), signed_every=COUNT)
    fleet[VICTIM].restore(fleet[VICTIM].saved())
    assert shown(fleet[VICTIM]) == before
    examine(fleet[VICTIM])
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]


def test_while_no_sample_can_be_read_it_waits_and_then_a_person_is_asked(fleet: Fleet) -> None:
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    rig = fleet[VICTIM].rig
    examiner = Examiner(rig.fs, rig.sharing.deletions, rig.fetcher)
    rig.clouds.down = True
    assert 0 < examiner.step().most < PATIENCE
    assert asked(fleet[VICTIM]) == []
    rig.around.passed += PATIENCE
    examiner.step()
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]
    rig.clouds.down = False


def test_looks_become_rare_when_they_are_many(fleet: Fleet) -> None:
    rig = fleet[VICTIM].rig
    examiner = Examiner(rig.fs, rig.sharing.deletions, rig.fetcher)
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    rig.clouds.down = True  # so that each step is a look
    rests = [examiner.step().least for _ in range(30)]
    assert rests[:10] == [0.0] * 10
    assert rests[10:] == [10.0 * number for number in range(1, 21)]
    rig.around.passed += 3600 + MINUTE / 1e9
    assert examiner.step().least == 0.0
    rig.clouds.down = False


def test_few_files_are_nobodys_concern(fleet: Fleet) -> None:
    run(fleet, encrypt, sorted(home())[:FEW])
    assert waiting(fleet[VICTIM]) == []
    assert shown(fleet[VICTIM]) == shown(fleet[SICK])


def test_what_has_changed_within_the_hour_is_no_loss() -> None:
    fleet = fleet_with(home(), age=YOUNG_NS // 2)
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    assert waiting(fleet[VICTIM]) == []
    fleet.discard()


def test_all_else_of_the_device_is_shown(fleet: Fleet) -> None:
    before = shown(fleet[VICTIM])
    victims = sorted(before)[:66]
    run(fleet, encrypt, victims, signed_every=66)
    examine(fleet[VICTIM])
    fleet[SICK].write("later", b"depends on all of that")
    for path in sorted(before)[66:]:
        if path.endswith(".txt"):
            fleet[SICK].write(path, before[path] + b"\nand one more line")
    fleet.send(SICK, VICTIM)
    assert examine(fleet[VICTIM])
    found = shown(fleet[VICTIM])
    assert {path: found[path] for path in victims} == {path: before[path] for path in victims}
    others = shown(fleet[SICK])
    assert {path: one for path, one in found.items() if path not in victims} == {
        path: one for path, one in others.items() if path not in victims
    }
    assert asked(fleet[VICTIM]) == [(66, COUNT, True)]


def test_what_comes_of_it_later_waits_together_with_it(fleet: Fleet) -> None:
    before = shown(fleet[VICTIM])
    for first in (0, 51):
        run(fleet, encrypt, sorted(before)[first : first + 51], signed_every=51)
        examine(fleet[VICTIM])
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]
    encrypt(fleet[SICK], "file 0.txt")  # once more
    fleet.send(SICK, VICTIM)
    examine(fleet[VICTIM])
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]
    assert shown(fleet[VICTIM]) == before


def test_what_another_device_writes_since_is_shown(fleet: Fleet) -> None:
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    examine(fleet[VICTIM])
    fleet[THIRD].rig.sharing.brake.share = 1.0
    fleet[THIRD].receive(fleet[SICK].log())
    fleet[THIRD].write("file 0.txt", b"written by somebody who knows")
    fleet.send(THIRD, VICTIM)
    assert fleet[VICTIM].read("file 0.txt") == b"written by somebody who knows"
    assert asked(fleet[VICTIM]) == [(COUNT - 1, COUNT, True)]


def test_what_was_encrypted_stays_as_a_version(fleet: Fleet) -> None:
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    encrypted = fleet[SICK].read("file 1.jpg")
    examine(fleet[VICTIM])
    fleet[VICTIM].rig.sharing.deletions.undo(waiting(fleet[VICTIM])[0].id)
    fleet.meet()
    rig = fleet[SICK].rig
    values = rig.db.rows.execute(
        "SELECT count(*) FROM past WHERE key = ?", (b"c" + fleet[SICK].at("file 1.jpg").id,)
    ).fetchone()
    assert values == (2,), "what it was at first, and what it was encrypted to"
    assert encrypted != fleet[SICK].read("file 1.jpg")


def test_nothing_waits_when_all_may_be_overwritten(fleet: Fleet) -> None:
    fleet[VICTIM].rig.sharing.brake.share = 1.0
    run(fleet, encrypt, sorted(home()), signed_every=COUNT)
    assert waiting(fleet[VICTIM]) == []
    assert shown(fleet[VICTIM]) == shown(fleet[SICK])


def test_what_is_held_is_listed_file_by_file(fleet: Fleet) -> None:
    before = shown(fleet[VICTIM])
    run(fleet, encrypt, sorted(before), signed_every=COUNT)
    deletions = fleet[VICTIM].rig.sharing.deletions
    files, count = deletions.files(deletions.all()[0].id)
    assert count == COUNT
    assert [(one.path, one.change, one.before, one.now) for one in files] == [
        (path, "overwritten", len(content), len(content) + 48) for path, content in sorted(before.items())
    ]


# -- what is no loss -----------------------------------------------------------------------------


def reformatted(number: int, content: bytes) -> bytes:
    return b"    " + content.replace(b"\n", b"\n    ") + b"\n"


def tagged(number: int, content: bytes) -> bytes:
    return photo(number, b"Exif: holiday in the mountains")


def compiled(number: int, content: bytes = b"") -> bytes:
    return b"\x7fELF\2\1\1" + _noise(number + 1000, 4000)


def dumped(number: int, content: bytes = b"") -> bytes:
    return gzip.compress(text(number + 1))


def written(number: int, content: bytes) -> bytes:
    return content + b"one more line of a log\n"


def reencrypted(number: int, content: bytes) -> bytes:
    return _noise(number + 5000, 3000)


BENIGN: dict[str, tuple[Callable[[int], bytes], Callable[[int, bytes], bytes]]] = {
    "source is formatted": (text, reformatted),
    "photos get tags": (photo, tagged),
    "objects are built again": (compiled, lambda number, _: compiled(number + 1, b"")),
    "dumps are made again": (dumped, lambda number, _: dumped(number + 1, b"")),
    "logs grow": (text, written),
    "a vault gets another key": (lambda number: _noise(number, 3000), reencrypted),
    "texts are packed": (text, lambda number, content: gzip.compress(content)),
}


@pytest.mark.parametrize("age", [2 * HOUR, 30 * DAY])
@pytest.mark.parametrize("what", BENIGN)
def test_what_programs_do_for_good_reasons_passes(what: str, age: int) -> None:
    make, change = BENIGN[what]
    made = {f"file {number}": make(number) for number in range(COUNT)}
    rest = {
        f"other {number}": text(number) for number in range(4 * COUNT)
    }  # or all of old files are replaced
    fleet = fleet_with({**made, **rest}, age)
    for number, (path, content) in enumerate(made.items()):
        fleet[SICK].write(path, change(number, content))
    fleet.send(SICK, VICTIM)
    assert examine(fleet[VICTIM])
    assert waiting(fleet[VICTIM]) == []
    assert shown(fleet[VICTIM]) == shown(fleet[SICK])
    check_accounts(fleet[VICTIM].rig, [])
    fleet.discard()


@pytest.mark.parametrize("what", ["source is formatted", "logs grow"])
def test_a_volume_of_texts_may_change_as_a_whole(what: str) -> None:
    make, change = BENIGN[what]
    fleet = fleet_with({f"file {number}": make(number) for number in range(COUNT)}, OLD_NS + DAY)
    for number in range(COUNT):
        fleet[SICK].write(f"file {number}", change(number, make(number)))
    fleet.send(SICK, VICTIM)
    assert [one.examined for one in waiting(fleet[VICTIM])] == [False]
    assert examine(fleet[VICTIM])
    assert waiting(fleet[VICTIM]) == []
    assert shown(fleet[VICTIM]) == shown(fleet[SICK])
    fleet.discard()


def test_a_volume_of_old_files_that_are_others_now_waits() -> None:
    """Though each is of the kind that it was: nothing of what was there for weeks is there."""
    fleet = fleet_with({f"file {number}": photo(number) for number in range(COUNT)}, OLD_NS + DAY)
    for number in range(COUNT):
        fleet[SICK].write(f"file {number}", photo(number + 1000))
    fleet.send(SICK, VICTIM)
    examine(fleet[VICTIM])
    assert asked(fleet[VICTIM]) == [(COUNT, COUNT, True)]
    fleet.discard()
