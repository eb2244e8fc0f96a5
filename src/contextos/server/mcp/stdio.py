"""The stdio transport of an MCP server: one JSON-RPC message a line, bounded, and no request without an answer.

The SDK's own transport reads a line of any length and drops a line that is not a message, so its client waits for ever.
Here a line that is too long, or is not a message, gets an error of JSON-RPC 2.0, with its id where it has one.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contextos.errors import InvalidSettings, Problem
from contextos.server.serving import INVALID_REQUEST, MAX_REQUEST_BYTES, PARSE_ERROR, id_of, refused_json

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

_CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Wire:
    """The descriptors of the process's own stdin and stdout, which only the protocol reads and writes."""

    reads: int
    writes: int


@contextmanager
def private_stdio() -> Iterator[Wire]:
    """Reserve stdin and stdout for the protocol. Until the block ends, other code reads an empty stdin, and its output
    goes to stderr.

    Enter it before any code of the workspace is loaded.

    Raises:
        InvalidSettings: stdin, stdout or stderr is closed.
    """
    try:
        wire = Wire(os.dup(0), os.dup(1))
        os.dup2(2, 1)
    except OSError as error:
        remedy = "start it as a client does, with all three open"
        raise InvalidSettings(Problem("", "no_stdio", f"stdin, stdout or stderr is closed: {error}", remedy)) from None
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        yield wire
    finally:
        # Output that is still in Python's buffer goes to stderr too.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(wire.writes, 1)
        os.dup2(wire.reads, 0)


async def serve_stdio(server: Server[Any], wire: Wire) -> None:
    """Serve one client on its `wire` until it closes its end."""
    async with stdio_streams(wire) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def stdio_streams(
    wire: Wire,
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Yield the streams of the one client, as a server of the SDK takes them."""
    import anyio
    from mcp.shared.message import SessionMessage

    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_write, wire.writes, from_server)
        group.start_soon(_read, wire.reads, to_server, outgoing.clone())
        yield incoming, outgoing
        await outgoing.aclose()


async def _read(fd: int, to_server: Any, to_client: Any) -> None:
    """Send each message on, and answer each line that is not a message. Ends with the client or with the server."""
    import anyio

    async with to_server, to_client:
        # The first two errors: the server ended. `OSError`: a terminal hung up.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for line in lines_of(fd):
                message, answer = read_line(line)
                await (to_server.send(message) if message is not None else to_client.send(answer))


async def _write(fd: int, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
    import anyio

    takes_now = _takes_now(fd)
    async with from_server:
        # A client that is gone reads no answer. The server ends when its own stdin is closed.
        with suppress(OSError):
            async for message in from_server:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                if takes_now(line):
                    _write_all(fd, line)
                else:
                    await anyio.to_thread.run_sync(_write_all, fd, line)


def _takes_now(fd: int) -> Callable[[bytes], bool]:
    """Return a function that says whether writing its data to `fd` returns at once: a pipe with room takes up to
    `PIPE_BUF` bytes, and only this process writes to it. Every other write is made in a thread, as it can block.
    """
    is_pipe, room = stat.S_ISFIFO(os.fstat(fd).st_mode), select.poll()
    room.register(fd, select.POLLOUT)
    return lambda data: is_pipe and len(data) <= select.PIPE_BUF and bool(room.poll(0))


def _write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however slowly the client reads. Another process can have made `fd` non-blocking."""
    room = select.poll()
    room.register(fd, select.POLLOUT)
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            room.poll()


async def _read_some(fd: int) -> bytes:
    """Return the bytes that are there, as soon as there are some. `fd` stays blocking: others can share it."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:
        # `fd` is a regular file, which has no events.
        return await asyncio.to_thread(os.read, fd, _CHUNK_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _CHUNK_BYTES)


async def lines_of(fd: int) -> AsyncIterator[bytes | None]:
    """Yield each line that is not blank, and None for a line of more than `MAX_REQUEST_BYTES`, which is dropped."""
    line, too_long = bytearray(), False
    while chunk := await _read_some(fd):
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            too_long = too_long or len(line) + len(part) > MAX_REQUEST_BYTES
            if too_long:
                yield None
            elif (line + part).strip():
                yield bytes(line + part)
            line, too_long = bytearray(), False
        too_long = too_long or len(line) + len(rest) > MAX_REQUEST_BYTES
        if too_long:
            line.clear()
        else:
            line += rest
    if too_long or line.strip():
        yield None if too_long else bytes(line)


def read_line(line: bytes | None) -> tuple[SessionMessage | None, SessionMessage | None]:
    """Return the message of a line and None, or None and the error that answers the line."""
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCNotification, jsonrpc_message_adapter
    from pydantic import ValidationError

    if line is None:
        return None, _error(
            None, INVALID_REQUEST, f"a message has at most {MAX_REQUEST_BYTES} bytes; send a shorter one"
        )
    message: Any = None
    with suppress(ValidationError):
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    if message is not None and (error := refused_json(line)) is not None:
        return None, _error(error["id"], error["error"]["code"], error["error"]["message"])
    if message is not None and not isinstance(message, JSONRPCNotification):
        return SessionMessage(message), None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None, _error(None, PARSE_ERROR, "the line is not JSON; write one message a line")
    # The SDK takes a request with a bad id for a notification, which nobody answers.
    if message is not None and "id" not in value:
        return SessionMessage(message), None
    detail = "the line is not a JSON-RPC 2.0 message, or is nested too deep; send an object with `jsonrpc` and `method`"
    return None, _error(id_of(line), INVALID_REQUEST, detail)


def _error(message_id: str | int | None, code: int, message: str) -> SessionMessage:
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError

    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message_id, error=ErrorData(code=code, message=message)))
