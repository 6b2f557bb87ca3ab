from __future__ import annotations

import pytest

from hybrisfs.dispersal.pack import MAX_GAP, MAX_RUN, ChunkLocation, plan_runs


def at(offset: int, sealed: int, k: int = 1, pack: bytes = b"p") -> ChunkLocation:
    return ChunkLocation(pack, k, 3, (0, 1, 2), offset.to_bytes(32, "big"), 1, offset, sealed)


def test_neighbours_are_one_run_in_order_of_offset() -> None:
    locations = [at(300, 100), at(100, 100), at(200, 100)]
    assert plan_runs(locations) == [[at(100, 100), at(200, 100), at(300, 100)]]


def test_fragments_of_erasure_codes_are_neighbours_too() -> None:
    assert len(plan_runs([at(0, 101, k=2), at(51 + MAX_GAP, 10, k=2)])) == 1
    assert len(plan_runs([at(0, 101, k=2), at(52 + MAX_GAP, 10, k=2)])) == 2


def test_a_wide_gap_or_much_data_begins_a_new_run() -> None:
    assert len(plan_runs([at(0, 10), at(10 + MAX_GAP + 1, 10)])) == 2
    runs = plan_runs([at(offset, 1 << 20) for offset in range(0, 10 << 20, 1 << 20)])
    assert [len(run) for run in runs] == [MAX_RUN >> 20, MAX_RUN >> 20, 2]


def test_one_chunk_asked_twice_is_read_once() -> None:
    assert plan_runs([at(0, 10), at(0, 10)]) == [[at(0, 10)]]
    assert plan_runs([]) == []


def test_chunks_of_several_packs_are_refused() -> None:
    with pytest.raises(ValueError, match="one pack"):
        plan_runs([at(0, 10), at(20, 10, pack=b"q")])
