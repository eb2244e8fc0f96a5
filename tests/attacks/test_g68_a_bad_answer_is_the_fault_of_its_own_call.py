"""A server shared by several callers answers one of them badly: only that call fails, and learns where."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.mcp.adapter import McpAdapter
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.errors import LostReply
from tests.loopback import Answer, Asked, serving
from tests.servers.adapters import against, call_context, calls, drafted, hostile, opened
from tests.unit.adapters.mcp.test_transports import JSON, Server
from tests.unit.adapters.mcp.test_transports import against as against_http

LONG = "1234567890123456789"
DEEP = "[" * 70 + "]" * 70


def result(inner: str) -> str:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{inner}}}'


def structured(inner: str) -> str:
    return result(f'{{"content":[],"structuredContent":{inner}}}')


WITH_A_PLACE = {
    "a number of 64 bits": (structured(f'{{"id":{LONG}}}'), "/result/structuredContent/id"),
    "a negative number of 64 bits": (structured(f'{{"a":[0,-{LONG}]}}'), "/result/structuredContent/a/1"),
    "a number beyond doubles": (structured('{"x":1e400}'), "/result/structuredContent/x"),
    "a number of 5000 digits": (structured(f'{{"x":{"9" * 5000}}}'), "/result/structuredContent/x"),
    "NaN": (structured('{"x":NaN}'), "/result/structuredContent/x"),
    "Infinity": (structured('{"x":-Infinity}'), "/result/structuredContent/x"),
    "a member twice": (structured('{"x":1,"x":2}'), "/result/structuredContent/x"),
    "half a character": (structured('{"x":"\\ud800"}'), "/result/structuredContent/x"),
    "a list for an object": (structured("[1]"), "/structuredContent"),
    "no structured content": (result('{"content":[]}'), "/structuredContent"),
    "content that is a text": (result('{"content":"x","structuredContent":{}}'), "/content"),
    "content of numbers": (result('{"content":[7],"structuredContent":{}}'), "/content/0"),
}
WITHOUT_A_PLACE = {
    "a deep value": structured(f'{{"x":{DEEP}}}'),
    "no UTF-8": structured('{"x":"\xff\xfe"}'),
    "another JSON-RPC": '{"jsonrpc":"1.0","id":ID,"result":{"content":[]}}',
    "a batch": f"[{structured('{}')}]",
}
UNKNOWN_FOR_A_WRITE = {
    "no JSON": structured('{"x":'),
    "no JSON-RPC": '{"id":ID}',
    "a result that is a text": result('"done"'),
    "a result and an error": '{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":1,"message":"m"}}',
    "an error without a code": '{"jsonrpc":"2.0","id":ID,"error":{"message":"m"}}',
    "an error with a number of 64 bits": f'{{"jsonrpc":"2.0","id":ID,"error":{{"code":{LONG},"message":"m"}}}}',
    "two results": '{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"result":{"content":[],"isError":true}}',
    "two verdicts": result('{"content":[],"isError":true,"isError":false}'),
    "a very deep value": structured(f'{{"x":{"[" * 50_000}{"]" * 50_000}}}'),
    "too large": "huge",
}
NOBODYS = {
    "a line of a log": "INFO: started",
    "an id that nobody asked": '{"jsonrpc":"2.0","id":99999,"result":{"content":[]}}',
    "an id of another kind": '{"jsonrpc":"2.0","id":{},"result":{}}',
    "an id that is null": '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}',
    "a notification that is none": '{"jsonrpc":"2.0","method":7}',
    "a notification with a long number": f'{{"jsonrpc":"2.0","method":"notifications/x","params":{{"x":{LONG}}}}}',
    "a request with an unknown method": '{"jsonrpc":"2.0","id":"s1","method":"nothing/known"}',
    "a number": "5",
    "an empty batch": "[]",
    "open brackets": "[" * 100_000,
}


async def beside(adapter: McpAdapter, tool: str, text: str, **more: Any) -> tuple[Any, AdapterReply]:
    """What a bad call is answered with, and a slow write that was in flight when the bad answer came."""
    await adapter.call("say", {"text": result('{"content":[]}')}, call_context())
    slow = asyncio.create_task(adapter.call("say", {"text": "slow"}, call_context(key="ik_2")))
    await asyncio.sleep(0.1)
    found = await asyncio.gather(adapter.call(tool, {"text": text}, call_context(**more)), return_exceptions=True)
    assert not slow.done(), "the write was in flight"
    return found[0], await slow


def tried(folder: Path, tool: str, text: str, **more: Any) -> tuple[Any, AdapterReply]:
    file = asyncio.run(drafted(hostile("verbatim", folder), folder, reads=["see"]))
    file["operations"]["see"]["output"] = "structured"
    with opened(file, folder) as adapter:
        return asyncio.run(beside(adapter, tool, text, **more))


@pytest.mark.parametrize("fault", [*WITH_A_PLACE, *WITHOUT_A_PLACE])
def test_a_read_that_is_answered_badly_is_withheld_and_the_write_beside_it_is_answered(
    fault: str, tmp_path: Path
) -> None:
    text, place = WITH_A_PLACE.get(fault) or (WITHOUT_A_PLACE[fault], None)
    bad, slow = tried(tmp_path, "see", text)
    assert slow.output == {"texts": ["slow"], "omitted": 0}
    assert bad.output is None
    assert bad.error is None
    assert bad.withheld.pointer == place
    assert LONG not in bad.withheld.message


@pytest.mark.parametrize("fault", [name for name in WITH_A_PLACE if "structured" not in name and "list" not in name])
def test_a_write_that_is_answered_badly_is_done_and_its_answer_withheld(fault: str, tmp_path: Path) -> None:
    text, place = WITH_A_PLACE[fault]
    bad, slow = tried(tmp_path, "say", text)
    assert slow.output == {"texts": ["slow"], "omitted": 0}
    assert bad.withheld.pointer == place


@pytest.mark.parametrize("fault", UNKNOWN_FOR_A_WRITE)
def test_a_write_whose_answer_does_not_say_what_happened_is_unknown_at_once(fault: str, tmp_path: Path) -> None:
    bad, slow = tried(tmp_path, "say", UNKNOWN_FOR_A_WRITE[fault])
    assert slow.output == {"texts": ["slow"], "omitted": 0}
    assert isinstance(bad, LostReply)
    assert "its answer cannot be read" in str(bad) or "MCPError" in str(bad)


@pytest.mark.parametrize("fault", NOBODYS)
def test_what_answers_nobody_is_left_out(fault: str, tmp_path: Path) -> None:
    bad, slow = tried(tmp_path, "say", NOBODYS[fault], timeout_ms=500)
    assert slow.output == {"texts": ["slow"], "omitted": 0}
    assert isinstance(bad, LostReply)
    assert "did not answer" in str(bad)


def test_answers_that_are_large_together_are_all_taken(tmp_path: Path) -> None:
    large = json.dumps({"content": [{"type": "text", "text": "y" * 1_500_000}]})

    async def both(adapter: McpAdapter) -> list[AdapterReply]:
        await adapter.call("say", {"text": result('{"content":[]}')}, call_context())
        return await asyncio.gather(
            *(adapter.call("say", {"text": f"late:{result(large)}"}, call_context()) for _ in "abc")
        )

    with against("verbatim", tmp_path, draft="verbatim") as adapter:
        answers = asyncio.run(both(adapter))
    assert [len(str(one.output)) > 1_500_000 for one in answers] == [True] * 3
    assert len(calls(tmp_path)) == 4


def test_an_answer_over_http_that_answers_another_request_reaches_nobody(tmp_path: Path) -> None:
    """Its own call is unknown at once, and a call with the id that it names is not answered by it."""

    def respond(_asked: Asked, request: Any) -> Answer:
        return 200, json.dumps({"jsonrpc": "2.0", "id": request["id"] + 1, "result": {"content": []}}).encode(), JSON

    server = Server(respond)
    with against_http(server, tmp_path) as adapter, pytest.raises(LostReply, match="cannot be read"):
        asyncio.run(adapter.call("say", {"text": "a"}, call_context()))


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("fault", WITH_A_PLACE)
def test_over_http_the_answer_is_withheld_with_its_place(fault: str, kind: str, tmp_path: Path) -> None:
    text, place = WITH_A_PLACE[fault]

    def respond(_asked: Asked, request: Any) -> Answer:
        said = text.replace("ID", str(request["id"])).encode()
        noise = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"n":1e999}}\n\n'
        body = said if kind == "application/json" else noise + b"data: " + said + b"\n\n"
        return 200, body, {"Content-Type": kind}

    server = Server(respond)
    with serving(server.answer) as address:
        server.respond = None
        connection = {"kind": "mcp", "url": f"{address}/mcp", "internal": True}
        file = asyncio.run(drafted(connection, tmp_path))
        file["operations"]["say"]["output"] = "structured"
        server.respond = respond
        with opened(file, tmp_path) as adapter:
            reply = asyncio.run(adapter.call("say", {"text": "a"}, call_context()))
    assert reply.withheld is not None
    assert reply.withheld.pointer == place
