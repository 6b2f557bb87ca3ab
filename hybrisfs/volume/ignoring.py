"""The ignore rules of a volume, as people see and change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from hybrisfs.api.ignoring import Ignored, IgnoredPath, IgnoreRule, IgnoreRules
from hybrisfs.api.request import extended
from hybrisfs.errors import UsageError
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.parts import Ground
from hybrisfs.registers.ignore_rules import (
    HIGHEST_RANK,
    MOST_RULES,
    Ranking,
    encode_rank,
    parse_pattern,
    pattern_of,
    ranks,
    rule_key,
)
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
        first = self._fs.ignored.ranking.first()
        rules = [
            IgnoreRule(pattern_of(key), _name_of(tx, origins.signer(value.stamp)))
            for key, (_, value) in ranks({key: tx.registers.values(key) for key in first}).items()
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

        def changes(known: Ranking) -> Iterator[Write]:
            if len(known) + sum(key not in known for key in added) > MOST_RULES:
                raise UsageError(f"there would be more than {MOST_RULES} ignore rules")
            last, ranked = known.last, list(added)
            if last + len(added) > HIGHEST_RANK:  # no rule of ours gets so far: all are numbered again
                last, ranked = 0, [*(key for key in known.first() if key not in added), *added]
            return ((key, encode_rank(last + number)) for number, key in enumerate(ranked, 1))

        self._change(changes)

    def remove(self, patterns: Sequence[str]) -> None:
        """Let rules with these patterns hold no more."""
        gone = dict.fromkeys(rule_key(_parsed(pattern)) for pattern in patterns)

        def changes(known: Ranking) -> Iterator[Write]:
            for key in gone:
                if key not in known:
                    raise UsageError(
                        f"there is no ignore rule {quoted(pattern_of(key))}",
                        "",
                        "hybrisfs ignore list shows the rules.",
                    )
                yield key, encode_rank(0)

        self._change(changes)

    def _change(self, changes: Callable[[Ranking], Iterable[Write]]) -> None:
        sharing, fs = self._ground.sharing, self._fs
        sharing.require_writer()
        with fs.state.log_transaction() as tx:
            writes = list(changes(fs.ignored.ranking))
            sharing.signer.sign(tx, writes, 0)
            fs.ignored.rules_changed(tx, [key for key, _ in writes])
        self._ground.committer.commit_now()  # the command reports that it is done
        self._ground.signals.chunks_made()
        self._ground.signals.changes_made()


def _name_of(tx: Transaction, device: bytes | None) -> str | None:
    return None if device is None else tx.members.name_of(device)


def _parsed(pattern: str) -> str:
    try:
        return parse_pattern(pattern)
    except ValueError as error:
        raise UsageError(f"{quoted(pattern)} is not an ignore rule", str(error)) from error
