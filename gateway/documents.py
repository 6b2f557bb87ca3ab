"""The XML of S3. Pure. What comes in may have no document type, so there are no entities to expand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.parsers import expat

from msgspec import Struct, field

from gateway.errors import S3Error
from gateway.preconditions import moment_of

__all__ = [
    "Deletion",
    "Tree",
    "document",
    "element",
    "iso_date",
    "read_complete_upload",
    "read_deletions",
    "text",
]

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
_MOST_ELEMENTS: Final = 100_000
_DEEPEST: Final = 8
_MOST_DELETIONS: Final = 1000


# -- writing --------------------------------------------------------------------------------------------


def text(value: str) -> str:
    """Text between tags. Characters that XML cannot hold become references, as S3 writes them."""
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    if escaped.isprintable():
        return escaped
    return "".join(one if one >= " " else f"&#x{ord(one) or 0xFFFD:x};" for one in escaped)


def element(name: str, *content: str) -> str:
    """An element; *content* is XML."""
    return f"<{name}>{''.join(content)}</{name}>"


def document(name: str, *content: str) -> bytes:
    """A whole document of S3's namespace."""
    inside = f'<{name} xmlns="{_NAMESPACE}">{"".join(content)}</{name}>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{inside}'.encode()


def iso_date(seconds: float | None) -> str:
    """A moment, in seconds since the epoch; 1970 for one that nobody knows."""
    moment = moment_of(seconds or 0.0)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


# -- reading --------------------------------------------------------------------------------------------


class Tree(Struct):
    """An element, without its namespace and attributes."""

    name: str
    text: str = ""
    children: list[Tree] = field(default_factory=list)

    def all(self, name: str) -> list[Tree]:
        """The children of that name."""
        return [one for one in self.children if one.name == name]

    def only(self, name: str) -> str | None:
        """The text of the only child of that name; None when there is none. Raises S3Error for several."""
        found = self.all(name)
        if len(found) > 1:
            raise _malformed()
        return found[0].text if found else None


class Deletion(NamedTuple):
    """A key that is to be deleted; only when it has this ETag, if one is given."""

    key: str
    etag: str | None


def read_deletions(data: bytes) -> tuple[Sequence[Deletion], bool]:
    """What a batch deletes, and whether it wants to hear of failures only. Raises S3Error."""
    tree = _parse(data, "Delete")
    found = []
    for one in tree.all("Object"):
        key, version = one.only("Key"), one.only("VersionId")
        if not key or version not in (None, "", "null"):
            raise _malformed()
        found.append(Deletion(key, one.only("ETag")))
    if not 0 < len(found) <= _MOST_DELETIONS:
        raise _malformed()
    return found, (tree.only("Quiet") or "").strip().lower() == "true"


def read_complete_upload(data: bytes) -> Sequence[tuple[int, str]]:
    """The numbers and ETags of the parts that make an object. Raises S3Error."""
    found = []
    for one in _parse(data, "CompleteMultipartUpload").all("Part"):
        number, etag = (one.only("PartNumber") or "").strip(), one.only("ETag")
        if not number.isascii() or not number.isdigit() or len(number) > 5 or etag is None:
            raise _malformed()
        found.append((int(number), etag.strip().strip('"')))
    if not found:
        raise _malformed()
    return found


def _parse(data: bytes, root: str) -> Tree:
    """The tree below the element *root*. Raises S3Error."""
    top = Tree("")
    open_elements = [top]
    count = 0

    def start(name: str, _: object) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ELEMENTS or len(open_elements) > _DEEPEST:
            raise _malformed()
        child = Tree(name.rpartition("}")[2])
        open_elements[-1].children.append(child)
        open_elements.append(child)

    def take(characters: str) -> None:
        open_elements[-1].text += characters

    def refuse(*_: object) -> None:
        raise _malformed()

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_elements.pop()
    parser.CharacterDataHandler = take
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise _malformed() from error
    if top.children[0].name != root:
        raise _malformed()
    return top.children[0]


def _malformed() -> S3Error:
    return S3Error("MalformedXML", "the document is not what the request needs")
