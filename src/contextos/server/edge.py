"""Checks each HTTP request before anything else reads it: every reader must understand it alike, or it is refused.

- `EdgeConnection` reads the bytes, for `uvicorn.Config(http=…)`. A proxy and this server must see the same requests in
  one connection: a line ends with CRLF, no header goes on in the next line, and the length is stated once.
- `HttpEdge` reads the head, as an ASGI application around another: one path, one host, one value of each header and
  parameter. A header with an encoding or a condition that is not supported here is refused with a problem document
  (RFC 9457), and not ignored.

No header of a proxy is read. Source: RFC 9112, sections 2.2, 3.2, 5.2, 6 and 7.1; RFC 9110, sections 5.3, 8.4 and 13.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import canonical

MAX_TARGET_BYTES: Final = 8_192
MAX_HEAD_BYTES: Final = 32_768
"""The most bytes of the address and the headers together. The address alone has at most `MAX_TARGET_BYTES`."""
MAX_HEAD_S: Final = 10
"""The connection ends if a head is not complete after this many seconds."""
MAX_CHUNK_LINE_BYTES: Final = 256
"""The most bytes of the line before a chunk."""
TYPE_PREFIX: Final = "urn:contextos:problem:"
_PROBLEM_JSON: Final = "application/problem+json"
SINGLE_HEADERS: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"host", b"idempotency-key"}
    | {b"last-event-id", b"mcp-session-id", b"origin"}
)
"""Headers with a single value: a second line is refused. A header that is a list may have several lines."""

Message = MutableMapping[str, Any]
Asgi = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

_LF_ALONE: Final = re.compile(rb"(?<!\r)\n")
_BAD_CHUNK_LINE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_END_OF_LINES: Final = re.compile(rb"\n\r?\n")
_HOST: Final = re.compile(r"(?:(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)(/[^#]*)?", re.IGNORECASE)
_ENCODED_SLASH: Final = re.compile(rb"%(?:2f|5c)", re.IGNORECASE)


class HttpRefusal(NamedTuple):
    """The reason why a request is refused, as the status, code, detail and headers of its answer."""

    status: int
    code: str
    detail: str
    headers: tuple[tuple[str, str], ...] = ()

    def answer(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the headers and the body of a problem document, which ends the connection."""
        title = HTTPStatus(self.status).phrase
        document = {"type": TYPE_PREFIX + self.code, "title": title, "status": self.status, "detail": self.detail}
        body = canonical({**document, "code": self.code})
        headers = (("Content-Type", _PROBLEM_JSON), ("Content-Length", str(len(body))), ("Connection", "close"))
        return [(name.lower().encode(), value.encode()) for name, value in (*headers, *self.headers)], body

    async def send(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """Answer a request with this refusal (ASGI)."""
        headers, body = self.answer()
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def is_json(content_type: str) -> bool:
    """Return whether a `Content-Type` is JSON in UTF-8, the only encoding that JSON has between systems."""
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    utf8 = ("", "charset=utf-8", 'charset="utf-8"')
    return media_type == "application/json" and all(parameter in utf8 for parameter in parameters)


def is_host(text: str) -> bool:
    """Return whether a text is `HOST` or `HOST:PORT`, as in a URL."""
    return _HOST.fullmatch(text) is not None


class HttpEdge:
    """Passes on a request whose head is unambiguous, and answers any other with a refusal. With `hosts` (`HOST` or
    `HOST:PORT`, in lower case), a request for another host is refused with 421.
    """

    def __init__(self, app: Asgi, hosts: Sequence[str] = ()) -> None:
        self._app, self._hosts = app, frozenset(host.encode() for host in hosts)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        head = _read_head(scope, self._hosts) if scope["type"] == "http" else scope
        await (head.send(send) if isinstance(head, HttpRefusal) else self._app(head, receive, send))


def _read_head(scope: Message, hosts: frozenset[bytes]) -> Message | HttpRefusal:
    """Return the request as the application behind this edge reads it, or the refusal that answers it."""
    raw_path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
    target_bytes = len(raw_path) + len(query)
    if target_bytes > MAX_TARGET_BYTES:
        return HttpRefusal(
            414, "target_too_long", f"the address has more than {MAX_TARGET_BYTES} bytes; send a shorter one"
        )
    if (
        target_bytes + len(scope["method"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        > MAX_HEAD_BYTES
    ):
        detail = f"the address and the headers have more than {MAX_HEAD_BYTES} bytes; send less"
        return HttpRefusal(431, "head_too_large", detail)
    if scope["http_version"] not in ("1.0", "1.1"):
        return HttpRefusal(505, "http_version", "this server speaks HTTP/1.1; put a proxy in front for others")
    headers = _join_headers(scope)
    refusal = headers if isinstance(headers, HttpRefusal) else _unsupported(scope, headers)
    if refusal is not None:
        return refusal
    assert not isinstance(headers, HttpRefusal), "it was refused above"
    if absolute := _ABSOLUTE.fullmatch(raw_path):
        # The host of the address is the one that counts (RFC 9112, section 3.2.2).
        raw_path, headers[b"host"] = absolute[2] or b"/", absolute[1]
    host = headers.get(b"host")
    if scope["http_version"] == "1.1" if host is None else not is_host(host.decode("latin-1")):
        return HttpRefusal(
            400, "bad_host", "the host of the request is missing or cannot be read; send `Host: NAME:PORT`"
        )
    if host is not None:
        headers[b"host"] = host = host.lower()
    if hosts and host not in hosts:
        return HttpRefusal(421, "misdirected", "this server is not for the host of the request; use one that it names")
    if _ENCODED_SLASH.search(raw_path):
        return HttpRefusal(404, "not_found", "there is nothing at this address that you may see")
    names = Counter(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if name)
    if repeated := next((name for name, count in names.items() if count > 1), None):
        detail = f"the parameter `{displayed(repeated)}` is there more than once; send it once"
        return HttpRefusal(400, "parameter_twice", detail)
    path = unquote(raw_path.decode("latin-1")) if absolute else scope["path"]
    return {**scope, "path": path, "raw_path": raw_path, "headers": list(headers.items())}


def _join_headers(scope: Message) -> dict[bytes, bytes] | HttpRefusal:
    """Return the headers by name, with the lines of a list joined (RFC 9110, section 5.3); or the refusal."""
    joined: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in joined and name in SINGLE_HEADERS:
            detail = f"the header `{name.decode()}` is there more than once; send it once"
            return HttpRefusal(400, "header_twice", detail)
        joined[name] = joined[name] + (b"; " if name == b"cookie" else b", ") + value if name in joined else value
    return joined


def _unsupported(scope: Message, headers: Mapping[bytes, bytes]) -> HttpRefusal | None:
    """Return the refusal of a request whose headers ask for something that is not done here; else None."""
    if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
        return HttpRefusal(
            400, "two_lengths", "`Transfer-Encoding` is there beside `Content-Length` or in HTTP/1.0; send one"
        )
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        detail = "the body is encoded, and nothing is decoded here; send it as it is, without `Content-Encoding`"
        return HttpRefusal(415, "unsupported_content_encoding", detail, (("Accept-Encoding", "identity"),))
    conditions = [b"if-match", b"if-unmodified-since"]
    if scope["method"] not in ("GET", "HEAD"):
        conditions.append(b"if-none-match")
    if name := next((header.decode() for header in conditions if header in headers), None):
        detail = f"`{name}` is not supported here; leave it out: an act names what it saw in its body, as `expected`"
        return HttpRefusal(412, "unsupported_condition", detail)
    return None


class _StrictLines(ReceiveBuffer):
    """The received bytes that are not read yet. Refuses what h11 accepts: a line that ends with LF alone, a header that
    goes on in the next line, and a line of any length before a chunk.
    """

    def skip_empty_lines(self) -> None:
        """Drop the empty lines before a request, which old clients send after a body (RFC 9112, section 2.2)."""
        while self._data[:2] == b"\r\n":
            self._extract(2)

    def is_next_line_obviously_invalid_request_line(self) -> bool:
        return bytes(self._data[:2]) != b"\r" and super().is_next_line_obviously_invalid_request_line()

    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = re.match(rb"\r?\n", self._data) or _END_OF_LINES.search(self._data, self._multiple_lines_search)
        if end is None:
            self._multiple_lines_search = max(0, len(self._data) - 2)
            return None
        head = self._extract(end.end())
        if _LF_ALONE.search(head):
            raise h11.LocalProtocolError("a line ends without CR")
        lines = head.split(b"\r\n")[:-2]
        lengths = [line for line in lines if line[:15].lower() == b"content-length:"]
        if any(line.startswith((b" ", b"\t")) for line in lines) or len(lengths) > 1 or b"," in b"".join(lengths):
            raise h11.LocalProtocolError("a header goes on in the next line, or there are several lengths")
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        start = self._data if line is None else line
        if len(start) > MAX_CHUNK_LINE_BYTES or _BAD_CHUNK_LINE.search(start):
            raise h11.LocalProtocolError("the line before a chunk is too long, or has control characters")
        return line


class _StrictParser(h11.Connection):
    """The parser of one connection. `refusal` says why the last request could not be read."""

    _receive_buffer: _StrictLines
    refusal = HttpRefusal(400, "no_http", "the request cannot be read as HTTP")

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._receive_buffer = _StrictLines()

    def next_event(self) -> Any:
        is_head = self.their_state is h11.IDLE
        if is_head:
            self._receive_buffer.skip_empty_lines()
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            if is_head and error.error_status_hint == 431:
                is_target = b"\r\n" not in bytes(self._receive_buffer)[:MAX_HEAD_BYTES]
                status, code = (414, "target_too_long") if is_target else (431, "head_too_large")
                self.refusal = HttpRefusal(status, code, f"the head has more than {MAX_HEAD_BYTES} bytes; send less")
            elif error.error_status_hint == 501:
                detail = "the only `Transfer-Encoding` here is `chunked`; send the body in it, or its length"
                self.refusal = HttpRefusal(501, "unsupported_transfer_encoding", detail)
            raise


class EdgeConnection(H11Protocol):
    """The protocol of one connection, for `uvicorn.Config(http=…)`. Bytes that are not HTTP get a problem document."""

    more_headers: Mapping[str, str] = {}
    _head_late: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn: _StrictParser = _StrictParser()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Keep the time limit while a head is incomplete or no request is in progress; end it after a whole head."""
        super().data_received(data)
        self._wait_for_head(waits=self.cycle is None or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit of the head."""
        self._wait_for_head(waits=False)
        super().connection_lost(exc)

    def _wait_for_head(self, *, waits: bool = True) -> None:
        if waits:
            self._head_late = self._head_late or self.loop.call_later(MAX_HEAD_S, self.transport.abort)
        elif self._head_late is not None:
            self._head_late.cancel()
            self._head_late = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - a problem document says it
        """Answer bytes that are not HTTP, unless an answer has begun, and end the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            refusal = self.conn.refusal._replace(headers=tuple(self.more_headers.items()))
            headers, body = refusal.answer()
            reason = HTTPStatus(refusal.status).phrase.encode()
            head = h11.Response(status_code=refusal.status, headers=headers, reason=reason)
            # An answer to HEAD states the length of a body that is not sent. In IDLE no method was read.
            is_head = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"
            for event in (head, *([] if is_head else [h11.Data(data=body)]), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            # A request whose body is broken is still being read: nothing it answers can be sent.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _should_upgrade(self) -> bool:
        # No other protocol is spoken here, so the header is ignored (RFC 9110, section 7.8).
        return False
