"""The page that is printed with a recovery kit: what it is, where the clouds are, what to type. No secret is
on it: the passphrase is written on it by hand."""

from __future__ import annotations

import html
import shlex
import time
from collections.abc import Sequence
from io import BytesIO
from typing import Final

__all__ = ["html_page", "recover_command", "text_page"]

_WHAT: Final = (
    "If all machines of this volume are lost, this page, its passphrase and the accounts of the clouds bring "
    "everything back that had reached the clouds."
)
_HOW: Final = "On a new machine, install HybrisFS, give it the secrets of the clouds, and type:"
_PASSPHRASE: Final = "Passphrase (write it here by hand; without it this page opens nothing):"
_STYLE: Final = """body { font: 12pt/1.5 sans-serif; max-width: 18cm; margin: 1.5cm auto; }
pre { font: 10pt/1.4 monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { border: 1px solid; padding: 3mm; }
.line { border-bottom: 1px solid; height: 1.2cm; }
svg { width: 5cm; height: 5cm; }"""


def recover_command(clouds: Sequence[str]) -> str:
    """What is to be typed on a new machine."""
    return " ".join(["hybrisfs recover", *(f"--cloud {shlex.quote(url)}" for url in clouds)])


def text_page(volume: str, kit: str, clouds: Sequence[str], created: time.struct_time) -> str:
    """The page as plain text."""
    blank = "\n\n".join("_" * 72 for _ in range(2))
    return (
        f"{_title(volume)}\n{'=' * len(_title(volume))}\n\n{_WHAT}\n\n{_facts(kit, created)}\n\n"
        f"{_PASSPHRASE}\n\n\n{blank}\n\nThe clouds:\n\n"
        + "\n".join(f"  {url}" for url in clouds)
        + f"\n\n{_HOW}\n\n"
        f"  {recover_command(clouds)}\n"
    )


def html_page(volume: str, kit: str, clouds: Sequence[str], created: time.struct_time) -> str:
    """The page as HTML, for a browser to print; the QR code holds what is to be typed."""
    title, command = html.escape(_title(volume)), recover_command(clouds)
    items = "".join(f"<li><code>{html.escape(url)}</code></li>\n" for url in clouds)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{_WHAT}</p>\n"
        f'<p>{html.escape(_facts(kit, created))}</p>\n<p>{_PASSPHRASE}</p>\n<div class="line"></div>'
        f'<div class="line"></div>\n<h2>The clouds</h2>\n<ul>\n{items}</ul>\n<h2>To recover</h2>\n'
        f"<p>{_HOW}</p>\n"
        f"<pre>{html.escape(command)}</pre>\n{_picture(command)}\n</body></html>\n"
    )


def _title(volume: str) -> str:
    return f"HybrisFS recovery kit: {volume}"


def _facts(kit: str, created: time.struct_time) -> str:
    return f"Kit {kit[:8]}, made {time.strftime('%Y-%m-%d %H:%M', created)}."


def _picture(text: str) -> str:
    """A QR code as SVG; nothing when the text is longer than such a code can hold."""
    import segno  # only who makes a kit needs it

    try:
        code = segno.make_qr(text, error="l")
    except segno.DataOverflowError:
        return ""
    out = BytesIO()
    code.save(out, kind="svg", xmldecl=False, svgns=True, omitsize=True)
    return out.getvalue().decode()
