"""Programs on several devices, and what has to hold whatever they do.

Every content written is one *token* that nobody wrote before. A token may vanish only when somebody overwrote
or deleted a file that showed it to him; everything else must be found in the tree in the end.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kinds import IGNORE_RULE, LABEL, NODE
from hybrisfs.members.members import Member
from hybrisfs.registers.ignore_rules import encode_rank, pattern_of, ranks, rule_key
from hybrisfs.registers.labels import word_of
from hybrisfs.registers.tree import content_key, place_key
from hybrisfs.sharing.agreement import state_hash
from hybrisfs.tree.inodes import Inode, LostName
from hybrisfs.tree.unseen import NameChange
from hybrisfs.write.cut import FileSnapshot
from tests.merge.beginner import past
from tests.merge.fleet import Device, Fleet, NotHereError
from tests.merge.keeping import check_kept, content_of, is_to_be_had
from tests.merge.kernel import Kernel
from tests.merge.key_model import KeyModel
from tests.merge.order import Order
from tests.merge.view import check_view
from tests.tree.invariants import check_accounts
from tests.tree.unlocked import unlocked

__all__ = ["NAMES", "World"]

NAMES: Final = ("a", "b.txt", "c")
_MOST_ROUNDS: Final = 4
_CHUNK: Final = 256
_WITHIN: Final = 2


@dataclass(slots=True)
class _Open:
    """A handle of a program, and what it must read through it."""

    device: int
    number: int
    content: bytes | None  # None: not known here, for its bytes are elsewhere


class World:
    """Operations take any number where they choose among what there is; what cannot be done is left."""

    def __init__(
        self,
        devices: int,
        guests: Sequence[Member] = (),
        environment: Callable[[int], Environment] = lambda _: SYSTEM,
    ) -> None:
        self.fleet = Fleet(devices, guests, environment)
        self.open: list[_Open] = []
        self.bad: set[int] = set()  # devices that do not do any more what a correct device does
        self._written: dict[bytes, int] = {}  # tokens, and the devices that wrote them
        self._gone: set[bytes] = set()  # tokens that somebody who saw them has overwritten or deleted
        self._unsaved: list[set[bytes]] = [set() for _ in range(devices)]
        self._backups: dict[int, Path] = {}
        self._since: list[set[bytes]] = [set() for _ in range(devices)]  # tokens written since the backup
        self._kernels = [Kernel(device) for device in self.fleet.devices]
        self._names = {name.encode() for name in NAMES}
        self._on_clouds: list[list[bytes]] = []
        self._labels: set[tuple[bytes, str]] = set()  # nodes and words: of all that nobody has taken away
        self._unsaved_labels: list[set[tuple[bytes, str]]] = [set() for _ in range(devices)]
        self._labels_since: list[set[tuple[bytes, str]]] = [set() for _ in range(devices)]
        self._keys = KeyModel(devices)
        self._count = 0
        self._orders = [Order(device.rig) for device in self.fleet.devices]

    # -- choosing --------------------------------------------------------------------------------

    def _path(self, device: Device, pick: int) -> str | None:
        names = device.names()
        return names[pick % len(names)] if names else None

    def _place(self, device: Device, pick: int, name: int) -> str:
        folders = ["", *(path for path, inode in sorted(device.walk().items()) if inode.is_directory)]
        folder = folders[pick % len(folders)]
        return f"{folder}/{NAMES[name % len(NAMES)]}".lstrip("/")

    def _token(self, device: int, size: int) -> bytes:
        self._count += 1
        token = b"<%d>" % self._count
        self._written[token] = device
        self._unsaved[device].add(token)
        self._since[device].add(token)
        return token + bytes(range(1, 60)) * (size * _CHUNK // 59)

    @contextmanager
    def _program(self, number: int) -> Iterator[Device]:
        """A program does something on a device: it may fail as programs do."""
        device = self.fleet[number]
        with suppress(NotHereError, OSError, ChunkUnavailable):
            yield device
        self._hear(number, told=False)
        self._kernels[number].forget()
        check_accounts(device.rig, [], honest=not self.bad)

    def _discard(self, device: Device, inode: Inode) -> None:
        """What the program is about to do ends the content that it sees."""
        nodes = self._nodes(device, inode)
        self._labels = {(node, word) for node, word in self._labels if node not in nodes}
        if inode.is_file and inode.nlink < 2:
            self._gone |= self._tokens(device.content(inode))

    @staticmethod
    def _nodes(device: Device, inode: Inode) -> set[bytes]:
        """The nodes that are seen as this one."""
        rows = device.rig.db.rows.execute("SELECT id FROM joined WHERE ino = ?", (inode.ino,)).fetchall()
        return {inode.id, *(node for (node,) in rows)}

    def _tokens(self, content: bytes) -> set[bytes]:
        return {token for token in self._written if token in content}

    # -- programs --------------------------------------------------------------------------------

    def write(self, number: int, pick: int, name: int, size: int) -> None:
        """Replace a file's content, or make the file."""
        with self._program(number) as device:
            path = self._place(device, pick, name)
            inode = device.walk().get(path)
            if inode is not None:
                if not inode.is_file:
                    return
                content = device.content(inode)
                self._gone |= self._tokens(content)
            token = self._token(number, size)
            device.write(path, token)
            self._expect(number, device.at(path), token)

    def write_many(self, number: int, count: int) -> None:
        """Make a folder of small files."""
        with self._program(number) as device:
            folder = f"folder {self._count}"
            device.mkdir(folder)
            for at in range(count):
                device.write(f"{folder}/{at}", self._token(number, 0))

    def write_same(self, number: int, pick: int, name: int, same: int) -> None:
        """Make a file as others may make it, too."""
        with self._program(number) as device:
            path = self._place(device, pick, name)
            if path not in device.walk():
                device.write(path, b"same %d" % same)

    def append(self, number: int, pick: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is None or not device.at(path).is_file:
                return
            inode = device.at(path)
            content = device.content(inode)
            token = self._token(number, 0)
            device.rig.fs.write(device.rig.tx, inode, inode.size, token)
            self._expect(number, inode, content + token)

    def _expect(self, number: int, inode: Inode, content: bytes) -> None:
        for one in self.open:
            if one.device == number and self.fleet[number].rig.fs.handle(one.number) is inode:
                one.content = content

    def mkdir(self, number: int, pick: int, name: int) -> None:
        with self._program(number) as device:
            device.mkdir(self._place(device, pick, name))

    def symlink(self, number: int, pick: int, name: int, target: int) -> None:
        with self._program(number) as device:
            parent, at = device.where(self._place(device, pick, name))
            device.rig.fs.make(
                device.rig.tx, parent, at, stat.S_IFLNK | 0o777, 1, 1, target=b"%d" % (target % 2)
            )

    def remove(self, number: int, pick: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                self._discard(device, device.at(path))
                device.remove(path)

    def rename(self, number: int, pick: int, folder: int, name: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is None:
                return
            to = self._place(device, folder, name)
            target = device.walk().get(to)
            if target is not None and target is not device.at(path):
                self._discard(device, target)
            device.move(path, to)

    def unaware(self, number: int, pick: int, act: int) -> None:
        """Save a file by a rename, remove it or write it anew, as a program does that has not seen what it is
        by now. What has not been signed a program here has written, which knows it."""
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is None or not device.at(path).is_file:
                return
            fs, sparing, inode = device.rig.fs, device.rig.sharing.sparing, device.at(path)
            device.content(inode)
            parent, name = device.where(path)
            fs.unseen.watch(lambda _: True)
            fs.unseen.names_changed(unlocked(fs), [NameChange(parent, name, True)])
            if act == 0:
                self._save(number, parent, name)
            elif act == 1:
                assert not sparing.before_unlink(unlocked(fs), parent, name)
            else:
                if content_key(inode.id) in fs.changes.unsigned:
                    self._gone |= self._tokens(device.content(inode))
                token = self._token(number, 0)
                sparing.before_overwrite(unlocked(fs), inode, 0)
                fs.truncate(unlocked(fs), inode, 0)
                fs.write(unlocked(fs), inode, 0, token)
                self._expect(number, inode, token)
            fs.unseen.watch(None)

    def save(self, number: int, pick: int, signed: int) -> None:
        """Save a file by a rename. What it is written to is signed before, within the same round, or not."""
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None and device.at(path).is_file:
                self._discard(device, device.at(path))
                self._save(number, *device.where(path), signed)

    def _save(self, number: int, parent: int, name: bytes, signed: int = 0) -> None:
        rig, draft = self.fleet[number].rig, b"draft %d" % self._count
        replaced = self._nodes(self.fleet[number], rig.find(name, parent))
        self._labels = {(node, word) for node, word in self._labels if node not in replaced}
        rig.make(draft, self._token(number, 0), parent)

        def rename() -> None:
            rig.sharing.sparing.before_rename(rig.tx, parent, draft, parent, name, 0)
            rig.fs.rename(rig.tx, parent, draft, parent, name, 0)

        if signed == 1:
            self._sign(number)
            there = rig.fs.lookup(rig.tx, parent, name)
            if there is not None:  # what survived its removal elsewhere gives up that name for a signed one
                self._discard(self.fleet[number], there)
        if signed != _WITHIN:
            rename()
            return
        renamed: list[int] = []

        def act(_: FileSnapshot) -> None:
            if not renamed:
                renamed.append(1)
                rename()

        rig.chunker.before = act
        self._sign(number)
        rig.chunker.before = lambda _: None

    def link(self, number: int, pick: int, folder: int, name: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                device.link(path, self._place(device, folder, name))

    def chmod(self, number: int, pick: int, mode: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                device.rig.fs.attributes.change(device.rig.tx, device.at(path), mode=0o600 | mode % 8)

    def xattr(self, number: int, pick: int, value: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                inode = device.at(path)
                device.rig.fs.attributes.set_xattr(device.rig.tx, inode, b"user.x", b"%d" % (value % 3), 0)

    def label(self, number: int, pick: int, word: int) -> None:
        """Give a label to a node."""
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                inode = device.at(path)
                device.rig.fs.labels.add(device.rig.tx, inode, [f"label {word}"])
                label = inode.id, f"label {word}"
                for labels in (self._labels, self._unsaved_labels[number], self._labels_since[number]):
                    labels.add(label)

    def ignore(self, number: int, name: int, there: int) -> None:
        """Add an ignore rule for one of the names, or remove it."""
        self._rule(number, NAMES[name % len(NAMES)], there % 2)

    def end_rules(self) -> None:
        """No rule is to hold any more: what they have kept is to be synced."""
        for number, device in enumerate(self.fleet.devices):
            if number not in self.bad:
                rules = ranks(device.rig.registers.with_prefix(IGNORE_RULE.prefix))
                for key in rules:
                    self._rule(number, pattern_of(key), 0)

    def _rule(self, number: int, pattern: str, rank: int) -> None:
        rig = self.fleet[number].rig
        if rig.sharing.signer.may_change(rig.tx):
            rig.sharing.signer.sign(rig.tx, [(rule_key(pattern), encode_rank(rank))], 0)
            rig.fs.ignored.rules_changed(rig.tx)

    def unlabel(self, number: int, pick: int, word: int) -> None:
        """Take a label away."""
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is not None:
                inode = device.at(path)
                self._labels -= {(node, f"label {word}") for node in self._nodes(device, inode)}
                device.rig.fs.labels.remove(device.rig.tx, inode, [f"label {word}"])

    # -- keys in the log -------------------------------------------------------------------------

    def put(self, number: int, pick: int, other: int) -> None:
        """Write one key, or two in one transaction."""
        self._write_keys(number, {f"key {pick}": b"value", f"key {other}": b""})

    def delete(self, number: int, pick: int) -> None:
        """Delete a key, which may have no value."""
        self._write_keys(number, {f"key {pick}": None})

    def _write_keys(self, number: int, values: Mapping[str, bytes | None]) -> None:
        with self._program(number) as device, suppress(HybrisError):  # a device may not sign at the moment
            self._keys.write(number, device.rig, values)
            self._unsaved[number].clear()  # it was committed with them
            self._unsaved_labels[number].clear()

    # -- open files ------------------------------------------------------------------------------

    def open_file(self, number: int, pick: int) -> None:
        with self._program(number) as device:
            path = self._path(device, pick)
            if path is None or not device.at(path).is_file:
                return
            content = device.content(device.at(path))
            handle = device.rig.fs.open(device.rig.tx, device.at(path).ino, os.O_RDWR)
            self.open.append(_Open(number, handle, content))

    def read_open(self, pick: int) -> None:
        """An open file keeps the version it opened."""
        if self.open:
            one = self.open[pick % len(self.open)]
            device = self.fleet[one.device]
            assert device.content(device.rig.fs.handle(one.number)) == one.content

    def write_open(self, pick: int) -> None:
        if not self.open:
            return
        one = self.open[pick % len(self.open)]
        device = self.fleet[one.device]
        inode = device.rig.fs.handle(one.number)
        lost = device.rig.fs.inodes.lost_names.get(inode.ino) if inode.orphan else None
        token = self._token(one.device, 0)
        if inode.orphan and lost is None:
            self._gone.add(token)  # deleted by a program here: what is written is nobody's
        content = (one.content or b"") + token
        device.rig.fs.write(device.rig.tx, inode, inode.size, token)
        self._expect(one.device, inode, content)
        if lost is not None:
            self._check_again(device, inode, lost)
        self._kernels[one.device].forget_attr(inode.ino)
        self._hear(one.device)
        check_accounts(device.rig, [], honest=not self.bad)

    def _check_again(self, device: Device, inode: Inode, lost: LostName) -> None:
        """An open file has a name again: in the folder in which it stood, if anybody was ever told of that,
        or beside what its node is now."""
        rig = device.rig
        [(parent,)] = rig.db.rows.execute("SELECT parent FROM place WHERE ino = ?", (inode.ino,)).fetchall()
        folders = {rig.fs.get(rig.tx, parent).id}
        folders.update(
            node for (node,) in rig.db.rows.execute("SELECT id FROM joined WHERE ino = ?", (parent,))
        )
        known = rig.db.rows.execute("SELECT 1 FROM node WHERE id = ?", (lost.node,)).fetchone()
        told = rig.tx.registers.values(place_key(lost.folder, 0))
        assert lost.folder in folders or known or not told
        assert inode in device.walk().values()

    def sync_open(self, pick: int) -> None:
        """A program has what it wrote synced, and keeps the file open."""
        if self.open:
            one = self.open[pick % len(self.open)]
            rig = self.fleet[one.device].rig
            rig.fs.synced(rig.tx, rig.fs.handle(one.number).ino)

    def close_file(self, pick: int) -> None:
        if self.open:
            one = self.open.pop(pick % len(self.open))
            self.fleet[one.device].rig.fs.release(self.fleet[one.device].rig.tx, one.number)
            check_accounts(self.fleet[one.device].rig, [], honest=not self.bad)

    # -- the daemon ------------------------------------------------------------------------------

    def look(self, number: int) -> None:
        """The kernel asks about everything."""
        self._names |= {os.fsencode(Path(path).name) for path in self.fleet[number].names()}
        self._kernels[number].look(self._names)

    def sign(self, number: int, *, everything: bool = True) -> None:
        """Rounds of the publisher, until there is no more to sign."""
        self._sign(number, everything=everything)
        self._hear(number)
        check_accounts(self.fleet[number].rig, [], honest=not self.bad)

    def _leave_labels(self, number: int) -> None:
        """Nobody hears of labels of a node that is gone before any other device has heard of it."""
        device = self.fleet[number]
        direct = device.rig.tx.direct
        keys = [key for key in device.rig.fs.changes.unsigned if key[0] == LABEL]
        if keys:
            device.rig.fs.inodes.flush(device.rig.tx)
        for key in keys:
            label = key[NODE], word_of(key)
            if label in self._labels and not direct.is_wanted(key):
                self._labels.remove(label)

    def _sign(self, number: int, *, everything: bool = True) -> None:
        self._leave_labels(number)
        self.fleet[number].sign(everything=everything)
        self._orders[number].check()

    def send(self, sender: int, receiver: int, count: int, seed: int) -> None:
        """Hand over some of what the receiver lacks: from the front, or, with a seed, in any order."""
        self.commit(sender)
        known = set(self.fleet[receiver].log())
        updates = [update for update in self.fleet[sender].log() if update not in known]
        updates = updates[: 1 + count % 20] if count else updates
        if seed:
            random.Random(seed).shuffle(updates)
        self.hand(receiver, updates)

    def hand(self, number: int, updates: list[bytes]) -> None:
        """Give a device updates, or what somebody says are some."""
        self.fleet[number].receive(updates)
        self.received(number)

    def received(self, number: int) -> None:
        """A device has taken in updates, or none."""
        self._hear(number)
        check_accounts(self.fleet[number].rig, [], honest=not self.bad)

    def _hear(self, number: int, *, told: bool = True) -> None:
        shown = self.fleet[number].rig.shown
        self._kernels[number].hear(shown)
        shown.clear()
        if told:
            self._kernels[number].check()

    def commit(self, number: int) -> None:
        self.fleet[number].rig.commit()
        self._unsaved[number].clear()
        self._unsaved_labels[number].clear()

    def _ended(self, number: int) -> None:
        """All programs of a device are gone, and what its kernel remembered."""
        self.open = [one for one in self.open if one.device != number]
        self._kernels[number] = Kernel(self.fleet[number])
        self._orders[number] = Order(self.fleet[number].rig)
        check_accounts(self.fleet[number].rig, [], honest=not self.bad)

    def _close_all(self, number: int) -> None:
        for one in self.open:
            if one.device == number:
                self.fleet[number].rig.fs.release(self.fleet[number].rig.tx, one.number)

    def reopen(self, number: int) -> None:
        self._close_all(number)
        device = self.fleet[number]
        device.rig = device.rig.reopen()
        self._unsaved[number].clear()
        self._unsaved_labels[number].clear()
        self._ended(number)

    def crash(self, number: int) -> None:
        """SIGKILL: what was not committed may be gone, or not, if others have it."""
        device = self.fleet[number]
        device.rig = device.rig.crashed()
        self._gone |= self._unsaved[number]
        self._labels -= self._unsaved_labels[number]
        self._unsaved[number].clear()
        self._unsaved_labels[number].clear()
        self._ended(number)

    def back_up(self, number: int) -> None:
        if number not in self._backups:
            self._backups[number] = self.fleet[number].saved()
            self._unsaved[number].clear()
            self._unsaved_labels[number].clear()
            self._since[number].clear()
            self._labels_since[number].clear()
            self._keys.backed_up(number)

    def has_backup(self, number: int) -> bool:
        return number in self._backups

    def restore(self, number: int) -> None:
        """A device goes on from its backup, and forks; what it had signed since is on the clouds."""
        if number in self._backups:
            self._gone |= self._since[number]
            self._labels -= self._labels_since[number]
            self._keys.set_back(number)
            self._on_clouds.append(self.fleet[number].log())
            self.fleet[number].restore(self._backups[number])
            self._unsaved[number].clear()
            self._unsaved_labels[number].clear()
            self._ended(number)

    # -- in the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """All hear of all: they must agree, soon and for good, and nothing be lost."""
        rounds = 0
        while self._exchange():
            rounds += 1
            assert rounds <= _MOST_ROUNDS, "devices go on answering each other's updates"
        self.check()

    @property
    def honest(self) -> list[Device]:
        """The devices that are not bad."""
        return [device for number, device in enumerate(self.fleet.devices) if number not in self.bad]

    def expected(self) -> set[bytes]:
        """What honest devices wrote, and nobody who saw it has deleted or overwritten."""
        return {token for token, number in self._written.items() if number not in self.bad} - self._gone

    def check(self) -> None:
        """All have heard of all: they agree, and nothing is lost."""
        if self.bad:
            check_kept(self.honest, self.expected())
        self._check_agreement()
        for device in self.honest:
            check_view(device, self._excused if self.bad else None)
        if not self.bad:
            self._check_tokens()
            self._check_labels()
            self._keys.check(self.fleet[0].registers())

    def _excused(self, value: bytes) -> bool:
        """Whether nobody needs to be able to read this content: nothing in it is from an honest device, or a
        bad one has never given its bytes to anybody."""
        content = content_of(self.honest[0], value)
        if content is None or not any(token in content for token in self.expected()):
            return True
        return not is_to_be_had(self.honest, value)

    def _exchange(self) -> bool:
        """Whether anybody signed anything."""
        devices = self.fleet.devices
        before = [len(device.log()) for device in devices]
        self.end_rules()
        for number, device in enumerate(devices):
            self._leave_labels(number)
            device.sign()
            self._hear(number)
            self.commit(number)
        signed = [len(device.log()) for device in devices] != before
        logs = [*self._on_clouds, *(device.log() for device in devices)]
        for number, device in enumerate(devices):
            known = set(device.log())
            for log in logs:
                device.receive([update for update in log if update not in known])
            self._hear(number)
        return signed

    def _check_agreement(self) -> None:
        first, *others = self.honest
        for other in others:
            assert other.rig.updates.state.vector == first.rig.updates.state.vector
            assert other.registers() == first.registers()
            assert state_hash(other.rig.db.rows) == state_hash(first.rig.db.rows)
            assert self.bad or other.tree() == first.tree()  # a bad one's files may have no bytes
            if not first.bare() and not other.bare():
                assert self._versions(other) == self._versions(first)

    def _versions(self, device: Device) -> object:
        """What registers held once, and what was removed; not when, for clocks may be wrong."""
        found = past(device.rig)
        return [row[:4] for row in found["past"]], sorted(found["removals"])

    def _check_tokens(self) -> None:
        tree = self.fleet[0].tree()
        everything = b"".join(entry.content for entry in tree.values() if stat.S_ISREG(entry.kind))
        lost = {token for token in self.expected() if token not in everything}
        assert not lost, f"nobody deleted or overwrote {sorted(lost)}"

    def _check_labels(self) -> None:
        """What somebody has labelled, and nobody taken the label from, has it."""
        device = self.fleet[0]
        shown = {node: one for one in device.walk().values() for node in self._nodes(device, one)}
        for node, word in self._labels:
            assert node not in shown or word in device.rig.fs.labels.of(device.rig.tx, shown[node]), (
                node.hex(),
                word,
            )

    def end(self) -> None:
        self.fleet.discard()
        for place in self._backups.values():
            shutil.rmtree(place, ignore_errors=True)
