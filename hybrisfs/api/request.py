"""Records of the control socket, and how they become messages and come from them.

A request is a record with a name, the `command` of its message, and its fields are the `arguments`. It says
of which type its answer is, so that client and daemon agree on that:

    class PauseRequest(Request[Transfers]):      Request: there is one answer
        command: ClassVar = "pause"              LongRequest: there is news of the progress before it
        seconds: Seconds | None = None           PartsRequest: most of the answer comes in parts before it

A field of an answer is always there, unless its default is `UNSET`: then the message may lack its key. An
answer with a field more than known is understood: the daemon may be newer. A request with one is refused.

Messages pass through Python's `json`, for names that are no UTF-8 travel as lone surrogates, and msgspec's
own encoder refuses these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_type_hints,
)

import msgspec

from hybrisfs.errors import UsageError

__all__ = [
    "Done",
    "Folder",
    "Handler",
    "LongRequest",
    "Message",
    "Moved",
    "Question",
    "Named",
    "Part",
    "PartsRequest",
    "Record",
    "Request",
    "Seconds",
    "Step",
    "Text",
    "Texts",
    "Waiting",
    "extended",
    "message_of",
]

Answer = TypeVar("Answer")
News = TypeVar("News")
_Extended = TypeVar("_Extended", bound="Record")

Message: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Message, Callable[[Message], None]], Message]
"""Answers the arguments of a request; tells of its progress. Raises `HybrisError`."""


class Part(Message):
    """A part of an answer. It is sent like news, but all parts reach the client, and of news only some."""


# The types of arguments. `description` is what the error says that they must be.
_NO_NUL: Final = r"\A[^\0]*\Z"
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=8192, pattern=_NO_NUL, description="a text")]
Texts: TypeAlias = Annotated[list[Text], msgspec.Meta(max_length=256, description="a list of texts")]
Folder: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=8192, pattern=r"\A/[^\0]*\Z", description="an absolute path")
]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e9, description="a number of seconds")]

_PLAIN: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_PLACE: Final = re.compile(r"- at `\$\.(\w+)")
_FIELD: Final = re.compile(r"(missing required|contains unknown) field `(.+?)`")


class Record(msgspec.Struct):
    """An answer, a part of one, or news of the progress."""


class Named(Record):
    """An answer that tells of which volume it is, and maybe no more."""

    name: str


class Moved(Record):
    """The progress of long work, in bytes or in other units of the command."""

    done: int
    total: int
    """0 while it is not known."""


class Step(Moved):
    """The same of work that has several parts."""

    stage: str
    """The work under way."""


class Done(Record):
    """An answer without content."""


class Waiting(Record):
    """News without content: the work goes on. Telling it fails when nobody listens any more."""


class Question(msgspec.Struct, Generic[Answer], forbid_unknown_fields=True):
    """The common part of both kinds of requests."""

    command: ClassVar[str]

    @classmethod
    def read(cls, arguments: Mapping[str, object]) -> Self:
        """The request with these arguments. Raises `UsageError`, which names the first wrong one."""
        try:
            return msgspec.convert(arguments, cls)
        except msgspec.ValidationError as error:
            raise UsageError(_explained(cls, str(error))) from error

    @property
    def arguments(self) -> Message:
        """The arguments as they travel: without those that are None."""
        return {key: value for key, value in message_of(self).items() if value is not None}

    @classmethod
    def answer_from(cls, message: Message) -> Answer:
        """The answer that a message holds. Raises `msgspec.ValidationError`."""
        answer: Answer = msgspec.convert(message, _parameter(cls, 0))
        return answer


class Request(Question[Answer], Generic[Answer]):
    """A request that is answered at once, or without any news before."""

    @classmethod
    def answered_by(cls, action: Callable[[Self], Answer]) -> tuple[str, Handler]:
        """The command, and the handler that answers its messages by *action*."""

        def handle(arguments: Message, _: Callable[[Message], None]) -> Message:
            return message_of(action(cls.read(arguments)))

        return cls.command, handle


class LongRequest(Question[Answer], Generic[Answer, News]):
    """A request with news of the progress. Closing the connection ends it."""

    @classmethod
    def answered_by(cls, action: Callable[[Self, Callable[[News], None]], Answer]) -> tuple[str, Handler]:
        """The command, and the handler that answers its messages by *action*, which tells news by its second
        argument."""

        def handle(arguments: Message, tell: Callable[[Message], None]) -> Message:
            return message_of(action(cls.read(arguments), lambda news: tell(message_of(news))))

        return cls.command, handle

    @classmethod
    def news_from(cls, message: Message) -> News:
        """The news that a message holds. Raises `msgspec.ValidationError`."""
        news: News = msgspec.convert(message, _parameter(cls, 1))
        return news


class PartsRequest(LongRequest[Answer, News]):
    """A request with an answer too long for one message: its parts arrive like news, each of them."""

    @classmethod
    def answered_by(cls, action: Callable[[Self, Callable[[News], None]], Answer]) -> tuple[str, Handler]:
        """See `LongRequest`; the news are parts of the answer."""

        def handle(arguments: Message, tell: Callable[[Message], None]) -> Message:
            return message_of(action(cls.read(arguments), lambda part: tell(Part(message_of(part)))))

        return cls.command, handle


def extended(kind: type[_Extended], record: Record, **more: object) -> _Extended:
    """A record of a kind that has the fields of another one, and *more*."""
    return kind(**msgspec.structs.asdict(record), **more)


def message_of(record: object) -> Message:
    """A record as an object of JSON."""
    message: Message = msgspec.to_builtins(record)
    return message


def _parameter(request: type[Question[Any]], number: int) -> Any:
    """The type that stands for a type variable where the request was declared."""
    return get_args(request.__orig_bases__[0])[number]  # type: ignore[attr-defined]


def _explained(request: type[Question[Any]], error: str) -> str:
    """The error of msgspec for a person. It never shows a value, which may be a secret."""
    field = _FIELD.search(error)
    place = _PLACE.search(error)
    if field is not None and place is None:
        return f"{field[2]} is missing" if field[1].startswith("missing") else f"{field[2][:80]} is unknown"
    if place is None:
        return "the arguments must be an object"
    return f"{place[1]} must be {_wanted(get_type_hints(request, include_extras=True)[place[1]])}"


def _wanted(hint: Any) -> str:
    """A noun for the values of this type."""
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, msgspec.Meta) and one.description:
            return one.description
    if hint in _PLAIN:
        return _PLAIN[hint]
    return next((found for one in get_args(hint) if (found := _wanted(one))), "")
