"""HybrisFS in Nautilus, Nemo and Caja: an emblem for the state of each file, and a menu.

One file for the three: it lies in the folder of extensions of each, and speaks to the one whose folder it is.
Files of other file systems are left alone: they have no attribute `user.hybrisfs.state`.
"""

import os
import re
import subprocess
from pathlib import Path

import gi

_MANAGERS = {
    "nautilus-python": ("Nautilus", ("4.1", "4.0", "3.0")),
    "nemo-python": ("Nemo", ("3.0",)),
    "caja-python": ("Caja", ("2.0",)),
}
_STATE = "user.hybrisfs.state"
_EMBLEMS = {
    "durable": "emblem-hybrisfs-safe",
    "local": "emblem-hybrisfs-uploading",
    "uploading": "emblem-hybrisfs-uploading",
    "cloud-only": "emblem-hybrisfs-cloud-only",
    "conflict": "emblem-hybrisfs-conflict",
}
_MOST_PATHS = 1000  # of one command


def _manager():
    name, versions = _MANAGERS[Path(__file__).resolve().parent.parent.name]
    for version in versions:
        try:
            gi.require_version(name, version)
        except ValueError:
            continue
        break
    return getattr(__import__("gi.repository", fromlist=[name]), name)


Manager = _manager()
from gi.repository import GObject  # noqa: E402 - after the version of the other is chosen


def _path(file):
    location = file.get_location() if file.get_uri_scheme() == "file" else None
    return location.get_path() if location is not None else None


def _unescaped(field):
    """A field of mountinfo: blanks and backslashes are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _mounted(path):
    """Whether a file or folder is in a mounted volume."""
    try:
        while not os.path.ismount(path):
            path = str(Path(path).parent)
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return any(_unescaped(line.split()[4]) == path and " - fuse.hybrisfs " in line for line in mounts)
    except OSError:
        return False


class HybrisFS(GObject.GObject, Manager.InfoProvider, Manager.MenuProvider):
    """What a file manager asks of an extension."""

    def update_file_info(self, file):
        """Give a file its emblem."""
        path = _path(file)
        if path is None or file.is_directory():
            return
        try:
            state = os.getxattr(path, _STATE).decode("ascii", "replace")
        except OSError:
            return
        if state in _EMBLEMS:
            file.add_emblem(_EMBLEMS[state])

    def get_file_items(self, *arguments):
        """The menu of files that are chosen; older file managers give their window before these."""
        paths = [_path(file) for file in arguments[-1]]
        if not paths or len(paths) > _MOST_PATHS or None in paths or not _mounted(paths[0]):
            return []
        top = Manager.MenuItem(name="HybrisFS::Menu", label="HybrisFS", tip="HybrisFS")
        menu = Manager.Menu()
        top.set_submenu(menu)
        for name, label, command in (
            ("Pin", "Keep on this machine", ("pin",)),
            ("Unpin", "Do not keep on this machine", ("unpin",)),
            ("Evict", "Free the disk", ("evict",)),
        ):
            item = Manager.MenuItem(name=f"HybrisFS::{name}", label=label, tip="")
            item.connect("activate", self._run, ("hybrisfs", *command, "--", *paths))
            menu.append_item(item)
        item = Manager.MenuItem(name="HybrisFS::Page", label="Clouds, machines, conflicts ...", tip="")
        item.connect("activate", self._run, ("hybrisfs", "ui"))
        menu.append_item(item)
        return [top]

    def get_background_items(self, *_):
        """Nothing for the background of a folder."""
        return []

    def _run(self, _item, command):
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
