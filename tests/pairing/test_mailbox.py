"""One side's place on one cloud, over real folders, and clouds that lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import TransientError
from backends.file import FileStore
from backends.store import is_name
from hybrisfs.pairing.code import invite_id
from hybrisfs.pairing.handshake import MAX_MESSAGE
from hybrisfs.pairing.mailbox import MAX_JOINER_MESSAGE, Mailbox, Side
from tests.adversary import Fault, FaultyStore
from tests.pairing.support import CODE

DAY = 24 * 3600
FOLDER = f"pair/{invite_id(CODE.secret).hex()}"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    store = FileStore(f"file://{tmp_path}/cloud")
    store.initialise()
    return store


def names(store: FileStore) -> tuple[str, ...]:
    return store.list("").names


def test_both_sides_speak_and_hear(store: FileStore) -> None:
    one, two = Mailbox(store, CODE, Side.INVITER), Mailbox(store, CODE, Side.JOINER)
    one.open()
    assert one.look(1) == two.look(1) == []
    assert two.post(1, b"hello") is None
    assert one.look(1) == [b"hello"]
    assert one.look(1) == []  # each thing once
    assert one.post(1, b"offer") is None
    assert two.look(1) == [b"offer"]
    assert two.look(2) == []
    assert all(is_name(name) and name.startswith(f"{FOLDER}/") for name in names(store))
    assert CODE.secret.hex() not in "".join(names(store))


def test_posting_again_does_no_harm_and_nothing_is_overwritten(store: FileStore) -> None:
    one, two = Mailbox(store, CODE, Side.JOINER), Mailbox(store, CODE, Side.JOINER)
    assert one.post(1, b"hello") is None
    assert one.post(1, b"hello") is None
    assert two.post(1, b"another") == b"hello"
    assert Mailbox(store, CODE, Side.INVITER).look(1) == [b"hello"]


def test_after_closing_only_the_notice_is_there(store: FileStore) -> None:
    one, two = Mailbox(store, CODE, Side.INVITER), Mailbox(store, CODE, Side.JOINER)
    one.open()
    for number in (1, 2, 3):
        two.post(number, b"said")
        one.post(number, b"said")
    one.close(b"closed")
    assert names(store) == (f"{FOLDER}/until-{CODE.expires}",)
    assert Mailbox(store, CODE, Side.JOINER).look(1) == [b"closed"]


def test_a_joiner_takes_back_its_own_messages_only(store: FileStore) -> None:
    one, two = Mailbox(store, CODE, Side.INVITER), Mailbox(store, CODE, Side.JOINER)
    one.open()
    one.post(1, b"offer")
    two.post(1, b"hello")
    two.withdraw()
    assert names(store) == (f"{FOLDER}/inviter-1", f"{FOLDER}/until-{CODE.expires}")


def test_oversize_objects_are_not_read(store: FileStore) -> None:
    store.put(f"{FOLDER}/joiner-1", bytes(MAX_JOINER_MESSAGE + 1))
    store.put(f"{FOLDER}/inviter-1", bytes(MAX_MESSAGE + 1))
    assert Mailbox(store, CODE, Side.INVITER).look(1) == []
    assert Mailbox(store, CODE, Side.JOINER).look(1) == []


def test_a_cloud_that_says_something_else_each_time_is_heard_a_few_times_only(store: FileStore) -> None:
    mailbox = Mailbox(store, CODE, Side.INVITER)
    heard = 0
    for lie in range(100):
        store.put(f"{FOLDER}/joiner-1", b"lie %d" % lie)
        heard += len(mailbox.look(1))
    assert heard == 16


def test_an_unreachable_cloud_is_an_error(store: FileStore) -> None:
    mailbox = Mailbox(FaultyStore(store, 1, [Fault("fail")]), CODE, Side.JOINER)
    with pytest.raises(TransientError):
        mailbox.post(1, b"hello")
    with pytest.raises(TransientError):
        mailbox.look(1)


def test_old_invitations_are_swept_and_nothing_else(store: FileStore) -> None:
    old = replace(CODE, secret=b"o" * 16, expires=CODE.expires - 2 * DAY)
    recent = replace(CODE, secret=b"r" * 16, expires=CODE.expires - DAY // 2)
    for code in (old, recent, CODE):
        inviter, joiner = Mailbox(store, code, Side.INVITER), Mailbox(store, code, Side.JOINER)
        inviter.open()
        inviter.post(1, b"offer")
        joiner.post(1, b"hello")
    others = ["volume", "pair/notes", "pair/until-1", f"{'pair/' + 'f' * 32}/other", "packs/ab/until-1"]
    for name in others:
        store.put(name, b"kept")
    Mailbox(store, CODE, Side.INVITER).sweep(float(CODE.expires))
    left = names(store)
    assert set(others) <= set(left)
    assert not [name for name in left if invite_id(old.secret).hex() in name]
    for code in (recent, CODE):
        assert len([name for name in left if invite_id(code.secret).hex() in name]) == 3
