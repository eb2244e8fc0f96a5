"""MCP over stdin and stdout: every line is bounded and answered, and only the protocol reads and writes there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse

from contextos.errors import InvalidSettings
from contextos.server.mcp.stdio import Wire, lines_of, private_stdio, read_line, stdio_streams
from contextos.server.serving import MAX_REQUEST_BYTES
from tests.conformance.workspace import session_words, tools_workspace
from tests.mcp_face import ENVIRONMENT
from tests.processes import ended

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
PACK = "tools: [look]\n"
NOISY_TOOLS = '''
import os, subprocess, sys
import contextos

def say(when):
    print("printed", when)
    os.write(1, f"written {when}".encode())
    subprocess.run([sys.executable, "-c", "print('from a child')"])
    print("read", os.read(0, 100), when)

say("at load")

@contextos.read(integrity="trusted", produces="look")
def look() -> str:
    """Look."""
    say("in a call")
    return "seen"

TOOLS = contextos.toolset("suite", [look])
'''


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools_workspace(tmp_path_factory.mktemp("stdio") / "shop", NOISY_TOOLS, PACK)


@pytest.fixture
def server(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-W", "error", "-m", "contextos.cli", *session_words(workspace)]
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with ended(subprocess.Popen(command, env=ENVIRONMENT, **pipes)) as process:
        yield process


def ask(server: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(line + b"\n")
    server.stdin.flush()
    answer: dict[str, Any] = json.loads(server.stdout.readline())
    return answer


def initialised(server: subprocess.Popen[bytes]) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    answer = ask(server, json.dumps({**PING, "method": "initialize", "params": params}).encode())
    assert answer["result"]["serverInfo"]["name"] == "contextos"


def deep(levels: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":9,"method":"ping","params":' + b"[" * levels + b"]" * levels + b"}"


LINES: dict[str, tuple[bytes, int, int | None]] = {
    "no json": (b"hello", -32700, None),
    "half a message": (b'{"jsonrpc":"2.0","id":1', -32700, None),
    "no utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    "deeper than any reader": (b"[" * 500_000, -32700, None),
    "deep": (deep(201), -32600, 9),
    "no object": (b'"hello"', -32600, None),
    "a batch": (b"[" + json.dumps(PING).encode() + b"]", -32600, None),
    "of another protocol": (b'{"jsonrpc":"1.0","id":4,"method":"ping"}', -32600, 4),
    "an id that is none": (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}', -32600, None),
    "an id that no answer can have": (b'{"id":"\\ud800","method":1}', -32600, None),
    "an id of another type": (b'{"id":true,"method":1}', -32600, None),
    "a long id": (b'{"id":' + b"7" * 4_000 + b',"method":1}', -32600, int("7" * 4_000)),
    "an answer that is none": (b'{"jsonrpc":"2.0","id":5,"result":3}', -32600, None),
    "too long": (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"a":"' + b"x" * MAX_REQUEST_BYTES, -32600, None),
}


def test_each_line_that_is_no_message_is_answered_and_the_next_message_too(server: subprocess.Popen[bytes]) -> None:
    initialised(server)
    for name, (line, code, asked) in LINES.items():
        answer = ask(server, line)
        assert (answer["error"]["code"], answer["id"]) == (code, asked), name
        assert ask(server, json.dumps(PING).encode()) == {"jsonrpc": "2.0", "id": 7, "result": {}}, name


def test_nothing_of_the_workspace_reaches_the_protocol(server: subprocess.Popen[bytes]) -> None:
    initialised(server)
    params = {"name": "suite__look", "arguments": {}}
    answer = ask(server, json.dumps({**PING, "method": "tools/call", "params": params}).encode())
    assert answer["result"]["structuredContent"] == {"result": "seen"}
    written, noted = server.communicate()
    assert (server.returncode, written) == (0, b"")
    said = noted.decode()
    for when in ("at load", "in a call"):
        assert f"printed {when}" in said
        assert f"written {when}" in said
        assert f"read b'' {when}" in said
    assert said.count("from a child") == 2


def test_a_client_that_does_not_read_and_goes_ends_the_server(server: subprocess.Popen[bytes]) -> None:
    initialised(server)
    assert server.stdout is not None
    server.stdout.close()
    server.stdout = None
    _, noted = server.communicate((json.dumps(PING).encode() + b"\nhello\n") * 3)
    assert server.returncode == 0
    assert b"Traceback" not in noted


def test_a_pipe_that_a_client_made_a_non_blocking_one_loses_no_answer() -> None:
    """A client can share its end with other processes and set it so; a full pipe then refuses a write."""
    reads, writes = os.pipe()
    nothing, closed = os.pipe()
    os.set_blocking(writes, False)
    text = "x" * 300_000

    async def answer() -> bytes:
        read = asyncio.to_thread(_read_slowly, reads, len(text))
        async with stdio_streams(Wire(nothing, writes)) as (incoming, outgoing), incoming:
            reading = asyncio.create_task(read)
            await outgoing.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text})))
            await outgoing.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=2, result={})))
            received = await reading
            os.close(closed)
        return received

    try:
        first, second, _ = asyncio.run(answer()).split(b"\n")
    finally:
        for fd in (reads, writes, nothing):
            os.close(fd)
    assert json.loads(first)["result"]["text"] == text
    assert json.loads(second)["id"] == 2


def _read_slowly(fd: int, at_least: int) -> bytes:
    received = b""
    while len(received) < at_least or received.count(b"\n") < 2:
        time.sleep(0.01)
        received += os.read(fd, 65_536)
    return received


async def all_lines(fd: int) -> list[bytes | None]:
    return [line async for line in lines_of(fd)]


def read(data: bytes) -> list[bytes | None]:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        with open(writes, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(writes)
    try:
        return asyncio.run(all_lines(reads))
    finally:
        os.close(reads)
        os.waitpid(pid, 0)


def test_lines_are_what_is_between_line_ends_up_to_the_limit() -> None:
    most = b"x" * MAX_REQUEST_BYTES
    assert read(b"a\n\n \r\nb\r\n\nc") == [b"a", b"b\r", b"c"]
    assert read(most + b"\n" + most + b"y\n" + b"z" * 3 * MAX_REQUEST_BYTES + b"\nafter\n") == [
        most,
        None,
        None,
        b"after",
    ]
    assert read(most + b"y") == [None]
    assert read(b"") == []


def test_a_message_is_passed_on_as_it_is() -> None:
    message, answer = read_line(json.dumps(PING).encode())
    assert answer is None
    assert message is not None
    assert message.message.model_dump(exclude_unset=True) == PING


def test_stdin_and_stdout_are_as_before_when_the_block_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with private_stdio() as wire:
        os.write(1, b"inside\n")
        os.write(wire.writes, b"protocol\n")
    os.write(1, b"after\n")
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("protocol\nafter\n", "inside\n")


def test_a_closed_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def dup(_fd: int) -> int:
        raise OSError("bad file descriptor")

    monkeypatch.setattr(os, "dup", dup)
    with pytest.raises(InvalidSettings, match="is closed"), private_stdio():
        pass


def test_a_file_and_an_empty_device_are_read_to_their_end(tmp_path: Path) -> None:
    """Neither has events that a loop could wait for."""
    file = tmp_path / "stdin"
    file.write_bytes(b"a\n" * 40_000 + b"b")
    for path, expected in ((file, [b"a"] * 40_000 + [b"b"]), (Path(os.devnull), [])):
        fd = os.open(path, os.O_RDONLY)
        try:
            assert asyncio.run(all_lines(fd)) == expected
        finally:
            os.close(fd)
