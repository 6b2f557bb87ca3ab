"""The daemon as a process: started once, ready when it says so, gone when it is told to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hybrisfs.client import Client, NotRunningError, StartLimits, start_daemon, stop_daemon
from hybrisfs.daemon import supervisor as life
from hybrisfs.daemon.only_one import holder, is_stopped
from hybrisfs.doctor.mounts import daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DaemonError
from hybrisfs.home import Home
from hybrisfs.wire import Channel, bind_socket, connect_socket
from tests.surroundings import impatient, limited

REPOSITORY = Path(__file__).resolve().parents[2]
DAEMON = [sys.executable, "-m", "hybrisfs.daemon"]

# Become a program as systemd starts it with a socket: that is descriptor 3.
_HANDED_A_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def no_daemon_is_left(home: Home) -> Iterator[None]:
    yield
    with contextlib.suppress(NotRunningError):
        stop_daemon(home)


def pid_of(connection: Client) -> int:
    pid = connection.exchange("status")["daemon"]["pid"]
    assert isinstance(pid, int)
    return pid


def foreground(home: Home, **variables: str) -> subprocess.Popen[str]:
    environment = {**home.environment(), **variables}
    return subprocess.Popen(DAEMON, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)


def test_clients_that_start_it_at_the_same_time_share_one_daemon(home: Home) -> None:
    barrier = threading.Barrier(6)

    def connect(_: int) -> int:
        barrier.wait()
        with Client.connect(home) as connection:
            return pid_of(connection)

    with ThreadPoolExecutor(6) as pool:
        pids = set(pool.map(connect, range(6)))
    assert len(pids) == 1
    assert home.log.read_text().count("starts, process") == 1


def test_processes_that_start_it_at_the_same_time_share_one_daemon(home: Home) -> None:
    script = "from hybrisfs.client import Client; print(Client.connect().exchange('status')['daemon']['pid'])"
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=REPOSITORY,
            env=home.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    # That the pipes end shows that the daemon does not hold them.
    assert len({starter.communicate(timeout=60)[0] for starter in starters}) == 1
    assert [starter.returncode for starter in starters] == [0] * 4


def test_a_killed_daemon_is_replaced(home: Home) -> None:
    with Client.connect(home) as connection:
        first = pid_of(connection)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(DaemonError, match="lost the daemon"):
            while True:
                connection.exchange("status")
    with Client.connect(home) as connection:
        assert pid_of(connection) != first


def test_it_is_not_started_unasked(home: Home) -> None:
    with pytest.raises(NotRunningError):
        Client.connect(home, start=False)
    assert not home.log.exists()


def test_in_the_background_it_lets_go_of_terminal_and_folder(home: Home) -> None:
    with Client.connect(home) as connection:
        pid = pid_of(connection)
    process = Path(f"/proc/{pid}")
    assert (process / "cwd").readlink() == Path("/")
    assert [(process / "fd" / str(number)).readlink() for number in range(3)] == [
        Path("/dev/null"),
        home.log,
        home.log,
    ]
    assert os.getsid(pid) == pid


def test_its_memory_gets_into_no_core_dump(home: Home) -> None:
    with Client.connect(home) as connection:
        daemon = pid_of(connection)
    supervisor = int(home.supervisor_lock.read_text())
    for process in (daemon, supervisor):
        assert resource.prlimit(process, resource.RLIMIT_CORE) == (0, 0)
        # A program that takes core dumps gets them whatever the limit is.
        assert int(Path(f"/proc/{process}/coredump_filter").read_text(), 16) == 0


def test_a_relative_home_means_the_same_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYBRISFS_HOME", "relative")
    Client.connect().close()
    home = Home.below(tmp_path / "relative")
    Client.connect(home, start=False).close()
    stop_daemon(home)


def test_only_the_greeting_must_come_in_time(home: Home) -> None:
    with Client.connect(home) as connection:
        assert connection._channel._socket.gettimeout() is None


def test_stopping(home: Home) -> None:
    Client.connect(home).close()
    stop_daemon(home)
    with (home.runtime / "daemon.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not home.socket.exists()
    assert "stopping: SIGTERM" in home.log.read_text()
    with pytest.raises(NotRunningError):
        stop_daemon(home)


def stop(pid: int) -> None:
    """SIGSTOP, and wait until none of its threads runs."""
    os.kill(pid, signal.SIGSTOP)
    give_up = time.monotonic() + 60
    while not all(is_stopped(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < give_up, "it does not stop"
        time.sleep(0.01)


def test_of_a_daemon_that_stands_still_clients_hear_why_it_does_not_answer(home: Home) -> None:
    with Client.connect(home) as connection:
        pid = pid_of(connection)
    stop(pid)
    with pytest.raises(DaemonError, match=f"kill -CONT {pid}"):
        Client.connect(home)
    assert daemon(home, runs=True).advice == f"kill -CONT {pid} lets it go on."
    os.kill(pid, signal.SIGCONT)
    with Client.connect(home) as connection:
        assert pid_of(connection) == pid
    assert daemon(home, runs=True).result == "ok"


def test_a_daemon_that_stands_still_can_be_ended(home: Home) -> None:
    with Client.connect(home) as connection:
        pid = pid_of(connection)
    supervisor = holder(home.supervisor_lock)
    assert supervisor is not None
    for process in (supervisor, pid):
        stop(process)
    stop_daemon(home)
    assert holder(home.daemon_lock) is holder(home.supervisor_lock) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_in_the_foreground_it_tells_the_service_manager_and_ends_cleanly(
    home: Home, tmp_path: Path, number: signal.Signals
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(60)
        process = foreground(home, NOTIFY_SOCKET=address)
        assert manager.recv(100) == b"READY=1"
        Client.connect(home, start=False).close()
        process.send_signal(number)
        assert manager.recv(100) == b"STOPPING=1"
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert f"stopping: {number.name}" in log
    assert not home.log.exists()


def test_the_service_manager_is_told_that_it_works_again_and_again(home: Home, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(60)
        process = foreground(home, NOTIFY_SOCKET=address, WATCHDOG_USEC="300000")
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        process.terminate()
        process.communicate(timeout=60)


def test_where_there_is_no_service_manager_none_is_installed_and_the_daemon_goes_on(home: Home) -> None:
    with Client.connect(home) as connection:
        pid = pid_of(connection)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "service", "install"],
        cwd=REPOSITORY,
        env={**home.environment(), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "systemd does not answer for this user" in done.stderr
    with Client.connect(home, start=False) as connection:
        assert pid_of(connection) == pid


def test_a_socket_of_the_service_manager_is_served_and_left_to_it(home: Home) -> None:
    with bind_socket(home.socket) as listener, connect_socket(home.socket) as waiting:
        process = subprocess.Popen(
            [sys.executable, "-c", _HANDED_A_SOCKET, str(listener.fileno()), *DAEMON],
            cwd=REPOSITORY,
            env=home.environment(),
            pass_fds=[listener.fileno()],
        )
        waiting.settimeout(60)
        assert Channel(waiting).receive() is not None
        with Client.connect(home, start=False) as connection:
            assert pid_of(connection) == process.pid
        stop_daemon(home)
        assert process.wait(60) == 0
        connect_socket(home.socket).close()  # whoever comes next waits for the next daemon
    home.socket.unlink()


def test_the_service_takes_over_from_a_daemon_that_a_command_started(home: Home) -> None:
    with Client.connect(home) as connection:
        first = pid_of(connection)
    home.socket.unlink()  # as systemd does
    with bind_socket(home.socket) as listener:
        process = subprocess.Popen(
            [sys.executable, "-c", _HANDED_A_SOCKET, str(listener.fileno()), *DAEMON],
            cwd=REPOSITORY,
            env=home.environment(),
            pass_fds=[listener.fileno()],
        )
        with Client.connect(home) as connection:
            assert pid_of(connection) == process.pid
        assert holder(home.daemon_lock) == process.pid
        assert holder(home.supervisor_lock) is None
        assert not Path(f"/proc/{first}").exists()
        assert home.socket.exists()  # the one that ended has left it
        stop_daemon(home)
        assert process.wait(60) == 0
    home.socket.unlink()


def test_under_systemd_it_waits_after_quick_deaths_until_a_command_wants_it(home: Home) -> None:
    now = time.time()
    for _ in range(10):
        life.begin(home, now)
        life.note_death(home, now)
    with bind_socket(home.socket) as listener:
        process = subprocess.Popen(
            [sys.executable, "-c", _HANDED_A_SOCKET, str(listener.fileno()), *DAEMON],
            cwd=REPOSITORY,
            env=home.environment(),
            pass_fds=[listener.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert "waiting 60 seconds" in process.stderr.readline()
        with Client.connect(home, start=False) as connection:
            assert pid_of(connection) == process.pid
        stop_daemon(home)
        process.communicate(timeout=60)
        assert process.returncode == 0
    home.socket.unlink()


def test_commands_of_cron_and_of_a_session_find_one_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYBRISFS_HOME", raising=False)
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nobody is logged in"))
    home = Home.from_environment()
    try:
        with Client.connect(home) as connection:
            first = pid_of(connection)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
        with Client.connect(start=False) as connection:
            assert pid_of(connection) == first
    finally:
        stop_daemon(home)


def test_a_second_daemon_is_refused(home: Home) -> None:
    with Client.connect(home) as connection:
        pid = pid_of(connection)
        process = foreground(home)
        _, message = process.communicate(timeout=60)
        assert process.returncode == DaemonError.exit_code
        assert f"a daemon runs already, process {pid}" in message
        assert pid_of(connection) == pid


def test_a_daemon_that_cannot_start_says_why(home: Home) -> None:
    home.socket.mkdir()
    (home.socket / "in the way").touch()
    with pytest.raises(DaemonError) as caught:
        start_daemon(home, lambda: False, SYSTEM)
    assert caught.value.what == "cannot start the daemon"
    assert str(home.socket) in caught.value.why
    assert f"The end of its log, {home.log}:" in caught.value.advice


def test_a_daemon_that_crashes_at_its_start_shows_the_end_of_its_log(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['hybrisfs.daemon.service'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    home.log.write_text("an old line\n")
    with pytest.raises(DaemonError) as caught:
        start_daemon(home, lambda: False, SYSTEM)
    assert "ModuleNotFoundError" in str(caught.value)
    assert str(home.log) in str(caught.value)
    assert "an old line" not in str(caught.value)


def test_a_daemon_that_is_not_ready_in_time(home: Home) -> None:
    with pytest.raises(DaemonError, match="not ready within"):
        start_daemon(home, lambda: False, limited(StartLimits(ready_within=0.001)))


def test_the_working_directory_cannot_smuggle_in_another_daemon(home: Home, tmp_path: Path) -> None:
    evil = tmp_path / "evil" / "hybrisfs" / "daemon"
    evil.mkdir(parents=True)
    (evil.parent / "__init__.py").touch()
    (evil / "__init__.py").touch()
    (evil / "__main__.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    script = "from hybrisfs.client import Client; Client.connect().close()"
    subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path / "evil",
        env={**home.environment(), "PYTHONPATH": str(REPOSITORY)},
        check=True,
        timeout=60,
    )
    assert not (tmp_path / "pwned").exists()
    Client.connect(home, start=False).close()


def test_a_daemon_of_another_version_is_told_apart_and_can_be_stopped(home: Home) -> None:
    with bind_socket(home.socket) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            channel = Channel(connection)
            channel.send({"hello": {"protocol": 999, "version": "9.9"}})
            channel.receive()
            channel.close()

        server = threading.Thread(target=greet)
        server.start()
        with pytest.raises(DaemonError, match=r"HybrisFS 9\.9.*do not understand.*\n.*daemon --stop"):
            Client.connect(home)
        server.join()
    home.socket.unlink()


def test_a_daemon_that_hangs_is_reported(home: Home) -> None:
    with bind_socket(home.socket), pytest.raises(DaemonError, match="timed out"):
        Client.connect(home, environment=impatient())
    home.socket.unlink()


def test_only_its_owner_can_reach_it(home: Home) -> None:
    Client.connect(home).close()
    for path in (home.runtime, home.state, home.log):
        assert path.stat().st_mode & 0o077 == 0
    assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
