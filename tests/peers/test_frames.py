"""Frames: what is encoded is decoded, however it is cut; everything else is refused, early."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.peers.errors import FrameError
from hybrisfs.peers.frames import (
    MAX_BEACON,
    MAX_BODY,
    MAX_FRAME,
    Beacon,
    Bye,
    ChunkMissing,
    ChunkReply,
    ChunkRequest,
    ExchangePart,
    Frame,
    FrameDecoder,
    Hello,
    Parting,
    Ping,
    Pong,
    encode_frame,
)

HELLO = Hello(b"instance", 4711)

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(ExchangePart, st.booleans(), st.binary(max_size=300)),
    st.builds(ChunkRequest, u32, st.binary(min_size=32, max_size=32)),
    st.builds(ChunkReply, u32, st.binary(max_size=300)),
    st.builds(ChunkMissing, u32),
    st.builds(Beacon, st.binary(max_size=300)),
    st.builds(Ping, u64),
    st.builds(Pong, u64),
    st.builds(Bye, st.sampled_from(Parting)),
)


def greeted() -> FrameDecoder:
    decoder = FrameDecoder()
    assert list(decoder.feed(encode_frame(HELLO))) == [HELLO]
    return decoder


def raw(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_way_to_cut_the_stream(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, [HELLO, *sent]))
    decoder = FrameDecoder()
    got: list[Frame] = []
    position = 0
    while position < len(stream):
        for cut in cuts:
            got += decoder.feed(stream[position : position + cut])
            position += cut
    assert got == [HELLO, *sent]


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_garbage_raises_nothing_but_frame_errors(pieces: list[bytes], after_hello: bool) -> None:
    decoder = greeted() if after_hello else FrameDecoder()
    try:
        for piece in pieces:
            list(decoder.feed(piece))
    except FrameError:
        pass


@given(st.integers(0, 12), st.binary(max_size=60))
def test_a_body_is_read_whole_or_refused(kind: int, body: bytes) -> None:
    try:
        (frame,) = greeted().feed(raw(bytes([kind]) + body))
    except FrameError:
        return
    assert encode_frame(frame) == raw(bytes([kind]) + body)


@given(frames.filter(lambda frame: not isinstance(frame, ExchangePart | ChunkReply | Beacon)))
def test_a_frame_of_fixed_size_is_neither_shorter_nor_longer(frame: Frame) -> None:
    body = encode_frame(frame)[4:]
    for wrong in (body[:-1], body + b"\0"):
        with pytest.raises(FrameError):
            list(greeted().feed(raw(wrong)))


@pytest.mark.parametrize("length", [0, MAX_FRAME + 1, (1 << 32) - 1])
def test_a_wrong_length_is_refused_before_the_body_comes(length: int) -> None:
    with pytest.raises(FrameError, match="bytes"):
        list(greeted().feed(struct.pack(">I", length)))


def test_before_the_hello_hardly_anything_is_held() -> None:
    with pytest.raises(FrameError, match="256"):
        list(FrameDecoder().feed(struct.pack(">I", 257)))


def test_the_largest_chunk_passes_and_no_larger_one() -> None:
    data = bytes(MAX_BODY)
    (frame,) = greeted().feed(encode_frame(ChunkReply(7, data)))
    assert frame == ChunkReply(7, data)
    with pytest.raises(ValueError, match="too long"):
        encode_frame(ChunkReply(7, data + b"\0"))


def test_the_largest_message_passes_and_no_larger_one() -> None:
    (frame,) = greeted().feed(encode_frame(ExchangePart(True, bytes(MAX_BODY))))
    assert frame == ExchangePart(True, bytes(MAX_BODY))
    with pytest.raises(FrameError, match="too long"):
        list(greeted().feed(raw(b"\x02\x01" + bytes(MAX_BODY + 1))))
    with pytest.raises(ValueError, match="too long"):
        encode_frame(ExchangePart(True, bytes(MAX_BODY + 1)))


def test_a_beacon_has_a_limit_of_its_own() -> None:
    assert list(greeted().feed(encode_frame(Beacon(bytes(MAX_BEACON)))))
    with pytest.raises(ValueError, match="too long"):
        encode_frame(Beacon(bytes(MAX_BEACON + 1)))
    with pytest.raises(FrameError, match="too long"):
        list(greeted().feed(raw(b"\x06" + bytes(MAX_BEACON + 1))))


@given(frames)
def test_nothing_comes_before_the_hello(frame: Frame) -> None:
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(encode_frame(frame)))


def test_a_second_hello_is_refused() -> None:
    with pytest.raises(FrameError, match="out of turn"):
        list(greeted().feed(encode_frame(HELLO)))


def test_a_newer_version_is_told_from_garbage() -> None:
    newer = raw(b"\x01HFPR\x00\x02" + bytes(100))
    with pytest.raises(FrameError, match="upgrade"):
        list(FrameDecoder().feed(newer))


def test_what_is_on_the_wire() -> None:
    assert encode_frame(HELLO).hex() == "0000001101" + "48465052" + "0001" + b"instance".hex() + "1267"
    assert encode_frame(ChunkRequest(1, b"\xaa" * 32)).hex() == "0000002503" + "00000001" + "aa" * 32
    assert encode_frame(ChunkReply(2, b"xyz")).hex() == "0000000804" + "00000002" + b"xyz".hex()
    assert encode_frame(Ping(3)).hex() == "0000000907" + "0000000000000003"
    assert encode_frame(Bye(Parting.REMOVED)).hex() == "000000020902"


def test_frames_that_were_not_asked_for_come_with_the_next_call() -> None:
    decoder = FrameDecoder()
    stream = encode_frame(HELLO) + encode_frame(Ping(1)) + encode_frame(Ping(2))
    assert next(decoder.feed(stream)) == HELLO
    assert next(decoder.feed(b"")) == Ping(1)
    assert list(decoder.feed(encode_frame(Ping(3)))) == [Ping(2), Ping(3)]
