"""A member signs untruths about packs: nobody loses content by it, and no cloud is accused for it.

The victim is `first`. What `second` signs is well formed and signed with its own key, but untrue.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from unittest import mock

import pytest
from msgspec import structs

from hybrisfs.gc.limits import GcLimits
from hybrisfs.registers.proposals import Answer, Answers, Proposal, Stage, answers_key, proposal_key
from hybrisfs.registers.tree import PackedChunk, PackRecord, Rewritten, pack_key, rewritten_key
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.versions.retention import parse_retention
from sync import Write
from tests.system.deadline import until
from tests.tree.unlocked import unlocked
from tests.volume.device import NAME, Device, Second
from tests.volume.test_garbage import collect, noise, packs, remove

MIB: Final = 1 << 20
NOWHERE: Final = bytes(range(32))  # a pack that nobody has made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Device, Second]]:
    """Two devices; the first deletes at once what nobody needs. Nothing is done in the background for it."""
    with ExitStack() as stack:
        first = Device(tmp_path, limits=[GcLimits(step_seconds=3600.0)])
        stack.callback(first.close)
        first.close()
        config = VolumeConfig.load(first.home, NAME)
        structs.replace(config, discard_hours=0, keep_versions=parse_retention("off")).save(first.home)
        first.reopen()
        second = Second(tmp_path / "second", first)
        stack.callback(second.close)
        yield first, second


def written(first: Device, second: Device, seed: int = 1) -> bytes:
    """The content of a file that the first has written, which is on the clouds and known to the second."""
    content = noise(seed, MIB)
    first.write("file", content)
    first.sync()
    until(lambda: knows(second), "the second to hear of the file")
    return content


def knows(device: Device) -> bool:
    device.volume.signals.look_around()
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        if fs.lookup(tx, ROOT_INO, b"file") is None:
            return False
        return tx.execute("SELECT 1 FROM chunk WHERE ifnull(pack, 0) = 0").fetchone() is None


def said(liar: Device, victim: Device, writes: Sequence[Write]) -> None:
    """The victim hears what the liar signs."""
    volume = liar.volume
    with volume.fs.state.log_transaction() as tx:
        unlocked(volume.fs).updates.sign(writes, time.time_ns(), 0)
        log = [row[0] for row in tx.execute("SELECT bytes FROM log ORDER BY number")]
    assert victim.volume.sharing.receiver.receive([one for one in log if one is not None])


def on_record(device: Device) -> dict[bytes, PackRecord]:
    """The packs with chunks that this device reads from them."""
    db = unlocked(device.volume.fs)
    with device.volume.fs.state.transaction():
        return {
            identity: PackRecord(
                k,
                n,
                placement,
                [
                    PackedChunk(*row)
                    for row in db.execute(
                        "SELECT id, offset, sealed, length FROM chunk WHERE pack = ?", (number,)
                    )
                ],
            )
            for number, identity, k, n, placement in db.execute(
                "SELECT number, id, k, n, placement FROM pack WHERE n > 0"
            ).fetchall()
        }


def read_from_the_clouds(device: Device) -> bytes:
    device.volume.drop_cache()
    device.reopen()
    return device.read("file")


def check_unharmed(first: Device, content: bytes, shares: dict[str, int]) -> None:
    """The content is there, no share is gone, no cloud is accused."""
    assert read_from_the_clouds(first) == content
    collect(first)
    assert packs(first).keys() >= shares.keys()
    assert read_from_the_clouds(first) == content
    assert [one.state for one in first.volume.engine.health()] == ["ok"] * 3
    assert first.volume.maintenance.repair(lambda stage, done, total: None).failures == []
    assert first.fsck(clouds=True).problems == []


def test_packs_do_not_end_because_one_member_says_so(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = written(first, second)
    shares = packs(first)
    first.volume.drop_cache()
    said(second, first, [(pack_key(pack), None) for pack in on_record(second)])
    check_unharmed(first, content, shares)
    with first.volume.fs.state.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM pack WHERE n = 0").fetchone() == (0,)
    first.write("equal", content)
    first.sync()
    assert packs(first) == shares  # what is relied on still is put once


def test_a_proposal_that_others_have_not_agreed_to_ends_nothing(pair: tuple[Device, Second]) -> None:
    """The liar proposes the pack and agrees for itself; then it ends it."""
    first, second = pair
    content = written(first, second)
    shares, device = packs(first), second.volume.sharing.device
    first.volume.drop_cache()
    proposal = Proposal(1, tuple(on_record(second)))
    agreed = Answers({proposal.id_for(device): Answer(Stage.AGREED)})
    said(second, first, [(proposal_key(device), proposal.encode()), (answers_key(device), agreed.encode())])
    said(second, first, [(pack_key(pack), None) for pack in proposal.packs])
    check_unharmed(first, content, shares)


def test_what_only_one_device_has_stays_there_whoever_claims_it(pair: tuple[Device, Second]) -> None:
    first, second = pair
    first.volume.transfers.pause(None)
    content = noise(1, 2 * MIB)
    first.write("file", content)
    assert first.volume.uploads.wait_signed(60.0)
    with first.volume.fs.state.transaction() as tx:
        mine = tx.execute("SELECT id, length FROM chunk WHERE pack IS NULL").fetchall()
    assert mine
    pending = first.volume.status().pending_bytes
    false = PackRecord(1, 2, b"\0\1", [PackedChunk(one, 100, length // 2, 5) for one, length in mine])
    said(second, first, [(pack_key(NOWHERE), false.encode())])
    assert first.volume.status().pending_bytes == pending
    assert first.volume.drop_cache().freed_bytes == 0
    assert first.read("file") == content
    first.reopen()
    assert first.volume.status().pending_bytes == pending
    assert first.read("file") == content
    first.volume.transfers.resume()
    first.sync()
    check_unharmed(first, content, packs(first))


def test_a_pack_that_took_the_place_of_another_is_read_before_it_counts(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = written(first, second)
    shares = packs(first)
    for former, record in on_record(second).items():
        false = structs.replace(record, placement=b"\1\2")
        rewritten = Rewritten((NOWHERE,)).encode()
        said(second, first, [(pack_key(NOWHERE), false.encode()), (rewritten_key(former), rewritten)])
        # It wants the former one gone, and looks after it.
        said(second, first, [(pack_key(former), record.encode())])
        proposal = Proposal(1, (former,))
        device = second.volume.sharing.device
        said(second, first, [(proposal_key(device), proposal.encode())])
        answers = Answers({proposal.id_for(device): Answer(Stage.PROMISED)})
        said(second, first, [(answers_key(device), answers.encode())])
    first.reopen()  # so that the new pack is old enough for a check-up to ask for it
    first.volume.drop_cache()
    assert [one.state for one in first.volume.engine.health()] == ["ok"] * 3
    collect(first)
    book = first.volume.collector._participant.assembly(unlocked(first.volume.fs)).book()
    (listed,) = [one for one in book.lists if one.proposer == second.volume.sharing.device]
    assert book.answer(first.volume.sharing.device, listed.id).refused == (0,)
    check_unharmed(first, content, shares)


def test_without_a_word_of_rewriting_a_claim_does_not_make_the_former_pack_dispensable(
    pair: tuple[Device, Second],
) -> None:
    first, second = pair
    content = written(first, second)
    shares, device = packs(first), second.volume.sharing.device
    for former, record in on_record(second).items():
        said(second, first, [(pack_key(NOWHERE), record.encode())])
        proposal = Proposal(1, (former,))
        said(second, first, [(proposal_key(device), proposal.encode())])
        answers = Answers({proposal.id_for(device): Answer(Stage.PROMISED)})
        said(second, first, [(answers_key(device), answers.encode())])
    collect(first)
    book = first.volume.collector._participant.assembly(unlocked(first.volume.fs)).book()
    (listed,) = [one for one in book.lists if one.proposer == device]
    assert book.answer(first.volume.sharing.device, listed.id).refused == (0,)
    check_unharmed(first, content, shares)


def test_a_share_is_found_where_it_is_whatever_a_member_says(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = written(first, second)
    shares = packs(first)
    for pack, record in on_record(second).items():
        taken = set(record.placement)
        free = [cloud.number for cloud in first.volume.config.clouds if cloud.number not in taken]
        wrong = bytes([free[0], record.placement[0]])
        said(second, first, [(pack_key(pack), structs.replace(record, placement=wrong).encode())])
    assert read_from_the_clouds(first) == content
    assert [one.state for one in first.volume.engine.health()] == ["ok"] * 3
    report = first.volume.maintenance.repair(lambda stage, done, total: None)
    assert report.failures == []
    assert packs(first).keys() >= shares.keys()
    assert read_from_the_clouds(first) == content
    assert first.fsck(clouds=True).problems == []


def test_a_pack_has_the_code_that_it_was_made_with(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = written(first, second)
    for pack, record in on_record(second).items():
        other = structs.replace(record, n=3, placement=b"\2\2\2")
        said(second, first, [(pack_key(pack), other.encode())])
    check_unharmed(first, content, packs(first))


def test_a_false_claim_that_came_first_does_not_hide_the_true_one(pair: tuple[Device, Second]) -> None:
    """Both are of the same member, and the false one has a length of its own."""
    first, second = pair
    content = noise(7, MIB // 16)  # one chunk
    identity = second.volume.sealer.chunk_id(content)
    false = PackRecord(1, 2, b"\0\1", [PackedChunk(identity, 3, 999, MIB // 32)])
    said(second, first, [(pack_key(NOWHERE), false.encode())])
    second.write("file", content)
    second.sync()
    until(lambda: knows(first), "the first to hear of the file")
    assert first.read("file") == content
    assert [one.state for one in first.volume.engine.health()] == ["ok"] * 3
    assert first.fsck(clouds=True).problems == []


def test_what_is_written_after_a_false_claim_is_brought_to_the_clouds(pair: tuple[Device, Second]) -> None:
    """The claimant shows the same bytes in a file of its own, but the first one never had them from there."""
    first, second = pair
    content = noise(8, MIB)
    second.volume.transfers.pause(None)
    second.write("bait", content)
    assert second.volume.uploads.wait_signed(60.0)
    with second.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT id, length FROM chunk WHERE pack IS NULL").fetchall()
    assert rows
    false = PackRecord(1, 2, b"\0\1", [PackedChunk(one, 100, length // 2, length) for one, length in rows])
    said(second, first, [(pack_key(NOWHERE), false.encode())])
    first.write("file", content)
    first.sync()
    assert not on_record(first)[NOWHERE].chunks
    assert first.volume.drop_cache().freed_bytes == len(content)
    check_unharmed(first, content, packs(first))


def test_what_another_has_put_there_is_not_put_there_again(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = noise(10, MIB)
    second.write("theirs", content)
    second.sync()
    until(lambda: has(first, "theirs"), "the first to hear of the file")
    shares = packs(first)
    first.write("file", content)
    first.sync()
    assert packs(first) == shares
    assert read_from_the_clouds(first) == content


def test_no_cloud_is_asked_to_have_a_pack_that_a_member_has_made_up(pair: tuple[Device, Second]) -> None:
    first, second = pair
    content = written(first, second)
    false = PackRecord(1, 2, b"\0\1", [PackedChunk(noise(9, 32), 3, 999, MIB)])
    said(second, first, [(pack_key(NOWHERE), false.encode())])
    for _ in range(2):
        first.reopen()
        first.volume.drop_cache()
        assert [one.state for one in first.volume.engine.health()] == ["ok"] * 3
    assert first.read("file") == content


def test_what_all_have_agreed_on_ends(pair: tuple[Device, Second]) -> None:
    """As a control: with consent, an end counts for whoever hears of it."""
    first, second = pair
    written(first, second)
    remove(first, "file")
    first.sync()
    second.volume.settings.edit({"keep_versions": "off"})

    def is_gone() -> bool:
        for one in (first, second):
            one.volume.signals.look_around()
            one.volume.thinner.thin(time.time_ns())
            collect(one)
        return packs(first) == {}

    until(is_gone, "the packs to be gone")
    until(
        lambda: (
            unlocked(second.volume.fs).execute("SELECT count(*) FROM pack WHERE n > 0").fetchone() == (0,)
        ),
        "the second to hear of the end",
    )


# -- what came over a link ---------------------------------------------------------------------------


@pytest.fixture
def author(pair: tuple[Device, Second], tmp_path: Path) -> Iterator[Second]:
    """A third device that reaches no cloud."""
    first, second = pair
    second.write("bait", noise(100, MIB))
    second.sync()
    author = Second(tmp_path / "author", first)
    author.volume.transfers.pause(None)
    yield author
    author.close()


def linked(author: Device, first: Device, content: bytes) -> list[tuple[bytes, int]]:
    """The author writes a file, and the first reads it over a link; the ids and lengths of its chunks."""
    author.write("file", content)
    assert author.volume.uploads.wait_signed(60.0)
    there = author.volume.fs
    with there.state.transaction() as tx:
        log = [row[0] for row in tx.execute("SELECT bytes FROM log ORDER BY number")]
        mine = tx.execute("SELECT id, length FROM chunk WHERE pack IS NULL").fetchall()
        refs = [tx.chunks.get(number) for (number,) in tx.execute("SELECT number FROM chunk")]
        bytes_of = {ref.id: tx.chunks.read(ref, 0, ref.length) for ref in refs}
    assert first.volume.sharing.receiver.receive([one for one in log if one is not None])
    with mock.patch.object(
        first.volume.links, "fetch_chunks", lambda ids, _: [bytes_of.get(one) for one in ids]
    ):
        assert first.read("file") == content
    return mine


def claim(second: Second, first: Device, chunks: Sequence[tuple[bytes, int]]) -> None:
    """The second says that these chunks are in a pack of its own, which the clouds have indeed."""
    pack, record = next(iter(on_record(second).items()))
    false = [PackedChunk(one, 0, length // 2, length) for one, length in chunks]
    said(second, first, [(pack_key(pack), structs.replace(record, chunks=false).encode())])


def check_kept(first: Device, content: bytes, name: str = "file") -> None:
    """Nobody but this device has the content, and it knows that."""
    assert first.volume.status().machines_only.files > 0
    assert first.fsck().problems == []  # no cloud ever had it
    first.volume.drop_cache()
    assert first.read(name) == content
    first.reopen()
    first.volume.drop_cache()
    assert first.read(name) == content


def test_what_came_over_a_link_is_kept_whoever_else_claims_it(
    pair: tuple[Device, Second], author: Second
) -> None:
    first, second = pair
    content = noise(3, 2 * MIB)
    chunks = linked(author, first, content)
    author.close()  # stolen
    claim(second, first, chunks)
    check_kept(first, content)
    first.sync()  # it puts there what the author cannot
    check_unharmed(first, content, packs(first))


def test_nor_is_it_let_go_for_one_who_names_it_in_a_file_of_its_own(
    pair: tuple[Device, Second], author: Second
) -> None:
    first, second = pair
    content = noise(4, 2 * MIB)
    chunks = linked(author, first, content)
    author.close()
    second.volume.transfers.pause(None)
    second.write("copy", content)  # of what it got over a link, too
    assert second.volume.uploads.wait_signed(60.0)
    claim(second, first, chunks)
    check_kept(first, content)
    check_kept(first, content, "copy")


def test_nor_for_one_who_writes_over_the_file(pair: tuple[Device, Second], author: Second) -> None:
    first, second = pair
    content = noise(5, 2 * MIB)
    chunks = linked(author, first, content)
    with author.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT bytes FROM log ORDER BY number").fetchall()
    author.close()
    second.volume.sharing.receiver.receive([data for (data,) in rows if data is not None])
    second.volume.transfers.pause(None)
    second.write("file", b"something else")
    assert second.volume.uploads.wait_signed(60.0)
    claim(second, first, chunks)
    first.volume.drop_cache()
    with first.volume.fs.state.transaction() as tx:
        here = {one for (one,) in tx.execute("SELECT id FROM chunk WHERE segment > 0")}
    assert {one for one, _ in chunks} <= here


def test_the_word_of_the_author_is_enough(pair: tuple[Device, Second], author: Second) -> None:
    """Nothing is read anew of what came over a link and its author brings to the clouds."""
    first, _ = pair
    content = noise(6, 2 * MIB)
    linked(author, first, content)
    author.volume.transfers.resume()
    author.sync()
    until(lambda: knows(first), "the first to hear where it is")
    assert first.volume.status().machines_only.files == 0
    assert first.volume.drop_cache().freed_bytes >= len(content)
    assert first.read("file") == content


def test_the_true_word_of_another_is_believed_once_it_was_read_there(
    pair: tuple[Device, Second], author: Second
) -> None:
    first, second = pair
    content = noise(7, 2 * MIB)
    linked(author, first, content)
    with author.volume.fs.state.transaction() as tx:
        rows = tx.execute("SELECT bytes FROM log ORDER BY number").fetchall()
    author.close()
    second.volume.sharing.receiver.receive([data for (data,) in rows if data is not None])
    second.write("copy", content)
    second.sync()
    shares = packs(second)
    until(lambda: has(first, "copy"), "the first to hear of the copy")
    first.sync()
    assert packs(first) == shares  # it was not put there once more
    assert first.volume.drop_cache().freed_bytes >= len(content)
    assert first.read("file") == content


def has(device: Device, name: str) -> bool:
    device.volume.signals.look_around()
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, ROOT_INO, name.encode()) is not None
