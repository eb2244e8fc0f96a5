"""Server-sent events, read from the bytes of a stream as they arrive, each event within a bound.

Source: HTML Living Standard, "Server-sent events"; docs/application.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.codec import MAX_DEPTH, loads
from contextos.errors import InvalidInput, Problem, UnfitAnswer

MAX_EVENT_BYTES: Final = 4_194_304
MAX_EVENT_NODES: Final = 1_000_000
MAX_EVENT_DEPTH: Final = MAX_DEPTH + 16
MAX_TYPE_CHARS: Final = 200

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_ID: Final = re.compile(r"[!-~]{1,200}")


def check_event_id(after: str) -> None:
    """Raise `InvalidInput` unless `after` is empty or can be the id of an event and the value of a header."""
    if not isinstance(after, str) or (after and not _ID.fullmatch(after)):
        detail = f"`{ascii(after)[:80]}` is the id of no event"
        raise InvalidInput(Problem("/after", "unknown_event", detail, "use the `id` of the last event that was read"))


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """One event of a run: the `id` after which a reader goes on, the AG-UI `type`, and the `document` as JSON."""

    id: str
    type: str
    document: Mapping[str, Any]


class EventReader:
    """Turns the bytes of one stream into events."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._after_return = False
        self._id = self._type = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[StreamedEvent]:
        """Yield the events that this chunk completes. Raises `UnfitAnswer` for one that is too large or malformed."""
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_return = chunk.endswith(b"\r")
        self._buffer += chunk
        if b"\n" in chunk or b"\r" in chunk:
            *lines, rest = _LINE_END.split(bytes(self._buffer))
            self._buffer = bytearray(rest)
            for line in lines:
                yield from self._take_line(line)
        if len(self._buffer) + self._size > MAX_EVENT_BYTES:
            raise _too_large()

    def _take_line(self, line: bytes) -> Iterator[StreamedEvent]:
        if not line:
            yield from self._complete_event()
            return
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise UnfitAnswer("the stream of events is not UTF-8") from None
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(line)
            if self._size > MAX_EVENT_BYTES:
                raise _too_large()
            self._data.append(value)
        elif name == "event":
            self._type = value[:MAX_TYPE_CHARS]
        elif name == "id":
            self._id = value

    def _complete_event(self) -> Iterator[StreamedEvent]:
        data, kind = "\n".join(self._data), self._type
        self._data, self._size, self._type = [], 0, ""
        if not data:
            return
        if not _ID.fullmatch(self._id):
            raise UnfitAnswer("an event of the stream has no id from which a reader could go on")
        try:
            document = loads(data, max_bytes=MAX_EVENT_BYTES, max_depth=MAX_EVENT_DEPTH, max_nodes=MAX_EVENT_NODES)
        except InvalidInput as error:
            raise UnfitAnswer(f"an event of the stream is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise UnfitAnswer("an event of the stream is not a JSON object")
        yield StreamedEvent(self._id, kind, document)


def _too_large() -> UnfitAnswer:
    return UnfitAnswer(f"an event of the stream has more than {MAX_EVENT_BYTES} bytes")
