"""A session is made when it is needed and made anew after it ended, and every process ends with its adapter."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from contextos.adapters.mcp.adapter import McpAdapter
from contextos.adapters.mcp.connection import McpSession, McpSessions
from contextos.adapters.mcp.definitions import McpConnection
from contextos.errors import Unavailable
from tests.servers.adapters import against, call_context, calls, hostile


def test_calls_share_a_session_until_it_is_reset(tmp_path: Path) -> None:
    async def sessions() -> list[bool]:
        connection = McpSessions(McpConnection.model_validate(hostile("plain", tmp_path)), tmp_path)
        first, again = await connection.session(), await connection.session()
        assert await first.list_tools()
        first.retire()
        second = await connection.session()
        assert await second.list_tools()
        await connection.close()
        return [first is again, first is second, first.task.done(), second.task.done()]

    assert asyncio.run(sessions()) == [True, False, True, True]


def test_a_retired_session_answers_those_who_wait_for_it(tmp_path: Path) -> None:
    async def answered() -> str:
        connection = McpSessions(McpConnection.model_validate(hostile("plain", tmp_path)), tmp_path)
        session = await connection.session()
        call = asyncio.create_task(session.call_tool("say", {"text": "a"}))
        await asyncio.sleep(0)
        session.retire()
        assert not session.is_usable
        said = await call
        await connection.close()
        return str(said.content[0]["text"])

    assert asyncio.run(answered()) == "a"


def test_a_variable_that_is_not_set_stops_the_start(tmp_path: Path) -> None:
    said = hostile("plain", tmp_path) | {"env": ["NOBODY_SET_THIS"]}
    connection = McpSessions(McpConnection.model_validate(said), tmp_path)
    with pytest.raises(Unavailable, match="NOBODY_SET_THIS"):
        asyncio.run(connection.session())


@pytest.mark.parametrize("mode", ["plain", "hangs", "stubborn"])
def test_the_process_of_a_closed_adapter_is_gone_also_if_it_hangs(mode: str, tmp_path: Path) -> None:
    async def called(adapter: McpAdapter) -> None:
        call = asyncio.create_task(adapter.call("say", {"text": "a"}, call_context()))
        while not calls(tmp_path):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if mode == "plain":
            await call

    with against(mode, tmp_path, read=True) as adapter:
        asyncio.run(called(adapter))
        children = _children(tmp_path)
        assert children
    assert _are_gone(children, tmp_path)


def test_an_end_that_is_cut_short_kills_the_process(tmp_path: Path) -> None:
    """A start fails and its process is being ended, which takes it a second; then the sessions are closed."""

    async def cut_short() -> set[int]:
        connection = McpSessions(McpConnection.model_validate(hostile("floods_at_once", tmp_path)), tmp_path)
        session, children = await connection.session(), set[int]()
        while session.is_usable:
            children |= _children(tmp_path)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        await connection.close()
        # At once: a process that nobody waited for is left to the collector, which warns of it anywhere.
        assert not children & _children(tmp_path)
        return children

    assert asyncio.run(cut_short())


def _children(folder: Path) -> set[int]:
    """The running processes that this one started with the hostile server in a folder."""
    found = set()
    for name in os.listdir("/proc"):
        try:
            command = Path("/proc", name, "cmdline").read_bytes() if name.isdigit() else b""
            parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] if command else ""
        except OSError:
            continue
        if os.fsencode(folder / "calls") in command and parent == str(os.getpid()):
            found.add(int(name))
    return found


def _are_gone(processes: set[int], folder: Path) -> bool:
    """Whether processes end: the kernel removes one some time after the signal that kills it."""
    over_at = time.monotonic() + 60
    while processes & _children(folder) and time.monotonic() < over_at:
        time.sleep(0.01)
    return not processes & _children(folder)


def test_what_reached_the_server_is_json(tmp_path: Path) -> None:
    with against("plain", tmp_path) as adapter:
        asyncio.run(adapter.call("say", {"text": "é\u2028"}, call_context()))
    assert json.loads((tmp_path / "calls").read_text("utf-8")) == {"text": "é\u2028"}


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "contextos=b7ad"}


def traced(tmp_path: Path) -> list[dict[str, str]]:
    """What the server got as `_meta` of one call in `TRACE`, and of one without a trace."""
    with against("plain", tmp_path) as adapter:
        asyncio.run(adapter.call("say", {"text": "a"}, replace(call_context(), headers=lambda: TRACE)))
        asyncio.run(adapter.call("say", {"text": "b"}, call_context()))
    return [json.loads(line) or {} for line in (tmp_path / "calls.meta").read_text("utf-8").splitlines()]


def test_a_call_carries_the_trace_unprefixed_in_its_meta(tmp_path: Path) -> None:
    with_trace, without = traced(tmp_path)
    assert {name: with_trace[name] for name in TRACE} == TRACE
    assert not {"traceparent", "tracestate", "baggage"} & without.keys()


def test_a_trace_of_the_embedding_program_reaches_no_server(tmp_path: Path) -> None:
    other = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    ambient = set_baggage("customer", "4711", set_span_in_context(other))
    token = attach(ambient)
    try:
        with_trace, without = traced(tmp_path)
    finally:
        detach(token)
    assert {name: with_trace[name] for name in TRACE} == TRACE
    assert not {"traceparent", "tracestate"} & without.keys()
    assert "baggage" not in {*with_trace, *without}


SAYS_WHEN_IT_CHANGES = """
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("desk")


@server.tool()
async def say(text: str, context: Context) -> str:
    if text == "change":
        server.remove_tool("other")
        await context.notify_tools_changed()
    return text


@server.tool()
def other() -> str:
    return "another tool"


server.run()
"""


def test_a_server_that_says_nothing_unasked_is_asked_to_say_when_its_tools_change(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(SAYS_WHEN_IT_CHANGES, "utf-8")
    named = McpConnection(kind="mcp", command=(sys.executable, str(tmp_path / "desk.py")))

    async def known(*, keeps: bool) -> list[int | None]:
        """How many tools the list has that a call may use, before the server changes them and afterwards."""
        connection = McpSessions(named, tmp_path, keeps=keeps)
        session = await connection.session()
        assert len(await session.list_tools()) == 2
        if keeps:
            # What it listed before it was asked to say so does not count.
            for _ in range(2_000):
                await asyncio.sleep(0 if session.changes else 0.01)
            assert session.known(60) is None
            await session.list_tools()
        before = session.known(60)
        await session.call_tool("say", {"text": "change"})
        after = session.known(60)
        await connection.close()
        return [len(one.tools) if one else None for one in (before, after)]

    assert asyncio.run(known(keeps=True)) == [2, None]
    assert asyncio.run(known(keeps=False)) == [None, None]


class _Pages(McpSession):
    """A session whose server lists these pages."""

    changes, _keeps = 0, False

    def __init__(self, pages: list[Any]) -> None:
        self.asked, self._pages = list[str | None](), iter(pages)

    async def ask(self, request: Any, kind: Any) -> Any:
        self.asked.append(request.params.cursor if request.params is not None else None)
        return kind.model_validate({"_meta": {"said": next(self._pages)}}, by_name=False)


def test_an_empty_text_is_a_cursor() -> None:
    session = _Pages([{"tools": [{"name": "a"}, 7], "nextCursor": ""}, {"tools": [{"name": "b"}]}])
    assert asyncio.run(session.list_tools()) == [{"name": "a"}, {}, {"name": "b"}]
    assert session.asked == [None, ""]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"tools": [], "nextCursor": ""}, "same cursor"),
        ({"tools": [], "nextCursor": 5}, "wrong `nextCursor`"),
        ({}, "wrong `tools`"),
    ],
)
def test_a_list_that_is_wrong_says_what_the_server_sent(page: Any, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        asyncio.run(_Pages([page] * 2).list_tools())
