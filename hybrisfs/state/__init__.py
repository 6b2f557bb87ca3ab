"""What a volume holds: the one home of SQL on its tables, and of the states of what is in them.

So far it owns chunks (tables `chunk` and `spare`). `chunk_states` has the rules and the table of states;
`ChunkStore` in `chunks` changes them. The other modules answer questions, each of them one.
"""
