"""The two transports of an MCP client. They bound the bytes that a server sends before the SDK parses them.

The SDK's own stdio transport reads a line of any length, and its HTTP transport a body of any length. Here a message of
more than `MAX_MCP_BYTES` is not kept, and the call that it answers fails. A server loses its connection if it sends
more than that without being asked, or a line of more than `MAX_STDOUT_LINE_BYTES`. A line that is not a message is left
out, so that a fault stays with the call whose answer it is. No stream for unasked messages is opened, no redirect is
followed, and no proxy of the environment is used. A compressed body is refused, because its size is not known before it
is read.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.messages import MAX_MCP_BYTES, SCANNED_BYTES, TOO_LARGE, MessageReader
from contextos.adapters.outbound import UNSENT_HEADERS, AnswerTooLarge, OutboundClient, OutboundRequest
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams

MAX_STDOUT_LINE_BYTES: Final = 4 * MAX_MCP_BYTES
MAX_STDERR_BYTES: Final = 4096
MAX_WROTE_CHARS: Final = 300
CHUNK_BYTES: Final = 65_536
EXIT_GRACE_S: Final = 1.0
EXIT_POLL_S: Final = 0.005
REQUEST_TIMEOUT_S: Final = 120
_EVENT_LINES: Final = re.compile(rb"\r\n|\n|\r")
KEPT_HEADERS: Final = frozenset({"content-type", "mcp-session-id"})


class StdioTransport:
    """The transport to a server that is a process: one JSON-RPC message a line, on its stdin and stdout.

    The process gets the environment `env` and nothing else. `stderr_tail` is the end of what it wrote to stderr.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.received_bytes = 0
        self.stderr_tail = b""
        self.reader = MessageReader()
        self._command, self._env, self._folder = command, env, folder
        self._unasked_bytes = 0
        self._pid: int | None = None
        self._process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def open(self, over: asyncio.Event) -> AsyncGenerator[TransportStreams, None]:
        """Start the process and yield its streams. At the end of the context, end the process with all processes that
        it started. `over` is set when the process sends no more.

        Raises:
            OSError: the program cannot be started.
        """
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            cwd=self._folder,
            start_new_session=True,
        )
        self._pid, self._process = process.pid, process
        to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with AsyncExitStack() as stack:
            # In reverse: the process ends first, so that no reader waits for it.
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            stack.callback(self._clear_pid)
            stderr_read = anyio.Event()
            stack.push_async_callback(_end_process, process, stderr_read)
            group.start_soon(self._read, process, to_session, over)
            group.start_soon(self._write, process, from_session)
            group.start_soon(self._watch, process, stderr_read)
            yield incoming, outgoing

    def last_words(self) -> str:
        """Return the last line that the process wrote to stderr, or "". A person who looks for a fault reads it."""
        last = displayed(self.stderr_tail.decode(errors="replace").strip().rpartition("\n")[2])[:MAX_WROTE_CHARS]
        return f"it wrote `{last}`" if last else ""

    def kill(self) -> None:
        """Kill the process and its process group, unless the process has ended in order."""
        if self._pid is not None:
            _signal_group(self._pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Wait `EXIT_GRACE_S` seconds at most for the end of the process, which comes a little after a kill."""
        if self._process is not None:
            await _is_gone(self._process)

    def _clear_pid(self) -> None:
        self._pid = None

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
        over: asyncio.Event,
    ) -> None:
        assert process.stdout is not None, "it was started with a pipe"
        line = _Line()
        # The end of this stream shows the session that the process has ended, for whatever reason.
        async with AsyncExitStack() as on_exit:
            await on_exit.enter_async_context(to_session)
            on_exit.callback(over.set)
            with suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                while chunk := await process.stdout.read(CHUNK_BYTES):
                    self.received_bytes += len(chunk)
                    *parts, rest = chunk.split(b"\n")
                    for part in parts:
                        line.add(part)
                        for message in self._read_messages(line):
                            await to_session.send(SessionMessage(message))
                        line = _Line()
                    line.add(rest)
                    if line.is_endless or self._unasked_bytes > MAX_MCP_BYTES:
                        return

    def _read_messages(self, line: _Line) -> list[JSONRPCMessage]:
        """Return the messages of a line. A line that answers no request counts as sent without being asked."""
        if not line.size:
            return []
        if line.size > MAX_MCP_BYTES:
            messages = self.reader.failed(bytes(line.head), bytes(line.tail), TOO_LARGE)
        else:
            messages = self.reader.read(bytes(line.head))
        if not any(isinstance(message, JSONRPCResponse | JSONRPCError) for message in messages):
            self._unasked_bytes += line.size
        return messages

    async def _write(
        self, process: asyncio.subprocess.Process, from_session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None, "it was started with a pipe"
        async with from_session:
            with suppress(OSError):
                async for entry in from_session:
                    # Only a request asks the server for something; an answer to its own request does not.
                    if isinstance(entry.message, JSONRPCRequest):
                        self._unasked_bytes = 0
                    self.reader.sent(entry.message)
                    process.stdin.write(
                        entry.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                    )
                    await process.stdin.drain()

    async def _watch(self, process: asyncio.subprocess.Process, stderr_read: anyio.Event) -> None:
        assert process.stderr is not None, "it was started with a pipe"
        while chunk := await process.stderr.read(CHUNK_BYTES):
            self.stderr_tail = (self.stderr_tail + chunk)[-MAX_STDERR_BYTES:]
        stderr_read.set()


class _Line:
    """A line of a process. If it is too large, only its start and its end are kept."""

    def __init__(self) -> None:
        self.head, self.tail, self.size = bytearray(), bytearray(), 0

    @property
    def is_endless(self) -> bool:
        """Whether the line is too long to wait for its end. The limit is lower if it does not begin as a message."""
        return self.size > (MAX_STDOUT_LINE_BYTES if self.head.lstrip()[:1] == b"{" else MAX_MCP_BYTES)

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size <= MAX_MCP_BYTES:
            self.head += part
        else:
            self.tail = (self.tail or self.head[-SCANNED_BYTES:]) + part
            del self.head[SCANNED_BYTES:], self.tail[:-SCANNED_BYTES]


class HttpTransport:
    """The transport to a server at a URL (streamable HTTP). `token` is its bearer token, if it has one."""

    def __init__(self, named: McpConnection, token: str = "") -> None:
        self._outbound = _OutboundTransport(named)
        self._url, self._token = named.url, token

    @property
    def received_bytes(self) -> int:
        return self._outbound.received_bytes

    @property
    def reader(self) -> MessageReader:
        return self._outbound.reader

    @asynccontextmanager
    async def open(self, _over: asyncio.Event) -> AsyncGenerator[TransportStreams, None]:
        """Yield the streams of a new client."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        client = httpx2.AsyncClient(
            transport=self._outbound, trust_env=False, headers=headers, timeout=REQUEST_TIMEOUT_S
        )
        async with (
            client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=2 * MAX_MCP_BYTES) as streams,
        ):
            yield streams

    def last_words(self) -> str:
        """Return the status with which the server last refused, for a person who looks for the reason; else "".

        The text is the runtime's own: no text of a server is shown."""
        if self._outbound.last_status in (401, 403):
            needs = "another token" if self._token else "a token: name its variable with `--token-env`"
            return f"it answers {self._outbound.last_status}, and needs {needs}"
        return f"it answers {self._outbound.last_status}" if self._outbound.last_status >= 400 else ""

    async def wait(self) -> None:
        """Do nothing: there is no process."""

    def kill(self) -> None:
        """Do nothing: there is no process."""


class _OutboundTransport(httpx2.AsyncBaseTransport):
    """The requests of the SDK, sent by `OutboundClient`: checked addresses, no redirects, whole and bounded bodies."""

    def __init__(self, connection: McpConnection) -> None:
        self.received_bytes = 0
        self.reader = MessageReader()
        self.last_status = 0
        self._endpoint = connection.endpoint()
        internal = [self._endpoint] if connection.internal else []
        self._client = OutboundClient(internal=internal, max_response_bytes=MAX_MCP_BYTES)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(405)
        headers = {name: value for name, value in request.headers.items() if name not in UNSENT_HEADERS}
        body = await request.aread()
        call = jsonrpc_message_adapter.validate_json(body, by_name=False) if body else None
        # The body can only hold the answer to this request.
        reader = MessageReader(self.reader)
        try:
            outgoing = OutboundRequest(request.method, str(request.url), headers, body or None)
            answer = await self._client.send(outgoing, egress=[self._endpoint], timeout_s=REQUEST_TIMEOUT_S)
        except AnswerTooLarge as large:
            if not isinstance(call, JSONRPCRequest) or not 200 <= large.status < 300:
                raise
            return _sse_response([reader.fault(call.id, TOO_LARGE)], {})
        self.received_bytes += len(answer.body)
        self.last_status = answer.status
        kind = answer.headers.get("content-type", "").lower()
        kept_headers = {name: value for name, value in answer.headers.items() if name in KEPT_HEADERS}
        if 300 <= answer.status < 400 or (answer.status >= 400 and not _is_json(kind, answer.body)):
            return httpx2.Response(502)
        if answer.status >= 400 or not isinstance(call, JSONRPCRequest):
            return httpx2.Response(answer.status, headers=kept_headers, content=answer.body)
        reader.sent(call)
        messages = [message for event in _events(kind, answer.body) for message in reader.read(event)]
        self.reader.changes += reader.changes
        return _sse_response([*messages, *reader.unanswered()], kept_headers)


def _is_json(kind: str, body: bytes) -> bool:
    """Return whether the body of a refusal, if its media type says JSON, is I-JSON."""
    try:
        return not (kind.startswith("application/json") and body) or loads(body, max_bytes=MAX_MCP_BYTES) is not None
    except InvalidInput:
        return False


def _events(kind: str, body: bytes) -> list[bytes]:
    """Return the messages of a body: a single message, or a stream of events (HTML, "Server-sent events")."""
    if kind.startswith("application/json"):
        return [body]
    if not kind.startswith("text/event-stream"):
        return []
    events, lines = list[bytes](), list[bytes]()
    for line in [*_EVENT_LINES.split(body), b""]:
        if line.startswith(b"data:"):
            lines.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and lines:
            events.append(b"\n".join(lines))
            lines.clear()
    return [event for event in events if event.strip()]


def _sse_response(messages: Sequence[JSONRPCMessage], headers: Mapping[str, str]) -> httpx2.Response:
    events = [message.model_dump_json(by_alias=True, exclude_unset=True) for message in messages]
    content = "".join(f"data: {event}\n\n" for event in events).encode()
    return httpx2.Response(200, headers={**headers, "content-type": "text/event-stream"}, content=content)


async def _end_process(process: asyncio.subprocess.Process, stderr_read: anyio.Event) -> None:
    """End a process and its group: by closing its stdin, then by signals. A cancellation by anyio does not interrupt
    this. A cancellation of the caller's task makes it kill at once.
    """
    with anyio.CancelScope(shield=True), ExitStack() as on_exit:
        # asyncio has no public way to close pipes that another process still holds.
        on_exit.callback(getattr(process, "_transport").close)  # noqa: B009
        with ExitStack() as on_end:
            # Kills the process, if it is still there, and the processes that it left running in its group.
            on_end.callback(_signal_group, process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            for sign in (None, signal.SIGTERM, signal.SIGKILL):
                if sign is not None:
                    _signal_group(process.pid, sign)
                if await _is_gone(process):
                    break
        with anyio.move_on_after(EXIT_GRACE_S):
            await stderr_read.wait()
        await anyio.lowlevel.checkpoint()


async def _is_gone(process: asyncio.subprocess.Process) -> bool:
    """Wait until a process is gone, `EXIT_GRACE_S` at most, and return whether it is."""
    with anyio.move_on_after(EXIT_GRACE_S):
        # `process.wait()` would also wait for the end of the pipes, which a child of the process can hold.
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(EXIT_POLL_S)
    return process.returncode is not None


def _signal_group(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sign)
