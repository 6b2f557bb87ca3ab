"""Real services, beside the model of them that the random schedules use: they answer the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final
from uuid import uuid4

import pytest

from hybrisfs.kv.service import Compare, KeyValue, MetadataService, Outcome, Put, Remove
from tests.kv.service_model import LooseClient, ModelClient, ServiceModel
from tests.kv.services import SERVICES, Servers, client_of, service_cluster

STEPS: Final = 150
DEVICES: Final = (b"1" * 32, b"2" * 32)
BOXES: Final = (b"%016x" % 7, b"%016x" % 8)
NAMES: Final = (b"a", b"b/c", b"\xff.~", "ä %2E".encode())
KEYS: Final = [
    *(b"s", b"n", b"c/box", b"c/box/leaving/1", b"c/\xc3\xa4", b"l/" + DEVICES[0]),
    *(b"k/%b/%b" % (box, name) for box in BOXES for name in NAMES),
    *(b"%c/%b/%016x" % (kind, device, write) for kind in b"buxg" for device in DEVICES for write in (1, 2)),
    *(b"f/%b/%b/%016x" % (DEVICES[0], device, 1) for device in DEVICES),
]


@pytest.fixture(scope="module", params=SERVICES)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Servers]]:
    with service_cluster(request.param, tmp_path_factory.mktemp("service")) as cluster:
        yield request.param, cluster


def values(found: Sequence[KeyValue | None]) -> list[bytes | None]:
    return [None if one is None else one.value for one in found]


class Pair:
    """A service and its model, which are asked for the same. Their revisions are not the same numbers."""

    def __init__(self, real: MetadataService, model: MetadataService, random: Random) -> None:
        self._both = real, model
        self._random = random
        self._seen: dict[bytes, list[tuple[int, int]]] = {key: [(0, 0)] for key in KEYS}

    def look(self) -> None:
        real, model = (client.get(*KEYS) for client in self._both)
        assert values(real) == values(model)
        for key, here, there in zip(KEYS, real, model, strict=True):
            if here is not None and there is not None:
                self._seen[key].append((here.revision, there.revision))

    def list(self) -> None:
        for kind in b"bgfkuxc":
            ranges = [(b"%c/" % kind, b"%c0" % kind)] if kind in b"ck" else []
            groups = (*DEVICES, *BOXES)
            ranges += [(b"%c/%b/" % (kind, group), b"%c/%b0" % (kind, group)) for group in groups]
            for first, end in ranges:
                found = [[one[:2] for one in client.scan(first, end)] for client in self._both]
                assert found[0] == found[1]
        for box in BOXES:
            lists = []
            for client in self._both:
                reading = client.reading(b"k/%b/b" % box, b"k/%b/\xff\xff" % box, 2)
                assert any(reading.catch_up() for _ in range(2))
                lists.append([one[:2] for page in reading.pages() for one in page])
            assert lists[0] == lists[1]
        real, model = (client.groups(b"b") for client in self._both)
        assert {*model} <= {*real}

    def transact(self) -> None:
        random = self._random
        compared = random.sample(KEYS, random.choice((0, 1, 2, 3)))
        # Sometimes what is there, sometimes what was.
        chosen = {
            key: self._seen[key][-1 - min(random.choice((0, 0, 0, 1, 2)), len(self._seen[key]) - 1)]
            for key in compared
        }
        wants_any = {key for key in compared if random.random() < 0.2}
        changed = random.sample(KEYS, random.choice((1, 2, 3)))
        then: list[Put | Remove] = [
            Put(key, b"%d" % random.randrange(100)) if random.random() < 0.7 else Remove(key)
            for key in changed
        ]
        outcomes: list[Outcome] = []
        for number, client in enumerate(self._both):
            compare = [Compare(key, None if key in wants_any else chosen[key][number]) for key in compared]
            outcomes.append(client.transact(compare, then, compared))
        real, model = outcomes
        assert real.succeeded == model.succeeded, (chosen, wants_any, then)
        assert values(real.found) == values(model.found)
        if real.succeeded:
            entries = {change.key for change in then if isinstance(change, Put) and change.key[:2] == b"k/"}
            for key in entries:
                self._seen[key].append((real.revisions[key], model.revisions[key]))
            for change in then:
                key = change.key if isinstance(change, Put) else change.first
                if isinstance(change, Remove):
                    self._seen[key].append((0, 0))

    def remove_ranges(self) -> None:
        device, box = self._random.choice(DEVICES), self._random.choice(BOXES)
        for then in (
            [
                Remove(b"%c/%b/%016x" % (kind, device, 1), b"%c/%b/%016x" % (kind, device, 2))
                for kind in b"ux"
            ],
            [Remove(b"k/%b/" % box, b"k/%b0" % box)],
        ):
            for client in self._both:
                assert client.transact((), then).succeeded
        for key in KEYS:
            self._seen[key].append((0, 0))


@pytest.mark.parametrize("seed", range(4))
def test_services_do_what_their_model_does(service: tuple[str, Servers], seed: int) -> None:
    kind, cluster = service
    random = Random(seed)
    model = ServiceModel(lambda before, after: None, restarting=kind == "zookeeper")
    client = (ModelClient if kind == "etcd" else LooseClient)(model, [], lambda: None)
    with contextlib.closing(client_of(cluster.url, f"{uuid4().hex}/")) as real:
        pair = Pair(real, client, random)
        for _ in range(STEPS):
            pair.transact()
            if random.random() < 0.5:
                pair.look()
            if random.random() < 0.1:
                pair.list()
            if random.random() < 0.05:
                pair.remove_ranges()
                pair.look()
        pair.list()
