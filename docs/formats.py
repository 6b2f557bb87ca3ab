"""`python -m docs.formats`: writes formats.md from the modules that define the formats.

Each format is specified at the top of the one module that writes and reads it. This page is these
specifications in the order in which a reader needs them, so that they cannot drift apart from the code; a
test compares.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

__all__ = ["formats_page", "main"]

_ROOT: Final = Path(__file__).parent.parent
_PAGE: Final = Path(__file__).with_name("formats.md")

_MODULES: Final = {
    "On every cloud": (
        "hybrisfs/dispersal/seal.py",
        "hybrisfs/dispersal/share.py",
        "sync/segment.py",
        "sync/head.py",
        "sync/checkpoint.py",
        "sync/seal.py",
        "hybrisfs/members/epochs.py",
        "hybrisfs/clouds/signpost.py",
        "hybrisfs/admit/kit.py",
        "hybrisfs/recovery/sealed_key.py",
        "hybrisfs/parcels/format.py",
        "hybrisfs/kv/seal.py",
        "hybrisfs/quorums/names.py",
        "hybrisfs/kv/cloud_objects.py",
        "hybrisfs/pairing/mailbox.py",
    ),
    "Inside segments and checkpoints": (
        "sync/codec.py",
        "sync/update.py",
        "sync/vector.py",
        "sync/log_index.py",
        "hybrisfs/checkpoint/snapshot.py",
        "hybrisfs/kinds.py",
        "hybrisfs/registers/tree.py",
        "hybrisfs/registers/labels.py",
        "hybrisfs/registers/served.py",
        "hybrisfs/registers/ignore_rules.py",
        "hybrisfs/registers/entries.py",
        "hybrisfs/registers/node_id.py",
        "hybrisfs/merge/authority.py",
        "hybrisfs/members/evidence.py",
        "hybrisfs/tree/acl.py",
        "hybrisfs/members/members.py",
        "hybrisfs/recovery/record.py",
        "hybrisfs/members/removal.py",
        "hybrisfs/members/kinship.py",
        "hybrisfs/members/roles.py",
        "hybrisfs/members/role_table.py",
        "hybrisfs/merge/cloud_records.py",
        "hybrisfs/merge/kv_services.py",
        "hybrisfs/registers/proposals.py",
    ),
    "Between machines": (
        "hybrisfs/peers/frames.py",
        "hybrisfs/peers/lines.py",
        "relay/objects.py",
        "relay/code.py",
        "sync/messages.py",
        "hybrisfs/pairing/code.py",
        "hybrisfs/pairing/handshake.py",
        "hybrisfs/pairing/messages.py",
    ),
    "In an etcd or a ZooKeeper": (
        "hybrisfs/kv/service_metadata.py",
        "hybrisfs/kv/zookeeper_tree.py",
        "hybrisfs/kv/sealed_names.py",
    ),
    "On this machine": (
        "hybrisfs/keys.py",
        "hybrisfs/settings/config.py",
        "hybrisfs/state/schema.py",
        "hybrisfs/state/journal.py",
        "hybrisfs/state/redo.py",
        "hybrisfs/kv/database.py",
        "hybrisfs/api/objects.py",
        "hybrisfs/kv/repetition.py",
        "hybrisfs/events/event.py",
        "hybrisfs/history.py",
        "hybrisfs/prices.py",
        "hybrisfs/wire.py",
    ),
}

_HEAD: Final = """# Formats

Byte by byte: everything that is stored or sent. Made by `python -m docs.formats` from the heads of the
modules that write and read it, so it is what the program does. Integers are unsigned and big-endian, lengths
in bytes. [Where things lie](internals/storage.md) names the files on the disk and the objects on a cloud.
"""


def formats_page() -> str:
    """The text of formats.md."""
    parts = [_HEAD]
    for title, modules in _MODULES.items():
        parts.append(f"\n## {title}\n")
        parts += [_section(module) for module in modules]
    return "".join(parts)


def _section(module: str) -> str:
    text = ast.get_docstring(ast.parse((_ROOT / module).read_text()))
    assert text, f"{module} does not say what it is"
    title, _, rest = text.partition("\n")
    return f"\n### {title.rstrip('.')}\n\n`{module}`\n\n```text\n{rest.strip()}\n```\n"


def main() -> None:
    """Write the page."""
    _PAGE.write_text(formats_page())


if __name__ == "__main__":
    main()
