"""The page that opens a parcel, in the browser of somebody who has the link.

It is one document without anything from elsewhere. By its policy it runs its own script only, and talks to
the host that it comes from: that is where the pieces are. It has the head of the parcel and the URLs of the
pieces, which are good for as long as its own. The cloud that hands it out can hand out another page: what
that means is in the threat model.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files

__all__ = ["page"]


def page(head: bytes, pieces: Sequence[str]) -> bytes:
    """The document for a parcel with this sealed *head*; *pieces* are URLs."""
    static = files(__package__) / "static"
    document, style, script = (
        (static / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(style)}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    said = json.dumps({"head": b64encode(head).decode(), "pieces": list(pieces)})
    parts = {
        "@POLICY@": policy,
        "@STYLE@": style,
        "@SCRIPT@": script,
        "@PARCEL@": said.replace("<", "\\u003c"),  # or a URL could end the element
    }
    for mark, part in parts.items():
        document = document.replace(mark, part, 1)
    return document.encode()


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
