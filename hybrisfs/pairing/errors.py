"""What can go wrong when a device is invited. Whatever it is, neither side has changed anything."""

from __future__ import annotations

from hybrisfs.errors import HybrisError

__all__ = ["CodeError", "PairingError", "StrangeMessageError"]

_ADVICE = "Nothing was changed. Make a new code with `hybrisfs device invite` and try again."


class PairingError(HybrisError):
    """The pairing failed. `reply`, when there is one, tells the other side so."""

    def __init__(self, what: str, why: str = "", advice: str = _ADVICE, reply: bytes | None = None) -> None:
        super().__init__(what, why, advice)
        self.reply = reply


class CodeError(PairingError):
    """The text is not a code, is mistyped, or was made by another version."""


class StrangeMessageError(PairingError):
    """A message that the other side of this pairing did not send at this point: garbage, altered,
    replayed, out of order, or made with another code.

    Anybody may have sent it, so it is refused and the pairing goes on as if it had not come.
    """
