"""Arguments that many commands take, and what shells complete: paths, volumes, clouds, devices, conflicts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from hybrisfs.api.volumes import VolumeListRequest
from hybrisfs.client import Client, UsageError, answer_at_once, shown, volume_names

__all__ = [
    "Place",
    "SizeType",
    "SpanType",
    "absolute",
    "complete_clouds",
    "complete_conflicts",
    "complete_containers",
    "complete_devices",
    "complete_directories",
    "complete_files",
    "complete_keys",
    "complete_mounts",
    "complete_places",
    "complete_volumes",
    "make_option",
    "mounted_place",
    "moment",
    "named_place",
    "place_unless_volume",
    "span",
]


_SPAN: Final = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([KMGT])?B?")


class Place(NamedTuple):
    """A path below the folder of a volume; "" for that itself."""

    volume: str
    path: str


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a file or directory."""
    return [CompletionItem(incomplete, type="file")]


def complete_directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a directory."""
    return [CompletionItem(incomplete, type="dir")]


def span(text: str) -> int | None:
    """The seconds of a span of time, as 90s, 30m, 2h, 3d or 1w; None for what is not one."""
    found = _SPAN.fullmatch(text)
    return int(found[1]) * _SECONDS[found[2]] if found is not None else None


def absolute(paths: Sequence[str]) -> list[str]:
    """The paths as the daemon wants them: absolute, and without symbolic links, which it does not follow."""
    try:
        return [os.path.realpath(path) for path in paths]
    except OSError as error:  # from the look at where we are
        raise click.ClickException(
            f"the current folder cannot be read: {error.strerror}\n"
            "Go there again, with cd, or name whole paths."
        ) from error


def mounted_place(client: Client, path: str) -> Place | None:
    """Where a path leads to, if that is in a mounted volume."""
    [real] = absolute([path])
    for volume in client.call(VolumeListRequest()).volumes:
        if volume.mountpoint is not None and Path(real).is_relative_to(volume.mountpoint):
            within = os.path.relpath(real, volume.mountpoint)
            return Place(volume.name, "" if within == "." else within)
    return None


def place_unless_volume(client: Client, word: str) -> Place | None:
    """Where *word* leads to, None if it is the name of a volume. Raises UsageError."""
    if word in volume_names():
        return None
    absolute([word])  # the present folder may have gone
    if os.sep not in word and not os.path.lexists(word):
        return None
    place = mounted_place(client, word)
    if place is None and os.sep in word:
        raise UsageError(
            f"{shown(word)} is in no mounted volume", advice="Name a volume, or a file or folder of one."
        )
    return place


def named_place(client: Client, path: str, volume: str | None) -> tuple[str | None, str]:
    """The volume, if that is known, and the path in it: of what there is in a mounted volume, or as it was
    given."""
    if volume is None and os.path.lexists(path):
        place = mounted_place(client, path)
        if place is not None:
            return place.volume, place.path
    return volume, path


# -- the name of a volume on the command line, as argument or option ------------------------------------


_Function = TypeVar("_Function", bound=Callable[..., Any])


def complete_volumes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume. No daemon is asked, or started."""
    return [CompletionItem(name) for name in volume_names() if name.startswith(incomplete)]


def complete_mounts(context: click.Context, one: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume or of a directory."""
    # The directories first: click's script for bash forgets what was before them.
    return [CompletionItem(incomplete, type="dir"), *complete_volumes(context, one, incomplete)]


def complete_places(context: click.Context, one: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume, or of a file or directory."""
    return [CompletionItem(incomplete, type="file"), *complete_volumes(context, one, incomplete)]


# -- what only the daemon knows: it is asked when it runs, and nothing is completed when it is busy ------


def complete_clouds(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a cloud."""
    from hybrisfs.api.clouds import CloudListRequest

    facts = answer_at_once(CloudListRequest(context.params.get("name")))
    return _completed(incomplete, [one.name for one in facts.clouds] if facts else [])


def complete_devices(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a device, or the beginning of its id where two have one name."""
    from hybrisfs.api.devices import DeviceListRequest

    facts = answer_at_once(DeviceListRequest(context.params.get("name")))
    devices = {one.id: one.name for one in facts.devices} if facts else {}
    devices |= {one.id: one.name for one in facts.accused} if facts else {}
    names = list(devices.values())
    clear = [name if names.count(name) == 1 and _is_plain(name) else id_[:8] for id_, name in devices.items()]
    return _completed(incomplete, clear)


def complete_conflicts(context: click.Context, one: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the path of a conflict, as `conflicts list` shows it, or of any file."""
    from hybrisfs.api.decisions import ConflictsListRequest

    facts = answer_at_once(ConflictsListRequest(context.params.get("name")))
    paths = [path for found in facts.conflicts for path in (found.path, found.of)] if facts else []
    return [*complete_files(context, one, incomplete), *_completed(incomplete, paths)]


def complete_containers(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a container of the volume that was named before."""
    from hybrisfs.api.key_value import KvContainersRequest

    facts = (
        answer_at_once(KvContainersRequest(context.params["name"])) if context.params.get("name") else None
    )
    return _completed(incomplete, facts.containers if facts else [])


def complete_keys(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete CONTAINER/KEY. Keys on the clouds are not listed for it, as each list costs
    requests. Nor are keys that do not fit into one answer: the shell would complete what the first of them
    have in common, though the others differ."""
    from hybrisfs.api.key_value import IN_CLOUDS, KvContainersRequest, KvPageRequest

    name = context.params.get("name")
    facts = answer_at_once(KvContainersRequest(name)) if name else None
    typed, slash, prefix = incomplete.partition("/")
    places = {
        one: place.metadata
        for place in (facts.places if facts else [])
        for one in place.containers
        if (one == typed if slash else one.startswith(typed))
    }
    found = None
    if name and len(places) == 1:
        ((container, metadata),) = places.items()
        if metadata.partition(":")[0] != IN_CLOUDS:
            found = answer_at_once(KvPageRequest(name, container, prefix))
        if found is not None and found.keys and not found.more:
            return _completed(incomplete, [f"{container}/{one.key}" for one in found.keys])
    return [] if slash else _completed(incomplete, [f"{one}/" for one in places])


def _completed(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    chosen = sorted({name for name in names if name.startswith(incomplete) and _is_plain(name)})
    return [CompletionItem(name) for name in chosen]


def _is_plain(name: str) -> bool:
    """Whether click's scripts hand a name on as it is: they split lines, and bash expands patterns."""
    return name.isprintable() and not set("*?[\\") & set(name) and not name.startswith(("-", "~"))


class SizeType(click.ParamType[int]):
    """A number of bytes, like 500M or 40G; the units are powers of 1000."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        found = _SIZE.fullmatch(str(value).upper())
        if found is None:
            self.fail(f"{str(value)[:80]!r} is not a size: write 500M or 40G", parameter, context)
        return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


class SpanType(click.ParamType[int]):
    """A span of time, like 90s or 15m, in seconds."""

    name = "span"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        found = span(str(value))
        if found is None:
            self.fail(f"{str(value)[:80]!r} is not a span of time: write 90s or 15m", parameter, context)
        return found


make_option: Final[Callable[[_Function], _Function]] = click.option(
    "--make",
    is_flag=True,
    help="Make a file:// folder also when its parent is not there, or no disk is mounted.",
)


def moment(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """A time as the daemon reads it, of a span that ends now; for options."""
    ago = span(text) if text is not None else None
    if ago is None:
        return text
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(0.0, time.time() - ago)))
