"""Requests to a WebDAV server (RFC 4918), with basic authentication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote, urlsplit
from xml.parsers import expat

from msgspec import Struct

from backends.address import Address
from backends.body import BodyError, Timing
from backends.credentials import Secrets
from backends.http_client import HttpClient

__all__ = ["WebDavClient", "parse_multistatus", "server_of"]


def server_of(address: Address) -> str:
    """The URL of the root of the server that `address` names."""
    return f"{'https' if address.scheme == 'webdavs' else 'http'}://{address.authority}/"


class WebDavClient(HttpClient):
    """Talks to the server of `address` about paths below its folder: see `HttpClient`."""

    def __init__(self, address: Address, secrets: Secrets, timing: Timing) -> None:
        import urllib3

        headers: dict[str, str] = {}
        user, password = address.user or secrets.get("user"), secrets.get("password")
        if user or password:
            login = f"{user or ''}:{password or ''}"
            headers |= urllib3.make_headers(basic_auth=login.encode().decode("latin-1"))
        folder = f"/{address.quoted_path}/" if address.path else "/"
        super().__init__(server_of(address).rstrip("/"), folder, headers, timing)

    def move(self, path: str, target: str, *, overwrite: bool) -> int:
        """Move a resource; see `call`. Whether something else was there already tells the status."""
        where = self._origin + self._folder + quote(target)
        return self.call("MOVE", path, Destination=where, Overwrite="T" if overwrite else "F")

    def children(self, path: str) -> Iterator[tuple[str, Resource]]:
        """Yield (name, resource) for what a folder holds. Raises `BodyError` for a senseless answer."""
        folder = unquote(self._folder) + (f"{path}/" if path else "")
        more = {"Depth": "1", "Content-Type": "application/xml"}
        with self._answer("PROPFIND", path + "/" if path else "", REQUEST, more) as answer:
            if answer.status != 207:
                raise BodyError("garbled", f"HTTP {answer.status} is not an answer to a listing")
            try:
                resources = parse_multistatus(answer.stream())
            except ValueError as error:
                raise BodyError("garbled", f"the listing is {error}") from error
        for resource in resources:
            try:
                name = unquote(urlsplit(resource.href).path, errors="surrogateescape").rstrip("/")
            except ValueError:
                continue
            parent, _, last = name.rpartition("/")
            if parent + "/" == folder:
                yield last, resource


# -- the answer to a PROPFIND (RFC 4918, sections 9.1 and 14): what a WebDAV folder holds ---------------
#     <multistatus xmlns="DAV:">
#       <response> <href>/folder/name</href>
#         <propstat> <prop> <resourcetype><collection/></resourcetype>
#                           <getcontentlength>7</getcontentlength>
#                           <getlastmodified>Fri, 20 Nov 2026 10:00:00 GMT</getlastmodified> </prop> ...
#
# Everything else in it is skipped. The parser takes the document piece by piece and keeps the facts only.


REQUEST: Final = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b'<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/></prop></propfind>'
)

_MAX_RESOURCES: Final = 1_000_000
_MAX_TEXT: Final = 4096  # characters of one value
_VALUES: Final = frozenset({"DAV: href", "DAV: getcontentlength", "DAV: getlastmodified"})


class Resource(Struct):
    """One resource: its URL or path as the server writes it, and its facts."""

    href: str = ""
    is_folder: bool = False
    size: int = 0  # bytes
    modified: str = ""  # HTTP date


def parse_multistatus(pieces: Iterable[bytes]) -> list[Resource]:
    """Return the resources of an answer. Raises `ValueError` for anything else."""
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
