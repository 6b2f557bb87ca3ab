"""What the daemon tells of traffic, history, cost, folders and files."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NoReturn

import pytest

from hybrisfs.api.status import Archive, PendingFile
from hybrisfs.daemon.clouds import FigureCommands, Recorder
from hybrisfs.daemon.service import Daemon
from hybrisfs.daemon.slots import Slots
from hybrisfs.daemon.wanted_mounts import WantedMounts
from hybrisfs.dispersal.traffic import Counters
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from tests.daemon.fake import FakeVolumes
from tests.daemon.test_service import call


@pytest.fixture
def volumes(home: Home) -> FakeVolumes:
    home.volume_state("photos").mkdir(parents=True)
    return FakeVolumes("photos")


@pytest.fixture
def daemon(home: Home, volumes: FakeVolumes) -> Daemon:
    return Daemon(home, volumes, SYSTEM)


def test_what_moves_now(daemon: Daemon) -> None:
    facts = call(daemon, "traffic", name="photos")
    [cloud] = facts["clouds"]
    assert cloud["transfers"] == [{"operation": "put", "size": 8_000_000, "moved": 2_000_000, "seconds": 1.5}]
    assert (cloud["name"], cloud["state"], cloud["up"]) == ("amber", "ok", 0)


def test_history_is_kept_over_a_restart(home: Home, volumes: FakeVolumes) -> None:
    now = [1_800_000_000.0]
    clock = Environment(time_ns=lambda: int(now[0] * 1e9))
    slots = Slots(home, volumes, WantedMounts(home.state, SYSTEM))
    recorder = Recorder(home, slots, clock)
    slots.get("photos").open()
    recorder.look()
    volumes.opened["photos"].clouds.counters = Counters(up=50_000, put=3)
    now[0] += 10
    recorder.look()
    recorder.save()
    now[0] += 10
    for one in (recorder, Recorder(home, slots, clock)):
        series = one.series("photos", "hour")
        assert (series.step, series.end) == (10, now[0] // 10 * 10)
        [cloud] = series.clouds
        assert (cloud.name, cloud.up[-2:]) == ("amber", [0, 5000])
        assert one.rate("photos") == 5000 / 6, "six intervals are a minute"


def test_how_long_what_waits_takes(home: Home, volumes: FakeVolumes) -> None:
    now = [1_800_000_000.0]
    slots = Slots(home, volumes, WantedMounts(home.state, SYSTEM))
    recorder = Recorder(home, slots, Environment(time_ns=lambda: int(now[0] * 1e9)))
    slots.get("photos").open()
    recorder.look()
    volume = volumes.opened["photos"]
    volume.waiting = [PendingFile("file", 6_000_000, 1.0, is_open=False)]
    volume.pending_files, volume.pending_bytes = 1, 6_000_000

    def nobody_asks(*_: object) -> NoReturn:
        raise AssertionError

    pending = FigureCommands(home, slots, recorder, nobody_asks).commands["pending"]

    def seconds() -> float | None:
        answer: float | None = pending({"name": "photos"}, nobody_asks)["seconds"]
        return answer

    assert seconds() == 12_000_000 / 524_288, "to two clouds, at the limit"
    volume.clouds.counters = Counters(up=600_000)
    now[0] += 10
    recorder.look()
    now[0] += 10
    assert seconds() == 12_000_000 / 10_000, "at the speed of the last minute"
    volume.waiting = [PendingFile("file", 6_000_000, now[0] - 15, is_open=False)]
    assert seconds() == 12_000_000 / 60_000, "what was idle before it waited is no measure"
    volume.waiting = [PendingFile("file", 6_000_000, now[0] - 5, is_open=False)]
    assert seconds() == 12_000_000 / 524_288, "at the limit, until there is a measure"
    volume.states = {one.name: ("down", "") for one in volume.config.clouds}
    assert seconds() is None


def test_a_damaged_history_begins_anew(home: Home, volumes: FakeVolumes) -> None:
    (home.volume_state("photos") / "history.json").write_text("nonsense")
    daemon = Daemon(home, volumes, SYSTEM)
    assert call(daemon, "history", name="photos", span="day")["clouds"] == []


def test_only_open_volumes_are_looked_at(home: Home, volumes: FakeVolumes) -> None:
    slots = Slots(home, volumes, WantedMounts(home.state, SYSTEM))
    Recorder(home, slots, SYSTEM).look()
    slots.get("photos")
    Recorder(home, slots, SYSTEM).look()
    assert volumes.opened == {}


def test_stopping_takes_down_the_last_moments(home: Home, volumes: FakeVolumes) -> None:
    daemon = Daemon(home, volumes, SYSTEM)
    daemon.start()
    call(daemon, "traffic", name="photos")
    volumes.opened["photos"].clouds.counters = Counters(get=7)
    daemon.stop()
    kept = json.loads((home.volume_state("photos") / "history.json").read_text())
    assert sum(month["get"] for month in kept["clouds"]["0"]["months"]) == 7


def test_an_unknown_span_is_refused(daemon: Daemon) -> None:
    with pytest.raises(UsageError, match="hour and day"):
        call(daemon, "history", name="photos", span="year")


def test_what_it_costs(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "traffic", name="photos")
    clouds = volumes.opened["photos"].clouds
    clouds.counters = Counters(put=1000, get=2000, down=10**9)
    free = call(daemon, "cost", name="photos")
    assert [(one["provider"], one["prices"], one["bill"], one["use"]["put"]) for one in free["clouds"]] == [
        (None, None, None, 1000)
    ]
    assert (free["total"], free["archive"]) == (0, None)
    clouds.url = "s3://bucket/folder"
    charged = call(daemon, "cost", name="photos")
    [cloud] = charged["clouds"]
    assert (cloud["provider"], cloud["prices"]["egress"]) == ("Amazon S3", 0.09)
    assert cloud["bill"]["put"] == pytest.approx(0.005)
    assert (cloud["bill"]["get"], cloud["bill"]["egress"]) == pytest.approx((0.0008, 0.09))
    assert charged["total"] == pytest.approx(cloud["bill"]["total"])
    volumes.opened["photos"].archive = Archive("30d", "4+1", 0, 80, 100, 60, {"amber": 25}, 1.5)
    saving = call(daemon, "cost", name="photos")
    assert (saving["archive"]["dollars"], saving["clouds"][0]["archived"]) == (1.5, 25)


def test_a_price_of_ones_own(daemon: Daemon, volumes: FakeVolumes, home: Home) -> None:
    home.prepare()
    call(daemon, "status")
    assert call(daemon, "cloud price", name="photos", cloud="amber")["prices"] is None
    kept = call(daemon, "cloud price", cloud="amber", storage=0.5, egress=0.25)["prices"]
    assert (kept["storage"], kept["egress"], kept["source"]) == (0.5, 0.25, str(home.prices))
    costs = call(daemon, "cost")
    [cloud] = costs["clouds"]
    assert cloud["bill"]["storage"] == pytest.approx(cloud["stored"] / 1e9 * 0.5)
    assert costs["own_prices"] == str(home.prices)
    with pytest.raises(UsageError, match="There are: amber"):
        call(daemon, "cloud price", cloud="ambre", storage=1.0)
    assert call(daemon, "cloud price", cloud="amber", forget=True)["prices"] is None
    home.prices.write_text("nonsense")
    assert "do not count" in call(daemon, "cost")["problem"]


def test_folders_in_pages(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "status")
    volumes.opened["photos"].browsing.names = ["a", "b", "c"]
    page = call(daemon, "folder list", name="photos", path="/", after="a", limit=1)
    assert ([one["name"] for one in page["entries"]], page["more"]) == (["b"], True)


@pytest.mark.parametrize("limit", [-1, 501])
def test_pages_are_bounded(daemon: Daemon, limit: int) -> None:
    with pytest.raises(UsageError, match="limit"):
        call(daemon, "folder list", name="photos", path="", limit=limit)


def test_parts_of_files(daemon: Daemon) -> None:
    part = call(daemon, "file read", name="photos", path="a", offset=1, length=3)
    assert base64.b64decode(part["base64"]) == b"ell"
    assert part["size"] == 5
    with pytest.raises(HybrisError, match="No such file"):
        call(daemon, "file read", name="photos", path="missing", length=3)
    for wrong in ({"length": 0}, {"length": 2 << 20}, {"length": 1, "offset": -1}):
        with pytest.raises(UsageError, match="length"):
            call(daemon, "file read", name="photos", path="a", **wrong)


@pytest.mark.parametrize(("command", "more"), [("folder list", {}), ("file read", {"length": 1})])
def test_nothing_outside_the_volume_is_looked_at(daemon: Daemon, command: str, more: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"\.\."):
        call(daemon, command, name="photos", path="a/../../etc/passwd", **more)


def test_conflicts_in_pages(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "status")
    volumes.opened["photos"].conflicting = [{"path": str(number)} for number in range(5)]
    page = call(daemon, "conflicts list", name="photos", first=1, limit=2)
    assert ([one["path"] for one in page["conflicts"]], page["total"]) == (["1", "2"], 5)
    with pytest.raises(UsageError, match="negative"):
        call(daemon, "conflicts list", name="photos", first=-1)


def test_status_without_a_look_asks_no_cloud(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "status", without_look=True)
    assert volumes.opened["photos"].looks == 0
    call(daemon, "status")
    assert volumes.opened["photos"].looks == 1


def test_a_damaged_file_is_named(home: Home, volumes: FakeVolumes, caplog: pytest.LogCaptureFixture) -> None:
    path: Path = home.volume_state("photos") / "history.json"
    path.write_text("[]")
    call(Daemon(home, volumes, SYSTEM), "history", name="photos", span="hour")
    assert str(path) in caplog.text
