"""A pairing from beginning to end: one state machine, driven over the network and the clouds side by side.

The first message and its answer may go both ways; from then on the joiner uses the way by which the answer
came first, and the inviter the one by which the joiner came back. Both functions block; they end all
threads they started, but for requests to a cloud that hangs, which are abandoned after some seconds.

Neither function changes anything on this device, but for what the *host* does when it admits the joiner: what
to do with the result is up to the caller.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from backends.store import Store
from hybrisfs.environment import Environment
from hybrisfs.errors import UsageError
from hybrisfs.pairing.code import PairingCode, invite_id
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue, Exchange
from hybrisfs.pairing.lan import Dialer, Listener, announce, find
from hybrisfs.pairing.mailbox import CloudsLink, Side
from hybrisfs.pairing.messages import Grant, Offer, Peer, Reason
from hybrisfs.pairing.protocol import Inviter, Joiner, State
from sync.identity import DeviceKey

__all__ = ["Admitted", "Guest", "Host", "Joined", "run_inviter", "run_joiner"]


def _nobody_came() -> PairingError:
    return PairingError("the pairing failed", "no machine completed it before the code expired")


def _nobody_answered() -> PairingError:
    return PairingError(
        "the pairing failed",
        "the other machine did not answer in time",
        "Nothing was changed. Is it the newest code, is `hybrisfs device invite` still running, and do both "
        "machines reach the same network or the same clouds?",
    )


class Host(Protocol):
    """The volume that lets a device in."""

    def admit(self, joiner: Peer) -> None:
        """Make this device, which a person has confirmed, a member. Raises HybrisError, OSError."""


class Guest(Protocol):
    """The device that is to be let in."""

    def check(self, offer: Offer) -> None:
        """Raise UsageError when this device cannot take the offer: once the others have it for a member, it
        is one."""


class Admitted(Struct, frozen=True):
    """The device that was let in. It has the volume's keys, whether it has acknowledged that or not."""

    device: Peer
    acknowledged: bool


class Joined(Struct, frozen=True):
    """What a device got that joined, and from whom."""

    grant: Grant
    inviter: Peer


def run_inviter(
    code: PairingCode,
    device: DeviceKey,
    name: str,
    grant: Grant,
    host: Host,
    stores: Sequence[Store],
    listener: Listener | None,
    dialogue: Dialogue,
    stop: threading.Event,
    *,
    mdns: bool = True,
    environment: Environment,
) -> Admitted:
    """Wait for a joiner until the code expires, have it confirmed, and let it in.

    *device* is our own key, among the members in *grant*, and *name* what we call ourselves. *stores* are the
    volume's clouds, *listener* the open port whose addresses are in the code, None without a network: it is
    closed in the end, the stores are not. *mdns* tells whether to announce it. Setting *stop* from another
    thread ends the session.
    Raises PairingError when nobody was let in, UsageError, and what the *host* raises.
    """
    with contextlib.ExitStack() as cleanup:
        if listener is not None:
            cleanup.callback(listener.close)
        inviter = Inviter(code, device, name, grant.volume, grant.name, environment.random_bytes)
        exchange = Exchange(
            dialogue, stop, environment, max(0.0, code.expires - environment.time()), _nobody_came()
        )
        clouds = CloudsLink(stores, code, Side.INVITER, exchange, environment)
        cleanup.callback(lambda: clouds.close(inviter.notice(environment.time())))
        if listener is not None:
            listener.start(exchange.deliver)
            addresses = listener.addresses if mdns else ()
            cleanup.enter_context(
                _background("mdns", lambda stopped: announce(invite_id(code.secret), addresses, stopped))
            )
        clouds.start()
        link = exchange.drive(inviter, State.COMPARING)
        assert inviter.joiner is not None
        dialogue.show(inviter.comparison)
        if not dialogue.confirm(inviter.joiner):
            link.send(inviter.reject(Reason.WITHDRAWN if stop.is_set() else Reason.NOT_CONFIRMED))
            raise PairingError("the pairing failed", "the comparison string was not confirmed")
        exchange.take_waiting(inviter)  # the joiner may have declined in the meantime
        host.admit(inviter.confirm(environment.time()))
        link.send(inviter.grant(grant))
        return Admitted(inviter.joiner, exchange.wait_for_done(inviter))


def run_joiner(
    code: PairingCode,
    device: DeviceKey,
    name: str,
    guest: Guest,
    stores: Sequence[Store],
    dialogue: Dialogue,
    stop: threading.Event,
    *,
    timeout: float,
    lan: bool = True,
    mdns: bool = True,
    environment: Environment,
) -> Joined:
    """Find the inviter, and take what it grants to *device*, which calls itself *name*.

    *stores* are those of the code's clouds that this machine can open, none if it has no account yet. Gives
    up after *timeout* seconds; setting *stop* from another thread ends it. Without *lan* only the clouds are
    used, without *mdns* also the addresses in the code. Raises PairingError, UsageError.
    """
    joiner = Joiner(code, device, name, environment.random_bytes)
    hello = joiner.hello(environment.time())
    exchange = Exchange(dialogue, stop, environment, timeout, _nobody_answered())
    clouds = CloudsLink(stores, code, Side.JOINER, exchange, environment)
    dialer = Dialer(hello, exchange.deliver, environment)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(clouds.close)
        cleanup.callback(dialer.close)
        if lan:
            for address in code.addresses:
                dialer.dial(address)
        if lan and mdns:
            cleanup.enter_context(
                _background("mdns", lambda stopped: find(invite_id(code.secret), dialer.dial, stopped))
            )
        clouds.send(hello)
        clouds.start()
        link = exchange.drive(joiner, State.OFFERED)
        assert joiner.offer is not None
        inviter = joiner.offer.peer
        try:
            guest.check(joiner.offer)
            exchange.answer(joiner.accept())
            dialer.keep(link)
            if link is not clouds:
                clouds.discard()
            dialogue.show(joiner.comparison)
            if not dialogue.confirm(inviter):
                raise PairingError("the pairing failed", "the comparison string was not confirmed")
            exchange.drive(joiner, State.GRANTED)
            assert joiner.granted is not None
            link.send(joiner.done())
        except UsageError as error:
            raise PairingError(error.what, error.why, error.advice) from error
        finally:
            if joiner.state in (State.OFFERED, State.ANSWERED, State.GRANTED):
                link.send(joiner.decline())
        return Joined(joiner.granted, inviter)


@contextlib.contextmanager
def _background(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run *work* in a thread for as long as the block lasts; the event that it is given tells it to end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), name=f"pairing {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
