"""What the package believes of the records and numbers of linux/fuse.h, compared with that header."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrisfs.fuse import records, requests, session
from hybrisfs.fuse.callers_cpu import CallersCpu
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.records import Attributes, Entry, Listing, ListingPlus, Opened, StatVfs
from hybrisfs.fuse.request import ANSWER, Channel, Request

KERNEL = "#include <stdint.h>\n#include <linux/fuse.h>\n"

Compiled = Callable[[str, str], bytes]

A = Attributes(
    ino=0x0102030405060708,
    mode=0o100644,
    nlink=3,
    uid=1001,
    gid=1002,
    rdev=0x1234,
    size=0x1112131415161718,
    blocks=0x2122232425262728,
    atime_ns=-1,
    mtime_ns=5_000_000_006,
    ctime_ns=7_000_000_008,
    blksize=4096,
)
C_ATTR = """
    .ino = 0x0102030405060708, .size = 0x1112131415161718, .blocks = 0x2122232425262728,
    .atime = -1, .atimensec = 999999999, .mtime = 5, .mtimensec = 6, .ctime = 7, .ctimensec = 8,
    .mode = 0100644, .nlink = 3, .uid = 1001, .gid = 1002, .rdev = 0x1234, .blksize = 4096
"""
C_ENTRY = f"""
    .nodeid = 0x0102030405060708, .generation = 9, .entry_valid = 1, .entry_valid_nsec = 500000000,
    .attr_valid = 86400, .attr_valid_nsec = 0, .attr = {{ {C_ATTR} }}
"""
E = Entry(A, entry_timeout=1.5, attr_timeout=86400.0, generation=9)


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    """Compiles and runs a C program, and returns what it writes."""
    if not shutil.which("gcc") or not Path("/usr/include/linux/fuse.h").exists():
        pytest.skip("needs gcc and linux-libc-dev")

    def run(headers: str, body: str) -> bytes:
        source, program = tmp_path / "layout.c", tmp_path / "layout"
        source.write_text(
            "#define _GNU_SOURCE\n#define _FILE_OFFSET_BITS 64\n#include <stddef.h>\n#include <stdio.h>\n"
            f"{headers}\n#define DUMP(x) fwrite(&(x), sizeof(x), 1, stdout)\n"
            f"int main(void) {{ {body} return 0; }}\n"
        )
        subprocess.run(["gcc", "-o", program, source], check=True)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout

    return run


def numbers(compiled: Compiled, headers: str, expressions: list[str]) -> list[int]:
    body = "".join(f'printf("%lld\\n", (long long)({expression}));' for expression in expressions)
    return [int(line) for line in compiled(headers, body).split()]


class Recorder(Operations):
    """Keeps what its handlers are called with, beside the request."""

    calls: list[tuple[Any, ...]]


def _recording(name: str) -> Callable[..., None]:
    def handler(self: Recorder, request: Request, *arguments: Any) -> None:
        kept = [bytes(one) if isinstance(one, memoryview) else one for one in arguments]
        self.calls.append((name, *kept))

    return handler


for _kind in requests._KINDS.values():
    setattr(Recorder, _kind.handler, _recording(_kind.handler))

FH = 0x0102030405060708
CHANGED = Attributes(
    7, 0o640, uid=10, gid=11, size=1 << 40, atime_ns=-1, mtime_ns=5_000_000_006, ctime_ns=7_000_000_008
)
C_CHANGED = """ .fh = 0x0102030405060708, .size = 1ULL << 40, .atime = -1, .atimensec = 999999999,
    .mtime = 5, .mtimensec = 6, .ctime = 7, .ctimensec = 8, .mode = 0640, .uid = 10, .gid = 11 """


@pytest.mark.parametrize(
    ("opcode", "record", "fields", "rest", "expected"),
    [
        ("LOOKUP", "", "", b"name\0", ("lookup", 7, b"name")),
        ("GETATTR", "getattr", "", b"", ("getattr", 7, None)),
        ("GETATTR", "getattr", f".getattr_flags = FUSE_GETATTR_FH, .fh = {FH}", b"", ("getattr", 7, FH)),
        ("SETATTR", "setattr", ".valid = FATTR_MODE", b"", ("setattr", 7, Attributes(7, 0), 1, None)),
        (
            "SETATTR",
            "setattr",
            ".valid = FATTR_FH | FATTR_CTIME | FATTR_KILL_SUIDGID | FATTR_LOCKOWNER," + C_CHANGED,
            b"",
            ("setattr", 7, CHANGED, records.FATTR_CTIME | records.FATTR_KILL_SUIDGID, FH),
        ),
        ("READLINK", "", "", b"", ("readlink", 7)),
        ("SYMLINK", "", "", b"name\0to/there\0", ("symlink", b"to/there", 7, b"name")),
        ("MKNOD", "mknod", ".mode = 1, .rdev = 2, .umask = 3", b"name\0", ("mknod", 7, b"name", 1, 2)),
        ("MKDIR", "mkdir", ".mode = 1, .umask = 3", b"name\0", ("mkdir", 7, b"name", 1)),
        ("UNLINK", "", "", b"name\0", ("unlink", 7, b"name")),
        ("RMDIR", "", "", b"name\0", ("rmdir", 7, b"name")),
        ("RENAME", "rename", f".newdir = {FH}", b"a\0b\0", ("rename", 7, b"a", FH, b"b", 0)),
        ("RENAME2", "rename2", f".newdir = {FH}, .flags = 2", b"a\0b\0", ("rename", 7, b"a", FH, b"b", 2)),
        ("LINK", "link", f".oldnodeid = {FH}", b"name\0", ("link", FH, 7, b"name")),
        ("OPEN", "open", ".flags = 5", b"", ("open", 7, 5)),
        ("READ", "read", f".fh = {FH}, .offset = 1, .size = 2", b"", ("read", 7, FH, 1, 2)),
        (
            "WRITE",
            "write",
            f".fh = {FH}, .offset = 1, .size = 4, .write_flags = FUSE_WRITE_KILL_SUIDGID",
            b"data",
            ("write", 7, FH, 1, b"data", True),
        ),
        (
            "WRITE",
            "write",
            f".fh = {FH}, .size = 4, .write_flags = FUSE_WRITE_CACHE | FUSE_WRITE_LOCKOWNER",
            b"data",
            ("write", 7, FH, 0, b"data", False),
        ),
        ("STATFS", "", "", b"", ("statfs", 7)),
        ("RELEASE", "release", f".fh = {FH}, .flags = 5", b"", ("release", 7, FH, 5)),
        ("FSYNC", "fsync", f".fh = {FH}", b"", ("fsync", 7, FH, False)),
        ("FSYNC", "fsync", f".fh = {FH}, .fsync_flags = FUSE_FSYNC_FDATASYNC", b"", ("fsync", 7, FH, True)),
        ("SETXATTR", "@8", ".size = 3, .flags = 1", b"user.a\0a\0b", ("setxattr", 7, b"user.a", b"a\0b", 1)),
        ("GETXATTR", "getxattr", ".size = 9", b"user.a\0", ("getxattr", 7, b"user.a", 9)),
        ("LISTXATTR", "getxattr", ".size = 9", b"", ("listxattr", 7, 9)),
        ("REMOVEXATTR", "", "", b"user.a\0", ("removexattr", 7, b"user.a")),
        ("FLUSH", "flush", f".fh = {FH}", b"", ("flush", 7, FH)),
        ("OPENDIR", "open", ".flags = 5", b"", ("opendir", 7, 5)),
        ("READDIR", "read", f".fh = {FH}, .offset = 1, .size = 2", b"", ("readdir", 7, FH, 1, 2)),
        ("RELEASEDIR", "release", f".fh = {FH}, .flags = 5", b"", ("releasedir", 7, FH, 5)),
        ("FSYNCDIR", "fsync", f".fh = {FH}", b"", ("fsyncdir", 7, FH, False)),
        ("ACCESS", "access", ".mask = 4", b"", ("access", 7, 4)),
        ("CREATE", "create", ".flags = 1, .mode = 2, .umask = 3", b"name\0", ("create", 7, b"name", 2, 1)),
        (
            "FALLOCATE",
            "fallocate",
            f".fh = {FH}, .offset = 1, .length = 2, .mode = 3",
            b"",
            ("fallocate", 7, FH, 1, 2, 3),
        ),
        ("READDIRPLUS", "read", f".fh = {FH}, .offset = 1, .size = 2", b"", ("readdirplus", 7, FH, 1, 2)),
        ("LSEEK", "lseek", f".fh = {FH}, .offset = 1, .whence = 4", b"", ("lseek", 7, FH, 1, 4)),
        (
            "COPY_FILE_RANGE",
            "copy_file_range",
            f".fh_in = {FH}, .off_in = 1, .nodeid_out = 2, .fh_out = 3, .off_out = 4, .len = 5, .flags = 6",
            b"",
            ("copy_file_range", 7, FH, 1, (2, 3, 4), 5, 6),
        ),
        ("TMPFILE", "create", ".flags = 1, .mode = 2, .umask = 3", b"#1\0", ("tmpfile", 7, 2, 1)),
    ],
)
def test_requests_of_the_kernel(
    compiled: Compiled, opcode: str, record: str, fields: str, rest: bytes, expected: tuple[Any, ...]
) -> None:
    """Headers of before Linux 6.1 do not have the newest opcode."""
    declaration, dump = "", ""
    if record:
        # Without FUSE_SETXATTR_EXT the kernel sends the first 8 bytes of fuse_setxattr_in.
        name, size = ("setxattr", "8") if record == "@8" else (record, "sizeof body")
        declaration, dump = (
            f"struct fuse_{name}_in body = {{ {fields} }};",
            f"fwrite(&body, {size}, 1, stdout);",
        )
    written = compiled(
        KERNEL + f"enum {{ WANTED = FUSE_{opcode} }};",
        "struct fuse_in_header header = { .opcode = WANTED, .unique = 5, .nodeid = 7, .uid = 1, .gid = 2,"
        f" .pid = 3 }}; {declaration} DUMP(header); {dump}",
    )
    length, number, unique, node, uid, gid, pid = requests.HEADER.unpack_from(written)
    assert (length, unique, node, uid, gid, pid) == (0, 5, 7, 1, 2, 3)
    recorder = Recorder()
    recorder.calls = []
    request = Request(Channel(-1, CallersCpu(None, time.monotonic)), unique, uid, gid, pid, None)
    message = written + rest
    _, call, _ = requests.calls_of(recorder)[number]
    call(request, node, memoryview(message + b"of an earlier request"), len(message))
    assert recorder.calls == [expected]
    if ".umask" in fields:
        assert request.umask == 3


def test_forgets(compiled: Compiled) -> None:
    header = "struct fuse_in_header header = { .nodeid = 7 }; DUMP(header); "
    one = compiled(KERNEL, header + "struct fuse_forget_in forget = { .nlookup = 3 }; DUMP(forget);")
    batch = compiled(
        KERNEL,
        header + "struct { struct fuse_batch_forget_in batch; struct fuse_forget_one all[2]; } forgets ="
        " { { .count = 2 }, { { .nodeid = 8, .nlookup = 1 }, { .nodeid = 9, .nlookup = 2 } } };"
        " DUMP(forgets);",
    )
    [forget, batch_forget] = numbers(compiled, KERNEL, ["FUSE_FORGET", "FUSE_BATCH_FORGET"])
    assert {forget, batch_forget} == requests.FORGETS
    assert requests.forgets_in(forget, 7, memoryview(one)) == [(7, 3)]
    assert requests.forgets_in(batch_forget, 7, memoryview(batch + bytes(16))) == [(8, 1), (9, 2)]


def test_interrupts(compiled: Compiled) -> None:
    message = compiled(
        KERNEL,
        "struct { struct fuse_in_header h; struct fuse_interrupt_in i; } x = { .i = { .unique = 9 } };"
        " DUMP(x);",
    )
    assert requests.interrupted_by(memoryview(message)) == 9
    assert numbers(compiled, KERNEL, ["FUSE_INTERRUPT", "FUSE_INIT"]) == [requests.INTERRUPT, requests.INIT]


def test_what_a_mount_begins_with(compiled: Compiled) -> None:
    offer = compiled(
        KERNEL,
        "struct fuse_init_in x = { .major = 1, .minor = 2, .max_readahead = 3, .flags = 4 }; DUMP(x);",
    )
    assert session._OFFER.unpack_from(offer) == (1, 2, 3, 4)
    agreed = compiled(
        KERNEL,
        "struct fuse_init_out x = { .major = 1, .minor = 2, .max_readahead = 3, .flags = 4,"
        " .max_background = 5, .congestion_threshold = 6, .max_write = 7,"
        " .time_gran = 8, .max_pages = 9, .map_alignment = 10 }; DUMP(x);",
    )
    assert agreed == session._AGREED.pack(*range(1, 11))


def listed() -> bytes:
    listing = Listing(4096)
    assert listing.add(b"eleven-long", 7, 0o100644, 12)
    return listing.getvalue()


def listed_with_attributes() -> bytes:
    listing = ListingPlus(4096)
    assert listing.add(b"12345678", E, 12)
    return listing.getvalue()


@pytest.mark.parametrize(
    ("declaration", "ours"),
    [
        (f"struct fuse_entry_out x = {{ {C_ENTRY} }};", records.entry_answer(E)),
        (
            "struct fuse_attr_out x = { .attr_valid = 2, .attr_valid_nsec = 250000000, .attr = {"
            + C_ATTR
            + "} };",
            records.attributes_answer((A, 2.25)),
        ),
        (
            "struct fuse_open_out x = { .fh = 77, .open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE };",
            records.open_answer(Opened(77, direct_io=True, nonseekable=True)),
        ),
        (
            "struct fuse_open_out x = { .fh = 77, .open_flags = FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR };",
            records.open_answer(Opened(77, keep_cache=True, cache_readdir=True)),
        ),
        (
            "struct { struct fuse_entry_out e; struct fuse_open_out o; } x = { {"
            + C_ENTRY
            + "}, { .fh = 77 } };",
            records.create_answer((E, Opened(77))),
        ),
        (
            "struct fuse_statfs_out x = { .st = { .blocks = 1, .bfree = 2, .bavail = 3, .files = 4,"
            " .ffree = 5, .bsize = 6, .namelen = 7, .frsize = 8 } };",
            records.statvfs_answer(StatVfs(6, 8, 1, 2, 3, 4, 5, 7)),
        ),
        ("struct fuse_write_out x = { .size = 5 };", records.size_answer(5)),
        ("struct fuse_getxattr_out x = { .size = 5 };", bytes(records.xattr_answer(5))),
        ("struct fuse_lseek_out x = { .offset = 5 };", records.offset_answer(5)),
        (
            "struct { struct fuse_dirent d; char name[16]; } x ="
            ' { { .ino = 7, .off = 12, .namelen = 11, .type = 8 }, "eleven-long" };',
            listed(),
        ),
        (
            "struct { struct fuse_direntplus d; char name[8]; } x = { { .entry_out = {"
            + C_ENTRY
            + "}, .dirent = { .ino = 0x0102030405060708, .off = 12, .namelen = 8, .type = 8 } }, "
            "{'1','2','3','4','5','6','7','8'} };",
            listed_with_attributes(),
        ),
    ],
)
def test_answers_to_the_kernel(compiled: Compiled, declaration: str, ours: bytes) -> None:
    assert compiled(KERNEL, declaration + " DUMP(x);") == ours


def test_headers_and_notices(compiled: Compiled) -> None:
    for declaration, ours in (
        ("struct fuse_out_header x = { .len = 1, .error = -2, .unique = 3 };", ANSWER.pack(1, -2, 3)),
        (
            "struct fuse_notify_inval_inode_out x = { .ino = 1, .off = -2, .len = 3 };",
            session._INVAL_INODE.pack(1, -2, 3),
        ),
        (
            "struct fuse_notify_inval_entry_out x = { .parent = 1, .namelen = 2 };",
            session._INVAL_ENTRY.pack(1, 2, 0),
        ),
    ):
        assert compiled(KERNEL, declaration + " DUMP(x);") == ours


def test_numbers(compiled: Compiled) -> None:
    """Those of an enumeration cannot be asked for with #ifdef; all headers have them."""
    headers = KERNEL + "".join(f"#include <{name}.h>\n" for name in ("fcntl", "linux/xattr", "linux/falloc"))
    names = [
        name
        for name in vars(records)
        if re.match("F?(USE|ATTR|OPEN)_|RENAME_|XATTR_|FALLOC_", name) and name != "FATTR_ALL"
    ]
    body = "".join(
        f"\n#if defined {name} || {name.startswith('FUSE_NOTIFY_'):d}\n"
        f'printf("{name} %lld\\n", (long long){name});\n#endif\n'
        for name in names
    )
    found = dict(line.split() for line in compiled(headers, body).decode().splitlines())
    assert len(found) > len(names) - 5, (
        "older headers lack the newest names, those of Linux 6.1 have nearly all"
    )
    assert {name: int(value) for name, value in found.items()} == {
        name: getattr(records, name) for name in found
    }
