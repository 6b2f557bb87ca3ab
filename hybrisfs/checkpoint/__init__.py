"""Checkpoints of the log: stated, agreed upon, put on the clouds, taken in (Depot 4.3, 5.5).

A device that has been quiet for a while, and has accepted so much since the last checkpoint that another one
is worth it, writes a *snapshot* of its log and registers to a file (`snapshot`, `shelf`), and *states* its
hash in its heads. One that never is quiet does so now and then all the same. Whoever stands at the same
vector, or has gone through it and can tell what was here then (`retrospect`), makes the same snapshot and
states it, too. Of several statements the newest counts; of those that are concurrent, the one with the lowest
hash, so that all pick the same. When all members have stated it, the checkpoint is *agreed* (`agree`), and
one of them puts it on the clouds (`deposit`); heads name it from then on, and until then the one before.

A device that has just been let in begins with the checkpoint that its inviter names, instead of reading the
log from its beginning (`fetching`, `intake`, `adoption`). One that was restored from a backup takes in a
checkpoint that it has stated itself, if it lacks much of it, or lacks for long what nobody has in full any
more. It keeps what only it has: its own updates, which may fork it, and what it has not signed yet. What both
lack beyond that comes with the log.

When the next one is on the clouds, and all members name it, devices drop what the one before covers: bodies
of updates, and segments on the clouds (`succession`, `compaction`). `keeper` does what `agree` decides.

Whose word counts is up to who takes a checkpoint in: his own, that is a statement that he signed before his
state was lost; or that of the device that let him in, which gave him all keys. So nobody else can make him
believe in a state that never was. Who was let in by a recovery kit, or by a device that has been removed
since, takes that of members, what most of them have stated first: to be without all is worse. A statement
that differs at an equal vector is an alarm.

What is named is there. A checkpoint O leaves the clouds when all members name its successor N, and so do the
devices that are only suspended, for these may come back (`compaction`). Until then some name N and some O,
and a device that is let in or set back may begin with either: what lies between them is in the log, of which
nothing that O does not cover goes before N has a successor.

Who has N does not take in O because others name it. The log of whoever has stated N, or taken it in, has the
names of all updates that N stands for; those of O are among them if but one device has stated both and was
not set back in between, for all state the same; and only who lacks a name that O has takes O in (`intake`).
Otherwise he would cease to name N, which holds what somebody who was set back may find nowhere else.

What a crash leaves: parts of files, removed at the next statement; statements that nobody has heard of, which
are made known again; a checkpoint of which some slices are on the clouds, put there anew. Nothing is removed
from the clouds while the head of a member, or of a suspended device, names another checkpoint than the
newest.
"""
