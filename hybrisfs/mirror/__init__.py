"""Mirrors: an ordinary folder kept equal, both ways, to a folder of the volume, without a mount.

For each name there are three states: what the folder on the disk shows, what the volume shows, and what both
showed when they were last equal (`mirror.agreed`). `mirror.plan` compares them and says what is to be done;
it is a pure function. `mirror.engine` does it, one name at a time, each as one atomic step that first makes
sure that what it replaces is still what the plan was made for. `mirror.worker` is the thread that watches,
plans and does.

Nothing is lost:

* what is replaced or removed is the very thing that was compared, or the step is not taken and planned again;
* a name that both sides changed keeps both versions, the local one under a conflict name;
* a side that deleted what the other side has changed gets it back;
* a folder without its marker (an empty mount point, another disk) is never compared with anything;
* an agreed state is recorded only when it is durable on both sides. The volume keeps count of that record:
  when it is older than the record, as after a restore from a backup, both sides are merged again, which
  removes nothing.
"""
