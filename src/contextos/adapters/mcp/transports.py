"""The two transports of an MCP client, bounded: what a server sends is counted before the SDK parses it.

The SDK's own stdio transport reads a line of any length, and its HTTP transport a body of any length. Here a server
that sends more than `MAX_MCP_BYTES` in one message, or without being asked, loses its connection. So does one that
writes to stdout what is no message. No stream for unasked messages is opened, no redirect is followed, no proxy of the
environment is used, and a compressed body is refused, because its size is not known before it is read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from contextos.contracts.encoding.codec import loads

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams

MAX_MCP_BYTES: Final = 2 << 20
MAX_STDERR_BYTES: Final = 4096
CHUNK_BYTES: Final = 65_536
EXIT_GRACE_S: Final = 1.0
EXIT_POLL_S: Final = 0.005


class StdioTransport:
    """The transport to a server that is a process: one JSON-RPC message a line, on its stdin and stdout.

    The process gets the environment `env` and nothing else. `stderr_tail` is the end of what it wrote to stderr, for
    the person who starts it by hand.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.received_bytes = 0
        self.stderr_tail = b""
        self._command, self._env, self._folder = command, env, folder
        self._unasked = 0

    @asynccontextmanager
    async def open(self, over: asyncio.Event) -> AsyncGenerator[TransportStreams, None]:
        """Start the process and yield its streams; end it with all processes that it started. `over` is set when the
        process sends no more.

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
        to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with AsyncExitStack() as stack:
            # In reverse: the process ends first, so that no reader waits for it.
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            watched = anyio.Event()
            stack.push_async_callback(_end, process, watched)
            group.start_soon(self._read, process, to_session, over)
            group.start_soon(self._write, process, from_session)
            group.start_soon(self._watch, process, watched)
            yield incoming, outgoing

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
        over: asyncio.Event,
    ) -> None:
        assert process.stdout is not None, "it was started with a pipe"
        line = bytearray()
        # The session learns of an end, of whatever kind, by the end of this stream.
        async with AsyncExitStack() as on_exit:
            await on_exit.enter_async_context(to_session)
            on_exit.callback(over.set)
            with suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                while chunk := await process.stdout.read(CHUNK_BYTES):
                    self.received_bytes += len(chunk)
                    self._unasked += len(chunk)
                    if self._unasked > MAX_MCP_BYTES:
                        return
                    *ended, rest = chunk.split(b"\n")
                    for one in ended:
                        line += one
                        if line.strip():
                            message = jsonrpc_message_adapter.validate_python(_parsed(bytes(line)), by_name=False)
                            await to_session.send(SessionMessage(message))
                        line.clear()
                    line += rest

    async def _write(
        self, process: asyncio.subprocess.Process, from_session: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None, "it was started with a pipe"
        async with from_session:
            with suppress(OSError):
                async for sent in from_session:
                    self._unasked = 0
                    process.stdin.write(
                        sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                    )
                    await process.stdin.drain()

    async def _watch(self, process: asyncio.subprocess.Process, watched: anyio.Event) -> None:
        assert process.stderr is not None, "it was started with a pipe"
        while chunk := await process.stderr.read(CHUNK_BYTES):
            self.stderr_tail = (self.stderr_tail + chunk)[-MAX_STDERR_BYTES:]
        watched.set()


class HttpTransport:
    """The transport to a server at a URL (streamable HTTP). `token` is its bearer token, if it has one."""

    def __init__(self, url: str, token: str = "") -> None:
        self._bounds = _BoundedHttp()
        self._url, self._token = url, token
        self.stderr_tail = b""

    @property
    def received_bytes(self) -> int:
        return self._bounds.received_bytes

    @asynccontextmanager
    async def open(self, _over: asyncio.Event) -> AsyncGenerator[TransportStreams, None]:
        """Yield the streams of a new client."""
        headers = {"accept-encoding": "identity"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        client = httpx2.AsyncClient(transport=self._bounds, trust_env=False, headers=headers, timeout=120)
        async with (
            client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MAX_MCP_BYTES) as streams,
        ):
            yield streams


class _BoundedHttp(httpx2.AsyncBaseTransport):
    """HTTP with a limit on each body, and without redirects, compression and streams for unasked messages."""

    def __init__(self) -> None:
        self._sender = httpx2.AsyncHTTPTransport(trust_env=False)
        self.received_bytes = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(405)
        answer = await self._sender.handle_async_request(request)
        if answer.is_redirect or answer.headers.get("content-encoding", "identity") != "identity":
            await answer.aclose()
            return httpx2.Response(502)
        assert isinstance(answer.stream, httpx2.AsyncByteStream), "an asynchronous transport answers so"
        answer.stream = _BoundedStream(answer.stream, self)
        return answer

    async def aclose(self) -> None:
        await self._sender.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, counter: _BoundedHttp) -> None:
        self._stream, self._counter = stream, counter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._stream:
            read += len(chunk)
            self._counter.received_bytes += len(chunk)
            if read > MAX_MCP_BYTES:
                raise httpx2.ReadError(f"the body is larger than {MAX_MCP_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _parsed(line: bytes) -> object:
    return loads(line, max_bytes=MAX_MCP_BYTES)


async def _end(process: asyncio.subprocess.Process, watched: anyio.Event) -> None:
    """End a process and its group: by the end of its stdin, then by signals. Also where the caller is cancelled."""
    with anyio.CancelScope(shield=True):
        if process.stdin is not None:
            process.stdin.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                _signal_group(process.pid, sign)
            with anyio.move_on_after(EXIT_GRACE_S):
                # `process.wait()` would also wait for the end of pipes that a process of its own can hold.
                while process.returncode is None:  # noqa: ASYNC110
                    await anyio.sleep(EXIT_POLL_S)
            if process.returncode is not None:
                break
        # What it left running in its group.
        _signal_group(process.pid, signal.SIGKILL)
        with anyio.move_on_after(EXIT_GRACE_S):
            await watched.wait()
        # asyncio has no public way to close the pipes of a process that somebody else still holds.
        getattr(process, "_transport").close()  # noqa: B009
        await anyio.lowlevel.checkpoint()


def _signal_group(pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sign)
