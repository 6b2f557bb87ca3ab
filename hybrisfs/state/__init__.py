"""The tables of a volume: the one home of SQL on them, and of the states of their rows.

`state.py` owns the lock; its `Transaction` has all tables, and the log and the members as `hybrisfs/log` and
`hybrisfs/members` read them. It is the top of the package, and the only module here that imports these two.

updates          `UpdateLog`: the log of signed updates; it alone writes it
registers        `RegisterTable`: the latest values of registers
members          which devices there are, which one granted which epoch, what time makes this device act on
checkpoints      `CheckpointTable`: what this device states, and the agreed checkpoints
earlier_state    a snapshot that shows log and registers as they were at an earlier vector
versions         what registers held once
intervals        the same with what they have now, by moments
held             `HeldDeletions`: deletions that wait for a person
sightings        `SightingTable`: when each device was last seen
said             all that members have said of members and of packs that may end

nodes            `NodeTable`: nodes, their extended attributes, and those without a name
places           `PlaceTable`: the names, and which node each means
conflicts        `ConflictTable`: what is seen as one node, is a copy, or stands elsewhere than it says
contents         `ContentTable`: what the contents of files are made of
extents          `ExtentTable`: the bytes of files that are in no chunk yet
pending          `PendingTable`: what has changed here and is not on the clouds yet
pins             `PinTable`: what is to be kept here, and what that covers

chunk_states     the rules, the states, what a row says in each, and which call moves a chunk
chunks           `ChunkStore`: the bytes on this disk; all moves are calls of it
chunk_places     its other half: the places on the clouds, and packs that are lost, doubted or discarded
condemned        packs that may be discarded soon
packs            `PackTable`: where the shares of packs are, and which device says so
segments         `SegmentTable`: the log segments that this device has put on the clouds
disposals        what garbage collection has found, and the shares that are to be deleted

The other modules answer questions, of the open transaction (with the lock held) or of a snapshot:

file_chunks      which chunks do the contents of files name, and where are these?
journal_chunks   which chunks lie in the journal, what keeps a segment there, what waits to be packed?
unplaced_chunks  what do files show that is on no cloud, and is for others to bring there?
pack_chunks      what do packs hold, are they needed, are they to be on the clouds, are they lost?
stored_log       what does the log say of an update, or of a branch?
shown_nodes      where does the view show a node, and what is below it?
subtree          what do some folders hold, and how much of it is here?
register_checks  what is wrong with the values of registers?
tree_checks      what is wrong with the rows of the tree?
view_checks      what does the view show, to be compared with the registers?
chunk_checks     what is wrong with the rows of chunks?
damaged          what can be read of a damaged database?
"""
