"""What the binding believes of C's structures and numbers, compared with the installed headers."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.fuse import library, records
from hybrisfs.fuse.records import Attributes, Entry, Listing, ListingPlus, Opened, StatVfs

LIBFUSE = "#define FUSE_USE_VERSION 35\n#include <fuse3/fuse_lowlevel.h>\n"
KERNEL = "#include <stdint.h>\n#include <linux/fuse.h>\n"

NEWER = {"mem_size", "tmpfile"}  # fields that libfuse 3.14 does not have

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
    if not shutil.which("gcc") or not Path("/usr/include/fuse3/fuse_lowlevel.h").exists():
        pytest.skip("needs gcc and libfuse3-dev")

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


@pytest.mark.parametrize(
    ("structure", "name"),
    [
        (library.Arguments, "struct fuse_args"),
        (library.RequestContext, "struct fuse_ctx"),
        (library.ConnectionInfo, "struct fuse_conn_info"),
        (library.LowLevelOps, "struct fuse_lowlevel_ops"),
        (library.DataBuffer, "struct fuse_buf"),
    ],
)
def test_structures_of_libfuse(compiled: Compiled, structure: type[ctypes.Structure], name: str) -> None:
    fields = [field[0] for field in structure._fields_ if field[0] not in NEWER]
    expressions = [f"offsetof({name}, {field})" for field in fields]
    assert numbers(compiled, LIBFUSE, expressions) == [getattr(structure, field).offset for field in fields]
    fields = [field for field in fields if field != "buf"]
    expressions = [f"sizeof((({name} *)0)->{field})" for field in fields]
    assert numbers(compiled, LIBFUSE, expressions) == [getattr(structure, field).size for field in fields]


def test_file_info(compiled: Compiled) -> None:
    body = "struct fuse_file_info fi = { .flags = 0x11223344, .fh = 0x0102030405060708 }; DUMP(fi);"
    found = compiled(LIBFUSE, body)
    assert int.from_bytes(found[library.FILE_INFO_FLAGS :][:4], "little") == 0x11223344
    assert int.from_bytes(found[library.FILE_INFO_FH :][:8], "little") == 0x0102030405060708


STAT = """
    struct stat s = { .st_mode = 1, .st_uid = 2, .st_gid = 3, .st_size = 4 };
    long long *times = (long long *)((char *)&s + offsetof(struct stat, FIRST_TIME));
    for (int i = 0; i < 6; i++) times[i] = 5 + i;
    DUMP(s);
"""


def test_stat_of_this_machine(compiled: Compiled) -> None:
    layout = library.STAT_LAYOUTS[platform.machine()]
    found = compiled("#include <sys/stat.h>", STAT.replace("FIRST_TIME", "st_atim"))
    assert len(found) == layout.size == layout.record.size
    assert layout.record.unpack(found) == tuple(range(1, 11))


def test_stat_of_aarch64_is_the_generic_one_of_linux(compiled: Compiled) -> None:
    layout = library.STAT_LAYOUTS["aarch64"]
    found = compiled("#include <asm-generic/stat.h>", STAT.replace("FIRST_TIME", "st_atime"))
    assert len(found) == layout.size == layout.record.size
    assert layout.record.unpack(found) == tuple(range(1, 11))


def test_flags_of_a_write_are_found_before_its_bytes(compiled: Compiled) -> None:
    found = compiled(
        KERNEL,
        "struct { struct fuse_write_in w; char data[4]; } x ="
        ' { { .fh = 7, .offset = 8, .size = 4, .write_flags = 9 }, "abcd" }; DUMP(x);',
    )
    memory = ctypes.create_string_buffer(found)
    data = ctypes.addressof(memory) + records.WRITE_IN.size
    assert ctypes.string_at(data, 4) == b"abcd"
    assert records.write_flags(data, 7, 8, 4) == 9
    for other in ((6, 8, 4), (7, 9, 4), (7, 8, 3)):
        assert records.write_flags(data, *other) == records.FUSE_WRITE_KILL_SUIDGID


def test_forgets(compiled: Compiled) -> None:
    found = compiled(LIBFUSE, "struct fuse_forget_data f = { .ino = 1, .nlookup = 2 }; DUMP(f);")
    assert found == (1).to_bytes(8, "little") + (2).to_bytes(8, "little")


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


def test_numbers_of_libfuse(compiled: Compiled) -> None:
    """Older headers lack the newest names; those of 3.10 have all but a few."""
    ours = {name: value for name, value in vars(records).items() if name.startswith("FUSE_")}
    body = "".join(
        f'\n#ifdef {name}\nprintf("{name} %lld\\n", (long long){name});\n#endif\n' for name in ours
    )
    found = dict(line.split() for line in compiled(LIBFUSE, body).decode().splitlines())
    assert len(found) > len(ours) - 5
    assert {name: int(value) for name, value in found.items()} == {name: ours[name] for name in found}


def test_numbers_of_linux(compiled: Compiled) -> None:
    headers = KERNEL + "".join(f"#include <{name}.h>\n" for name in ("fcntl", "linux/xattr", "linux/falloc"))
    prefixes = ("FOPEN_", "RENAME_", "XATTR_", "FALLOC_", "FUSE_WRITE_")
    names = [name for name in vars(records) if name.startswith(prefixes)]
    assert numbers(compiled, headers, names) == [getattr(records, name) for name in names]
