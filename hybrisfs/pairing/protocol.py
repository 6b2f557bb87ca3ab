"""The two sides of a pairing as state machines: messages in, messages out; no socket, thread or clock.

    joiner                                  inviter
      hello: commitment             ------>
                                    <------   offer: its X25519 key, device and volume
      reveal: what it committed to  ------>
      both show the comparison string; the persons say whether it is the same
                                              makes the joiner a member
                                    <------   grant: the volume's keys, clouds, members
      done                          ------>

In the place of an offer or grant the inviter may send reject; in the place of its reveal, or after it, the
joiner may send decline. Closed tells any device that comes later that the code is good for nothing any more.

=========  =========  ================================  =========================================  =========
machine    state      event                             what the caller does then                  next
=========  =========  ================================  =========================================  =========
inviter    WAITING    hello, in time                    send the offer                             ANSWERED
inviter    ANSWERED   reveal, in time                   show the string, ask the person            COMPARING
inviter    COMPARING  `confirm`, in time                make `joiner` a member                     CONFIRMED
inviter    COMPARING  `reject`                          send it, leave `notice`                    FAILED
inviter    CONFIRMED  `grant`                           send the grant                             GRANTED
inviter    GRANTED    done                              leave `notice`                             FINISHED
joiner     NEW        `hello`, in time                  send it                                    WAITING
joiner     WAITING    offer                             see whether it can be taken                OFFERED
joiner     OFFERED    `accept`                          send the reveal, show, ask the person      ANSWERED
joiner     ANSWERED   grant                             make the volume, when the person agrees    GRANTED
joiner     GRANTED    `done`                            send it                                    FINISHED
joiner     from       `decline`                         send it                                    FAILED
           OFFERED
           to GRANTED
either     any        reject, decline, closed, wrong    end it                                     FAILED
                      or late messages
=========  =========  ================================  =========================================  =========

So only a device that a person has confirmed becomes a member, and only if the code was good at that moment
and the device had not declined; and none gets the keys before it is one: what it writes is worth nothing
while nobody knows it. A crash between the two leaves a member without keys, which a person removes.

The joiner's ephemeral key travels under the code's secret, the rest of the reveal also under the shared
secret (`handshake`). Each side signs the transcript with its device key, so the device that was shown
to the person is the device that is let in.

Each machine takes at most three messages in their order, each of at most `MAX_MESSAGE` bytes. Anything else
raises StrangeMessageError and leaves it as it was; a message that is genuine but wrong, or time that has
run out, ends the machine with a PairingError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Final

from hybrisfs.pairing.code import PairingCode
from hybrisfs.pairing.errors import PairingError, StrangeMessageError
from hybrisfs.pairing.handshake import Handshake, Kind, Random, commit, kind_of
from hybrisfs.pairing.messages import (
    EPHEMERAL_SIZE,
    OPENING_SIZE,
    Grant,
    Offer,
    Peer,
    Reason,
    Reveal,
    check_device_name,
)
from sync.codec import HASH_SIZE, DecodeError, Writer
from sync.identity import SIGNATURE_SIZE, DeviceKey, verify

__all__ = ["Inviter", "Joiner", "State", "UsedCodeError"]

_EARLIER: Final = 1.0  # seconds before its end, by which a code counts as expired when nothing came of it
_MAX_STRANGE: Final = 1000  # messages refused before the machine gives up
_INVITER_MAGIC: Final = b"HFPI"
_JOINER_MAGIC: Final = b"HFPJ"
_SIGNED_VERSION: Final = 1

_REASONS: Final = {
    Reason.NOT_CONFIRMED: "the comparison string was not confirmed on the other machine",
    Reason.EXPIRED: "the code has expired",
    Reason.USED: "the code was used already",
    Reason.WITHDRAWN: "the other machine withdrew it",
}


class State(Enum):
    """Where a machine stands."""

    NEW = auto()  # the joiner has said nothing yet
    WAITING = auto()  # the inviter for a hello, the joiner for an offer
    OFFERED = auto()  # the joiner sees whether it can take the offer
    ANSWERED = auto()  # the inviter waits for the reveal, the joiner for the grant
    COMPARING = auto()  # the inviter's person compares
    CONFIRMED = auto()  # the inviter makes the joiner a member
    GRANTED = auto()  # the inviter waits for done; the joiner has the grant
    FINISHED = auto()
    FAILED = auto()


class UsedCodeError(StrangeMessageError):
    """Another device that has the code came second; `reply` tells it so. The pairing goes on without it."""


class _Machine(ABC):
    """What both sides have in common."""

    def __init__(self, code: PairingCode, device: DeviceKey, name: str, state: State, random: Random) -> None:
        self.state = state
        self._code = code
        self._device = device
        self._self = Peer(device.public, check_device_name(name))
        self._random = random
        self._handshake = Handshake(code.secret, random)
        self._strange = 0

    def receive(self, message: bytes, now: float) -> bytes | None:
        """Take a message at the time *now* (seconds since the epoch); return the answer, if there is one.

        Raises StrangeMessageError when the message is not the one expected, which changes nothing;
        PairingError when the pairing has failed.
        """
        try:
            return self._take(message, now)
        except StrangeMessageError as error:
            self._strange += 1
            if self._strange < _MAX_STRANGE:
                raise
            raise self._failure("somebody floods it with messages that do not belong to it") from error
        except DecodeError as error:
            raise self._failure(f"the other machine sent a message that makes no sense: {error}") from error

    @abstractmethod
    def _take(self, message: bytes, now: float) -> bytes | None:
        """Carry out `receive`; raises DecodeError as well."""

    def _require(self, *states: State) -> None:
        if self.state not in states:
            raise RuntimeError(f"not possible in state {self.state.name}")

    def _failure(self, why: str, reply: bytes | None = None) -> PairingError:
        self.state = State.FAILED
        return PairingError("the pairing failed", why, reply=reply)

    def _sign(self, magic: bytes, transcript: bytes) -> bytes:
        return self._device.sign(_statement(magic, transcript))


class Inviter(_Machine):
    """The device that lets another one in."""

    def __init__(
        self,
        code: PairingCode,
        device: DeviceKey,
        name: str,
        volume: bytes,
        volume_name: str,
        random: Random,
    ) -> None:
        """*name* is this device's. Raises UsageError when it cannot be shown."""
        super().__init__(code, device, name, State.WAITING, random)
        self._volume = volume
        self._volume_name = volume_name
        self._commitment = b""
        self._over = Reason.WITHDRAWN
        self.joiner: Peer | None = None
        """The other device, once it has revealed itself."""

    @property
    def comparison(self) -> str:
        """The string to compare, from state COMPARING on."""
        self._require(State.COMPARING, State.CONFIRMED, State.GRANTED, State.FINISHED)
        return self._comparison

    def confirm(self, now: float) -> Peer:
        """The person said that the strings are equal: the device that is to be made a member now. Raises
        PairingError when the code has expired."""
        self._require(State.COMPARING)
        self._check_time(now)
        assert self.joiner is not None
        self.state = State.CONFIRMED
        return self.joiner

    def grant(self, grant: Grant) -> bytes:
        """The other device is a member: the message with the keys."""
        self._require(State.CONFIRMED)
        if self._self.public not in grant.members:
            raise ValueError("the inviter is not a member of what it grants")
        record = grant.encode()
        signature = self._sign(_INVITER_MAGIC, self._handshake.after(record))
        message = self._handshake.seal(Kind.GRANT, record + signature)
        self.state, self._over = State.GRANTED, Reason.USED
        return message

    def reject(self, reason: Reason) -> bytes:
        """The message that nothing will come of it, for the device that revealed itself."""
        self._require(State.COMPARING)
        self.state, self._over = State.FAILED, reason
        return self._handshake.seal(Kind.REJECT, bytes([reason]))

    def notice(self, now: float) -> bytes:
        """What any device that comes with the code later is to find. Possible in any state, changes none."""
        is_late = now >= self._code.expires - _EARLIER and self._over is not Reason.USED
        return self.closed(Reason.EXPIRED if is_late else self._over)

    def closed(self, reason: Reason) -> bytes:
        """The notice that gives this reason."""
        return Handshake(self._code.secret, self._random).seal(Kind.CLOSED, bytes([reason]))

    def _take(self, message: bytes, now: float) -> bytes | None:
        if kind_of(message) is Kind.HELLO:
            return self._answer_hello(message, now)
        if self.state is State.ANSWERED and kind_of(message) is not Kind.DECLINE:
            self._check_reveal(message, now)
        elif self.state in (State.ANSWERED, State.COMPARING, State.CONFIRMED, State.GRANTED):
            self._check_end(message)
        else:
            raise StrangeMessageError("a message came out of order")
        return None

    def _answer_hello(self, message: bytes, now: float) -> bytes:
        hello = Handshake(self._code.secret, self._random)
        commitment = hello.open(Kind.HELLO, message)
        hello.absorb(commitment)
        if self.state is not State.WAITING:
            reply = hello.seal(Kind.REJECT, bytes([Reason.USED]))
            raise UsedCodeError("a second machine came with the same code", reply=reply)
        if len(commitment) != HASH_SIZE:
            raise DecodeError(f"a commitment of {len(commitment)} bytes")
        self._handshake = hello
        self._check_time(now)
        offer = Offer(hello.ephemeral, self._self, self._volume, self._volume_name).encode()
        answer = hello.seal(Kind.OFFER, offer)
        hello.absorb(offer)
        self._commitment = commitment
        self.state = State.ANSWERED
        return answer

    def _check_reveal(self, message: bytes, now: float) -> None:
        outer = self._handshake.open(Kind.REVEAL, message)
        ephemeral, sealed = outer[:EPHEMERAL_SIZE], outer[EPHEMERAL_SIZE:]
        if len(ephemeral) != EPHEMERAL_SIZE:
            raise DecodeError("it ends within its key")
        agreed = self._handshake.agreed(ephemeral)
        inner = self._handshake.open(Kind.REVEAL, sealed, agreed)
        body, signature = inner[:-SIGNATURE_SIZE], inner[-SIGNATURE_SIZE:]
        reveal = Reveal.decode(body)
        if commit(ephemeral, body) != self._commitment:
            raise self._failure(
                "the other machine is not what it had committed to: somebody may be in between"
            )
        self._handshake.absorb(ephemeral, body)
        self._handshake.share(agreed)
        if not _signed(reveal.peer, _JOINER_MAGIC, self._handshake.transcript, signature):
            raise self._failure("the other machine could not prove that it has its key")
        self._check_time(now)
        self.joiner = reveal.peer
        self._comparison = self._handshake.comparison()
        self.state = State.COMPARING

    def _check_end(self, message: bytes) -> None:
        if kind_of(message) is Kind.DECLINE:
            self._handshake.open(Kind.DECLINE, message)
            raise self._failure("it was declined on the other machine")
        if self.state is not State.GRANTED:
            raise StrangeMessageError("a message came out of order")
        self._handshake.open(Kind.DONE, message)
        self.state = State.FINISHED

    def _check_time(self, now: float) -> None:
        if now >= self._code.expires:
            reply = self._handshake.seal(Kind.REJECT, bytes([Reason.EXPIRED]))
            raise self._failure(_REASONS[Reason.EXPIRED], reply)


class Joiner(_Machine):
    """The device that was given a code. *device* is the key that it will have in the volume."""

    def __init__(
        self,
        code: PairingCode,
        device: DeviceKey,
        name: str,
        random: Random,
    ) -> None:
        """Raises UsageError when *name* cannot be shown."""
        super().__init__(code, device, name, State.NEW, random)
        self._reveal = Reveal(random(OPENING_SIZE), self._self).encode()
        self.offer: Offer | None = None
        """The invitation, from state OFFERED on. The inviter knows this device only after `accept`."""
        self.granted: Grant | None = None
        """In state GRANTED and FINISHED."""

    @property
    def comparison(self) -> str:
        """The string to compare, from state ANSWERED on."""
        self._require(State.ANSWERED, State.GRANTED, State.FINISHED)
        return self._comparison

    def hello(self, now: float) -> bytes:
        """The first message. Raises PairingError when the code has expired."""
        self._require(State.NEW)
        if now >= self._code.expires:
            self.state = State.FAILED
            raise PairingError(
                "the code has expired",
                "",
                "Make a new code with `hybrisfs device invite`. If it is new, set this machine's clock.",
            )
        commitment = commit(self._handshake.ephemeral, self._reveal)
        self._hello = self._handshake.seal(Kind.HELLO, commitment)
        self._handshake.absorb(commitment)
        self.state = State.WAITING
        return self._hello

    def accept(self) -> bytes:
        """The offer can be taken: the message that makes this device known."""
        self._require(State.OFFERED)
        after = self._handshake.after(self._handshake.ephemeral, self._reveal)
        signed = self._reveal + self._sign(_JOINER_MAGIC, after)
        sealed = self._handshake.seal(Kind.REVEAL, signed, self._agreed)
        answer = self._handshake.seal(Kind.REVEAL, self._handshake.ephemeral + sealed)
        self._handshake.absorb(self._handshake.ephemeral, self._reveal)
        self._handshake.share(self._agreed)
        self._comparison = self._handshake.comparison()
        self.state = State.ANSWERED
        return answer

    def done(self) -> bytes:
        """The grant is taken: the last message."""
        self._require(State.GRANTED)
        self.state = State.FINISHED
        return self._handshake.seal(Kind.DONE, b"")

    def decline(self) -> bytes:
        """The offer cannot be taken, or the person does not want it: the last message."""
        self._require(State.OFFERED, State.ANSWERED, State.GRANTED)
        self.state = State.FAILED
        self.granted = None
        return self._handshake.seal(Kind.DECLINE, b"")

    def _take(self, message: bytes, now: float) -> bytes | None:
        kind = kind_of(message)
        if self.state not in (State.WAITING, State.OFFERED, State.ANSWERED):
            raise StrangeMessageError("a message came out of order")
        if kind is Kind.HELLO and self.state is State.WAITING and message != self._hello:
            # It stands where ours was to stand. Only a device that has the code can have made it.
            Handshake(self._code.secret, self._random).open(kind, message)
            raise self._failure(_REASONS[Reason.USED])
        if kind is Kind.CLOSED:
            closed = Handshake(self._code.secret, self._random).open(kind, message)
            raise self._failure(_REASONS[_reason(closed)])
        if kind is Kind.REJECT:
            raise self._failure(_REASONS[_reason(self._handshake.open(kind, message))])
        if self.state is State.WAITING:
            self._take_offer(message)
        elif self.state is State.ANSWERED:
            self._check_grant(message)
        else:
            raise StrangeMessageError("a message came out of order")
        return None

    def _take_offer(self, message: bytes) -> None:
        record = self._handshake.open(Kind.OFFER, message)
        offer = Offer.decode(record)
        self._agreed = self._handshake.agreed(offer.ephemeral)
        self._handshake.absorb(record)
        self.offer = offer
        self.state = State.OFFERED

    def _check_grant(self, message: bytes) -> None:
        signed = self._handshake.open(Kind.GRANT, message)
        record, signature = signed[:-SIGNATURE_SIZE], signed[-SIGNATURE_SIZE:]
        grant = Grant.decode(record)
        assert self.offer is not None
        if not _signed(self.offer.peer, _INVITER_MAGIC, self._handshake.after(record), signature):
            raise self._failure("the inviting machine could not prove that it has its key")
        offered = self.offer.volume, self.offer.volume_name
        if self.offer.peer.public not in grant.members or (grant.volume, grant.name) != offered:
            raise self._failure("the inviting machine grants something else than it had offered")
        self.granted = grant
        self.state = State.GRANTED


def _statement(magic: bytes, transcript: bytes) -> bytes:
    return Writer().format(magic, _SIGNED_VERSION).raw(transcript).getvalue()


def _signed(peer: Peer, magic: bytes, transcript: bytes, signature: bytes) -> bool:
    if len(signature) != SIGNATURE_SIZE:
        return False
    return verify(peer.public, _statement(magic, transcript), signature)


def _reason(payload: bytes) -> Reason:
    try:
        (number,) = payload
        return Reason(number)
    except ValueError as error:
        raise DecodeError("it gives no known reason") from error
