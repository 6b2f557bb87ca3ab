"""A stand-in for Azure Blob Storage as far as it keeps versions, which its emulator does not do.

It answers the requests of the SDK as the service's documentation says; whether the service does so, no test
here shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from tests.backends.faulty_server import Answer, Request

__all__ = ["FakeAzure"]


@dataclass
class FakeAzure:
    """One container of an account that keeps versions. With `lasting` none may be deleted."""

    lasting: bool = False
    kept: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    newest: int = 0

    def __call__(self, request: Request) -> Answer:
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = unquote(parts.path.removeprefix("/testing/box").removeprefix("/"))
        if not name:
            return self._list(query)
        if request.method == "PUT":
            self.newest += 1
            self.kept.setdefault(name, []).append((f"v{self.newest:05}", request.body))
            self.live.add(name)
            return Answer(201)
        version = query.get("versionid")
        if request.method == "DELETE":
            return self._delete(name, version)
        kept = self.kept.get(name, []) if version or name in self.live else []
        found = [data for one, data in kept if version in (None, one)]
        return self._content(found[-1], request.headers.get("x-ms-range", "")) if found else _missing()

    @staticmethod
    def _content(data: bytes, wanted: str) -> Answer:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last or len(data) - 1), len(data) - 1)
        about = {
            "Content-Range": f"bytes {start}-{end}/{len(data)}",
            "ETag": '"1"',
            "x-ms-blob-type": "BlockBlob",
        }
        return Answer(206 if wanted else 200, about, data[start : end + 1])

    def _delete(self, name: str, version: str | None) -> Answer:
        if version is None:
            if name not in self.live:
                return _missing()
            self.live.discard(name)
        elif self.lasting:
            return Answer(403, {"x-ms-error-code": "AuthorizationPermissionMismatch"})
        else:
            self.kept[name] = [one for one in self.kept[name] if one[0] != version]
        return Answer(202)

    def _list(self, query: dict[str, str]) -> Answer:
        every = "versions" in query.get("include", "")
        blobs = "".join(
            f"<Blob><Name>{name}</Name><VersionId>{version}</VersionId><Properties>"
            f"<Content-Length>{len(data)}</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name in sorted(self.kept)
            if name.startswith(query.get("prefix", ""))
            for version, data in self.kept[name]
            if every or (name in self.live and version == self.kept[name][-1][0])
        )
        body = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
        return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def _missing() -> Answer:
    return Answer(404, {"x-ms-error-code": "BlobNotFound"})
