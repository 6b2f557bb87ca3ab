"""Whole pairings, over folders that play the clouds, loopback, and both; and what must not come of them."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from msgspec import structs

from backends.errors import AuthError
from backends.file import FileStore
from backends.store import Store
from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.errors import UsageError
from hybrisfs.pairing.code import PairingCode, invite_id, new_code
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.pairing.lan import Listener
from hybrisfs.pairing.mailbox import Mailbox, MailboxLimits, Side
from hybrisfs.pairing.messages import Offer, Peer
from hybrisfs.pairing.protocol import Joiner, State
from hybrisfs.pairing.session import Admitted, Joined, run_inviter, run_joiner
from sync.identity import DeviceKey
from tests.adversary import Fault, FaultyStore
from tests.pairing.support import GRANT, INVITER, JOINER, OTHER
from tests.surroundings import at

PAUSE = 0.01  # seconds between looks at a folder
LIMITS = Limits(MailboxLimits(pause=PAUSE, grace=2.0))
WAIT = 60.0  # seconds after which a test fails
LAPTOP, DESKTOP = Peer(INVITER.public, "laptop"), Peer(JOINER.public, "desktop")


@dataclass
class Person:
    """Looks at one device and says what was planned."""

    says: Callable[[], bool] = lambda: True
    shown: list[str] = field(default_factory=list)
    asked: list[Peer] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def dialogue(self) -> Dialogue:
        def confirm(peer: Peer) -> bool:
            self.asked.append(peer)
            return self.says()

        return Dialogue(self.shown.append, confirm, self.told.append)


class Volume:
    """What lets devices in, or takes an offer."""

    def __init__(self) -> None:
        self.admitted: list[Peer] = []
        self.refuses = False

    def admit(self, joiner: Peer) -> None:
        self.admitted.append(joiner)

    def check(self, offer: Offer) -> None:
        assert (offer.volume, offer.volume_name) == (GRANT.volume, GRANT.name)
        if self.refuses:
            raise UsageError("there is another volume of this name", "", "Choose a name.")


class Watched(FileStore):
    """A cloud that tells when the last message of the joiner has been taken from it, and delivered."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.found = False
        self.taken = threading.Event()

    def get(self, name: str, *, limit: int) -> bytes:
        if self.found:
            self.taken.set()
        data = super().get(name, limit=limit)
        self.found |= name.endswith("joiner-3")
        return data


class World:
    """Three clouds, a network, and the two devices, each in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.clouds: list[FileStore] = [FileStore(f"file://{folder}/cloud-{n}") for n in range(3)]
        for cloud in self.clouds:
            cloud.initialise()
        self.listener = Listener(SYSTEM)
        self.left, self.right = Person(), Person()
        self.volume = Volume()
        self.stop = threading.Event()
        self.pool = ThreadPoolExecutor(4)

    def code(self, lan: bool = True, now: float | None = None) -> PairingCode:
        addresses = [("127.0.0.1", self.listener.port)] if lan else []
        urls = [cloud.url for cloud in self.clouds]
        return PairingCode.decode(new_code(urls, addresses, at(now or time.time()), WAIT).encode())

    def invite(
        self,
        code: PairingCode,
        stores: Sequence[Store] | None = None,
        *,
        lan: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> Future[Admitted]:
        return self.pool.submit(
            run_inviter,
            code,
            INVITER,
            "laptop",
            GRANT,
            self.volume,
            self.clouds if stores is None else stores,
            self.listener if lan else None,
            self.left.dialogue,
            self.stop,
            mdns=False,
            environment=Environment(time_ns=lambda: int(clock() * 1e9), limits=LIMITS),
        )

    def join(
        self,
        code: PairingCode,
        stores: Sequence[Store] | None = None,
        *,
        key: DeviceKey = JOINER,
        person: Person | None = None,
        timeout: float = WAIT,
        stop: threading.Event | None = None,
    ) -> Future[Joined]:
        return self.pool.submit(
            run_joiner,
            code,
            key,
            "desktop",
            self.volume,
            self.clouds if stores is None else stores,
            (person or self.right).dialogue,
            stop or self.stop,
            timeout=timeout,
            mdns=False,
            environment=Environment(limits=LIMITS),
        )

    def left_behind(self) -> list[str]:
        return [name for cloud in self.clouds for name in cloud.list("pair/").names]

    def close(self) -> None:
        self.stop.set()
        self.pool.shutdown()
        self.listener.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = set(threading.enumerate())
    world = World(tmp_path)
    yield world
    world.close()
    assert set(threading.enumerate()) <= before


def check(world: World, admitted: Future[Admitted], joined: Future[Joined]) -> None:
    """Both succeeded, saw the same, and left only the notices behind."""
    assert joined.result(WAIT) == Joined(GRANT, LAPTOP)
    assert world.volume.admitted == [DESKTOP]
    assert admitted.result(WAIT) == Admitted(DESKTOP, acknowledged=True)
    assert len(world.left.shown) == 1
    assert world.left.shown == world.right.shown
    assert (world.left.asked, world.right.asked) == ([DESKTOP], [LAPTOP])


def test_through_the_clouds_alone(world: World) -> None:
    code = world.code(lan=False)
    check(world, world.invite(code, lan=False), world.join(code))
    assert [name.rpartition("/")[2] for name in world.left_behind()] == [f"until-{code.expires}"] * 3


def test_over_the_network_alone(world: World) -> None:
    code = world.code()
    check(world, world.invite(code, []), world.join(code, []))


def test_both_ways_at_once(world: World) -> None:
    code = world.code()
    check(world, world.invite(code), world.join(code))
    assert all(name.endswith(f"until-{code.expires}") for name in world.left_behind())


def test_the_joiner_may_come_first(world: World) -> None:
    code = world.code(lan=False)
    joined = world.join(code)
    while not world.left_behind():  # until its hello is there
        threading.Event().wait(PAUSE)
    check(world, world.invite(code, lan=False), joined)


@pytest.mark.parametrize("kind", ["lose", "corrupt", "truncate", "pad", "swap", "fail"])
def test_a_cloud_that_lies_to_both_does_not_matter(world: World, kind: str) -> None:
    faulty = FaultyStore(world.clouds[0], 5, [Fault(kind)])  # type: ignore[arg-type]
    stores: list[Store] = [faulty, *world.clouds[1:]]
    code = world.code(lan=False)
    check(world, world.invite(code, stores, lan=False), world.join(code, stores))


class Undeletable(FileStore):
    """A cloud that lets nobody delete."""

    def delete_many(self, names: Iterable[str]) -> None:
        if [*names]:
            raise AuthError(self.url, "delete_many", "", "access denied")


def test_that_nothing_may_be_deleted_does_not_matter(world: World) -> None:
    old = replace(world.code(), secret=b"o" * 16, expires=int(time.time()) - 3 * 86400)
    for cloud in world.clouds:
        Mailbox(cloud, old, Side.INVITER).open()
    stores = [Undeletable(cloud.url) for cloud in world.clouds]
    code = world.code(lan=False)
    check(world, world.invite(code, stores, lan=False), world.join(code, stores))
    assert not any("does not help" in text for text in world.left.told)


def test_clouds_that_one_side_cannot_reach_do_not_matter(world: World) -> None:
    code = world.code(lan=False)
    check(world, world.invite(code, world.clouds[:2], lan=False), world.join(code, world.clouds[1:]))


def test_a_hanging_cloud_holds_nobody_up(world: World) -> None:
    stall = Fault("stall")
    stores: list[Store] = [FaultyStore(world.clouds[0], 5, [stall]), *world.clouds[1:]]
    code = world.code(lan=False)
    check(world, world.invite(code, stores, lan=False), world.join(code, stores))
    stall.until.set()
    for thread in threading.enumerate():
        if thread.name.startswith("pairing "):
            thread.join(WAIT)


def test_the_string_was_not_confirmed_on_the_inviter(world: World) -> None:
    world.left.says = lambda: False
    code = world.code(lan=False)
    admitted, joined = world.invite(code, lan=False), world.join(code)
    for future in (admitted, joined):
        with pytest.raises(PairingError, match="not confirmed"):
            future.result(WAIT)


def test_the_string_was_not_confirmed_on_the_inviter_over_the_network(world: World) -> None:
    world.left.says = lambda: False
    code = world.code()
    admitted, joined = world.invite(code, []), world.join(code, [])
    for future in (admitted, joined):
        with pytest.raises(PairingError, match=r"not confirmed|was lost"):
            future.result(WAIT)


@pytest.mark.parametrize("lan", [True, False])
def test_the_string_was_not_confirmed_on_the_joiner(world: World, lan: bool) -> None:
    world.right.says = lambda: False
    code = world.code(lan=lan)
    stores: list[Store] | None = [] if lan else None
    admitted, joined = world.invite(code, stores, lan=lan), world.join(code, stores)
    with pytest.raises(PairingError, match="not confirmed"):
        joined.result(WAIT)
    with pytest.raises(PairingError, match="declined"):
        admitted.result(WAIT)


def test_declined_while_the_inviter_is_asked_nothing_is_granted(world: World) -> None:
    world.right.says = lambda: False
    code = world.code()
    admitted, joined = world.invite(code, []), world.join(code, [])

    def confirm_after_the_connection_ended() -> bool:
        joined.exception(WAIT)
        for thread in threading.enumerate():
            if thread.name == "pairing joiner":
                thread.join(WAIT)
        return True

    world.left.says = confirm_after_the_connection_ended
    with pytest.raises(PairingError, match="declined"):
        admitted.result(WAIT)
    assert world.volume.admitted == []  # and only then is anything granted


def test_a_used_code(world: World) -> None:
    code = world.code(lan=False)
    check(world, world.invite(code, lan=False), world.join(code))
    late = Person()
    with pytest.raises(PairingError, match="used already"):
        world.join(code, key=OTHER, person=late).result(WAIT)
    assert late.shown == []


@pytest.mark.parametrize("lan", [True, False])
def test_a_second_joiner_while_the_first_is_at_it(world: World, lan: bool) -> None:
    second = Person()
    refused: list[BaseException | None] = []
    code = world.code(lan=lan)
    stores: list[Store] | None = [] if lan else None

    def confirm_after_the_second_came() -> bool:
        refused.append(world.join(code, stores, key=OTHER, person=second).exception(WAIT))
        return True

    world.right.says = confirm_after_the_second_came
    check(world, world.invite(code, stores, lan=lan), world.join(code, stores))
    assert second.shown == []
    assert isinstance(refused[0], PairingError)
    assert "used already" in str(refused[0])


def test_a_wrong_code(world: World) -> None:
    code = world.code()
    wrong = replace(code, secret=bytes(16))
    admitted = world.invite(code)
    with pytest.raises(PairingError, match="did not answer"):
        world.join(wrong, key=OTHER, timeout=0.5).result(WAIT)
    assert world.left.shown == []
    check(world, admitted, world.join(code))  # the right one still works


def test_an_expired_code(world: World) -> None:
    code = world.code(now=time.time() - 2 * WAIT)
    with pytest.raises(PairingError, match="expired"):
        world.join(code).result(WAIT)
    assert world.left_behind() == []
    with pytest.raises(PairingError, match="expired"):
        world.invite(code).result(WAIT)


def test_a_code_that_expires_by_the_inviters_clock(world: World) -> None:
    code = world.code(lan=False)
    times = iter([code.expires - 30.0])
    admitted = world.invite(code, lan=False, clock=lambda: next(times, float(code.expires)))
    joined = world.join(code)
    for future in (admitted, joined):
        with pytest.raises(PairingError, match="expired"):
            future.result(WAIT)


def test_an_invitation_that_is_withdrawn(world: World) -> None:
    code = world.code(lan=False)
    admitted = world.invite(code, lan=False)
    while len(world.left_behind()) < 3:
        threading.Event().wait(PAUSE)
    world.stop.set()
    with pytest.raises(PairingError, match="stopped"):
        admitted.result(WAIT)
    with pytest.raises(PairingError, match="withdrew"):
        world.join(code, stop=threading.Event()).result(WAIT)


def test_a_joiner_that_is_stopped_declines(world: World) -> None:
    code = world.code(lan=False)
    own = threading.Event()

    def stop_while_asked() -> bool:
        own.set()
        return True

    world.right.says = stop_while_asked
    world.left.says = lambda: own.wait(WAIT)
    admitted, joined = world.invite(code, lan=False), world.join(code, stop=own)
    with pytest.raises(PairingError, match="stopped"):
        joined.result(WAIT)
    with pytest.raises(PairingError, match="declined"):
        admitted.result(WAIT)


def test_a_joiner_that_declines_while_the_other_person_compares_is_no_member(world: World) -> None:
    code = world.code(lan=False)
    cloud = Watched(world.clouds[0].url)
    world.right.says = lambda: False
    world.left.says = lambda: cloud.taken.wait(WAIT)
    admitted, joined = world.invite(code, [cloud], lan=False), world.join(code, world.clouds[:1])
    with pytest.raises(PairingError, match="not confirmed"):
        joined.result(WAIT)
    with pytest.raises(PairingError, match="declined"):
        admitted.result(WAIT)
    assert world.volume.admitted == []


def test_a_code_that_expires_while_the_person_compares_lets_nobody_in(world: World) -> None:
    code = world.code(lan=False)
    asked = threading.Event()

    def think() -> bool:
        asked.set()
        return True

    world.left.says = think
    admitted = world.invite(
        code, lan=False, clock=lambda: float(code.expires) if asked.is_set() else time.time()
    )
    joined = world.join(code)
    for future in (admitted, joined):
        with pytest.raises(PairingError, match="expired"):
            future.result(WAIT)
    assert world.volume.admitted == [], "a device that gets no keys is a member"


def test_an_offer_that_cannot_be_taken_is_declined(world: World) -> None:
    world.volume.refuses = True
    code = world.code()
    admitted, joined = world.invite(code), world.join(code)
    with pytest.raises(PairingError, match="another volume"):
        joined.result(WAIT)
    with pytest.raises(PairingError, match="declined"):
        admitted.result(WAIT)
    assert world.left.asked == world.right.asked == world.volume.admitted == []


def test_a_joiner_that_vanishes_after_the_grant_counts_as_admitted(world: World) -> None:
    """It may have the keys: whoever called must know."""
    code = world.code(lan=False)
    admitted = world.invite(code, lan=False)
    joiner, mailbox = Joiner(code, JOINER, "desktop", os.urandom), Mailbox(world.clouds[1], code, Side.JOINER)
    message: bytes | None = joiner.hello(time.time())
    for number in (1, 2):
        assert message is not None
        mailbox.post(number, message)
        while not (found := mailbox.look(number)):
            threading.Event().wait(PAUSE)
        message = joiner.receive(found[0], time.time())
        if joiner.state is State.OFFERED:
            message = joiner.accept()
    assert joiner.granted == GRANT
    world.stop.set()
    assert admitted.result(WAIT) == Admitted(DESKTOP, acknowledged=False)


def test_garbage_on_the_network_and_the_clouds_is_passed_over(world: World) -> None:
    code = world.code()
    admitted = world.invite(code)
    for cloud in world.clouds[:2]:
        cloud.put(f"pair/{invite_id(code.secret).hex()}/joiner-1", b"garbage")
    with socket.create_connection(("127.0.0.1", world.listener.port), WAIT) as stranger:
        stranger.sendall(b"\0\0\0\x07garbage")
        assert stranger.recv(1) == b""
    check(world, admitted, world.join(code))
    assert any("local network" in text for text in world.left.told)


def test_somebody_in_between_who_has_the_code_shows(world: World) -> None:
    """He is the joiner to the inviter on one cloud, and the inviter to the joiner on the others."""
    code = world.code(lan=False)
    middle = Person()
    world.left.says = world.right.says = lambda: False
    admitted, joined = world.invite(code, world.clouds[:1], lan=False), world.join(code, world.clouds[1:])
    to_inviter = world.join(code, world.clouds[:1], key=OTHER, person=middle)
    grant = structs.replace(GRANT, members=(OTHER.public,))
    to_joiner = world.pool.submit(
        run_inviter,
        code,
        OTHER,
        "laptop",
        grant,
        Volume(),
        world.clouds[1:],
        None,
        middle.dialogue,
        world.stop,
        mdns=False,
        environment=Environment(limits=LIMITS),
    )
    for failed in (admitted, joined, to_inviter):
        with pytest.raises(PairingError):
            failed.result(WAIT)
    with pytest.raises(PairingError, match="declined"):
        to_joiner.result(WAIT)
    (left,), (right,) = world.left.shown, world.right.shown
    assert left != right
    assert set(middle.shown) == {left, right}
    assert world.left.asked == [Peer(OTHER.public, "desktop")]
    assert world.right.asked == [Peer(OTHER.public, "laptop")]
