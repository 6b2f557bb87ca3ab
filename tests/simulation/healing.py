"""Healing everything but those who lie, and what must hold then."""

from __future__ import annotations

from typing import Final

from sync import Head, decode_head, head_name
from sync.beacons import precedes
from sync.codec import ZERO_HASH
from tests.simulation.cloud import Mood
from tests.simulation.history import decoded, operations
from tests.simulation.simulator import Simulation
from tests.sync.fjc import Execution
from tests.tree.rig import VOLUME

__all__ = ["heal"]

# Virtual seconds of each round: retries of what could not be had come after longer and longer pauses.
_ROUNDS: Final = (10.0,) * 4 + (40.0,) * 12 + (900.0,) * 12 + (3600.0,) * 8
_WORK: Final = 6  # rounds, after which people go on working where that is needed
_QUIET: Final = 2  # rounds in which nobody may sign anything any more


def heal(simulation: Simulation) -> None:
    """Let all hear of all, in one of three ways, and check what they have come to."""
    for device in range(simulation.count):
        simulation.clocks.set_ahead(device, 0.0)
    simulation.badness.end()
    way = simulation.random.choice((_by_clouds, _by_clouds, _by_links, _by_both))
    simulation.note(f"all is healed, {way.__name__}")
    way(simulation)
    simulation.note("all have heard of all")
    simulation.badness.check()
    simulation.containers.check()
    simulation.world.check()
    _check_history(simulation)
    _check_forkers(simulation)
    _check_accusations(simulation)
    if way is not _by_links and simulation.random.random() < 0.3:
        _check_rollback(simulation)
    simulation.badness.check_restart()


# -- ways to hear of each other ------------------------------------------------------------------


def _by_clouds(simulation: Simulation) -> None:
    """No device reaches another one, but all reach all clouds, f of which go on lying."""
    honest = [number for number in simulation.clouds.numbers if number not in simulation.clouds.liars]
    simulation.clouds.set_moods(Mood.WELL, honest)
    quiet = 0
    for number, seconds in enumerate(_ROUNDS):
        simulation.clocks.pass_by(seconds)
        if number == _WORK:
            simulation.badness.work()
        before = _signed(simulation)
        simulation.world.end_rules()
        simulation.badness.go_on()
        for device in simulation.honest:
            simulation.badness.confirm(device)
            simulation.sign(device)
            simulation.pull(device, everything=True)
            simulation.ship(device, flush=True)
            simulation.look_at_checkpoints(device)
        quiet = quiet + 1 if _signed(simulation) == before and _are_done(simulation) else 0
        if quiet >= _QUIET:
            return
    raise AssertionError("devices that reach the clouds do not come to agree")


def _by_links(simulation: Simulation) -> None:
    """The clouds take no updates any more, but every device reaches some other one, and packs can be read."""
    simulation.clouds.set_moods(Mood.DOWN, simulation.clouds.numbers)
    quiet = 0
    for number, seconds in enumerate(_ROUNDS):
        simulation.clocks.pass_by(seconds)
        if number == _WORK:
            simulation.badness.work()
        before = _signed(simulation)
        simulation.world.end_rules()
        for device in simulation.honest:
            simulation.badness.confirm(device)
            simulation.look_for_lacking(device)
            simulation.sign(device)
            simulation.send(device, _next(simulation, device))
            simulation.send(_next(simulation, device), device)
        quiet = quiet + 1 if _signed(simulation) == before and _are_done(simulation) else 0
        if quiet >= _QUIET:
            return
    raise AssertionError("devices that reach each other do not come to agree")


def _by_both(simulation: Simulation) -> None:
    for device in simulation.honest:
        simulation.sign(device)
        simulation.send(device, _next(simulation, device))
    _by_clouds(simulation)


def _next(simulation: Simulation, device: int) -> int:
    """The honest device after this one, in a ring."""
    honest = simulation.honest
    return honest[(honest.index(device) + 1) % len(honest)]


def _signed(simulation: Simulation) -> list[object]:
    return [device.rig.updates.own_tip() for device in simulation.world.honest]


def _are_done(simulation: Simulation) -> bool:
    """Whether all hold the same log, and what they have heard last makes nobody sign anything. Equal vectors
    do not tell: each may know another branch of a liar."""
    honest = simulation.world.honest
    return len({device.rig.updates.state.history() for device in honest}) == 1 and not any(
        device.rig.fs.changes.unsigned for device in honest
    )


# -- what must hold ------------------------------------------------------------------------------


def _check_history(simulation: Simulation) -> None:
    """Fork-join-causal consistency of everything that devices which do not lie have ever done."""
    simulation.remember_bodies()
    now = {
        str(number): operations(simulation.world.fleet[number], simulation.bodies)
        for number in simulation.honest
    }
    violations = Execution(simulation.lives | now).violations()
    assert not violations, violations[:3]
    differences = Execution(now).differences()
    assert not differences, differences


def _check_forkers(simulation: Simulation) -> None:
    """Whoever has signed two updates on top of one is named as a forker by all, and nobody else is."""
    fleet = simulation.world.fleet
    seen: dict[tuple[bytes, bytes], bytes] = {}
    forkers: set[bytes] = set()
    first = simulation.world.honest[0]
    bare = [simulation.bodies[identity] for identity in sorted(first.bare())]
    for data in (*first.log(), *bare):
        update = decoded(data)
        writer = update.header.writer
        if seen.setdefault((writer, update.header.prev or ZERO_HASH), update.hash) != update.hash:
            forkers.add(writer)
    may_have = {fleet[number].member.device for number in simulation.restored} | simulation.faulty
    assert forkers <= may_have, "a device that was never restored has forked"
    for device in simulation.world.honest:
        listed = {bytes.fromhex(str(one.id)): one.forked for one in device.rig.sharing.devices()}
        named = {identity for identity, forked in listed.items() if forked}
        assert named == forkers & listed.keys(), f"{device.name} names other forkers"


def _check_accusations(simulation: Simulation) -> None:
    """No cloud that does not lie was accused of it, unless a member lied about what it put there."""
    clouds = simulation.clouds
    for number, name in sorted(clouds.accused):
        about_liar = any(one.hex() in name for one in simulation.faulty)
        assert number in clouds.liars or about_liar, f"cloud {number} was accused about {name}"


def _check_rollback(simulation: Simulation) -> None:
    """When all clouds go back to what they held at first, whoever knew better says so and loses nothing."""
    clouds = simulation.clouds
    simulation.note("all clouds roll back")
    clouds.set_moods(Mood.WELL, clouds.numbers)
    for device in simulation.honest:
        simulation.clocks.pass_by(5.0)
        simulation.pull(device, everything=True)
    clouds.set_moods(Mood.OLD, clouds.numbers)
    logs = [set(device.log()) for device in simulation.world.honest]
    for device in simulation.honest:
        simulation.clocks.pass_by(5.0)
        rolled_back = {
            head_name(author)
            for author, head in simulation.courier(device).puller.heads().items()
            if _has_gone_back(simulation, author, head)
        }
        simulation.pull(device, everything=True)
        doubts = simulation.courier(device).puller.doubts()
        unsaid = {name for name in rolled_back if not any(name in doubt for doubt in doubts)}
        assert not unsaid, f"nobody was told that all clouds have rolled back {sorted(unsaid)}"
    for one, log in zip(simulation.world.honest, logs, strict=True):
        now = set(one.log())
        assert log <= now
        # A bad one that is a member yet may have hidden them behind a newer head; the device may answer them.
        heard = {decoded(data).header.writer for data in now - log} - {one.member.device}
        assert heard <= simulation.faulty
        assert heard or now == log
    clouds.set_moods(Mood.WELL, clouds.numbers)
    _by_clouds(simulation)
    simulation.world.check()


def _has_gone_back(simulation: Simulation, author: bytes, known: Head) -> bool:
    """Whether what the clouds that do not lie by themselves show now is older than the head known."""
    clouds = simulation.clouds
    writer = next((one for one in simulation.world.honest if one.key.device_id == author), None)
    if writer is None:
        return False  # a liar may go back itself
    public, keys = writer.key.public, writer.rig.ring.segments
    shown = [
        clouds.all[number].first(head_name(author)) for number in clouds.numbers if number not in clouds.liars
    ]
    return all(one is not None and precedes(decode_head(one, VOLUME, public, keys), known) for one in shown)
