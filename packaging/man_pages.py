"""Writes the man pages, one per command, from the help that the commands print, in the form of man-pages(7).

man_pages.py FOLDER VERSION DATE
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path

import click

from cli.main import EXIT_CODES, program
from hybrisfs.home import Home, autostart_folder, user_units
from hybrisfs.service_manager import SERVICE

VOLUME = "NAME"

# Variables: what they do. tests/packaging/test_man_pages.py finds those that the program reads by itself.
OWN_VARIABLES = {
    "HYBRISFS_HOME": "A folder below which everything is kept, instead of the folders of the next "
    "variables: so several devices can be tried on one machine.",
    "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_DATA_HOME": "Where folders of these kinds are, see "
    "FILES. Paths that are not absolute are ignored.",
    "XDG_RUNTIME_DIR": "The folder of the session, by default /run/user/UID. While there is one, "
    "hybrisfs in it leads to the runtime folder.",
    "HOME": "The user's folder. Where it is not set, the one in passwd(5) counts.",
    "PATH": "Where fusermount3 and rclone are looked for; fusermount3 also in /usr/local/bin and /usr/bin.",
    "DISPLAY, WAYLAND_DISPLAY": "When one is set, hybrisfs ui opens the page in a browser.",
    "BROWSER": "The browser that hybrisfs ui opens.",
    "HYBRISFS_MERGE_TOOL": "The program for versions that hybrisfs conflicts merge cannot merge by itself.",
    "LOCAL, BASE, REMOTE, MERGED": "Set by hybrisfs conflicts merge for that program: paths of files.",
    "NO_COLOR": "Bars of progress have no colours.",
    "TMPDIR": "Where small temporary files are made.",
    "DBUS_SESSION_BUS_ADDRESS": "The bus for notifications, by default that of the user in XDG_RUNTIME_DIR.",
    "NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_FDS, LISTEN_PID, JOURNAL_STREAM": "Set by systemd "
    "for the service.",
    "_HYBRISFS_COMPLETE": "Set by the completion of a shell: bash_source, zsh_source or fish_source prints "
    "the script for it.",
}
# Those that the libraries and programs read that talk to clouds.
CLOUD_VARIABLES = {
    "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY": "Proxies for clouds that speak HTTP.",
    "AWS_CA_BUNDLE, REQUESTS_CA_BUNDLE": "A file with the certificates of authorities to trust; the first "
    "one for s3://.",
    "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_CONFIG_FILE, "
    "AWS_SHARED_CREDENTIALS_FILE": "Credentials for s3:// at Amazon. Other endpoints are not given them.",
    "AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET": "Credentials for az://.",
    "GOOGLE_APPLICATION_CREDENTIALS": "A file with credentials for gs://.",
    "SSH_AUTH_SOCK": "The agent with keys for sftp://.",
    "RCLONE_CONFIG, RCLONE_CONFIG_PASS, RCLONE_PASSWORD_COMMAND": "The configuration of rclone for rclone: "
    "and its password. rclone reads its other variables, too.",
    "PYTHON_KEYRING_BACKEND": "The keyring that is asked for the secrets of clouds.",
}

# Pages of others that belong to a page, by the first words of its command.
OTHERS = {
    "": ("fusermount3(1)", "systemd.service(5)", "rclone(1)"),
    "mount": ("fusermount3(1)", "mount.fuse3(8)"),
    "umount": ("fusermount3(1)",),
    "quickstart": ("fusermount3(1)",),
    "doctor": ("fusermount3(1)", "journalctl(1)"),
    "service": ("systemd.service(5)", "systemctl(1)", "loginctl(1)", "journalctl(1)"),
    "daemon": ("systemd.service(5)", "sd_notify(3)"),
    "cloud login": ("rclone(1)",),
    "relay": ("systemctl(1)",),
    "evict": ("getfattr(1)",),
}


def files() -> Mapping[str, str]:
    """What is kept where by default, by the path; see `hybrisfs.home`."""
    home = Home.from_environment({"HOME": "~", "XDG_RUNTIME_DIR": "/SESSION"})
    assert home.session is not None
    paths = {
        home.volume_config(VOLUME)
        / "volume.json": f"The settings of the volume {VOLUME} on this machine, and its clouds.",
        home.credentials: "Secrets of clouds, where neither the keyring nor the provider's own configuration "
        "has them. Readable by you alone.",
        home.prices: "What clouds charge, as hybrisfs cloud price has set it.",
        home.gateway_key(VOLUME): f"The key of hybrisfs serve s3 for {VOLUME}.",
        home.serve_users(VOLUME): f"The users of hybrisfs serve webdav and sftp for {VOLUME}.",
        home.volume_state(VOLUME): f"The keys of {VOLUME}, its databases, and what is not on the clouds yet. "
        "Without it, another machine or a recovery kit, the volume is lost.",
        home.cache: "Copies of what the clouds hold, too.",
        home.data: "The clouds of hybrisfs quickstart, and what a relay keeps.",
        home.runtime: "The daemon's socket and locks.",
        home.session / "hybrisfs" / "status.json": "In a session: a word and a sentence on each volume, for "
        "panels.",
        autostart_folder({"HOME": "~"}) / "hybrisfs-tray.desktop": "Whether the desktop starts the "
        "icon in the panel.",
        home.log: "The log of a daemon that systemd does not run.",
        home.default_mountpoint: "Where hybrisfs quickstart mounts its volume.",
        user_units({"HOME": "~"}) / SERVICE: "The service, where no package has brought it.",
    }
    return {str(path).replace("/SESSION", "$XDG_RUNTIME_DIR"): what for path, what in paths.items()}


# -- the language of man(7) ------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """A text as it is, with every hyphen one that can be copied."""
    return text.replace("\\", "\\e").replace("-", "\\-")


def prose(text: str) -> str:
    """A line of words: it may break at the hyphen of a word; those of options and paths can be copied."""
    words = re.split(r"( +)", text.replace("`", ""))
    line = "".join(escaped(one) if re.search(r"(^|\W)-|[/_=.]\w", one) else one for one in words)
    line = re.sub(r"\bhybrisfs\b", r"\\%\g<0>", line.replace("environment.d", "\\%environment.d"))
    return f"\\&{line}" if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    return f"\\fB\\%{escaped(text)}\\fP"


def placeholders(text: str) -> str:
    """What is to be replaced by the user in italics, the rest as it is."""
    return re.sub(r"(?<![\w\\])[A-Z][A-Z_]+\b", r"\\fI\g<0>\\fP", escaped(text))


def paragraphs(text: str) -> Iterator[str]:
    """A help text of click: paragraphs, some of which keep their lines."""
    for number, part in enumerate(re.split(r"\n\s*\n", cleandoc(text))):
        if number:
            yield ".PP"
        if part.startswith("\b\n"):
            yield from literal(part[2:])
        else:
            yield from map(prose, part.split("\n"))


def literal(text: str) -> Iterator[str]:
    yield ".nf"
    for line in text.split("\n"):
        yield f"\\&{escaped(line)}"
    yield ".fi"


def tagged(rows: Mapping[str, str]) -> Iterator[str]:
    """A list of terms, written in roff already, and what they mean."""
    for term, meaning in rows.items():
        yield from (".TP", term, *map(prose, meaning.split("\n")))


# -- a page ----------------------------------------------------------------------------------------------


def page_name(path: str) -> str:
    return path.replace(" ", "-")


def reference(page: str) -> str:
    name, section = page[:-1].split("(")
    return f"{bold(name)}({section})"


def page(context: click.Context, version: str, date: str) -> str:
    """The page of a command."""
    command, path = context.command, context.command_path
    lines = [f'.TH {escaped(page_name(path).upper())} 1 {date} "HybrisFS {version}" "User Commands"']
    lines += [".SH NAME", f"{escaped(page_name(path))} \\- {prose(summary(command))}"]
    lines += [".SH SYNOPSIS", ".nh", ".ad l", bold(path)]
    lines += [placeholders(" ".join(command.collect_usage_pieces(context))), ".ad", ".hy"]
    lines += [".SH DESCRIPTION", *paragraphs(command.help or "")]
    records = [
        one.get_help_record(context) for one in command.get_params(context) if isinstance(one, click.Option)
    ]
    lines += [".SH OPTIONS", *tagged({option(names): what for names, what in filter(None, records)})]
    if isinstance(command, click.Group):
        below = {one: below_of(command, context, one) for one in command.list_commands(context)}
        lines += [".SH COMMANDS"]
        lines += tagged(
            {reference(f"{page_name(path)}-{name}(1)"): summary(one) for name, one in below.items()}
        )
    lines += ['.SH "EXIT STATUS"', *tagged({bold(str(code)): what for code, what in EXIT_CODES.items()})]
    if context.parent is None:
        lines += [".SH ENVIRONMENT", *tagged(variables(OWN_VARIABLES)), ".PP"]
        lines += [
            prose("The following count where the daemon runs; the service has those of environment.d(5).")
        ]
        lines += [*tagged(variables(CLOUD_VARIABLES))]
        lines += [".SH FILES", *tagged({f"\\fI{escaped(file)}\\fP": what for file, what in files().items()})]
    else:
        lines += [".SH ENVIRONMENT", f"See {reference('hybrisfs(1)')}."]
        lines += [".SH FILES", f"See {reference('hybrisfs(1)')}."]
    if examples := re.search(r"Examples?:\n((?:  .*\n?)+)", command.epilog or ""):
        lines += [".SH EXAMPLES", *literal(examples[1].rstrip("\n").replace("\n  ", "\n")[2:])]
    lines += ['.SH "SEE ALSO"', ",\n".join(map(reference, related(context)))]
    lines += [".PP", "The guides are in /usr/share/doc/hybrisfs/docs."]
    return "\n".join(lines) + "\n"


def summary(command: click.Command) -> str:
    return command.get_short_help_str(1000).rstrip(".")


def below_of(group: click.Group, context: click.Context, name: str) -> click.Command:
    found = group.get_command(context, name)
    assert found is not None
    return found


def option(names: str) -> str:
    """The left side of click's list of options: "-f, --force NAME", names in bold."""
    return re.sub(r"(?<![\w\\-])(?:\\-){1,2}[a-z][\w\\-]*", r"\\fB\g<0>\\fP", placeholders(names))


def variables(rows: Mapping[str, str]) -> Mapping[str, str]:
    return {", ".join(map(bold, names.split(", "))): what for names, what in rows.items()}


def related(context: click.Context) -> list[str]:
    """The page above, those of the commands of which the help speaks, and pages of others."""
    own = context.command_path
    root = context.find_root().command
    assert isinstance(root, click.Group)
    known = set(every_path(root, "hybrisfs"))
    found = [context.parent.command_path] if context.parent else []
    for first, second in re.findall(r"\bhybrisfs\s+([a-z-]+)(?:\s+([a-z-]+))?", context.command.help or ""):
        longest = [path for path in (f"hybrisfs {first} {second}", f"hybrisfs {first}") if path in known]
        found += longest[:1]
    pages = sorted({page_name(path) for path in found} - {page_name(own)})
    return [*(f"{one}(1)" for one in pages), *OTHERS.get(own.removeprefix("hybrisfs").strip(), ())]


def every_path(group: click.Group, path: str) -> Iterator[str]:
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        below = below_of(group, context, name)
        yield from (
            every_path(below, f"{path} {name}") if isinstance(below, click.Group) else [f"{path} {name}"]
        )


def write(folder: Path, context: click.Context, version: str, date: str) -> None:
    """The page of a command and those of the commands below it."""
    (folder / f"{page_name(context.command_path)}.1").write_text(page(context, version, date))
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = below_of(context.command, context, name)
            write(folder, click.Context(below, parent=context, info_name=name), version, date)


if __name__ == "__main__":
    write(
        Path(sys.argv[1]),
        click.Context(program, info_name="hybrisfs", **program.context_settings),
        *sys.argv[2:],
    )
