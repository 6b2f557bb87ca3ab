"""The SQL schema of a volume's database, and the only home of its sentinels and invariants.

One database per volume and device. It holds three kinds of facts:

* the *view*: what programs see now (`node`, `place`, `xattr`, `file_chunk`, `extent`);
* the *log*: what this volume's writers have signed (`log`, `log_branch`, `log_segment`), and `pending`, the
  registers that the view has changed since the clouds last heard of them;
* *where bytes are*: `chunk` and `pack`.

The view is the set of register values of the metadata store (Depot's checkpoint): the columns named
`stamp` tell which update wrote the value that the row shows; 0 means that no signed update has it yet.

Times are nanoseconds since the epoch. `ino` is this device's number of a node and the FUSE node id;
`id` is the node's name on all devices.
"""

from __future__ import annotations

import sqlite3

from hybrisfs.kinds import PLACE

__all__ = [
    "APPLICATION_ID",
    "CHARGES",
    "HISTORY",
    "HOLDS",
    "LEAVES",
    "MINUTES",
    "PIECES",
    "ROOT_INO",
    "SCHEMA_VERSION",
    "UNSIGNED",
    "add_redo",
    "create_schema",
    "lay_out",
]

APPLICATION_ID = 0x48796246  # "HybF", shown by file(1)
SCHEMA_VERSION = 24  # `migration` tells of earlier ones
ROOT_INO = 1

_TABLES = f"""
-- Counters and identities: 'volume' (16 bytes), 'files' and 'bytes' (regular files and the sum of their
-- sizes), 'seq' (number of register changes so far), 'published' (newest own clock that f+1 clouds hold),
-- 'inviter' (id of the device that let this one in, empty on the first one), 'dropped_updates' and
-- 'dropped_bytes' (bodies that were here and are not any more, see `log`), 'history' (the moment, see `log`,
-- before which versions are not known here: 0, or that of the checkpoint that this device began with),
-- 'ladder' (until when versions have been thinned out, see hybrisfs.versions.thinning); 'reader' is there
-- when this device was let in as less than a full member (hybrisfs.members.roles); 'head', when there are
-- any: a byte for each cloud that has acknowledged a head of this device; 'hurried', when some were: the
-- number of a chunk up to which none is deferred after a start (`deferred_chunks`); 'mirror ID' counts the
-- commits of a mirror's own record of which the volume knows (hybrisfs.mirror.agreed); 'redo' is the nonce of
-- the redo log; 'copies', when there are any: when this device has stated that it has which folders
-- (hybrisfs.read.copies).
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY NOT NULL
) WITHOUT ROWID;

-- One row per node that has a name, or is still open without one (then it is in `orphan` too).
CREATE TABLE node (
    ino     INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE,          -- 16 bytes: when it was made, in ms (6), and random ones
    mode    INTEGER NOT NULL,              -- st_mode: type and permissions
    uid     INTEGER NOT NULL,
    gid     INTEGER NOT NULL,
    rdev    INTEGER NOT NULL,
    nlink   INTEGER NOT NULL,              -- places; for a directory 2 + subdirectories
    size    INTEGER NOT NULL,
    stored  INTEGER NOT NULL,              -- bytes of file_chunk rows: size less the holes
    atime   INTEGER NOT NULL,
    mtime   INTEGER NOT NULL,
    ctime   INTEGER NOT NULL,
    target  BLOB,                          -- of a symlink, else NULL
    xattrs  INTEGER NOT NULL,              -- number of xattr rows
    attr_stamp    INTEGER NOT NULL,        -- clock << 16 | writer number
    content_stamp INTEGER NOT NULL
);

-- The names. `slot` tells the places of one node apart (0 for the first, random for further hard links),
-- so that a rename is one write to one register. Directories are listed in the order of `number`, which is
-- also where a listing goes on: it stays valid whatever is added or removed, and for every open handle. A
-- name keeps its number when it comes to mean another node, so that no listing misses it or has it twice.
-- `wanted`: the name in the register, where another node has it and this one is shown under a conflict name.
CREATE TABLE place (
    number INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name   BLOB NOT NULL,
    ino    INTEGER NOT NULL,
    slot   INTEGER NOT NULL,
    stamp  INTEGER NOT NULL,
    wanted BLOB,
    UNIQUE (parent, name)
);
CREATE INDEX place_in_conflict ON place (parent, wanted, name) WHERE wanted IS NOT NULL;
CREATE INDEX place_in_directory ON place (parent);
CREATE INDEX place_of_node ON place (ino, slot);

CREATE TABLE xattr (
    ino   INTEGER NOT NULL,
    name  BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (ino, name)
) WITHOUT ROWID;

-- Nodes without a name that a program had open; whatever is here when the volume opens is deleted.
CREATE TABLE orphan (ino INTEGER PRIMARY KEY);

-- The content of a file in chunks: at `offset` stand `length` bytes of chunk `chunk`, from byte `skip` of it
-- on. Rows of one file never overlap; what no row covers reads as zeros.
CREATE TABLE file_chunk (
    ino    INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    skip   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (ino, offset)
) WITHOUT ROWID;

CREATE INDEX file_chunk_of ON file_chunk (chunk);

-- Chunks that hold the list of a long file's chunks, as its content register names them.
CREATE TABLE content_page (
    ino   INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (ino, chunk)
) WITHOUT ROWID;
CREATE INDEX content_page_of ON content_page (chunk);

-- The staged content: bytes written since the file was last cut into chunks; they hide file_chunk.
-- `segment` 0 means zeros. `position` is a byte offset in the journal segment.
CREATE TABLE extent (
    ino      INTEGER NOT NULL,
    start    INTEGER NOT NULL,
    length   INTEGER NOT NULL,
    segment  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (ino, start)
) WITHOUT ROWID;

-- Every chunk known. `segment`/`position`: where its cleartext is in the journal, or NULL when this
-- device does not hold it. `pack`/`offset`/`sealed`: where it is on the clouds, or NULL when no cloud
-- has it yet; pack 0: another device made it and has yet to tell where it is. Invariant: a chunk
-- always has a segment or a pack; a segment that holds a chunk that no cloud is known to have, or an extent,
-- is never removed.
CREATE TABLE chunk (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which chunks were made, never used again
    id       BLOB NOT NULL UNIQUE,         -- 32 bytes: keyed hash of the cleartext
    length   INTEGER NOT NULL,             -- of the cleartext
    segment  INTEGER,
    position INTEGER,
    pack     INTEGER,
    offset   INTEGER,                      -- of its fragment in each share object
    sealed   INTEGER,                      -- length of the sealed chunk
    proven   INTEGER NOT NULL DEFAULT 0    -- whether this device has put it there, or read it there
);
CREATE INDEX chunk_pending ON chunk (number) WHERE pack IS NULL;
CREATE INDEX chunk_elsewhere ON chunk (number) WHERE pack = 0;
CREATE INDEX chunk_cached ON chunk (segment) WHERE segment IS NOT NULL;
CREATE INDEX chunk_of_pack ON chunk (pack) WHERE pack > 0;

-- `placement`: one byte per share, the number of the cloud that acknowledged it. `clock` and `branch` are
-- those of the update that says so: of several, the one with the highest clock counts, then highest branch.
-- `n` 0: it has ended. Its id is kept, and never used again. `proven`: this device has put shares of
-- it where `placement` says, or read from them; else a member says so. `doubted`: it is said that it has
-- ended, and not known here whether all agreed (hybrisfs.members.minutes): it is read from while it is
-- there, and nothing new relies on it. `used`: the day, counted since the epoch, on which programs here last
-- had something fetched from it, or else a look through packs first met it; 0 before that. `reads`: on how
-- many days something was fetched, none of which came later than a month after the one before.
CREATE TABLE pack (
    number    INTEGER PRIMARY KEY,
    id        BLOB NOT NULL UNIQUE,
    k         INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    placement BLOB NOT NULL,
    clock     INTEGER NOT NULL DEFAULT 0,
    branch    BLOB NOT NULL DEFAULT x'',
    proven    INTEGER NOT NULL DEFAULT 0,
    doubted   INTEGER NOT NULL DEFAULT 0,
    used      INTEGER NOT NULL DEFAULT 0,
    reads     INTEGER NOT NULL DEFAULT 0
);

-- Further packs that hold a chunk, besides the one that its row names: made twice, or packed again. `length`
-- is the one that is said there, 0 when that is not known; `proven` as in `chunk`. `lost`: the chunk was read
-- from there until the clouds lost the pack (`ChunkStore.set_aside`).
CREATE TABLE spare (
    pack   INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    sealed INTEGER NOT NULL,
    length INTEGER NOT NULL DEFAULT 0,
    proven INTEGER NOT NULL DEFAULT 0,
    lost   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (pack, chunk)
) WITHOUT ROWID;
CREATE INDEX spare_of ON spare (chunk);

-- Packs that may be deleted (hybrisfs.gc): nothing new relies on them. `wanted`: something here has
-- named a chunk of it since.
CREATE TABLE condemned (
    pack   INTEGER PRIMARY KEY,
    wanted INTEGER NOT NULL
);

-- Ids of chunks that hold lists of chunks which contents have named since packs were condemned, and in which
-- it has yet to be looked for chunks of these.
CREATE TABLE unread_page (id BLOB PRIMARY KEY) WITHOUT ROWID;

-- Own packs of which little or nothing is needed. `live`: how many bytes of sealed chunks are; that has not
-- changed since `since`.
CREATE TABLE idle_pack (
    pack  INTEGER PRIMARY KEY,
    live  INTEGER NOT NULL,
    since INTEGER NOT NULL
);

-- Shares of ended packs that this device has yet to delete from a cloud, once the clouds hold its update
-- at `clock`. `shares`: how many indices there are; `size`: bytes that this frees, roughly.
CREATE TABLE disposal (
    pack   BLOB NOT NULL,
    cloud  INTEGER NOT NULL,
    shares INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    clock  INTEGER NOT NULL,
    PRIMARY KEY (cloud, pack)
) WITHOUT ROWID;

-- Shares that the last look at the clouds found there although no register names them there, and since when
-- each has been known, ns since the epoch.
CREATE TABLE unnamed_share (
    cloud INTEGER NOT NULL,
    pack  BLOB NOT NULL,
    share INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (cloud, pack, share)
) WITHOUT ROWID;

-- The branches of devices' logs (sync.log) by the number that register values name them with.
CREATE TABLE writer (
    number INTEGER PRIMARY KEY,
    branch BLOB NOT NULL UNIQUE            -- 16 bytes; a device's id while it has not forked
);

-- The devices that may write to the volume, and those that might (hybrisfs.members.members).
CREATE TABLE member (
    device BLOB PRIMARY KEY,               -- 16 bytes, follows from `public`
    public BLOB NOT NULL,                  -- Ed25519
    name   TEXT NOT NULL,                  -- for people
    state  INTEGER NOT NULL,               -- members.Membership; 0: belongs to the volume
    inviter BLOB,                          -- the device that let it in, NULL when that is not known
    clock  INTEGER                         -- of the update that did; 0 for none, NULL when only told of it
) WITHOUT ROWID;

-- Which devices have granted the keys of which epochs (hybrisfs.sharing.epochs), and the clocks of the
-- updates that did so first.
CREATE TABLE epoch (
    id     BLOB NOT NULL,                  -- 4 bytes
    device BLOB NOT NULL,
    clock  INTEGER NOT NULL,
    PRIMARY KEY (id, device)
) WITHOUT ROWID;

-- The latest values of the registers of nodes and devices (hybrisfs.registers.tree), as signed: each
-- with the clock and the branch of the update that wrote it; several when updates were concurrent. A
-- change that is not signed yet is in the view and in `pending`, not here.
CREATE TABLE register (
    key    BLOB NOT NULL,
    clock  INTEGER NOT NULL,
    writer INTEGER NOT NULL,
    value  BLOB,                           -- NULL: a tombstone
    PRIMARY KEY (key, clock, writer)
) WITHOUT ROWID;
-- Places by directory and name, which is how their values begin.
CREATE INDEX register_place ON register (value) WHERE {PLACE.sql_rows()};

-- What the view shows otherwise than one node per id (hybrisfs.merge):
-- nodes that are merged with the node `ino`: folders of one name, equal files of one name;
CREATE TABLE joined (
    id  BLOB PRIMARY KEY,
    ino INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX joined_with ON joined (ino);
-- concurrent versions of the content of node `id`, each shown as a file of its own;
CREATE TABLE copy (
    ino INTEGER PRIMARY KEY,
    id  BLOB NOT NULL
);
CREATE INDEX copy_of ON copy (id);
-- and nodes whose register names a directory that they cannot stand in, and where they stand instead.
CREATE TABLE moved (
    id     BLOB PRIMARY KEY,
    parent BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX moved_to ON moved (parent);
-- The directories for whose sake they do: where such a node stands is decided again when one of them changes.
CREATE TABLE moved_for (
    cause BLOB NOT NULL,
    id    BLOB NOT NULL,
    PRIMARY KEY (cause, id)
) WITHOUT ROWID;
CREATE INDEX moved_for_sake ON moved_for (id);

-- What this device is to keep in full: nodes, with all that is below them. By their id, so that renames keep
-- it. `parent` (a node's id) and `name` tell where the node was last seen: programs save a file by putting
-- another in its place, which is then the one that is meant.
CREATE TABLE hoard (
    id     BLOB PRIMARY KEY,
    parent BLOB NOT NULL,
    name   BLOB NOT NULL                   -- empty for the root
) WITHOUT ROWID;

-- Files whose list of chunks has yet to be read from the chunks that hold it, or from the content register.
CREATE TABLE unlisted (
    ino   INTEGER PRIMARY KEY,
    value BLOB NOT NULL                    -- the content register
);

-- Registers that changed in the view since the clouds last held their value. `seq` is the change's
-- number; `clock` that of the signed update which holds it, NULL while none does.
CREATE TABLE pending (
    key   BLOB PRIMARY KEY,
    ino   INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    clock INTEGER
) WITHOUT ROWID;
CREATE INDEX pending_clock ON pending (clock);

-- The branches of all devices' histories, see sync/log_tree.py. `above`: the clock at which it leaves
-- `parent`.
CREATE TABLE log_branch (
    id     BLOB PRIMARY KEY,
    device BLOB NOT NULL,
    parent BLOB,                           -- NULL of the branch that a device begins with
    above  INTEGER NOT NULL
) WITHOUT ROWID;

-- Accepted updates as they travel, in the order in which they were accepted: after all that they depend on.
-- One without bytes is *bare*: only its name is known; a checkpoint (sync.checkpoint) tells what came of it.
-- It came with one, or its body was dropped because one covers it (hybrisfs.checkpoint.compaction).
CREATE TABLE log (
    number     INTEGER PRIMARY KEY,
    branch     BLOB NOT NULL,
    clock      INTEGER NOT NULL,
    device     BLOB NOT NULL,              -- who signed it
    hash       BLOB NOT NULL,
    chunk_high INTEGER,                    -- it names no chunk above this number; NULL: not signed here
    vector     BLOB NOT NULL,              -- all that it depends on: its full dependency vector
    time       INTEGER NOT NULL,           -- when it was signed, by its writer's clock
    bytes      BLOB,
    moment     INTEGER NOT NULL DEFAULT 0, -- when it counts as signed: never before what it depends on
    UNIQUE (branch, clock)
);
CREATE UNIQUE INDEX log_hash ON log (hash);
CREATE INDEX log_signed ON log (clock) WHERE chunk_high IS NOT NULL;
CREATE INDEX log_whole ON log (branch, clock) WHERE bytes IS NOT NULL;

-- Own log segments that are on the clouds. Their updates are not bare.
CREATE TABLE log_segment (
    first     INTEGER PRIMARY KEY,         -- clock of its first update
    last      INTEGER NOT NULL,
    name      TEXT NOT NULL,
    size      INTEGER NOT NULL,
    placement BLOB NOT NULL
);

-- Log segments of other devices that this one has put on the clouds: those to which their own heads do not
-- lead yet.
CREATE TABLE relayed_segment (
    name      TEXT PRIMARY KEY,
    device    BLOB NOT NULL,               -- whose updates it holds
    size      INTEGER NOT NULL,
    placement BLOB NOT NULL
);

-- What this device states that its registers were (sync.checkpoint), and the newest checkpoint that all
-- members have stated, which has a root. The slices are files in the state folder. `through`: the highest
-- number in `log` then. `deposited`: the name of a root of it on the clouds, NULL while none is known.
-- `former`: the vector of the agreed checkpoint on the clouds that it came after, NULL while there was none.
-- That one stays here, too, until its successor is on the clouds.
CREATE TABLE checkpoint (
    snapshot  BLOB PRIMARY KEY,
    vector    BLOB NOT NULL,
    through   INTEGER NOT NULL,
    slices    BLOB NOT NULL,               -- of the snapshot: 32 bytes name + u32 length for each
    hints     BLOB NOT NULL,
    root      BLOB,
    deposited BLOB,
    former    BLOB
) WITHOUT ROWID;

-- What was last seen of each device through the clouds.
CREATE TABLE sighting (
    device BLOB PRIMARY KEY,
    head   BLOB,                           -- the newest one, as a cloud returned it; NULL: none yet
    seen   INTEGER                         -- when it was alive for certain, ns; NULL: never
) WITHOUT ROWID;
"""


MINUTES = """
-- What has been said in the registers that packs end by (hybrisfs.members.minutes): proposals, answers, who
-- is a member, who let it in, votes about members (as one byte, the stance; also those that follow from
-- member registers, whose keys end in `m`) and proofs against them (empty); each with clock and branch of its
-- update.
-- `begins`: what was said before is not known.
CREATE TABLE said (
    key    BLOB NOT NULL,
    branch BLOB NOT NULL,
    clock  INTEGER NOT NULL,
    value  BLOB NOT NULL,
    begins INTEGER NOT NULL,
    PRIMARY KEY (key, branch, clock)
) WITHOUT ROWID;
CREATE INDEX said_begins ON said (branch, clock) WHERE begins;
"""

UNSIGNED = """
-- Registers that the view shows as they say, without rows of its own (hybrisfs.state.shown_nodes): what has
-- been changed in them here and is not signed yet. Each is in `pending`, too.
CREATE TABLE IF NOT EXISTS unsigned (
    key   BLOB PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
"""

CHARGES = """
-- Since when this device has known, by its own clock in ns, what time makes it do something about
-- (hybrisfs.sharing.misconduct): an accusation, or a proof of a fork, then `accuser` is empty.
CREATE TABLE IF NOT EXISTS charge (
    accused BLOB NOT NULL,
    accuser BLOB NOT NULL,
    since   INTEGER NOT NULL,
    PRIMARY KEY (accused, accuser)
) WITHOUT ROWID;
"""

HISTORY = f"""
-- Values that registers of the tree had once (hybrisfs.log): written by the update that `clock`
-- and `writer` name, true from the moment `since` until the moment `until`, when an update superseded them.
-- What is in here is kept: the chunks that a content names are needed like those of files (hybrisfs.gc).
CREATE TABLE past (
    number INTEGER PRIMARY KEY,
    key    BLOB NOT NULL,
    clock  INTEGER NOT NULL,
    writer INTEGER NOT NULL,
    value  BLOB NOT NULL,
    since  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    UNIQUE (key, clock, writer)
);
-- Places by directory and name.
CREATE INDEX past_place ON past (value) WHERE {PLACE.sql_rows()};
CREATE INDEX past_until ON past (key, until);

-- Nodes of which a name was removed, and at which moment last: until they leave this table, what their
-- content register holds is needed, although nothing shows it.
CREATE TABLE removal (
    node   BLOB PRIMARY KEY,
    moment INTEGER NOT NULL
) WITHOUT ROWID;
"""

HOLDS = """
-- What other devices have taken away or overwritten, too much at once (hybrisfs.merge.losses).
-- `time`: when the first of it was signed; `total`: of how many names; `cause`: see `Cause`.
CREATE TABLE deletion (
    number INTEGER PRIMARY KEY,
    id     BLOB NOT NULL,                  -- the hash of the update that went too far
    device BLOB NOT NULL,
    time   INTEGER NOT NULL,
    total  INTEGER NOT NULL,
    cause  INTEGER NOT NULL DEFAULT 0
);

-- The registers that it is about. `former` NULL: the view holds on to what it shows of this one, which is in
-- `pending`, too, as if it had been written here. Else what the register said before it was let go.
CREATE TABLE held (
    key      BLOB PRIMARY KEY,
    deletion INTEGER NOT NULL,
    former   BLOB,
    names    INTEGER NOT NULL              -- how many names are shown or not with it
) WITHOUT ROWID;
CREATE INDEX held_by ON held (deletion);
"""

PIECES = """
-- The hashes of the pieces of large chunks that are here (hybrisfs.state.pieces): a small read need not
-- check the whole chunk. A row may lack; one that does not match only has the whole chunk checked.
CREATE TABLE piece (
    chunk  INTEGER PRIMARY KEY,
    hashes BLOB NOT NULL
);
CREATE TRIGGER piece_of_absent AFTER UPDATE OF segment ON chunk WHEN NEW.segment IS NULL
BEGIN DELETE FROM piece WHERE chunk = NEW.number; END;
CREATE TRIGGER piece_of_dropped AFTER DELETE ON chunk BEGIN DELETE FROM piece WHERE chunk = OLD.number; END;
"""


LEAVES = """
-- The hashes of stretches of 1 MiB of files, or of their last bytes (hybrisfs.state.known_ids), by the parts
-- of chunks that they show: `chunk` is the first one, `parts` a hash of all. Any row may lack.
CREATE TABLE IF NOT EXISTS leaf (
    chunk INTEGER NOT NULL,
    parts BLOB NOT NULL,                   -- 32 bytes
    hash  BLOB NOT NULL,                   -- 32 bytes
    PRIMARY KEY (chunk, parts)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS leaf_of_dropped AFTER DELETE ON chunk
BEGIN DELETE FROM leaf WHERE chunk = OLD.number; END;
"""


def create_schema(connection: sqlite3.Connection, volume: bytes) -> None:
    """Lay out an empty database for the volume with id *volume*, inside the caller's transaction."""
    lay_out(connection, _TABLES)
    lay_out(connection, HISTORY)
    lay_out(connection, MINUTES)
    lay_out(connection, HOLDS)
    lay_out(connection, CHARGES)
    lay_out(connection, UNSIGNED)
    lay_out(connection, PIECES)
    lay_out(connection, LEAVES)
    numbers = dict.fromkeys(
        ("files", "bytes", "seq", "published", "dropped_updates", "dropped_bytes", "history", "ladder"), 0
    )
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)", [("volume", volume), ("inviter", b""), *numbers.items()]
    )
    add_redo(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def add_redo(connection: sqlite3.Connection) -> None:
    """Let no record of another database count for this one."""
    connection.execute("INSERT INTO meta VALUES ('redo', randomblob(32))")


def lay_out(connection: sqlite3.Connection, tables: str) -> None:
    """Carry out statements, each of which ends a line."""
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)
