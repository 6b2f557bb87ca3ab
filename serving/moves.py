"""COPY and MOVE, each in one step.

WsgiDAV has its own, which would remove what is at the destination before it moves something there, and which
decodes the header before it takes it apart: a file that is moved to `a?b` would replace `a`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from wsgidav import util
from wsgidav.dav_error import (
    HTTP_BAD_GATEWAY,
    HTTP_BAD_REQUEST,
    HTTP_CONFLICT,
    HTTP_CREATED,
    HTTP_FORBIDDEN,
    HTTP_NO_CONTENT,
    HTTP_NOT_FOUND,
    HTTP_PRECONDITION_FAILED,
    DAVError,
)

from serving.folder import Writer

if TYPE_CHECKING:
    from wsgidav.request_server import RequestServer

    from serving.folder import Folder, Path

__all__ = ["Environ", "Tree", "copy_or_move", "writer_of"]

Environ: TypeAlias = dict[str, Any]


class Tree(Protocol):
    """What is served."""

    def get_resource_inst(self, path: str | None, environ: Environ) -> Any:
        """What is at a path of a URL, or None."""

    def place(self, path: str) -> tuple[Folder, Path]:
        """In which folder a path of a URL leads to what."""


def copy_or_move(
    provider: Tree, server: RequestServer, environ: Environ, start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Answer the request. Raises DAVError, OSError."""
    is_move = environ["REQUEST_METHOD"] == "MOVE"
    source = provider.get_resource_inst(environ["PATH_INFO"], environ)
    if source is None:
        raise DAVError(HTTP_NOT_FOUND)
    depth = environ.get("HTTP_DEPTH", "infinity")
    if depth not in (("infinity",) if is_move and source.is_collection else ("0", "infinity")):
        raise DAVError(HTTP_BAD_REQUEST, "there is no such depth")
    overwrite = environ.get("HTTP_OVERWRITE", "T")
    if overwrite not in ("T", "F"):
        raise DAVError(HTTP_BAD_REQUEST, "Overwrite is T or F")
    path = _destination(environ)
    from_folder, origin = provider.place(environ["PATH_INFO"])
    into_folder, where = provider.place(path)
    if origin[: len(where)] == where or where[: len(origin)] == origin or from_folder is not into_folder:
        raise DAVError(HTTP_FORBIDDEN, "something can be moved neither into itself nor over what holds it")
    target = provider.get_resource_inst(path, environ)
    _check_locks(provider, server, environ, source, path, target)
    if target is not None and overwrite == "F":
        raise DAVError(HTTP_PRECONDITION_FAILED)
    try:
        replace, members, writer = overwrite == "T", depth == "infinity", writer_of(environ)
        if is_move:
            from_folder.move(origin, where, replace=replace, writer=writer)
        else:
            from_folder.copy(origin, where, replace=replace, with_members=members, writer=writer)
    except FileExistsError:
        raise DAVError(HTTP_PRECONDITION_FAILED) from None
    if is_move:
        source.remove_all_locks(recursive=True)
    status = HTTP_CREATED if target is None else HTTP_NO_CONTENT
    return util.send_status_response(environ, start_response, status)  # type: ignore[no-any-return]


def writer_of(environ: Environ) -> Writer:
    """Whom the log names for what a request changes."""
    return Writer("webdav", environ["wsgidav.auth.user_name"])


def _check_locks(
    provider: Tree, server: RequestServer, environ: Environ, source: Any, path: str, target: Any
) -> None:
    """As RFC 4918 wants it, 7.4 and 9.9. Raises DAVError."""
    parent = provider.get_resource_inst(util.get_uri_parent(path), environ)
    if parent is None or not parent.is_collection:
        raise DAVError(HTTP_CONFLICT, "there is no such folder")
    server._evaluate_if_headers(source, environ)
    server._evaluate_if_headers(target, environ)
    if environ["REQUEST_METHOD"] == "MOVE":
        server._check_write_permission(source, "infinity", environ)
        above = provider.get_resource_inst(util.get_uri_parent(environ["PATH_INFO"]), environ)
        server._check_write_permission(above, "0", environ)
    if target is None:
        server._check_write_permission(parent, "0", environ)
    server._check_write_permission(target, "infinity", environ)


def _destination(environ: Environ) -> str:
    """The path to which the header leads. Raises DAVError."""
    try:
        parts = urlsplit(environ["HTTP_DESTINATION"])
        path = unquote_to_bytes(parts.path.encode("latin-1")).decode()
    except (KeyError, ValueError):
        raise DAVError(HTTP_BAD_REQUEST, "Destination is no URL") from None
    if parts.query or parts.fragment or not path.startswith("/"):
        raise DAVError(HTTP_BAD_REQUEST, "Destination is not a path")
    if parts.scheme or parts.netloc:
        host = parts.netloc.rpartition("@")[2].lower()
        if parts.scheme.lower() != environ["wsgi.url_scheme"] or host != environ["HTTP_HOST"].lower():
            raise DAVError(HTTP_BAD_GATEWAY, "Destination is on another server")
    names = [name for name in path.split("/") if name]
    if not names or "." in names or ".." in names:
        raise DAVError(HTTP_FORBIDDEN)
    return "/" + "/".join(names)
