"""Machines that use the same service, in random order, one request at a time.

Answers get lost, requests arrive long after the client has given up, machines fall silent, processes are
killed and start again. Whatever the order: nothing that a key names is deleted, a write that failed never
takes place, no number is drawn twice, nobody writes to a container that was dropped or moved away, lists are
of one moment, and one machine that goes on cleans up after all others. All of it with what etcd promises, and
with the less that ZooKeeper does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from hybrisfs.environment import SYSTEM
from hybrisfs.kv.metadata import Change, Garbage
from hybrisfs.kv.rmds import DeviceMetadata
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    Outcome,
    OutcomeUnknownError,
    Put,
    Remove,
)
from hybrisfs.kv.service_groups import Waiting
from hybrisfs.kv.service_metadata import ServiceMetadata
from hybrisfs.kv.service_updates import Answer, ServiceUpdates
from tests.kv.service_model import (
    Actor,
    LooseClient,
)
from tests.kv.service_world import BOX, KEYS, World, entry
from tests.kv.services import FORMS, SERVICES

SEEDS: Final = int(os.environ.get("HYBRISFS_SIM_SEEDS", "300")) // 2
PARTS: Final = 4


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that waits for another one's request lets others go on."""
    wait = Waiting.wait

    def rest(one: Waiting[object, object]) -> None:
        actor = threading.current_thread()
        if isinstance(actor, Actor):
            actor.wait_while(one.turn.empty)
        wait(one)

    monkeypatch.setattr(Waiting, "wait", rest)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("part", range(PARTS))
def test_schedules(part: int, service: str, form: str, tmp_path: Path) -> None:
    for seed in range(part, SEEDS if form == "plain" else SEEDS // 3, PARTS):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        try:
            World(seed, service, folder, form).run(Random(seed).randrange(20, 400))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("service", SERVICES)
def test_updates_go_together(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some take place at once, some in part at the next try, of some the answer gets lost."""
    seen: set[str] = set()
    serve, ask = ServiceUpdates._serve, ServiceUpdates._until_answered

    def watched_serve(updates: ServiceUpdates, group: Sequence[Waiting[Any, Answer]]) -> None:
        serve(updates, group)
        if len(group) > 1:
            took_place = {one.result is not None and one.result.took_place for one in group}
            seen.add("all" if took_place == {True} else "none" if took_place == {False} else "some")

    def watched_ask(updates: ServiceUpdates, *asked: Any, is_group: bool) -> tuple[Outcome, bool]:
        outcome, was_unknown = ask(updates, *asked, is_group=is_group)
        if was_unknown and is_group:
            seen.add("late" if outcome.succeeded else "found" if outcome.found[0] else "failed")
        return outcome, was_unknown

    monkeypatch.setattr(ServiceUpdates, "_serve", watched_serve)
    monkeypatch.setattr(ServiceUpdates, "_until_answered", watched_ask)
    for seed in range(max(SEEDS, 150)):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        try:
            World(seed, service, folder).write_together()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert seen == {"all", "some", "none", "late", "found", "failed"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("service", SERVICES)
def test_lists_are_of_one_moment(service: str, form: str, tmp_path: Path) -> None:
    """Also while others write between any two looks."""
    for seed in range(SEEDS // 4):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        try:
            World(seed, service, folder, form).list_and_write()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


class Sleeping(LooseClient):
    """A client whose machine sleeps after it has looked at a block."""

    between: Callable[[], object] | None = None
    lose = False

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        found: list[KeyValue | None] = []
        for key in keys:
            found += super().get(key)
            if key.startswith(b"b/") and self.between is not None:
                between, self.between = self.between, None
                between()
        return found

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        outcome = super().transact(compare, then, otherwise)
        if self.lose:
            self.lose = False
            raise OutcomeUnknownError("the service has not answered")
        return outcome


def test_what_took_place_is_not_said_to_be_lost(tmp_path: Path) -> None:
    """Others take over the block and remove its marks while the machine looks what its repeated update found.

    It must have looked for the mark before."""
    world = World(0, "zookeeper", tmp_path)
    client = Sleeping(world.model, [], lambda: None)
    clients = client, LooseClient(world.model, [], lambda: None)
    stores = [
        ServiceMetadata(one, DeviceMetadata(machine.database, SYSTEM), machine.device, world.environment)
        for machine, one in zip(world.machines, clients, strict=False)
    ]
    sleeping, other = stores
    sleeping.create_container(BOX)
    place, write = (sleeping.container(BOX), KEYS[0]), sleeping.new_write()
    sleeping.intend([Garbage(write, 1)])
    world._objects.add(write)

    def others_clean_up() -> None:
        client.withdraw()
        other.writes.garbage()

    client.lose, client.between = True, others_clean_up
    made = sleeping.update([Change(place, entry(write))])
    assert made == [entry(write)._replace(sn=1)]
    assert other.read(place) == made[0]
    for store in stores:
        store.close()
