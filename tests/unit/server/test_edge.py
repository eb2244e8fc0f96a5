"""The edge of HTTP in this process: what it passes on. Over real sockets: `tests/attacks/test_f54_http_edge.py`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from mcp.server.lowlevel import Server

from contextos.server import edge
from contextos.server.edge import HttpEdge, is_host, is_json
from contextos.server.serving import listen, serve_http
from tests.mcp_face import TOKEN
from tests.world import run


def passed(
    path: bytes,
    *headers: tuple[bytes, bytes],
    hosts: tuple[str, ...] = (),
    method: str = "GET",
    version: str = "1.1",
    host: bytes | None = b"api.example",
) -> dict[str, Any] | int:
    """What the application behind the edge gets of a request, or the status of the refusal."""
    got: list[Any] = []

    async def behind(scope: Any, _receive: Any, _send: Any) -> None:
        got.append(scope)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            got.append(message["status"])

    raw_path, _, query = path.partition(b"?")
    scope = {
        "type": "http",
        "http_version": version,
        "method": method,
        "path": raw_path.decode(),
        "raw_path": raw_path,
        "query_string": query,
        "headers": [*([] if host is None else [(b"host", host)]), *headers],
    }
    run(HttpEdge(behind, hosts)(scope, None, send))
    [found] = got
    return found if isinstance(found, int) else dict(found)


def test_the_lines_of_a_list_are_one_value() -> None:
    sent = [(b"prefer", b"wait=1"), (b"cookie", b"a=1"), (b"prefer", b"respond-async"), (b"cookie", b"b=2")]
    read = passed(b"/v1/runs", *sent)
    assert isinstance(read, dict)
    assert dict(read["headers"]) == {
        b"host": b"api.example",
        b"prefer": b"wait=1, respond-async",
        b"cookie": b"a=1; b=2",
    }


@pytest.mark.parametrize(
    "name",
    [
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"mcp-session-id",
        b"origin",
    ],
)
def test_a_header_of_which_one_value_counts_is_there_once(name: bytes) -> None:
    once = [(name, b"a")] if name != b"host" else []
    assert isinstance(passed(b"/v1/runs", *once), dict)
    assert passed(b"/v1/runs", *once, (name, b"a")) == 400, "also where both say the same"


def test_a_request_says_its_host_but_one_of_http_1_0_that_any_host_is_for() -> None:
    assert passed(b"/v1/runs", host=None) == 400
    assert passed(b"/v1/runs", host=b"") == 400
    read = passed(b"/v1/runs", host=None, version="1.0")
    assert isinstance(read, dict)
    assert b"host" not in dict(read["headers"])
    assert passed(b"/v1/runs", host=b"a b", version="1.0") == 400
    assert passed(b"/v1/runs", host=None, version="1.0", hosts=("api.example",)) == 421


@pytest.mark.parametrize(
    ("method", "name", "status"),
    [
        ("POST", b"if-none-match", 412),
        ("PUT", b"if-none-match", 412),
        ("GET", b"if-none-match", None),
        ("HEAD", b"if-none-match", None),
        ("GET", b"if-match", 412),
        ("POST", b"if-unmodified-since", 412),
        ("POST", b"if-modified-since", None),
    ],
)
def test_a_condition_on_an_act_is_refused_because_nothing_would_hold_it(
    method: str, name: bytes, status: int | None
) -> None:
    read = passed(b"/v1/runs", (name, b"*"), method=method)
    assert (read if isinstance(read, int) else None) == status


def test_an_absolute_address_is_the_path_and_the_host_that_it_names() -> None:
    read = passed(b"http://API.example:8765/v1/%72uns?limit=1", hosts=("api.example:8765",))
    assert isinstance(read, dict)
    assert (read["path"], read["raw_path"], dict(read["headers"])[b"host"]) == (
        "/v1/runs",
        b"/v1/%72uns",
        b"api.example:8765",
    )
    assert passed(b"http://api.example/v1/runs", hosts=("api.example:8765",)) == 421


@pytest.mark.parametrize("text", ["api.acme.example", "127.0.0.1:8765", "[::1]:8765", "a%2Db", "localhost:"])
def test_a_host_is_read(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize("text", ["", "a b", "user@a", "https://a", "a/b", "[::1", "a:b", "a\r", "a\n"])
def test_what_is_not_a_host_is_not_read(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize(
    "text", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_is_in_utf_8(text: str) -> None:
    assert is_json(text)


@pytest.mark.parametrize("text", ["", "text/json", "application/json; charset=latin1", "application/json, text/plain"])
def test_another_media_type_is_not_json(text: str) -> None:
    assert not is_json(text)


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: a\r\nX-Slow: "], ids=["nothing", "half a head"])
def test_a_connection_of_mcp_whose_head_is_late_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "MAX_HEAD_S", 0.1)

    async def act() -> bytes:
        with listen("127.0.0.1:0") as bound:
            server = asyncio.create_task(serve_http(Server("slow"), bound, TOKEN))
            reader, writer = await asyncio.open_connection(*bound.getsockname()[:2])
            writer.write(sent)
            try:
                async with asyncio.timeout(60):
                    return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()
                server.cancel()
                with suppress(asyncio.CancelledError):
                    await server

    assert run(act()) == b""
