"""The answer to a PROPFIND (RFC 4918, sections 9.1 and 14): what a WebDAV folder holds.

    <multistatus xmlns="DAV:">
      <response> <href>/folder/name</href>
        <propstat> <prop> <resourcetype><collection/></resourcetype>
                          <getcontentlength>7</getcontentlength>
                          <getlastmodified>Fri, 20 Nov 2026 10:00:00 GMT</getlastmodified> </prop> ...

Everything else in it is skipped. The parser takes the document piece by piece and keeps the facts only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat

__all__ = ["REQUEST", "Resource", "parse_multistatus"]

REQUEST: Final = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b'<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/></prop></propfind>'
)

_MAX_RESOURCES: Final = 1_000_000
_MAX_TEXT: Final = 4096  # characters of one value
_VALUES: Final = frozenset({"DAV: href", "DAV: getcontentlength", "DAV: getlastmodified"})


@dataclass(slots=True)
class Resource:
    """One resource: its URL or path as the server writes it, and what is known of it."""

    href: str = ""
    is_folder: bool = False
    size: int = 0  # bytes
    modified: str = ""  # HTTP date


def parse_multistatus(pieces: Iterable[bytes]) -> list[Resource]:
    """Return the resources of an answer. Raises `ValueError` for anything that is no such answer."""
    document = _Document()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = document.start
    parser.EndElementHandler = document.end
    parser.CharacterDataHandler = document.text
    parser.StartDoctypeDeclHandler = document.refuse_doctype
    try:
        for piece in pieces:
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError) as error:  # the latter: of an encoding that nobody knows
        raise ValueError(f"not well-formed: {error}") from None
    if not document.complete:
        raise ValueError("not a multistatus document")
    return document.resources


class _Document:
    def __init__(self) -> None:
        self.resources: list[Resource] = []
        self.complete = False
        self._depth = 0
        self._text: list[str] = []
        self._length = 0
        self._current: Resource | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and tag != "DAV: multistatus":
            raise ValueError("not a multistatus document")
        self._depth += 1
        self._text, self._length = [], 0
        if tag == "DAV: response":
            self._current = Resource()
        elif tag == "DAV: collection" and self._current is not None:
            self._current.is_folder = True

    def text(self, data: str) -> None:
        self._length += len(data)
        if self._length <= _MAX_TEXT:
            self._text.append(data)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self.complete = self._depth == 0
        if self._current is None:
            return
        if tag in _VALUES:
            self._take(self._current, tag, "".join(self._text).strip())
        elif tag == "DAV: response":
            if len(self.resources) == _MAX_RESOURCES:
                raise ValueError(f"more than {_MAX_RESOURCES} entries in one folder")
            self.resources.append(self._current)
            self._current = None

    def refuse_doctype(self, *_: object) -> None:
        # Nobody needs one, and entities are a way to make much out of little.
        raise ValueError("it has a document type")

    def _take(self, resource: Resource, tag: str, value: str) -> None:
        if tag == "DAV: href":
            # The first one is the resource itself; others may follow in an error.
            resource.href = resource.href or value
        elif tag == "DAV: getlastmodified":
            resource.modified = value
        elif value.isascii() and value.isdigit():
            resource.size = int(value[:18])
