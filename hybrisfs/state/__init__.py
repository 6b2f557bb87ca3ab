"""What a volume holds: the one home of SQL on its tables, and of the states of what is in them.

`tests/test_architecture.py` names the packages outside that hold SQL yet.

chunk_states     the rules, the states, what a row says in each, and which call moves a chunk
chunks           `ChunkStore`: the bytes on this disk; all moves are calls of it
chunk_places     its other half: the places on the clouds, and packs that are lost, doubted or discarded
condemned        packs that may be discarded soon
packs            `PackTable`: where the shares of packs are, and who says so
segments         `SegmentTable`: the log segments that this device has put on the clouds
disposals        what garbage collection has found, and the shares that are to be deleted
updates          `UpdateLog`: what has been accepted of all devices' logs

The other modules answer questions, of the open transaction (with the lock held) or of a snapshot:

file_chunks      which chunks do the contents of files name, and where are these?
journal_chunks   which chunks lie in the journal, what keeps a segment there, what waits to be packed?
unplaced_chunks  what do files show that is on no cloud, and is for others to bring there?
pack_chunks      what do packs hold, are they needed, are they to be on the clouds, are they lost?
subtree          what do some folders hold, and how much of it is here?
chunk_checks     what is wrong with the rows?
damaged          what can be read of a damaged database?
"""
