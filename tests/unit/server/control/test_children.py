"""A child gets no environment of the server, input beyond the bound starts none, and none outlives its request."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from contextos.server.control import children
from contextos.server.control.children import Children, child_places
from contextos.server.problems import HttpProblem
from contextos.server.rates import Places
from tests.http_face import OPERATOR, HttpFace

PRINTS = """
import json, os, sys
sys.stdin.buffer.read()
print(json.dumps({"environment": sorted(os.environ), "at": os.getcwd(), "path": sys.path}))
"""

STAYS = """
import os, sys, time
sys.stdin.buffer.read()
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    sys.stdout.write("x" * 1_000_000) if sys.argv[2:] else time.sleep(60)
"""


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process makes it hold
            await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended and was reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_child_has_nothing_of_the_server(face: HttpFace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    monkeypatch.setattr(children, "CHILD", ("-I", str(script)))
    monkeypatch.setenv("SECRET", "x")
    seen = face.call(Children(child_places(), asyncio.Event().wait).do("lint", "tenant_a"))
    # The C library adds `LC_CTYPE` where there is no locale at all.
    assert set(seen["environment"]) <= {"LC_CTYPE"}
    assert seen["at"] == "/"
    assert str(Path.cwd()) not in seen["path"]


def test_input_beyond_the_bound_is_refused_before_anything_starts(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "CHILD", ("-I", "/nowhere.py"))
    doing = Children(child_places(), asyncio.Event().wait)
    with pytest.raises(HttpProblem) as refused:
        face.call(doing.do("lint", "tenant_a", document="a" * (children.MAX_TASK_BYTES + 1)))
    assert (refused.value.status_code, refused.value.code) == (422, "too_large")


@pytest.mark.parametrize("sent_on", [b"", b"G", b"GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_child_ends_with_the_connection_of_its_caller(
    face: HttpFace, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sent_on: bytes
) -> None:
    monkeypatch.setattr(children, "LOOK_S", 0.1)
    (tmp_path / "stays.py").write_text(STAYS)
    monkeypatch.setattr(children, "CHILD", ("-I", str(tmp_path / "stays.py"), str(tmp_path / "pid")))
    places: Places = face.api.state.child_places
    token = face.token(OPERATOR)
    body = b'{"document": "a"}'
    head = f"POST /v1/packs/lint HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"

    async def leave() -> int:
        address = urlsplit(url)
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(head.encode() + body)
        await until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        assert places._taken_by_tenant.total() == 1
        writer.write(sent_on)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()
        await until(lambda: is_gone(pid) and places._taken_by_tenant.total() == 0)
        return pid

    assert is_gone(face.call(leave()))


def test_a_cancelled_request_leaves_no_child_and_no_open_pipe(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stays.py").write_text(STAYS)

    async def cancel(turn: int) -> None:
        told = tmp_path / f"pid_{turn}"
        monkeypatch.setattr(children, "CHILD", ("-I", str(tmp_path / "stays.py"), str(told), "writes"))
        places = child_places()
        doing = asyncio.create_task(Children(places, asyncio.Event().wait).do("lint", "tenant_a"))
        await until(told.exists)
        # At another moment each time: also while the pipe is full and nobody reads.
        await asyncio.sleep(turn / 500)
        doing.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await doing
        assert is_gone(int(told.read_text()))
        assert places._taken_by_tenant.total() == 0

    async def cancel_all() -> None:
        for turn in range(12):
            await cancel(turn)

    face.call(cancel_all())
    gc.collect()
