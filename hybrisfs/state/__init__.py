"""The tables of a volume: the one home of SQL on them, and of the states of their rows.

`state.py` owns the lock; its `Transaction` has all tables, and the log and the members as `hybrisfs.log` and
`hybrisfs.members` read them. It is the top of the package, and the only module here that imports these two.

updates          `UpdateLog`: the log of signed updates; it alone writes it
registers        `RegisterTable`: the latest values of registers; all that members have said of members
members          which devices there are, which one granted which epoch, when each was last seen
checkpoints      `CheckpointTable`: what this device states, and the agreed checkpoints
earlier_state    a snapshot that shows log and registers as they were at an earlier vector
versions         what registers held once; the same with what they have now, by moments
decisions        `ConflictTable`: what stands elsewhere than it says; `HeldDeletions`: what waits for a person

nodes            `NodeTable`: nodes and their extended attributes; `PlaceTable`: names, and what each means
extents          `ExtentTable`: the bytes of files that are in no chunk yet
file_chunks      `ContentTable`: what the contents of files are made of, and where these chunks are
unplaced         `PendingTable`: what has changed here and is not on the clouds yet; chunks that are not
pins             `PinTable`: what is to be kept here, what that covers, and what others may not have

chunk_states     the rules, the states, what a row says in each, and which call moves a chunk
chunks           `ChunkStore`: the bytes on this disk; all moves are calls of it
chunk_places     its other half: the places on the clouds, and packs that are lost, doubted or ended
packs            `PackTable`: where the shares of packs are, which device says so, what packs hold
segments         `SegmentTable`: the log segments that this device has put on the clouds
disposals        what garbage collection has found and condemned, and the shares that are to be deleted

The other modules answer questions, of the open transaction (with the lock held) or of a snapshot:

stored_log       what does the log say of an update, or of a branch?
shown_nodes      where does the view show a node, and what is below it?
checks           what is wrong with rows, values of registers, the tree, chunks?
damaged          what can be read of a damaged database?
"""
