"""A stand-in for Google Cloud Storage as far as it keeps versions, which its emulator does not do.

It answers the requests of the SDK as the service's documentation says; whether the service does so, no test
here shows. `denied` are rights that the caller lacks: "storage.objects.delete", "storage.buckets.update", ...
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.backends.faulty_server import Answer, Request

__all__ = ["FakeGcs"]


@dataclass
class FakeGcs:
    """One bucket. `kept` has the generations of each name, the oldest first; `live` the present ones."""

    soft_delete_days: int = 0
    denied: set[str] = field(default_factory=set)
    bucket: dict[str, Any] = field(default_factory=lambda: {"name": "bucket"})
    kept: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)
    newest: int = 0

    def __call__(self, request: Request) -> Answer:
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        place = parts.path.partition("/b/bucket")[2]
        if not place:
            return self._on_bucket(request)
        name = unquote(place.removeprefix("/o").removeprefix("/"))
        if request.method == "POST":
            return self._upload(request)
        if not name:
            return self._list(query)
        return self._on_object(request.method, name, query)

    def _on_bucket(self, request: Request) -> Answer:
        if "storage.buckets.get" in self.denied:
            return _refused()
        if request.method == "PATCH":
            if "storage.buckets.update" in self.denied:
                return _refused()
            self.bucket |= json.loads(request.body)
        soft = {"retentionDurationSeconds": str(self.soft_delete_days * 86400)}
        return _json({**self.bucket, "softDeletePolicy": soft})

    @property
    def _versioned(self) -> bool:
        return bool(self.bucket.get("versioning", {}).get("enabled"))

    def _upload(self, request: Request) -> Answer:
        boundary = request.body.split(b"\r\n", 1)[0]
        about, content = request.body.split(boundary)[1:3]
        name = json.loads(about.split(b"\r\n\r\n", 1)[1])["name"]
        data = content.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n")
        if name in self.live and "storage.objects.delete" in self.denied:
            return _refused()
        self._retire(name)
        self.newest += 1
        self.kept.setdefault(name, []).append((self.newest, data))
        self.live[name] = self.newest
        return _json({"name": name, "generation": str(self.newest), "size": str(len(data))})

    def _retire(self, name: str) -> None:
        generation = self.live.pop(name, None)
        if generation is not None and not self._versioned:
            self.kept[name] = [one for one in self.kept[name] if one[0] != generation]

    def _list(self, query: dict[str, str]) -> Answer:
        items = [
            {"name": name, "generation": str(generation), "size": str(len(data))}
            for name in sorted(self.kept)
            if name.startswith(query.get("prefix", ""))
            for generation, data in self.kept[name]
            if query.get("versions", "").lower() == "true" or self.live.get(name) == generation
        ]
        return _json({"items": items})

    def _on_object(self, method: str, name: str, query: dict[str, str]) -> Answer:
        generation = int(query.get("generation", self.live.get(name, 0)))
        found = [data for number, data in self.kept.get(name, []) if number == generation]
        if not found:
            return _json({"error": {"code": 404, "message": "No such object"}}, 404)
        if method == "GET":
            return Answer(200, {"X-Goog-Generation": str(generation)}, found[0])
        if "storage.objects.delete" in self.denied:
            return _refused()
        if "generation" in query:
            self.kept[name] = [one for one in self.kept[name] if one[0] != generation]
            if self.live.get(name) == generation:
                del self.live[name]
        else:
            self._retire(name)
        return Answer(204)


def _json(document: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(document).encode())


def _refused() -> Answer:
    errors = [{"reason": "forbidden", "message": "lacks the right"}]
    return _json({"error": {"code": 403, "message": "lacks the right", "errors": errors}}, 403)
