"""How commands take the volume that they are about, and what is said when that is typed wrong.

Every command about one volume takes `--volume NAME`. Where the volume comes first, or is all that is named,
it can be an argument, too: `hybrisfs sync photos` is `hybrisfs sync --volume photos`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from cli.arguments import complete_volumes
from hybrisfs.client import shown, volume_names

__all__ = ["Command", "Commands", "command", "volume_argument", "volume_option"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Complete = Callable[[click.Context, click.Parameter, str], Any]

_OPTION: Final = "--volume"
_WHOLE: Final = 1_000  # characters; a sentence has fewer


class _Volume(click.Argument):
    """The volume, as an argument; the option names it, too."""


class Command(click.Command):
    """A command. Knows where the name of a volume belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the option as the first argument, where that is the volume."""
        first = next((one for one in self.params if isinstance(one, _Volume)), None)
        try:
            return super().parse_args(ctx, _volume_first(args) if first is not None else list(args))
        except click.UsageError as error:
            if isinstance(error, click.BadParameter):
                error = _in_words(error)
            advice = None if ctx.resilient_parsing else self._advice(error, args, first)
            if advice is not None:
                raise click.UsageError(f"{error.format_message()} {advice}", ctx) from error
            raise error from None

    def _advice(self, error: click.UsageError, args: Sequence[str], first: _Volume | None) -> str | None:
        if isinstance(error, click.NoSuchOption):
            return self._without_option() if error.option_name == _OPTION else None
        names = volume_names()
        there = f"There are: {', '.join(map(shown, names))}." if names else "There is no volume yet."
        if isinstance(error, click.MissingParameter):
            before = next((one for one in args if not one.startswith("-")), None)
            if first is None or not isinstance(error.param, click.Argument) or before in names:
                return None
            if before is None or error.param is first:
                return there
            return f"The volume comes first, and {shown(before)} is not one. {there}"
        if isinstance(error, (click.BadParameter, click.BadOptionUsage)):
            return None
        if first is not None:
            return "The volume is named twice." if any(one.startswith(_OPTION) for one in args) else None
        named = next((one for one in args if one in names), None)
        if named is not None and any(_OPTION in one.opts for one in self.params):
            return f"Name the volume as {_OPTION} {shown(named)}."
        return None

    def _without_option(self) -> str:
        arguments = [one for one in self.params if isinstance(one, click.Argument)]
        for one in arguments:
            name = (one.metavar or one.human_readable_name).strip("[].")
            if name in ("PATH", "FILE", "FIRST") or (name == "DIR" and one.required):
                return f"{name} says which volume it is."
        return "This command does not choose among volumes."


class Commands(click.Group):
    """Commands with a word in common. Help lists each with its whole first sentence."""

    command_class = Command
    group_class = type  # groups within are of this class, too

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_WHOLE)) for name, one in sorted(self.commands.items())]
            )


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Like `click.command`, of a `Command`."""
    return click.command(name, cls=Command, **settings)


def _in_words(error: click.BadParameter) -> click.BadParameter:
    """The same, and of a wrong number, which would be right."""
    kind = error.param.type if error.param is not None else None
    if isinstance(error, click.MissingParameter) or not isinstance(kind, (click.IntRange, click.FloatRange)):
        return error
    if kind.min is None:
        return error
    number = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    least = f"above {kind.min:g}" if kind.min_open else f"from {kind.min:g}"
    most = "upwards" if kind.max is None else f"up to {kind.max:g}" if kind.min_open else f"to {kind.max:g}"
    given = error.message.partition(" is not ")[0]
    return click.BadParameter(
        f"{given} is not {number} {least} {most}.", error.ctx, error.param, error.param_hint
    )


def _volume_first(args: Sequence[str]) -> list[str]:
    """The words of a command line with the value of the option as the first argument."""
    rest, names = list[str](), list[str]()
    words = iter(args)
    for word in words:
        if word == "--":
            return [*names, *rest, word, *words]
        if word.startswith(f"{_OPTION}="):
            names.append(word.removeprefix(f"{_OPTION}="))
        elif word == _OPTION and (value := next(words, None)) is not None:
            names.append(value)
        else:
            rest.append(word)
    return [*names, *rest]


def volume_argument(
    name: str = "name",
    *,
    metavar: str = "NAME",
    required: bool = True,
    complete: _Complete | None = complete_volumes,
) -> Callable[[_Function], _Function]:
    """The volume as an argument. Unless it is *required* it may be left out when there is one volume."""

    def decorate(function: _Function) -> _Function:
        option = click.option(
            _OPTION,
            "volume_by_option",
            metavar="NAME",
            expose_value=False,
            help="The volume, if it is not named first.",
            shell_complete=complete,
        )
        shape = metavar if required else f"[{metavar}]"
        argument = click.argument(
            name, cls=_Volume, metavar=shape, required=required, shell_complete=complete
        )
        return argument(option(function))

    return decorate


volume_option: Final[Callable[[_Function], _Function]] = click.option(
    _OPTION,
    "name",
    metavar="NAME",
    help="Which volume, if there are several.",
    shell_complete=complete_volumes,
)
"""The volume as an option only: the arguments are something else."""
