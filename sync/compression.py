"""Compression of what is sealed: one zstd frame of a size that its reader was told and holds it to."""

from __future__ import annotations

import zstandard

from sync.errors import DecodeError

__all__ = ["compress", "decompress"]

_LEVEL = 3  # measured: as small as 6 to 12 on metadata full of random ids, and twice as fast
_WINDOW_LOG = 24


def compress(data: bytes) -> bytes:
    """One frame, which tells the size of what is in it."""
    # The window spans everything, so that an id is found again however far back it stands.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(data), window_log=min(_WINDOW_LOG, max(10, len(data).bit_length()))
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def decompress(frame: bytes, size: int) -> bytes:
    """Decompress a frame that must hold exactly `size` bytes and allocate no more than that.

    Raises `DecodeError`.
    """
    try:
        parameters = zstandard.get_frame_parameters(frame)
        if parameters.content_size != size:
            raise DecodeError(f"the record states {size} bytes, its zstd frame {parameters.content_size}")
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        return decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"it does not decompress: {error}") from error
