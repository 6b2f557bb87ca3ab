"""HybrisFS in Nautilus, Nemo and Caja: an emblem for the state of each file, and a menu.

One file for the three: it lies in the folder of extensions of each, and speaks to the one whose folder it is.
Files of other file systems are left alone: they have no attribute `user.hybrisfs.state`.

A file manager calls this in the thread that draws its windows, and a daemon that stands still answers nothing
that is asked of its mount. So nothing here touches a file but through GIO's threads, a few at a time: a file
has no emblem until its state is known, and the file manager asks again then.

A change of state raises no event that a file manager could hear of, so files that were shown are looked at
again now and then, a few at a time, as long as the file manager keeps them in memory.
"""

import contextlib
import itertools
import re
from pathlib import Path

import gi

_MANAGERS = {
    "nautilus-python": ("Nautilus", ("4.1", "4.0", "3.0")),
    "nemo-python": ("Nemo", ("3.0",)),
    "caja-python": ("Caja", ("2.0",)),
}
_STATE = "xattr::hybrisfs.state"  # as GIO calls user.hybrisfs.state
_EMBLEMS = {
    "durable": "emblem-hybrisfs-safe",
    "local": "emblem-hybrisfs-uploading",
    "uploading": "emblem-hybrisfs-uploading",
    "cloud-only": "emblem-hybrisfs-cloud-only",
    "conflict": "emblem-hybrisfs-conflict",
    "ignored": "emblem-hybrisfs-ignored",
}
_STATES = {
    "durable": "On the clouds and on this machine",
    "local": "Only on this machine yet",
    "uploading": "On the way to the clouds",
    "cloud-only": "On the clouds; fetched when it is opened",
    "conflict": "Changed on two machines at once",
    "ignored": "Only on this machine, by an ignore rule",
}
_SETTLED = ("durable", "cloud-only", "ignored")  # until somebody does something
_MOST_PATHS = 1000  # of one command
_MOST_LINES = 5  # of what a command says
_LOOK_EVERY = 3  # seconds
_LOOK_AT = 20  # files of either kind, each time
_MOST_SHOWN = 2000  # files that are kept in mind
_AT_ONCE = 2  # files that are being looked at: more would take GIO's threads from the file manager
_MOUNTS_HOLD = 1_000_000  # microseconds until the mounts are read again


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
from gi.repository import Gio, GLib, GObject  # noqa: E402 - after the version of the other is chosen


def _path(file):
    location = file.get_location() if file.get_uri_scheme() == "file" else None
    return location.get_path() if location is not None else None


def _unescaped(field):
    """A field of mountinfo: blanks and backslashes are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


class _Mounts:
    """Where volumes are mounted."""

    def __init__(self):
        self._places, self._read = [], None

    def hold(self, path):
        """Whether a file or folder is in a mounted volume, by its path alone."""
        now = GLib.get_monotonic_time()
        if self._read is None or now - self._read > _MOUNTS_HOLD:
            self._places, self._read = _places(), now
        return any(path == place or path.startswith(f"{place}/") for place in self._places)


def _places():
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return [_unescaped(line.split()[4]) for line in mounts if " - fuse.hybrisfs " in line]
    except OSError:
        return []


class _Shown:
    """The files that are shown, and their states as far as they are known."""

    def __init__(self):
        self._moving, self._settled = {}, {}  # path: weak reference, state; those to look at next are first
        self._waiting = {}  # path: weak reference; whose state is to be asked for
        self._told = {}  # path: state; who is to ask again: that may take long, and leads to no other look
        self._under_way = 0
        self._timer = None

    def state(self, file, path):
        """What is known of a file, or None. A look follows; if it finds a change, the file manager asks
        again."""
        told = self._told.pop(path, None)
        state = told or self.known(path)
        if state is not None:
            self._keep(path, file.weak_ref(), state)
        if told is None:
            self._waiting[path] = file.weak_ref()
            self._ask()
        return state

    def known(self, path):
        """The state of a file when it was last looked at, or None."""
        _, state = self._moving.get(path) or self._settled.get(path) or (None, None)
        return state

    def look(self):
        """Look at the next few of either kind; returns whether to come back."""
        for files in (self._moving, self._settled):
            for path in list(itertools.islice(files, _LOOK_AT)):
                files[path] = files.pop(path)
                self._waiting.setdefault(path, files[path][0])
        self._ask()
        if self._moving or self._settled:
            return True
        self._timer = None
        return False

    def _ask(self):
        while self._waiting and self._under_way < _AT_ONCE:
            path = next(iter(self._waiting))
            reference = self._waiting.pop(path)
            file = reference()
            if file is None or file.is_gone() or _path(file) != path:  # renamed: it is asked about again
                self._forget(path)
                self._told.pop(path, None)
                continue
            self._under_way += 1
            file.get_location().query_info_async(
                _STATE, Gio.FileQueryInfoFlags.NONE, GLib.PRIORITY_LOW, None, self._answer, path, reference
            )

    def _answer(self, location, result, path, reference):
        self._under_way -= 1
        try:
            state = location.query_info_finish(result).get_attribute_as_string(_STATE)
        except GLib.Error:
            state = None
        before, file = self.known(path), reference()
        if file is None or state not in _EMBLEMS:
            self._forget(path)
            state = None
        else:
            self._keep(path, reference, state)
        if file is not None and state != before:
            if state is not None:
                self._told[path] = state
            file.invalidate_extension_info()
        self._ask()

    def _keep(self, path, reference, state):
        self._forget(path)
        files = self._settled if state in _SETTLED else self._moving
        files[path] = (reference, state)
        if len(files) > _MOST_SHOWN:
            self._forget(next(iter(files)))
        if self._timer is None:
            self._timer = GLib.timeout_add_seconds(_LOOK_EVERY, self.look)

    def _forget(self, path):
        for files in (self._moving, self._settled):
            files.pop(path, None)


class HybrisFS(GObject.GObject, Manager.InfoProvider, Manager.MenuProvider):
    """What a file manager asks of an extension."""

    def __init__(self):
        super().__init__()
        self._mounts, self._shown = _Mounts(), _Shown()

    def update_file_info(self, file):
        """Give a file its emblem."""
        path = _path(file)
        if path is None or file.is_directory() or not self._mounts.hold(path):
            return
        state = self._shown.state(file, path)
        if state is not None:
            file.add_emblem(_EMBLEMS[state])

    def get_file_items(self, *arguments):
        """The menu of files that are chosen; older file managers give their window before these."""
        return self._menu(arguments[-1])

    def get_background_items(self, *arguments):
        """The menu of the folder that is shown."""
        return self._menu([arguments[-1]])

    def _menu(self, files):
        paths = [_path(file) for file in files[:_MOST_PATHS]]
        if not paths or len(files) > _MOST_PATHS or None in paths or not self._mounts.hold(paths[0]):
            return []
        top = Manager.MenuItem(name="HybrisFS::Menu", label="HybrisFS", tip="")
        menu = Manager.Menu()
        top.set_submenu(menu)
        state = self._shown.known(paths[0]) if len(paths) == 1 else None
        if state is not None:
            item = Manager.MenuItem(name="HybrisFS::State", label=_STATES[state], tip="")
            item.set_property("sensitive", False)
            menu.append_item(item)
        for name, label, command in _entries(paths, len(files) == 1 and not files[0].is_directory()):
            item = Manager.MenuItem(name=f"HybrisFS::{name}", label=label, tip="")
            item.connect("activate", self._run, command)
            menu.append_item(item)
        return [top]

    def _run(self, _item, command):
        silent = command[1] == "ui"  # what it says is a link, which nobody else may see
        output = Gio.SubprocessFlags.STDOUT_SILENCE if silent else Gio.SubprocessFlags.STDOUT_PIPE
        try:
            process = Gio.Subprocess.new(command, output | Gio.SubprocessFlags.STDERR_PIPE)
            process.communicate_utf8_async(None, None, _ended)
        except GLib.Error as error:
            _notify(error.message)


def _entries(paths, has_versions):
    """The name, the label and the command of each entry of the menu."""
    yield "Pin", "Pin: always keep on this machine", ("hybrisfs", "pin", "--", *paths)
    yield "Unpin", "Unpin", ("hybrisfs", "unpin", "--", *paths)
    yield "Evict", "Evict: free its room on this disk", ("hybrisfs", "evict", "--", *paths)
    if has_versions:
        yield "Versions", "Versions ...", ("hybrisfs", "ui", "--", *paths)
    yield "Conflicts", "Conflicts ...", ("hybrisfs", "ui", "--section", "conflicts", "--", paths[0])
    yield "Page", "Clouds, machines, costs ...", ("hybrisfs", "ui", "--section", "overview", "--", paths[0])


def _ended(process, result):
    """A command has ended. What it says or complains of is shown."""
    try:
        _, said, complaint = process.communicate_utf8_finish(result)
    except GLib.Error as error:
        said, complaint = "", error.message
    text = said if process.get_successful() else complaint
    if text:
        _notify("\n".join(text.splitlines()[:_MOST_LINES]))


def _notify(text):
    words = ("HybrisFS", 0, "hybrisfs", "HybrisFS", GLib.markup_escape_text(text), [], {}, -1)
    Gio.bus_get(Gio.BusType.SESSION, None, _on_the_bus, GLib.Variant("(susssasa{sv}i)", words))


def _on_the_bus(_source, result, words):
    with contextlib.suppress(GLib.Error):  # there is no session bus
        Gio.bus_get_finish(result).call(
            "org.freedesktop.Notifications",
            "/org/freedesktop/Notifications",
            "org.freedesktop.Notifications",
            "Notify",
            words,
            None,
            Gio.DBusCallFlags.NONE,
            -1,
            None,
            None,
        )
