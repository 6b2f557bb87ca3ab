"""A folder of this disk, served in this process: all but the mount and TLS."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import requests
import uvicorn

from hybrisfs.door import Door, DoorLimits
from hybrisfs.listening import Address, listening
from serving.app import AppLimits, WebDav
from serving.folder import Folder
from serving.host_key import host_key
from serving.resources import Provider
from serving.sftp import serve_clients
from serving.unfinished import Unfinished
from serving.users import Guard, Users

__all__ = ["LocalRoot", "Rig", "SftpRig", "folder_of", "listed", "running", "running_sftp"]


class LocalRoot:
    """A folder of this disk, in the place of one of a mounted volume."""

    def __init__(self, path: Path, names: tuple[str, ...] = ()) -> None:
        self.names = names
        self._path = path

    @contextmanager
    def open(self) -> Iterator[int]:
        found = os.open(self._path, os.O_PATH | os.O_DIRECTORY)
        try:
            yield found
        finally:
            os.close(found)


class Rig(NamedTuple):
    """What is served, where, and to whom."""

    root: Path
    url: str
    users: Users
    guard: Guard
    password: str

    def ask(
        self,
        method: str,
        path: str,
        data: object = None,
        *,
        password: str | None = None,
        **headers: str,
    ) -> requests.Response:
        """Ask as the user `phone`; `_` in names of headers stands for `-`."""
        return requests.request(
            method,
            self.url + path,
            data=data,  # type: ignore[arg-type]
            auth=("phone", self.password if password is None else password),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            timeout=60,
        )


def listed(folder: Path) -> list[str]:
    """The names in a folder of this disk, sorted."""
    return sorted(one.name for one in folder.iterdir())


def folder_of(tmp_path: Path) -> tuple[Path, Folder]:
    """A folder, and what serves it; the notes of what is unfinished are in `notes`."""
    root, notes = tmp_path / "root", tmp_path / "notes"
    root.mkdir(exist_ok=True)
    notes.mkdir(exist_ok=True)
    return root, Folder(LocalRoot(root), Unfinished(notes))


@contextmanager
def running(
    tmp_path: Path,
    *,
    read_only: bool = False,
    limits: AppLimits = AppLimits(),  # noqa: B008 - it cannot be changed
    doors: DoorLimits = DoorLimits(),  # noqa: B008 - it cannot be changed
) -> Iterator[Rig]:
    """Serve on a free port."""
    root, folder = folder_of(tmp_path)
    (tmp_path / "litter").mkdir()
    litter = Folder(LocalRoot(tmp_path / "litter"), Unfinished(tmp_path / "notes"), 1000)
    users = Users(tmp_path / "serve" / "vol.json")
    password = users.add("phone")
    guard = Guard(users, tries=5)
    with listening(Address("127.0.0.1", 0)) as listener:
        door = Door(listener, doors)
        app = WebDav(Provider(folder, litter, read_only=read_only), guard, door.entered, limits)
        server = uvicorn.Server(
            uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_level="warning")
        )
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
        thread.start()
        try:
            yield Rig(root, f"http://127.0.0.1:{door.getsockname()[1]}", users, guard, password)
        finally:
            server.should_exit = True
            thread.join()
            app.close()
            door.close()


class SftpRig(NamedTuple):
    """What is served by SFTP, where, and to whom."""

    root: Path
    port: int
    users: Users
    password: str


@contextmanager
def running_sftp(
    tmp_path: Path,
    *,
    read_only: bool = False,
    doors: DoorLimits = DoorLimits(),  # noqa: B008 - it cannot be changed
) -> Iterator[SftpRig]:
    """Serve by SFTP on a free port."""
    root, folder = folder_of(tmp_path)
    users = Users(tmp_path / "serve" / "vol.json")
    password = users.add("phone")
    key = host_key(users.folder).key
    started = threading.Event()
    ending: list[Callable[[], object]] = []

    async def serve(door: Door) -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        ending.append(lambda: loop.call_soon_threadsafe(over.set))
        guard = Guard(users, tries=5)
        await serve_clients(door, key, guard, folder, over, started.set, read_only=read_only)

    with listening(Address("127.0.0.1", 0)) as listener, Door(listener, doors) as door:
        thread = threading.Thread(target=lambda: asyncio.run(serve(door)))
        thread.start()
        assert started.wait(60)
        try:
            yield SftpRig(root, door.getsockname()[1], users, password)
        finally:
            ending[0]()
            thread.join()
