"""Yesterday's version: what the volume was at any moment, and what is kept of that for how long.

`hybrisfs.log` notes each value that a register had once. From these a whole tree is made for any
moment (`tree`), and the list of a file's versions (`catalog`). A rule (`retention`) says how long
each is kept; `thinning` lets the others go. What has not gone yet is needed, like what files show now, by
every device that has noted it (`contents`), so that garbage collection (`hybrisfs.gc`) takes nothing of it.
"""
