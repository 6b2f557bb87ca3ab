"""Objects in parts: whole at any moment, and nothing is left behind, wherever the gateway dies."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.errors import S3Error
from gateway.objects import Objects
from gateway.preconditions import Preconditions, Span
from gateway.uploads import Description
from gateway.values import GatewayLimits, WriteConditions
from hybrisfs.api.objects import (
    RESERVED,
    ObjectAttributes,
    Part,
    Upload,
    attributes_of,
    encode,
    encode_parts,
    piece_prefix,
    upload_key,
)
from hybrisfs.api.request import Question
from hybrisfs.client import Client, DaemonError, HybrisError
from hybrisfs.home import Home
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import Stored
from tests.gateway.rig import BUCKET, VOLUME
from tests.kv.rig import Rig
from tests.system.deadline import until

_Answer = TypeVar("_Answer")

TINY = GatewayLimits(piece=1000, least_part=1)
OLD, NEW = os.urandom(1001), os.urandom(2001)
WEEK = 7 * 86_400.0
NOTHING = Description({}, {})
ANY = WriteConditions()


class Died(BaseException):
    """The gateway is killed."""


class Killer:
    """Lets a gateway die before or after one of its requests to the daemon."""

    def __init__(self, requests: int | None = None, *, after: bool = False) -> None:
        self._left = requests
        self._after = after

    def connect(self) -> Client:
        killer = self

        class Mortal(Client):
            def call(self, request: Question[_Answer], progress: Any = None) -> _Answer:
                return killer.pass_on(lambda: super(Mortal, self).call(request))  # type: ignore[call-overload,no-any-return]

        return Mortal.connect(start=False)

    def pass_on(self, call: Callable[[], _Answer]) -> _Answer:
        if self._left is not None:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Died
        answer = call()
        if self._left is not None and self._left < 0:
            raise Died
        return answer


def gateway(
    rig: Rig, home: Home, killer: Killer | None = None, seconds: float = 0.0, scratch: Path | None = None
) -> contextlib.closing[Objects]:
    """A gateway whose clock is ahead by so many seconds."""
    connect, folder = (killer or Killer()).connect, scratch or home.runtime
    objects = Objects(VOLUME, connect, folder, limits=TINY, clock=lambda: rig.clock() + seconds)
    return contextlib.closing(objects)


def put(objects: Objects, body: bytes, key: str = "a") -> None:
    intake = objects.intake(BUCKET, key, NOTHING)
    intake.feed_all(memoryview(body))
    intake.finish(ANY)
    intake.discard()


def put_in_parts(objects: Objects, body: bytes) -> None:
    """In two parts, of which one is uploaded twice, and one that is not used."""
    upload = objects.begin_upload(BUCKET, "a", NOTHING)
    middle = len(body) // 2
    chosen = []
    for number, part in ((1, body[:10]), (2, body[middle:]), (1, body[:middle]), (3, b"of no use")):
        intake = objects.part_intake(BUCKET, "a", upload, number)
        intake.feed_all(memoryview(part))
        intake.finish()
        intake.discard()
        if number < 3 and part != body[:10]:
            chosen.append((number, md5(part).hexdigest()))
    objects.uploads.complete(BUCKET, "a", upload, sorted(chosen), ANY)


def delete(objects: Objects, _: bytes) -> None:
    objects.delete(BUCKET, "a")


def aborted(objects: Objects, _: bytes) -> None:
    upload = objects.begin_upload(BUCKET, "a", NOTHING)
    intake = objects.part_intake(BUCKET, "a", upload, 1)
    intake.feed_all(memoryview(NEW))
    intake.finish()
    objects.uploads.abort(BUCKET, "a", upload)


def content(objects: Objects, key: str = "a") -> bytes | None:
    try:
        with objects.read(BUCKET, key, Preconditions(None, None, None, None)) as reading:
            found = b""
            for stretch in reading.stretches(Span(0, reading.stored.size)):
                found += reading.opened(stretch).read(stretch.end - stretch.start)
            return found
    except HybrisError as error:
        assert error.reported == "no such key"
        return None


def hidden(rig: Rig) -> set[str]:
    return {one.key for one in rig.store.list(BUCKET, RESERVED)}


def pieces(rig: Rig) -> set[str]:
    return {key for key in hidden(rig) if key.startswith(f"{RESERVED}pieces/")}


def needed(rig: Rig, objects: Objects) -> set[str]:
    """The pieces that the object has."""
    found = objects.head(BUCKET, "a")
    with objects.read(BUCKET, "a", Preconditions(None, None, None, None)) as reading:
        return {str(stretch.piece) for stretch in reading.stretches(Span(0, found.size))}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [(put, {OLD, NEW}), (put_in_parts, {OLD, NEW}), (delete, {OLD, None}), (aborted, {OLD})],
    ids=["put", "put in parts", "delete", "abort"],
)
def test_it_may_die_at_any_moment(
    change: Callable[[Objects, bytes], None],
    expected: set[bytes | None],
    after: bool,
    rig: Rig,
    home: Home,
) -> None:
    outcomes = set()
    for requests in itertools.count():
        with gateway(rig, home) as objects:
            put(objects, OLD)
            objects.collector.sweep()
        try:
            with gateway(rig, home, Killer(requests, after=after)) as objects:
                change(objects, NEW)
                objects.collector.sweep()
        except Died:
            died = True
        else:
            died = False
        with gateway(rig, home) as objects:
            found = content(objects)
            outcomes.add(found)
            assert found in (OLD, NEW, None)
            objects.collector.sweep()
            assert content(objects) == found
        with gateway(rig, home, seconds=WEEK + 60) as objects:
            objects.collector.sweep()
            assert content(objects) == found
            if found is None:
                assert hidden(rig) == set()
            else:
                assert pieces(rig) == needed(rig, objects)
                assert len(hidden(rig)) == len(pieces(rig)) + 1
        if not died:
            break
    assert requests > 3
    assert outcomes == expected


def test_what_is_replaced_goes_when_its_readers_have_ended(rig: Rig, home: Home) -> None:
    with gateway(rig, home) as objects:
        put(objects, OLD)
        former = pieces(rig)
        with objects.read(BUCKET, "a", Preconditions(None, None, None, None)) as reading:
            put(objects, NEW)
            objects.collector.sweep()
            assert former < pieces(rig)
            found = b""
            for stretch in reading.stretches(Span(0, len(OLD))):
                found += reading.opened(stretch).read(stretch.end - stretch.start)
            assert found == OLD
        objects.start()  # it has been told
        until(lambda: not former & pieces(rig), "the former pieces to be deleted")
        assert content(objects) == NEW


def test_a_reader_finds_the_newer_object_when_it_was_too_late(rig: Rig, home: Home, tmp_path: Path) -> None:
    """The list of parts is read, and replaced before the reader has said that it needs the parts."""
    with gateway(rig, home, scratch=tmp_path) as other:
        put(other, OLD)
        replaced = False

        class Meddling(Killer):
            def pass_on(self, call: Callable[[], _Answer]) -> _Answer:
                nonlocal replaced
                answer = call()
                if not replaced:
                    replaced = True
                    put(other, NEW)
                    other.collector.sweep()
                return answer

        with gateway(rig, home, Meddling()) as objects:
            assert content(objects) == NEW
        assert replaced


def test_an_upload_that_goes_on_is_kept(rig: Rig, home: Home) -> None:
    with gateway(rig, home) as objects:
        upload = objects.begin_upload(BUCKET, "a", NOTHING)
        intake = objects.part_intake(BUCKET, "a", upload, 1)
        intake.feed_all(memoryview(b"part"))
        etag = intake.finish()
        intake.discard()
    with gateway(rig, home, seconds=WEEK - 60) as objects:
        objects.collector.sweep()
        assert objects.uploads.complete(BUCKET, "a", upload, [(1, etag)], ANY)
        objects.collector.sweep()
        assert content(objects) == b"part"


def test_an_object_that_is_coming_in_is_kept(rig: Rig, home: Home) -> None:
    with gateway(rig, home, seconds=10 * WEEK) as objects:
        intake = objects.intake(BUCKET, "a", NOTHING)
        intake.feed_all(memoryview(NEW))
        objects.collector.sweep()
        intake.finish(ANY)
        intake.discard()
        objects.collector.sweep()
        assert content(objects) == NEW


def test_what_comes_in_through_another_machine_is_kept(
    rig: Rig, home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    """Of a bucket that other machines use, too, nobody here knows what is under way."""
    volumes.opened[VOLUME].key_values = Stored(rig, "etcd://db")
    with gateway(rig, home) as objects:
        intake = objects.intake(BUCKET, "a", NOTHING)
        intake.feed_all(memoryview(NEW))
        with gateway(rig, home, scratch=tmp_path) as other:
            other.collector.sweep()
        intake.finish(ANY)
        intake.discard()
        assert content(objects) == NEW


def test_a_part_that_comes_after_the_end_leaves_nothing(rig: Rig, home: Home) -> None:
    with gateway(rig, home) as objects:
        upload = objects.begin_upload(BUCKET, "a", NOTHING)
        intake = objects.part_intake(BUCKET, "a", upload, 1)
        intake.feed_all(memoryview(NEW))
        objects.uploads.abort(BUCKET, "a", upload)
        objects.collector.sweep()
        with pytest.raises(S3Error, match="NoSuchUpload"):
            intake.finish()
        intake.discard()
        assert hidden(rig) == set()


def test_parts_that_are_lost_are_an_error(rig: Rig, home: Home) -> None:
    with gateway(rig, home) as objects:
        put(objects, NEW)
        upload = attributes_of(rig.store.stat(BUCKET, "a").attributes)
        assert upload is not None
        last = rig.store.list(BUCKET, piece_prefix(str(upload.upload)))[-1].key
        rig.store.delete(BUCKET, last)
        with pytest.raises(S3Error, match="a part of a is missing"):
            content(objects)


def test_values_of_others_are_left_alone(rig: Rig, home: Home) -> None:
    """A person may have stored anything there."""
    rig.put(f"{RESERVED}note", b"x")
    rig.put(f"{RESERVED}uploads/{'0' * 32}", b"x")
    with gateway(rig, home) as objects:
        objects.collector.sweep()
        assert len(hidden(rig)) == 2


def test_lists_that_no_gateway_has_written_do_not_keep_the_rest(rig: Rig, home: Home) -> None:
    """A member of the volume can store any list of parts as an object."""
    endless = encode_parts([Part(1, b"m" * 16, 1 << 50, 1, "0" * 16)])
    for number in range(8):
        upload, key = f"{number:032}", f"wrong {number}"
        record = Upload(key, "complete", False, {}, {})
        rig.store.put(BUCKET, upload_key(upload), b"", attributes=encode(record))
        said = ObjectAttributes("0" * 32, {}, {}, upload, 1)
        rig.store.put(BUCKET, key, endless if number else b"no list", attributes=encode(said))
    left_over = f"{piece_prefix('f' * 32)}00001-{'0' * 16}-00000"
    rig.put(left_over, b"x")
    with gateway(rig, home) as objects:
        objects.collector.sweep()
    assert len(hidden(rig)) == 8
    assert left_over not in hidden(rig)


def test_a_daemon_that_is_away_is_asked_again_later(rig: Rig, home: Home) -> None:
    away = False

    class Restarting(Killer):
        def pass_on(self, call: Callable[[], _Answer]) -> _Answer:
            if away:
                raise DaemonError("lost the daemon")
            return call()

    with gateway(rig, home, Restarting()) as objects:
        intake = objects.intake(BUCKET, "a", NOTHING)
        intake.feed_all(memoryview(NEW))
        away = True
        with pytest.raises(DaemonError):
            intake.finish(ANY)
        intake.discard()
        away = False
        objects.collector.sweep()
        assert hidden(rig) == set()
        put(objects, NEW)
        assert content(objects) == NEW
