"""Garbage collection: packs that nobody needs are deleted, by unanimous consent (Depot 5.5).

Each device looks after the packs that it put on the clouds. When nothing has named a chunk of a pack for a
grace period, it *proposes* to delete the pack; when little of it is still needed, that part is packed again
first. Every member answers in two steps, by a register of its own:

1. *promised*: the pack is condemned here: nothing of mine names its chunks, and nothing new will rely on it;
equal content goes to the clouds again. I note when something comes to need it.
2. *agreed*: I have seen the promises of all members, and nothing has needed the pack since mine.

A pack that a member refuses stays. When all members have agreed, the proposer signs the end of the packs,
and deletes their shares. `protocol.py` has these steps as a machine, `participant.py` carries them out.

**No member ends a pack alone.** A member may sign what it likes, so the end of a pack counts only when the
log shows that all had agreed: its writer had proposed the pack, and every member by then had agreed, as the
update that says so had seen (`hybrisfs.members.minutes`). Any other end changes nothing: the pack is read and
relied upon as before, and no device takes its shares for leftovers. A device that began with a checkpoint and
cannot judge an end reads the pack as long as it is there, relies on it for nothing new, and deletes none of
its shares but by consent.

**No member agrees on another's word.** A member needs nothing of a pack when no chunk of it is shown there,
or when this member itself has put the chunk into another pack that is to stay, or has read it there. That
another pack holds it is what members say, in the register of a pack or of one that was rewritten: until it
was read, all packs that are said to hold the chunk are needed. So what one member says takes no other one's
vote. Of the chunks that were packed again, each member reads once those that it needs, when the former pack
is to go: about as much as the rewriting has read. A device that is away for long does not vote, and the packs
wait.

Why no chunk x that a device needs is lost. Suppose that x, of a pack that all have agreed on, is shown by
some device M after it has agreed, and take the causally first update u, of device W, that newly brings this
about: a content that names x, or a name for a file that had been removed. If W wrote u before its promise, M
had u when it agreed, since it had the promises of all, and so noted x or had seen it superseded. If W wrote u
between its promise and its agreement, x was shown on W then: W has noted that, and refuses. If W wrote u
afterwards, x was shown on W before, by an earlier such update; or W had the bytes themselves, and has put
them into another pack, which does not end. So there is no u. That W has put x into another pack is true
when W is correct; M, which hears of x then, has noted that x is needed until M has read it there. So it does
not matter for M if W lies. A device that is let in while the vote goes on counts if the device that let it
in, or any that has heard of it, has yet to agree; otherwise it starts from a log that has the proposal.

A version that a device keeps (`hybrisfs.versions`) counts like what it shows. It was shown before, or an
update wrote its content and another superseded that at once: either was noted. Once let go of it is never
wanted again, so there is no other way to come to need it. Devices need not keep the same: each refuses for
its own, and a device that keeps less can lose nothing of another's.

A device that forked (restored from a backup) has agreed only when all its branches say so. What it did before
it knew of the list may name x all the same: then x goes to the clouds again, from any device that shows it
and has its bytes. So that this is rare, the grace period is longer than a weekend.

**Orphans** (`disposal.py`) are packs that no register names, and *strays* shares on a cloud where the
register of their pack does not place them. A device that finds some proposes them, too, and the same two
steps decide. A device that knows of the proposal records no pack that it calls orphaned, and no share where
it calls it a stray (`minutes.py`): uploads get another name, moves fail and are done again. A member refuses
packs and places that its registers name.

Why no share that a device can name is lost. Suppose that all have agreed on the orphan P, and take any update
u, of device W, that names P. W did not know of the proposal when it wrote u, so that u precedes its promise.
Some member M that is not W, or W itself, has agreed with all promises before its eyes; so it had u, a
register named P there, and it has refused: a contradiction. So there is no u, nor will there be: P ends as
packs do, its id is never used again, and it does not matter when its shares are deleted. The same holds for a
stray, the share s of P on cloud C, as long as the proposal stands: of the values that a register had, the one
with the highest stamp counts, and a later one is made from it. But s may be placed on C afterwards. So the
proposal stands until C has said that s is deleted, or is none of the volume's clouds any more, or it is
followed at once by another one that names s, too, and is voted on by itself. Nothing is deleted unless the
same share can be read at that moment where its register places it. A new member counts at once: it starts
from a log that has the proposal, and so keeps to it before it has answered. A device that forked may have
named P before: see above.

A device may need the content of an orphan all the same: it knows the content and not its pack, as the maker
of the pack was set back or lost in between. It reads the content from the orphan, before it agrees to its end
at the latest, and the content goes to the clouds in another pack (`rewrite.py`).

Ids of packs are never used again: a delete that a cloud carries out late, or a proposer does again after a
crash, can hurt nothing.

=======================================  =============================================================
the proposer dies after                  what the next start does
=======================================  =============================================================
condemning, before its promise           the same again; the database remembers what was wanted since
its proposal or its promise              goes on: both are in the log
all have agreed                          goes on to sign the end of the packs
signing the end of some packs            these are gone in the same transaction; goes on with the rest
signing the end, before it is shipped    ships it; shares are deleted only afterwards
deleting a stray                         the proposal stands still: deletes it again
deleting some shares                     deletes all that `disposal` still names, again if need be
=======================================  =============================================================

With one device all steps follow each other at once.
"""
