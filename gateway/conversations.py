"""Conversations with the daemon, for as many threads as there are: each has one for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from hybrisfs.api.request import Request
from hybrisfs.client import Client, DaemonError, HybrisError

__all__ = ["Conversations"]

_Answer = TypeVar("_Answer")


class Conversations:
    """Thread-safe. Conversations are kept for the next who asks, until the daemon that they are with ends."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self._busy: set[Client] = set()
        self._closed = False

    def call(self, request: Request[_Answer]) -> _Answer:
        """Have the daemon carry out a request. Raises HybrisError, DaemonError when the daemon is away."""
        client = self._take()
        try:
            answer = client.call(request)
        except DaemonError:
            self._drop(client)
            raise
        except HybrisError:
            self._give_back(client)
            raise
        except BaseException:
            self._drop(client)
            raise
        self._give_back(client)
        return answer

    def close(self) -> None:
        """End all conversations, also those under way."""
        with self._lock:
            self._closed = True
            clients = [*self._idle, *self._busy]
            self._idle.clear()
        for one in clients:
            one.close()

    def _take(self) -> Client:
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = self._connect()
        with self._lock:
            self._busy.add(client)
            if not self._closed:
                return client
        self._drop(client)
        raise DaemonError("the gateway ends")

    def _give_back(self, client: Client) -> None:
        with self._lock:
            self._busy.discard(client)
            if not self._closed:
                self._idle.append(client)

    def _drop(self, client: Client) -> None:
        """End a conversation, and those that rest: they are with the same daemon."""
        with self._lock:
            self._busy.discard(client)
            clients = [client, *self._idle]
            self._idle.clear()
        for one in clients:
            one.close()
