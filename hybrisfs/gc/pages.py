"""Lists of chunks of long files, which must be read before it can be told what their files need."""

from __future__ import annotations

from collections.abc import Iterable

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.read.fetch import Fetcher
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.needs import chunks_of_page

__all__ = ["Pages"]


class Pages:
    """Reads lists of chunks, from wherever they are. Called without the volume's lock."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher) -> None:
        self._fs = fs
        self._fetcher = fetcher

    def read(self, identity: bytes) -> bytes:
        """The bytes of the list with this id. Raises ChunkUnavailable, OSError."""
        fs = self._fs
        with fs.state.transaction() as tx:
            ref = tx.chunks.find(identity)
            if ref is None:
                raise ChunkUnavailable(f"chunk {identity.hex()[:16]}", {})
            data = tx.chunks.read_whole(ref)
        return self._fetcher.fetch_one(ref) if data is None else data

    def list_files(self) -> bool:
        """Let the view show of all files which chunks they have; whether it had to learn of any.

        Raises ChunkUnavailable, OSError.
        """
        fs = self._fs
        with fs.state.transaction():
            unlisted = fs.received.all_unlisted()
        for ino in unlisted:
            while True:
                with fs.state.transaction() as tx:
                    still = fs.received.is_unlisted(ino)
                    lacking = fs.received.lacking_to_know(tx, fs.inodes.get(tx, ino)) if still else None
                if lacking is None:
                    break
                for ref in lacking.chunks:
                    self._fetcher.fetch_one(ref)
        return bool(unlisted)

    def look_through(self, unread: Iterable[bytes]) -> None:
        """Look for chunks of condemned packs in lists that were named since these were condemned.

        What nobody can bring may name any of them.
        """
        fs = self._fs
        for identity in unread:
            try:
                named = chunks_of_page(self.read(identity))
            except (ChunkUnavailable, OSError):
                named = None
            with fs.state.transaction() as tx:
                if named is None:
                    tx.chunks.condemned.want_all()
                else:
                    tx.chunks.condemned.see_chunks(named)
                tx.chunks.condemned.page_read(identity)
