"""What is on a recorded disk after so many steps, and what a power cut leaves of it.

The disk keeps no promise but that of fsync. What was done to a file or a folder after its last sync survives
in part: of the writes any, in any order, each whole or torn at a boundary of sectors; of the changes of names
either the first so many, as a journaling filesystem has it, or any.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from tests.crash.trace import Data, Made, Mark, Named, Resized, Step, Synced, Unnamed

__all__ = ["Disk", "Tree"]

_ROOT: Final = 1
_SECTOR: Final = 512
_KEEP: Final = (0.0, 0.5, 0.9)  # how likely an unsynced write is to survive, in one cut or another

_NameStep: TypeAlias = Named | Unnamed
_FileStep: TypeAlias = Data | Resized


@dataclass
class Tree:
    """Nodes and names at one moment."""

    files: dict[int, bytearray] = field(default_factory=dict)
    folders: dict[int, dict[bytes, int]] = field(default_factory=lambda: {_ROOT: {}})

    def apply(self, step: Step) -> None:
        match step:
            case Made(node, True):
                self.folders[node] = {}
            case Made(node, False):
                self.files[node] = bytearray()
            case Named(folder, name, node, old):
                if old is not None and self.folders[old[0]].get(old[1]) == node:
                    del self.folders[old[0]][old[1]]
                self.folders[folder][name] = node
            case Unnamed(folder, name):
                self.folders[folder].pop(name, None)
            case Data(node, offset, data):
                content = self.files[node]
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
            case Resized(node, size):
                content = self.files[node]
                del content[size:]
                content.extend(bytes(size - len(content)))

    def write(self, target: Path, rewrite: Callable[[bytes, bytes], bytes], folder: int = _ROOT) -> None:
        """Make the tree below *target*; *rewrite* is given each file's name and bytes."""
        target.mkdir(parents=True)
        for name, node in self.folders[folder].items():
            path = target / name.decode()
            if node in self.folders:
                self.write(path, rewrite, node)
            else:
                path.write_bytes(rewrite(name, bytes(self.files[node])))


class Disk:
    """The disk as the recorded program saw it, and beside it what is safe on the medium."""

    def __init__(self) -> None:
        self.now = Tree()
        self._medium = Tree()
        self._file_steps: dict[int, list[_FileStep]] = {}
        self._name_steps: list[_NameStep] = []

    def apply(self, step: Step) -> None:
        self.now.apply(step)
        match step:
            case Made():
                self._medium.apply(step)  # without a name nobody sees it
            case Data(node) | Resized(node):
                self._file_steps.setdefault(node, []).append(step)
            case Named() | Unnamed():
                self._name_steps.append(step)
            case Synced(node):
                self._sync(node)
            case Mark():
                pass

    def _sync(self, node: int) -> None:
        for step in self._file_steps.pop(node, ()):
            self._medium.apply(step)
        if node in self.now.folders:
            rest: list[_NameStep] = []
            for one in self._name_steps:
                if node in _folders_of(one):
                    self._medium.apply(one)
                else:
                    rest.append(one)
            self._name_steps = rest

    def after_power_cut(self, choose: random.Random, spared: Iterable[str]) -> Tree:
        """What the medium holds; the folders named *spared* in the root are elsewhere and have power."""
        medium = self._medium
        left = Tree(
            {**medium.files, **{node: bytearray(medium.files[node]) for node in self._file_steps}},
            {node: dict(names) for node, names in medium.folders.items()},
        )
        for step in self._surviving_names(choose):
            left.apply(step)
        for steps in self._file_steps.values():
            keep = choose.choice(_KEEP)
            survivors = [step for step in steps if choose.random() < keep]
            if choose.random() < 0.5:
                choose.shuffle(survivors)
            for one in survivors:
                left.apply(_torn(one, choose))
        for name in spared:
            node = self.now.folders[_ROOT][name.encode()]
            left.folders[_ROOT][name.encode()] = node
            self._copy(node, left)
        return left

    def _surviving_names(self, choose: random.Random) -> list[_NameStep]:
        steps = self._name_steps
        if choose.random() < 0.5:
            return steps[: choose.randint(0, len(steps))]
        return [step for step in steps if choose.random() < 0.5]

    def _copy(self, node: int, target: Tree) -> None:
        if node in self.now.files:
            target.files[node] = self.now.files[node]
            return
        target.folders[node] = dict(self.now.folders[node])
        for child in self.now.folders[node].values():
            self._copy(child, target)


def _folders_of(step: _NameStep) -> set[int]:
    if isinstance(step, Named) and step.old is not None:
        return {step.folder, step.old[0]}
    return {step.folder}


def _torn(step: _FileStep, choose: random.Random) -> _FileStep:
    """The step, or what a write becomes of which only the first or the last sectors came through."""
    if isinstance(step, Resized) or len(step.bytes) <= _SECTOR or choose.random() < 0.7:
        return step
    # Sectors are counted from the beginning of the file.
    first = -(-step.offset // _SECTOR) * _SECTOR - step.offset
    cuts = range(first or _SECTOR, len(step.bytes), _SECTOR)
    cut = choose.choice(cuts) if cuts else len(step.bytes)
    if choose.random() < 0.5:
        return Data(step.node, step.offset, step.bytes[:cut])
    return Data(step.node, step.offset + cut, step.bytes[cut:])
