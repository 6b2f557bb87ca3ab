from __future__ import annotations

import os
import random
import threading

import pytest
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError
from hybrisfs.dispersal.seal import MAX_CHUNK, MAX_SEALED, SEAL_OVERHEAD, Sealer, _keys
from sync import FIRST_EPOCH, OneKey

SEALER = Sealer(OneKey(b"d" * 32), b"i" * 32)


def seal(plaintext: bytes) -> tuple[bytes, bytes]:
    chunk_id = SEALER.chunk_id(plaintext)
    return chunk_id, SEALER.seal(chunk_id, plaintext)


@given(st.binary(min_size=1, max_size=5000), st.integers(1, 50))
def test_opens_to_what_was_sealed(piece: bytes, times: int) -> None:
    plaintext = piece * times
    chunk_id, sealed = seal(plaintext)
    assert SEALER.open(chunk_id, sealed, len(plaintext)) == plaintext
    assert len(sealed) <= len(plaintext) + SEAL_OVERHEAD


@pytest.mark.parametrize("size", [1, 19, MAX_CHUNK - 1, MAX_CHUNK])
@pytest.mark.parametrize("random_bytes", [True, False])
def test_sizes_at_the_limits(size: int, random_bytes: bool) -> None:
    plaintext = random.Random(1).randbytes(size) if random_bytes else bytes(size)
    chunk_id, sealed = seal(plaintext)
    assert SEALER.open(chunk_id, memoryview(sealed), size) == plaintext
    assert len(sealed) <= MAX_SEALED


def test_equal_chunks_seal_to_equal_bytes_under_equal_keys_only() -> None:
    plaintext = b"content" * 100
    chunk_id, sealed = seal(plaintext)
    assert Sealer(OneKey(b"d" * 32), b"i" * 32).seal(chunk_id, bytearray(plaintext)) == sealed
    other = Sealer(OneKey(b"D" * 32), b"I" * 32)
    assert other.chunk_id(plaintext) != chunk_id
    assert other.seal(chunk_id, plaintext) != sealed


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=3000), st.integers(1, 20)), max_size=12))
def test_chunks_seal_together_as_they_do_alone(pieces: list[tuple[bytes, int]]) -> None:
    chunks = [(SEALER.chunk_id(piece * times), piece * times) for piece, times in pieces]
    assert list(SEALER.seal_all(chunks)) == [SEALER.seal(*chunk) for chunk in chunks]


def test_sealed_bytes_are_stable() -> None:
    """The format is on people's clouds: this value must never change."""
    chunk_id, sealed = seal(b"hybris")
    assert chunk_id == blake3(b"hybris", key=b"i" * 32).digest()
    assert blake3(sealed).hexdigest() == "9ffb8eb36558c31063fedf37c10d8f362f03cbe3cea75ccba066f2f9a66b44aa"


def test_compresses_only_what_gains_five_percent() -> None:
    noise = random.Random(2).randbytes(10_000)
    assert len(seal(noise)[1]) == len(noise) + SEAL_OVERHEAD
    assert len(seal(noise + bytes(200))[1]) == len(noise) + 200 + SEAL_OVERHEAD
    assert len(seal(noise + bytes(2000))[1]) < len(noise) + 500


def test_another_compression_of_the_same_chunk_gets_another_nonce() -> None:
    plaintext = b"".join(b"%d: %d\n" % (number, number * number) for number in range(2000))
    chunk_id, sealed = seal(plaintext)
    newer = Sealer(OneKey(b"d" * 32), b"i" * 32, level=19)
    resealed = newer.seal(chunk_id, plaintext)
    assert resealed[17:] != sealed[17:]
    assert resealed[:17] != sealed[:17]
    assert SEALER.open(chunk_id, resealed, len(plaintext)) == plaintext


@settings(max_examples=60)
@given(st.data())
def test_every_altered_byte_is_refused(data: st.DataObject) -> None:
    plaintext = data.draw(st.sampled_from([b"x", b"abc" * 300, random.Random(3).randbytes(500)]))
    chunk_id, sealed = seal(plaintext)
    at = data.draw(st.integers(0, len(sealed) - 1))
    flip = data.draw(st.integers(1, 255))
    altered = bytearray(sealed)
    altered[at] ^= flip
    with pytest.raises(IntegrityError):
        SEALER.open(chunk_id, altered, len(plaintext))


@pytest.mark.parametrize("cut", [0, 1, 12, 13, SEAL_OVERHEAD, SEAL_OVERHEAD + 1])
def test_truncated_or_prolonged_is_refused(cut: int) -> None:
    chunk_id, sealed = seal(b"abc" * 300)
    for wrong in (sealed[:cut], sealed[: len(sealed) - 1], sealed + b"\0", sealed + bytes(MAX_SEALED)):
        with pytest.raises(IntegrityError):
            SEALER.open(chunk_id, wrong, 900)


@pytest.mark.parametrize("length", [1, 299, 301, MAX_CHUNK])
@pytest.mark.parametrize("plaintext", [b"one" * 100, random.Random(4).randbytes(300)], ids=["frame", "raw"])
def test_a_false_length_keeps_nothing_from_being_read(plaintext: bytes, length: int) -> None:
    chunk_id, sealed = seal(plaintext)
    assert SEALER.open(chunk_id, sealed, length) == plaintext


def test_other_chunk_impossible_length_and_other_key_are_refused() -> None:
    chunk_id, sealed = seal(b"one" * 100)
    other_id, _ = seal(b"two" * 100)
    for wrong_id, length in (
        (other_id, 300),
        (chunk_id, 0),
        (chunk_id, MAX_CHUNK + 1),
    ):
        with pytest.raises(IntegrityError):
            SEALER.open(wrong_id, sealed, length)
    with pytest.raises(IntegrityError):
        Sealer(OneKey(b"D" * 32), b"i" * 32).open(chunk_id, sealed, 300)
    with pytest.raises(IntegrityError):
        Sealer(OneKey(b"d" * 32), b"I" * 32).open(chunk_id, sealed, 300)


def test_newer_format_is_named() -> None:
    chunk_id, sealed = seal(b"x")
    with pytest.raises(NewerVersionError, match="format 3"):
        SEALER.open(chunk_id, b"\x03" + sealed[1:], 1)


def forge(chunk_id: bytes, flags: int, body: bytes) -> bytes:
    """Seal an arbitrary body, as a device that has the keys but another program could."""
    key, _ = _keys(b"d" * 32, flags, chunk_id)
    return bytes([flags]) + FIRST_EPOCH + bytes(12) + AESGCM(key).encrypt(bytes(12), body, None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(zstandard.compress(bytes(300)), id="frame that declares its size"),
        pytest.param(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 27)), id="bomb"),
        pytest.param(
            zstandard.ZstdCompressor(write_content_size=False).compress(bytes(300)) * 2, id="two frames"
        ),
        pytest.param(b"", id="empty"),
        pytest.param(b"no frame", id="no frame"),
    ],
)
def test_hostile_bodies_of_a_key_holder_are_refused(body: bytes) -> None:
    chunk_id = SEALER.chunk_id(bytes(300))
    with pytest.raises(IntegrityError):
        SEALER.open(chunk_id, forge(chunk_id, 0x82, body), 300)


def test_content_that_is_not_the_named_chunk_is_refused() -> None:
    chunk_id = SEALER.chunk_id(b"right")
    with pytest.raises(IntegrityError, match="other content"):
        SEALER.open(chunk_id, forge(chunk_id, 0x02, b"wrong"), 5)


def test_illegal_arguments() -> None:
    with pytest.raises(ValueError, match="dedup key"):
        Sealer(OneKey(b"d" * 32), b"short")
    for size in (0, MAX_CHUNK + 1):
        with pytest.raises(ValueError, match="a chunk is"):
            SEALER.seal(bytes(32), bytes(size))
        with pytest.raises(ValueError, match="a chunk is"):
            list(SEALER.seal_all([(bytes(32), b"x"), (bytes(32), bytes(size))]))
    with pytest.raises(ValueError, match="chunk id"):
        SEALER.seal(b"short", b"x")


def test_threads_do_not_share_buffers() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        rnd = random.Random(seed)
        for _ in range(30):
            plaintext = rnd.randbytes(20_000) + bytes(rnd.randrange(200_000))
            chunk_id, sealed = seal(plaintext)
            if SEALER.open(chunk_id, sealed, len(plaintext)) != plaintext:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_result_does_not_alias_the_buffers() -> None:
    first = os.urandom(1000)
    chunk_id, sealed = seal(first)
    opened = SEALER.open(chunk_id, sealed, 1000)
    seal(os.urandom(1000))
    assert opened == first
    assert SEALER.open(chunk_id, sealed, 1000) == first
