"""Translates the kernel's requests into calls of the filesystem, and its answers back.

One loop thread runs the handlers; each holds the volume's lock while it looks into memory and the
database. What would have to wait (bytes from the clouds, fsync, room in the cache) is answered later by
another thread, so that a slow cloud holds up only the programs that want its bytes. An fsync that takes one
quick sync is done at once for a program that is alone.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from hybrisfs import fuse
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.errors import failure
from hybrisfs.fuse import (
    LATER,
    Attributes,
    Entry,
    Later,
    Listing,
    ListingPlus,
    Opened,
    Request,
    StatVfs,
    records,
)
from hybrisfs.merge.resolution import Sparing
from hybrisfs.mount.answers import (
    FOREVER,
    ExtendedAttributes,
    KnownDirectories,
    Listings,
    attributes_of,
    change_attributes,
    clear_privileges,
    kills_by_allocating,
    list_entries,
    list_names,
    statvfs_of,
)
from hybrisfs.mount.echo import ECHO_FH, Echoes
from hybrisfs.mount.programs import NoFetchPrograms
from hybrisfs.read.evict import Evictor
from hybrisfs.read.fetch import Fetcher
from hybrisfs.read.freshness import Freshness, only_writes
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import NOTHING, STALE, Inode
from hybrisfs.tree.residency import Residency
from hybrisfs.versions.browser import VersionBrowser
from sync.codec import Buffer

__all__ = ["Adapter", "Pages", "Served"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_WORKERS: Final = 16
_A_NODE: Final = 4096  # bytes of disk that a new node may take
_REFUSALS: Final = 100  # by other programs that are quicker, or by the disk


class Served(Struct, frozen=True):
    """The parts of a volume that answer its mount."""

    fs: FileSystem
    committer: Committer
    fetcher: Fetcher
    room: Evictor
    residency: Residency
    freshness: Freshness
    sparing: Sparing
    no_fetch: NoFetchPrograms
    versions: VersionBrowser


class Pages(Protocol):
    """The kernel's pages of files."""

    def write_out(self, ino: int, offset: int) -> None:
        """Have the kernel write out and drop those of a file from an offset on."""


class Adapter(fuse.Operations):
    """The handlers of one mounted volume.

    There is none for flush: everything written is staged already, and the kernel asks only once.
    """

    def __init__(self, served: Served, pages: Pages) -> None:
        self._pages = pages
        self._fs = fs = served.fs
        self._state = fs.state
        self._committer = served.committer
        self._fetcher = served.fetcher
        self._room = served.room
        self._xattrs = ExtendedAttributes(fs, served.residency)
        self._no_fetch = served.no_fetch
        self._freshness = served.freshness
        self._sparing = served.sparing
        self.echoes = Echoes(ROOT_INO)
        self._listings = Listings()
        self._known = KnownDirectories()
        self._changing = 0  # updates that are being taken in
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="answer")
        # They wait for the kernel, which may wait for an answer of the others.
        self._seekers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="seek")

    def close(self) -> None:
        """Stop answering; requests still waiting are answered with an error when they are dropped."""
        self._freshness.let_go()
        for pool in (self._workers, self._seekers):
            pool.shutdown(wait=False, cancel_futures=True)

    # -- names -----------------------------------------------------------------------------------

    def lookup(self, request: Request, parent: int, name: bytes) -> Entry | Later:
        if self.echoes.is_one(request):
            found = self.echoes.lookup(parent, name)
            if isinstance(found, Entry):
                return found
            if found is not None:
                with self._state.transaction() as tx:
                    return self._echoed(self._fs.get(tx, found))
        with self._state.transaction() as tx:
            inode = self._fs.lookup(tx, parent, name)
            if inode is None:
                return self._kept(parent, Entry.negative(self._lasting))
            if not inode.looked_up:
                self._fs.unseen.found(parent, name, inode.ino)
            return self._kept(parent, self._entry(inode))

    def _kept(self, directory: int, entry: Entry) -> Entry:
        """The entry; the kernel may not keep it where an echo touches the directory."""
        return entry._replace(entry_timeout=0.0) if self.echoes.touches(directory) else entry

    def _entry(self, inode: Inode) -> Entry:
        self._told(inode)
        return self._entry_of(inode)

    def _told(self, inode: Inode) -> None:
        inode.looked_up = True
        if inode.is_directory:
            self._known.told(inode.ino)
        if inode.kernel_cache == STALE:
            inode.kernel_cache = NOTHING

    def _entry_of(self, inode: Inode) -> Entry:
        return Entry(attributes_of(inode), self._lasting, self._attributes_last(inode))

    def _attributes_last(self, inode: Inode) -> float:
        """For how many seconds the kernel may use the attributes: it is to ask again when a program looks at
        what it may not have seen."""
        asks = not inode.is_directory and self._fs.unseen.waits(inode.ino)
        return 0.0 if asks else self._lasting

    def _echoed(self, inode: Inode) -> Entry:
        if inode.is_directory:
            self._known.told(inode.ino, echo=True)
        return Entry(attributes_of(inode))

    @property
    def _lasting(self) -> float:
        """For how many seconds the kernel may keep an answer."""
        return 0.0 if self._changing else FOREVER

    def begin_change(self) -> None:
        """Names and nodes are about to change: the kernel must not keep answers that it
        gets until `end_change`."""
        with self._state.transaction():
            self._changing += 1

    def end_change(self) -> None:
        """The kernel has got notice of all changes."""
        with self._state.transaction():
            self._changing -= 1

    def knows(self, directory: int) -> bool:
        """Whether the kernel knows the directory, so that a program may watch it."""
        return directory in self._known

    def forget(self, forgets: Sequence[tuple[int, int]]) -> None:
        with self._state.transaction() as tx:
            for ino, times in forgets:
                if self._known.forgotten(ino, times):
                    self._fs.unseen.forgotten(ino)
                self._fs.forget(tx, ino)

    def mknod(self, request: Request, parent: int, name: bytes, mode: int, rdev: int) -> Entry | Later:
        return self._make(request, parent, name, mode, rdev)

    def mkdir(self, request: Request, parent: int, name: bytes, mode: int) -> Entry | Later:
        return self._make(request, parent, name, stat.S_IFDIR | mode)

    def _shown(self, parent: int, name: bytes) -> Entry:
        """The node that an echo makes: it is there already."""
        with self._state.transaction() as tx:
            inode = self._fs.lookup(tx, parent, name)
            if inode is None:
                raise failure(errno.ESTALE)
            return self._echoed(inode)

    def _make(self, request: Request, parent: int, name: bytes, mode: int, rdev: int = 0) -> Entry | Later:
        if self.echoes.is_one(request):
            return self._shown(parent, name)
        uid, gid, umask = request.uid, request.gid, request.umask
        return self._add(
            request,
            lambda tx: self._entry(self._fs.make(tx, parent, name, mode, uid, gid, umask=umask, rdev=rdev)),
        )

    def symlink(self, request: Request, target: bytes, parent: int, name: bytes) -> Entry | Later:
        if self.echoes.is_one(request):
            return self._shown(parent, name)
        mode, uid, gid = stat.S_IFLNK | 0o777, request.uid, request.gid
        return self._add(
            request, lambda tx: self._entry(self._fs.make(tx, parent, name, mode, uid, gid, target=target))
        )

    def link(self, request: Request, ino: int, new_parent: int, new_name: bytes) -> Entry | Later:
        return self._add(request, lambda tx: self._entry(self._fs.link(tx, ino, new_parent, new_name)))

    def _add(self, request: Request, make: Callable[[Transaction], T]) -> T | Later:
        """Do something that takes room on the disk, as soon as there is some."""
        try:
            with self._state.transaction() as tx:
                return make(tx)
        except JournalFullError:
            self._workers.submit(self._answer_later, request, lambda: self._in_room(_A_NODE, make))
            return LATER

    def _in_room(self, length: int, work: Callable[[Transaction], T]) -> T:
        """Do what takes *length* bytes of room, waiting for it. Raises JournalFullError when none comes, or
        when there seems to be room and the disk refuses all the same: a quota, or no inode left."""
        refusals = 0
        while True:
            fits = self._room.wait_for_room(length)
            try:
                with self._state.transaction() as tx:
                    return work(tx)
            except JournalFullError as error:
                refusals += fits
                if not fits or refusals > _REFUSALS:
                    log.warning("there is no room: %s", error)
                    raise

    def unlink(self, request: Request, parent: int, name: bytes) -> None:
        if self.echoes.is_one(request):
            return
        with self._state.transaction() as tx:
            self._fs.require_writable()
            if self._sparing.before_unlink(tx, parent, name):
                self._fs.unlink(tx, parent, name)

    def rmdir(self, request: Request, parent: int, name: bytes) -> None:
        if self.echoes.is_one(request):
            return
        with self._state.transaction() as tx:
            self._fs.rmdir(tx, parent, name)

    def rename(
        self, request: Request, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> Later | None:
        if self.echoes.is_one(request):
            return None

        def work(tx: Transaction) -> None:
            self._fs.require_writable()
            self._sparing.before_rename(tx, parent, name, new_parent, new_name, flags)
            self._fs.rename(tx, parent, name, new_parent, new_name, flags)

        return self._add(request, work)

    def readlink(self, request: Request, ino: int) -> bytes:
        with self._state.transaction() as tx:
            self._fs.unseen.read(ino)
            return self._fs.get(tx, ino).target or b""

    # -- attributes ------------------------------------------------------------------------------

    def getattr(self, request: Request, ino: int, fh: int | None) -> tuple[Attributes, float]:
        if self.echoes.is_hidden(ino):
            return self.echoes.attributes(ino), 0.0
        with self._state.transaction() as tx:
            inode = self._fs.get(tx, ino)
            if not inode.is_directory and not self.echoes.is_one(request):
                self._fs.unseen.looked(ino)
            if inode.kernel_cache == STALE:
                inode.kernel_cache = NOTHING
            return attributes_of(inode), self._attributes_last(inode)

    def setattr(
        self, request: Request, ino: int, attributes: Attributes, to_set: int, fh: int | None
    ) -> tuple[Attributes, float] | Later:
        if self.echoes.is_one(request):
            return self.getattr(request, ino, fh)
        if to_set & records.FATTR_SIZE:
            return self._with_list(
                request, ino, lambda tx: self._set_attributes(tx, request, ino, attributes, to_set)
            )
        with self._state.transaction() as tx:
            return self._set_attributes(tx, request, ino, attributes, to_set)

    def _set_attributes(
        self, tx: Transaction, request: Request, ino: int, attributes: Attributes, to_set: int
    ) -> tuple[Attributes, float]:
        fs = self._fs
        fs.require_writable()
        inode = fs.get(tx, ino)
        if to_set & records.FATTR_SIZE:
            self._sparing.before_overwrite(tx, inode, attributes.size)
            fs.truncate(tx, inode, attributes.size)
        change_attributes(tx, fs, request, inode, attributes, to_set)
        return attributes_of(inode), FOREVER

    def statfs(self, request: Request, ino: int) -> StatVfs:
        with self._state.transaction():
            return statvfs_of(self._fs.space())

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> bytes | int:
        return self._xattrs.get(ino, name, size)

    def listxattr(self, request: Request, ino: int, size: int) -> bytes | int:
        return self._xattrs.list(request, ino, size)

    def setxattr(self, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> Later | None:
        return self._add(request, lambda tx: self._xattrs.set(tx, request, ino, name, value, flags))

    def removexattr(self, request: Request, ino: int, name: bytes) -> None:
        self._xattrs.remove(ino, name)

    # -- directories -----------------------------------------------------------------------------

    def opendir(self, request: Request, ino: int, flags: int) -> Opened:
        with self._state.transaction() as tx:
            self._fs.names.directory(tx, ino)
            # While anything is unseen it matters whether a program lists what is there now.
            cached = not self._fs.unseen and not self._changing
        return Opened(self._listings.open(), keep_cache=cached, cache_readdir=cached)

    def releasedir(self, request: Request, ino: int, fh: int, flags: int) -> None:
        self._listings.close(fh)

    def readdir(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Listing | Later:
        with self._state.transaction() as tx:
            self._begin_listing(ino, offset)
            return list_names(tx, self._fs, ino, offset, size, self._listings.end(tx, self._fs, fh, offset))

    def readdirplus(self, request: Request, ino: int, fh: int, offset: int, size: int) -> ListingPlus | Later:
        with self._state.transaction() as tx:
            self._begin_listing(ino, offset)
            end = self._listings.end(tx, self._fs, fh, offset)

            def entry_of(inode: Inode) -> Entry:
                return self._kept(ino, self._entry_of(inode))

            return list_entries(tx, self._fs, ino, offset, size, end, entry_of, self._told)

    def _begin_listing(self, ino: int, offset: int) -> None:
        if offset == 0:
            self._fs.unseen.listed(ino)

    # -- open files ------------------------------------------------------------------------------

    def open(self, request: Request, ino: int, flags: int) -> Opened | Later:
        if self.echoes.is_one(request):
            return Opened(ECHO_FH, keep_cache=True)

        def work(tx: Transaction) -> Opened:
            self._require_current(tx, ino)
            number = self._fs.open(tx, ino, flags)
            return self._opened(self._fs.handle(number), number)

        if only_writes(flags) or not self._freshness.must_wait():
            return self._with_list(request, ino, work)
        request.abandon_when_killed()
        self._freshness.hold(partial(self._open_later, request, ino, work), lambda: request.abandoned)
        return LATER

    def _require_current(self, tx: Transaction, ino: int) -> None:
        """Have the kernel look again before it opens a file of which it may know the former size: a program
        would get the beginning of the new content for all of it. Raises OSError (ESTALE), once."""
        inode = self._fs.get(tx, ino)
        if inode.kernel_cache == STALE:
            inode.kernel_cache = NOTHING
            raise failure(errno.ESTALE)

    def _open_later(
        self, request: Request, ino: int, work: Callable[[Transaction], Opened], error: OSError | None
    ) -> None:
        """Open what was held up. When another file has come in its place, the kernel looks it up again."""

        def open_it() -> Opened:
            if error is not None:
                raise error
            with self._state.transaction() as tx:
                lacking = self._fs.received.lacking(tx, self._fs.get(tx, ino))
                if lacking is None:
                    return work(tx)
            return self._listed(ino, lacking, work)

        self._workers.submit(self._answer_later, request, open_it)

    def _with_list(self, request: Request, ino: int, work: Callable[[Transaction], T]) -> T | Later:
        """Do what needs the list of a file's chunks, as soon as this device has it."""
        with self._state.transaction() as tx:
            lacking = self._fs.received.lacking(tx, self._fs.get(tx, ino))
            if lacking is None:
                return work(tx)
        self._prepare_to_fetch(request)
        self._workers.submit(self._answer_later, request, lambda: self._listed(ino, lacking, work))
        return LATER

    def _listed(self, ino: int, lacking: Missing, work: Callable[[Transaction], T]) -> T:
        while True:
            self._fetcher.fetch(lacking.chunks)
            with self._state.transaction() as tx:
                more = self._fs.received.lacking(tx, self._fs.get(tx, ino))
                if more is None:
                    return work(tx)
            lacking = more

    def create(
        self, request: Request, parent: int, name: bytes, mode: int, flags: int
    ) -> tuple[Entry, Opened] | Later:
        if self.echoes.is_one(request):
            return self._shown(parent, name), Opened(ECHO_FH, keep_cache=True)
        uid, gid, umask = request.uid, request.gid, request.umask
        try:
            return self._add(
                request,
                lambda tx: self._created(
                    *self._fs.create(tx, parent, name, mode, uid, gid, flags, umask=umask)
                ),
            )
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            # It has come from another device, and the kernel knows of no such file yet: it looks again.
            raise failure(errno.ESTALE) from None

    def tmpfile(self, request: Request, parent: int, mode: int, flags: int) -> tuple[Entry, Opened] | Later:
        uid, gid, umask = request.uid, request.gid, request.umask
        return self._add(
            request,
            lambda tx: self._created(
                *self._fs.create_nameless(tx, parent, mode, uid, gid, flags, umask=umask)
            ),
        )

    def _created(self, inode: Inode, number: int) -> tuple[Entry, Opened]:
        return self._entry(inode), self._opened(inode, number)

    def _opened(self, inode: Inode, number: int) -> Opened:
        """The kernel may keep what it has of the file, unless the cache was dropped since it got it."""
        generation = self._fs.cache_generation
        keep = inode.kernel_cache == generation
        inode.kernel_cache = generation
        return Opened(number, keep_cache=keep)

    def release(self, request: Request, ino: int, fh: int, flags: int) -> None:
        if fh == ECHO_FH:
            return
        with self._state.transaction() as tx:
            self._fs.release(tx, fh)

    def fsync(self, request: Request, ino: int, fh: int, datasync: bool) -> Later | None:
        with self._state.transaction() as tx:
            self._fs.synced(tx, ino)
        return self._commit(request)

    def fsyncdir(self, request: Request, ino: int, fh: int, datasync: bool) -> Later | None:
        return self._commit(request)

    def _commit(self, request: Request) -> Later | None:
        if request.is_from_the_only_one and self._committer.at_once():
            return None

        def answer(error: OSError | None) -> None:
            if error is None:
                request.reply(None)
            else:
                request.fail(error.errno or errno.EIO)

        self._committer.request(answer)
        return LATER

    # -- content ---------------------------------------------------------------------------------

    def read(self, request: Request, ino: int, fh: int, offset: int, size: int) -> bytes | Later:
        with self._state.transaction() as tx:
            inode = self._fs.handle(fh)
            self._fs.unseen.read(inode.ino)
            data = self._fs.read(tx, inode, offset, size)
        if not isinstance(data, Missing):
            return data
        self._prepare_to_fetch(request)
        self._workers.submit(self._read_later, request, fh, offset, size, data)
        return LATER

    def _prepare_to_fetch(self, request: Request) -> None:
        """Raises OSError (EPERM) when the program may not have anything fetched."""
        if self._no_fetch.includes(request.pid):
            raise failure(errno.EPERM)
        request.abandon_when_killed()

    def _read_later(self, request: Request, fh: int, offset: int, size: int, missing: Missing) -> None:
        def read() -> bytes:
            lacking = missing
            while True:
                self._fetcher.fetch(lacking.chunks)
                with self._state.transaction() as tx:
                    data = self._fs.read(tx, self._fs.handle(fh), offset, size)
                if not isinstance(data, Missing):
                    return data
                lacking = data  # evicted again at once, or written since

        self._answer_later(request, read)

    def write(
        self, request: Request, ino: int, fh: int, offset: int, data: memoryview, kill: bool
    ) -> int | Later:
        try:
            with self._state.transaction() as tx:
                return self._write(tx, request, fh, offset, data, kill)
        except JournalFullError:
            request.abandon_when_killed()
            copy = bytes(data)
            self._workers.submit(
                self._answer_later,
                request,
                lambda: self._in_room(len(copy), lambda tx: self._write(tx, request, fh, offset, copy, kill)),
            )
            return LATER

    def _write(
        self, tx: Transaction, request: Request, fh: int, offset: int, data: Buffer, kill: bool
    ) -> int:
        inode = self._fs.handle(fh)
        self._fs.require_writable()
        self._sparing.before_overwrite(tx, inode, offset)
        written = self._fs.write(tx, inode, offset, data)
        clear_privileges(tx, self._fs, request, inode, kill=kill)
        return written

    def _answer_later(self, request: Request, work: Callable[[], object]) -> None:
        try:
            answer = work()
        except ChunkUnavailable:
            request.fail(errno.EIO)
        except OSError as error:
            request.fail(error.errno or errno.EIO)
        except Exception:
            log.exception("a request failed unexpectedly")
            request.fail(errno.EIO)
        else:
            request.reply(answer)

    def fallocate(self, request: Request, ino: int, fh: int, offset: int, length: int, mode: int) -> None:
        with self._state.transaction() as tx:
            inode = self._fs.handle(fh)
            self._fs.require_writable()
            if mode & (records.FALLOC_FL_PUNCH_HOLE | records.FALLOC_FL_ZERO_RANGE):
                self._sparing.before_overwrite(tx, inode, offset)
            self._fs.allocate(tx, inode, mode, offset, length)
            clear_privileges(tx, self._fs, request, inode, kill=kills_by_allocating(request, inode))

    def lseek(self, request: Request, ino: int, fh: int, offset: int, whence: int) -> int | Later:
        with self._state.transaction() as tx:
            inode = self._fs.handle(fh)
            try:
                found = self._fs.content.seek(tx, inode, offset, whence)
            except OSError:
                if not inode.writers or offset >= inode.size:
                    raise
            else:
                # Data stay data; what looks like a hole may have been written through a mapping since.
                if not inode.writers or found == (offset if whence == os.SEEK_DATA else inode.size):
                    return found
        self._seekers.submit(self._answer_later, request, lambda: self._seek_written(ino, fh, offset, whence))
        return LATER

    def _seek_written(self, ino: int, fh: int, offset: int, whence: int) -> int:
        self._pages.write_out(ino, offset)
        with self._state.transaction() as tx:
            return self._fs.content.seek(tx, self._fs.handle(fh), offset, whence)
