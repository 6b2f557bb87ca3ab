"""QR codes for a terminal."""

from __future__ import annotations

from hybrisfs.qr import qr_lines


def test_the_qr_code_is_square_with_a_quiet_border() -> None:
    lines = qr_lines("HFS1" + "ABCDEFGHJK" * 20)
    width = len(lines[0])
    assert {len(line) for line in lines} == {width}
    assert width // 2 <= len(lines) <= width // 2 + 1
    assert width < 80  # fits a terminal
    assert lines[0] == "█" * width
    assert all(line.startswith("██") and line.endswith("██") for line in lines)
    assert lines[1].startswith("██ ▄▄▄▄▄ ")  # a finder pattern
