"""Texts as QR codes for a terminal."""

from __future__ import annotations

__all__ = ["qr_lines"]


def qr_lines(text: str) -> list[str]:
    """A QR code in half-block characters; dark on light, border included. Each string holds two rows."""
    import segno  # only commands that show one need it

    rows = [[bool(module) for module in row] for row in segno.make_qr(text, error="l").matrix]
    border = 2  # the standard asks for 4; readers are content with 2, and terminals are small
    width = len(rows) + 2 * border
    blank = [[False] * width for _ in range(border)]
    padded = [*blank, *([False] * border + row + [False] * border for row in rows), *blank]
    if len(padded) % 2:
        padded.append([False] * width)
    halves = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    return [
        "".join(halves[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(padded[::2], padded[1::2], strict=True)
    ]
