"""Checkpoints of the log: stated, agreed upon, put on the clouds, taken in (Depot 4.3, 5.5).

A device writes a *snapshot* of its log and registers to a file (`snapshot`, `local_snapshots`) when it has
been quiet for a while and has accepted enough since the last checkpoint to make another one worth while. It
*states* the hash of the snapshot in its heads. A device that is never quiet does so now and then all the
same. Another device at the same vector makes the same snapshot and states it, too. So does one that has gone
through that vector and can find out what it held then (`state_at_vector`). Of several statements the newest
counts; of concurrent ones, the one with the lowest hash, so that all pick the same. When all members have
stated it, the checkpoint is *agreed* (`agree`), and one of them puts it on the clouds (`deposit`). Heads name
it from then on, and until then the one before.

A device that has just been let in begins with the checkpoint that its inviter names, instead of reading the
log from its beginning (`adopt`, `intake`). A device that was restored from a backup takes in a
checkpoint that it has stated itself, if it lacks much of it, or has lacked for long what no device has in
full any more. It keeps what only it has: its own updates, which may fork it, and what it has not signed yet.
What both lack beyond that comes with the log.

When the next checkpoint is on the clouds, and all members name it, devices drop what the one before covers:
bodies of updates, and segments on the clouds (`compaction`). `checkpointer` does what
`agree` decides, and `intake` what `adopt` decides.

A device that takes a checkpoint in decides whose word counts: its own, that is a statement that it signed
before its state was lost; or that of the device that let it in, which gave it all keys. So no other device
can make it believe in a state that never was. A device that was let in by a recovery kit, or by a device that
has been removed since, takes the word of members, and what most of them have stated first: to have no
checkpoint is worse. A statement that differs at an equal vector is an alarm.

A checkpoint that heads name is on the clouds. A checkpoint O leaves them when all members name its successor
N, and so do the devices that are only suspended, for these may come back (`compaction`). Until then some
devices name N and some O, and a device that is let in or set back may begin with either. The log holds the
updates between them: an update that O does not cover leaves it only when N has a successor.

A device that has N does not take in O because others name it. A device that has stated N, or taken it in, has
the names of all updates that N stands for in its log. Those of O are among them if at least one device has
stated both and was not set back in between, for all state the same. Only a device that lacks a name that O
has takes O in (`adopt`). Otherwise it would cease to name N, which holds what a device that was set back may
find nowhere else.

A crash may leave parts of files: the next statement removes them. It may leave a statement that no other
device has received: the next head says it again. It may leave some slices of a checkpoint on the clouds: this
device puts the checkpoint there again.
Nothing is removed from the clouds while the head of a member, or of a suspended device, names another
checkpoint than the newest.
"""
