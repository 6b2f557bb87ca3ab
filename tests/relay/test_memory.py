"""What is on its way through a relay takes no more memory than there is, and no space takes all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Message

from relay.objects import ObjectServer
from relay.rooms import Rooms
from relay.spaces import Space, Spaces

LARGE = 60


@pytest.fixture
def spaces(tmp_path: Path) -> dict[str, Space]:
    made = Spaces(tmp_path)
    return {name: made.add(name, "relay.org", 8017, 0, 0.0) for name in ("thief", "honest")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    one = ObjectServer(Spaces(tmp_path), Rooms(tmp_path), lambda _: None, memory=2 * LARGE)
    yield one
    one.close()


async def asked(server: ObjectServer, space: Space, length: str, body: bytes | None) -> int:
    """The status that a PUT is answered with; the *body* never comes when it is None."""
    said: list[Message] = []

    async def receive() -> Message:
        if body is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    headers = [(b"authorization", f"Bearer {space.token}".encode()), (b"content-length", length.encode())]
    path = f"/{space.name}/" if length == "0" else f"/{space.name}/o/marker"
    scope = {"type": "http", "method": "PUT", "path": path, "headers": headers, "client": None}
    await server(scope, receive, send)
    return int(said[0]["status"])


def test_a_space_whose_bodies_do_not_come_holds_up_no_other(
    server: ObjectServer, spaces: dict[str, Space]
) -> None:
    async def both() -> int:
        await asked(server, spaces["honest"], "0", b"")
        waiting = [asyncio.ensure_future(asked(server, spaces["thief"], str(LARGE), None)) for _ in range(4)]
        await asyncio.sleep(0)
        status = await asyncio.wait_for(asked(server, spaces["honest"], str(LARGE), bytes(LARGE)), 30)
        for one in waiting:
            one.cancel()
        return status

    assert asyncio.run(both()) == 204


def test_no_length_is_longer_than_it_looks(server: ObjectServer, spaces: dict[str, Space]) -> None:
    assert asyncio.run(asked(server, spaces["thief"], "0" * 20 + "1" * 30, b"")) == 413
