"""The WebDAV server of the tests: `python -m tests.backends.webdav_server FOLDER PORT`.

It is WsgiDAV as it comes, but for two things that other servers do better, nginx for example: a file that is
moved over another one takes its place in one step (WsgiDAV removes the other one first, and a reader may
find neither), and an answer has length and content of one and the same file (WsgiDAV looks the length up
before it opens the file, which may be another one by then).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from cheroot.wsgi import Server
from wsgidav.fs_dav_provider import FileResource, FilesystemProvider
from wsgidav.wsgidav_app import WsgiDAVApp

USER = "testing"
PASSWORD = "correct horse"


class _AtomicFile(FileResource):  # type: ignore[misc]
    def get_content_length(self) -> int:
        return os.fstat(self.get_content().fileno()).st_size

    def get_content(self) -> BinaryIO:
        if not hasattr(self, "_opened"):
            self._opened: BinaryIO = super().get_content()
        return self._opened

    def handle_move(self, dest_path: str) -> bool:
        target = Path(self.provider._loc_to_file_path(dest_path, self.environ))
        if target.is_dir():
            return False
        Path(self._file_path).replace(target)
        return True


class _Provider(FilesystemProvider):  # type: ignore[misc]
    def get_resource_inst(self, path: str, environ: dict[str, object]) -> object:
        resource = super().get_resource_inst(path, environ)
        if isinstance(resource, FileResource):
            return _AtomicFile(path, environ, resource._file_path)
        return resource


def main(folder: str, port: int) -> None:
    app = WsgiDAVApp(
        {
            "provider_mapping": {"/": _Provider(folder)},
            "simple_dc": {"user_mapping": {"*": {USER: {"password": PASSWORD}}}},
            "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
            "lock_storage": True,
            "property_manager": False,
            "verbose": 0,
            "logging": {"enable": False},
        }
    )
    server = Server(("127.0.0.1", port), app, numthreads=16)
    server.start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
