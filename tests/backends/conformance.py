"""The contract of `backends.store.Store` as tests. Every driver is run against all of them.

A driver's test module subclasses `Conformance` and gives a `store` fixture: an initialised, empty
store. Nothing here may assume anything that only one kind of cloud can do.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from backends.errors import CorruptError, MissingError, OversizeError
from backends.pacing import PIECE, paced
from backends.store import MAX_PAGE, Store

MIB = 1 << 20


def all_names(store: Store, prefix: str = "", limit: int = MAX_PAGE) -> list[str]:
    """Page through a listing; every page but the last must be full."""
    names: list[str] = []
    while True:
        page = store.list(prefix, after=names[-1] if names else "", limit=limit)
        names.extend(page.names)
        if not page.more:
            return names
        assert len(page.names) == limit


class _Counting:
    """A `backends.pacing.Pacer` that holds nothing back and takes notes."""

    def __init__(self, *, limited: bool = True) -> None:
        self.limited = limited
        self.sent: list[int] = []
        self.came: list[int] = []

    def sending(self, count: int) -> float:
        self.sent.append(count)
        return 0.0

    def received(self, count: int) -> float:
        self.came.append(count)
        return 0.0


class Conformance:
    """Subclass and define the fixture `store`."""

    many_keys = 2500  # more than two pages
    rounds = 4
    """How often an object is replaced by each of some versions while it is read."""

    def test_an_object_comes_back_equal(self, store: Store) -> None:
        store.put("packs/ab/one", b"content")
        assert store.get("packs/ab/one", limit=7) == b"content"

    @pytest.mark.parametrize("size", [0, 1, 64 * MIB])
    def test_sizes(self, store: Store, size: int) -> None:
        data = Random(size).randbytes(size)
        store.put("object", data)
        assert store.get("object", limit=size) == data
        assert store.get_range("object", size // 2, size - size // 2) == data[size // 2 :]
        assert [(entry.name, entry.size) for entry in store.list("").entries] == [("object", size)]

    def test_content_moves_in_small_pieces_that_are_asked_for(self, store: Store) -> None:
        data = Random(5).randbytes(700_001)
        store.put("before", b"")  # what is sent once per connection
        up, whole, part = _Counting(), _Counting(), _Counting()
        with paced(up):
            store.put("object", data)
        with paced(whole):
            assert store.get("object", limit=len(data)) == data
        with paced(part):
            assert store.get_range("object", 100_000, 500_000) == data[100_000:600_000]
        # Some requests carry a little besides the content.
        assert len(data) <= sum(up.sent) < len(data) + 5000
        assert len(data) <= sum(whole.came) < len(data) + 5000
        assert 500_000 <= sum(part.came) < 505_000
        assert max(up.sent) <= 2 * PIECE
        assert max(whole.came + part.came) <= 8 * PIECE

    def test_how_a_transfer_goes_is_told_also_without_a_limit(self, store: Store) -> None:
        """Or a long one would seem to hang."""
        data = Random(6).randbytes(5 * MIB)
        up, whole, part = (_Counting(limited=False) for _ in range(3))
        with paced(up):
            store.put("object", data)
        with paced(whole):
            assert store.get("object", limit=len(data)) == data
        with paced(part):
            assert store.get_range("object", MIB, 4 * MIB) == data[MIB:]
        assert sum(up.sent) >= len(data)
        assert sum(whole.came) >= len(data)
        assert sum(part.came) >= 4 * MIB
        assert max(up.sent + whole.came + part.came) <= MIB

    def test_every_kind_of_buffer_is_stored(self, store: Store) -> None:
        wide = memoryview(bytearray(range(16))).cast("I")
        store.put("a", bytearray(b"array"))
        store.put("b", memoryview(b"a view")[2:])
        store.put("c", wide)
        assert store.get("a", limit=99) == b"array"
        assert store.get("b", limit=99) == b"view"
        assert store.get("c", limit=99) == bytes(range(16))

    def test_put_overwrites(self, store: Store) -> None:
        store.put("head", b"a longer first version")
        store.put("head", b"second")
        assert store.get("head", limit=100) == b"second"
        assert store.list("").entries[0].size == 6

    def test_put_if_absent_keeps_what_is_there(self, store: Store) -> None:
        assert store.put_if_absent("dir/object", b"first") is True
        assert store.put_if_absent("dir/object", b"second") is False
        assert store.get("dir/object", limit=100) == b"first"
        store.delete("dir/object")
        assert store.put_if_absent("dir/object", b"third") is True
        assert store.get("dir/object", limit=100) == b"third"

    def test_one_of_many_put_if_absent_wins(self, store: Store) -> None:
        barrier = threading.Barrier(8)

        def attempt(writer: int) -> bool:
            barrier.wait()
            return store.put_if_absent("contended", b"%d" % writer)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(attempt, range(8)))
        assert won.count(True) == 1
        assert store.get("contended", limit=100) == b"%d" % won.index(True)
        assert all_names(store) == ["contended"]

    def test_missing_object(self, store: Store) -> None:
        store.put("here/other", b"")
        for name in ("here/missing", "nowhere/missing", "missing"):
            with pytest.raises(MissingError) as caught:
                store.get(name, limit=10)
            assert (caught.value.url, caught.value.name) == (store.url, name)
            with pytest.raises(MissingError):
                store.get_range(name, 0, 1)
            with pytest.raises(MissingError):
                store.get_if_changed(name, None, limit=10)

    def test_limit_is_never_exceeded(self, store: Store) -> None:
        store.put("object", b"x" * 1000)
        assert len(store.get("object", limit=1000)) == 1000
        for limit in (999, 1, 0):
            with pytest.raises(OversizeError):
                store.get("object", limit=limit)
            with pytest.raises(OversizeError):
                store.get_if_changed("object", None, limit=limit)

    def test_ranges(self, store: Store) -> None:
        data = bytes(range(256)) * 16
        store.put("object", data)
        for offset, length in ((0, 1), (0, 4096), (4095, 1), (100, 1000), (7, 0), (4096, 0)):
            assert store.get_range("object", offset, length) == data[offset : offset + length]

    @pytest.mark.parametrize(("offset", "length"), [(0, 4097), (4095, 2), (4096, 1), (1 << 40, 1)])
    def test_a_range_beyond_the_end_is_corrupt(self, store: Store, offset: int, length: int) -> None:
        store.put("object", bytes(4096))
        with pytest.raises(CorruptError):
            store.get_range("object", offset, length)

    def test_negative_ranges_are_refused(self, store: Store) -> None:
        store.put("object", b"data")
        for offset, length in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="range"):
                store.get_range("object", offset, length)

    def test_get_if_changed(self, store: Store) -> None:
        store.put("head", b"one")
        first = store.get_if_changed("head", None, limit=10)
        assert first is not None
        assert first[0] == b"one"
        assert store.get_if_changed("head", first[1], limit=10) is None
        store.put("head", b"two")
        second = store.get_if_changed("head", first[1], limit=10)
        assert second is not None
        assert second[0] == b"two"
        assert store.get_if_changed("head", second[1], limit=10) is None
        store.delete("head")
        with pytest.raises(MissingError):
            store.get_if_changed("head", second[1], limit=10)

    def test_get_if_changed_notices_each_of_many_quick_changes(self, store: Store) -> None:
        tag = None
        for round_ in range(50):
            data = b"%03d" % round_
            store.put("head", data)
            answer = store.get_if_changed("head", tag, limit=10)
            assert answer is not None
            assert answer[0] == data
            tag = answer[1]

    def test_a_foreign_tag_means_changed(self, store: Store) -> None:
        store.put("head", b"one")
        assert store.get_if_changed("head", "not-a-tag", limit=10) is not None

    def test_delete_is_idempotent(self, store: Store) -> None:
        store.put("dir/object", b"data")
        store.put("dir/other", b"data")
        for name in ("dir/object", "dir/object", "never/there", "missing"):
            store.delete(name)
        assert all_names(store) == ["dir/other"]

    def test_delete_many(self, store: Store) -> None:
        names = [f"d{i % 3}/n{i}" for i in range(30)]
        for name in names:
            store.put(name, b"")
        store.delete_many(iter([*names[:20], "missing", names[0]]))
        assert all_names(store) == sorted(names[20:])
        store.delete_many([])

    def test_thousands_of_keys_in_pages(self, store: Store) -> None:
        names = sorted(f"p/{i % 7}/key-{i:05}" for i in range(self.many_keys))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.put(name, b"x"), names))
        assert all_names(store) == names
        assert all_names(store, limit=999) == names
        assert all_names(store, "p/3/") == [name for name in names if name.startswith("p/3/")]
        store.delete_many(names)
        assert all_names(store) == []

    def test_list_order_is_by_ascii_bytes(self, store: Store) -> None:
        names = ["a-b", "a.b", "a/b", "a0", "a_", "aa", "b/0/z", "b/0-z", "b/0.z", "a-b-c/d", "a/c-d", "0"]
        for name in names:
            store.put(name, b"")
        assert all_names(store) == sorted(names)
        assert all_names(store, limit=1) == sorted(names)

    def test_list_by_prefix(self, store: Store) -> None:
        names = ["log/a/1", "log/a/2", "log/ab/1", "log/b", "packs/1", "l"]
        for name in names:
            store.put(name, b"")
        for prefix in ("", "l", "log", "log/", "log/a", "log/a/", "log/ab", "x", "log/a/1", "packs/1"):
            assert all_names(store, prefix) == sorted(n for n in names if n.startswith(prefix)), prefix

    def test_list_after_any_text(self, store: Store) -> None:
        names = ["a/b", "a/c", "a0", "b/a/x", "b/b", "c"]
        for name in names:
            store.put(name, b"")
        for after in ("a", "a/b", "a/bb", "a/z", "b/", "b/a", "b/a/y", "bz", "c", "d"):
            assert list(store.list("", after=after).names) == [n for n in names if n > after], after
            assert list(store.list("b/", after=after).names) == [
                n for n in names if n > after and n.startswith("b/")
            ], after

    def test_more_is_exact(self, store: Store) -> None:
        for name in ("a", "b/x", "c"):
            store.put(name, b"")
        assert store.list("", limit=3).more is False
        assert store.list("", limit=2).more is True
        assert store.list("", after="b/x", limit=1).more is False
        assert store.list("b", limit=1).more is False

    @pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
    def test_page_sizes_are_bounded(self, store: Store, limit: int) -> None:
        with pytest.raises(ValueError, match="limit"):
            store.list("", limit=limit)

    def test_illegal_names_are_refused_everywhere(self, store: Store) -> None:
        for name in ("", "/", "a/", "/a", "a//b", "..", "a/../b", ".a", "A", "a b", "ä", "a\n", "a" * 513):
            with pytest.raises(ValueError, match="legal"):
                store.put(name, b"")
            with pytest.raises(ValueError, match="legal"):
                store.put_if_absent(name, b"")
            with pytest.raises(ValueError, match="legal"):
                store.get(name, limit=1)
            with pytest.raises(ValueError, match="legal"):
                store.get_range(name, 0, 1)
            with pytest.raises(ValueError, match="legal"):
                store.get_if_changed(name, None, limit=1)
            with pytest.raises(ValueError, match="legal"):
                store.delete(name)
            with pytest.raises(ValueError, match="legal"):
                store.delete_many([name])
        with pytest.raises(ValueError, match="legal"):
            store.list("../")
        assert all_names(store) == []

    def test_the_longest_names_work(self, store: Store) -> None:
        name = "/".join(["s" * 100] * 5)
        store.put(name, b"x")
        assert all_names(store) == [name]

    def test_readers_never_see_a_torn_object(self, store: Store) -> None:
        versions = [bytes([value]) * (40_000 + value) for value in range(16)]
        store.put("head", versions[0])
        written = threading.Event()
        seen: set[bytes] = set()

        def read() -> None:
            while True:
                last = written.is_set()
                seen.add(store.get("head", limit=50_000))
                answer = store.get_if_changed("head", None, limit=50_000)
                assert answer is not None
                seen.add(answer[0])
                if last:
                    return

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for version in versions * self.rounds:
                store.put("head", version)
            written.set()
            for reader in readers:
                reader.result()
        assert seen <= set(versions)
        assert versions[-1] in seen

    def test_initialise_again_changes_nothing(self, store: Store) -> None:
        store.put("object", b"data")
        store.initialise()
        assert store.get("object", limit=4) == b"data"

    def test_close_twice(self, store: Store) -> None:
        store.close()
        store.close()
