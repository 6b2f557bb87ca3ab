"""The ignore rules of a volume, as people see and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from hybrisfs.api.ignoring import Ignored, IgnoredPath, IgnoreRule, IgnoreRules
from hybrisfs.api.request import extended
from hybrisfs.errors import UsageError
from hybrisfs.kinds import IGNORE_RULE
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.parts import Ground
from hybrisfs.registers.ignore_rules import (
    MOST_RULES,
    encode_rank,
    parse_pattern,
    pattern_of,
    ranks,
    rule_key,
)
from hybrisfs.registers.values import Value
from hybrisfs.shown import quoted
from hybrisfs.state.shown_nodes import shown_path
from hybrisfs.state.state import Transaction
from sync import Write

__all__ = ["Ignoring"]


class Ignoring:
    """Of one volume. Its methods may be called from any thread, without the volume's lock. They raise
    HybrisError or OSError."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._fs = ground.fs

    def facts(self, tx: Transaction) -> Ignored:
        """The rules, and how much they keep here."""
        origins = LogOrigins(tx)
        self._fs.flush(tx)
        rules = [
            IgnoreRule(pattern_of(key), _name_of(tx, origins.signer(value.stamp)))
            for key, (_, value) in islice(self._ranks(tx).items(), MOST_RULES)
        ]
        return Ignored(rules, *self._fs.ignored.measure(tx))

    def list(self, limit: int) -> IgnoreRules:
        """The same, with up to *limit* paths."""
        with self._fs.state.transaction() as tx:
            facts = self.facts(tx)
            paths = [
                IgnoredPath(shown_path(tx, inode.ino), inode.is_directory)
                for inode in islice(self._fs.ignored.topmost(tx), limit)
            ]
        return extended(IgnoreRules, facts, name=self._ground.name, paths=paths)

    def add(self, patterns: Sequence[str]) -> None:
        """Let rules with these patterns hold on all devices, behind the others."""
        added = dict.fromkeys(rule_key(_parsed(pattern)) for pattern in patterns)

        def changes(known: Mapping[bytes, int]) -> Iterator[Write]:
            if len(known.keys() | added.keys()) > MOST_RULES:
                raise UsageError(f"there would be more than {MOST_RULES} ignore rules")
            last = max(known.values(), default=0)
            return ((key, encode_rank(last + number)) for number, key in enumerate(added, 1))

        self._change(changes)

    def remove(self, patterns: Sequence[str]) -> None:
        """Let rules with these patterns hold no more."""
        gone = dict.fromkeys(rule_key(_parsed(pattern)) for pattern in patterns)

        def changes(known: Mapping[bytes, int]) -> Iterator[Write]:
            for key in gone:
                if key not in known:
                    raise UsageError(
                        f"there is no ignore rule {quoted(pattern_of(key))}",
                        "",
                        "hybrisfs ignore list shows the rules.",
                    )
                yield key, encode_rank(0)

        self._change(changes)

    def _change(self, changes: Callable[[Mapping[bytes, int]], Iterable[Write]]) -> None:
        sharing, fs = self._ground.sharing, self._fs
        sharing.require_writer()
        with fs.state.log_transaction() as tx:
            writes = list(changes({key: rank for key, (rank, _) in self._ranks(tx).items()}))
            sharing.signer.sign(tx, writes, 0)
            fs.ignored.rules_changed(tx)
        self._ground.committer.commit_now()  # the command reports that it is done
        self._ground.signals.chunks_made()
        self._ground.signals.changes_made()

    def _ranks(self, tx: Transaction) -> Mapping[bytes, tuple[int, Value]]:
        return ranks(tx.registers.with_prefix(IGNORE_RULE.prefix))


def _name_of(tx: Transaction, device: bytes | None) -> str | None:
    return None if device is None else tx.members.name_of(device)


def _parsed(pattern: str) -> str:
    try:
        return parse_pattern(pattern)
    except ValueError as error:
        raise UsageError(f"{quoted(pattern)} is not an ignore rule", str(error)) from error
