"""Mirrors: an ordinary folder kept equal, both ways, to a folder of the volume, without a mount.

For each name there are three states: what the folder on the disk shows, what the volume shows, and what both
showed when they were last equal (`mirror.agreed`). `mirror.plan`, a pure function, compares them and returns
the steps to take. `mirror.engine` takes them, one name at a time. Each step is atomic, and first makes sure
that the file it replaces is still the one that the plan was made for. `mirror.worker` is the thread that
watches, plans and acts.

Nothing is lost:

* a step replaces or removes the very file that was compared; else it is not taken, but planned again;
* a name that both sides changed keeps both versions, the local one under a conflict name;
* a side that deleted what the other side has changed gets it back;
* a folder without its marker (an empty mount point, another disk) is never compared with anything;
* an agreed state is recorded only when it is durable on both sides. The volume keeps count of that record:
  when it is older than the record, as after a restore from a backup, both sides are merged again, which
  removes nothing.
"""
