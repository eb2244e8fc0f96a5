"""An answer to `tools/list`: the fault of a tool stays with it, and integers are kept as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.adapters.mcp.definitions import tool_digest
from contextos.adapters.mcp.listings import UNREADABLE_TOOL, read_listing

GOOD = '{"name":"good","inputSchema":{"type":"object"}}'


def listed(*tools: str, cursor: str = "null") -> list[Any] | None:
    raw = f'{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{",".join(tools)}],"nextCursor":{cursor}}}}}'
    said = read_listing(raw.encode())
    return said["result"]["tools"] if said is not None else None


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ('"a":1e999', "a number"),
        (f'"a":1{"0" * 200}', "a number"),
        ('"a":NaN', "a number"),
        ('"a":{"b":1,"b":2}', "twice"),
        ('"name":"odd"', "twice"),
        (r'"a":"\ud800"', "half a character"),
        (r'"\udfff":1', "half a character"),
        (f'"a":{"[" * 90}{"]" * 90}', "too deep"),
    ],
)
def test_a_tool_that_cannot_be_taken_is_its_name_and_the_reason(member: str, why: str) -> None:
    tools = listed(f'{{"name":"odd",{member}}}', GOOD)
    assert tools is not None
    assert tools[1] == json.loads(GOOD)
    assert tools[0].keys() == {"name", UNREADABLE_TOOL}
    assert tools[0]["name"] == "odd"
    assert why in tools[0][UNREADABLE_TOOL]


def test_bytes_that_are_no_text_are_the_fault_of_their_tool() -> None:
    said = read_listing(b'{"id":1,"result":{"tools":[{"name":"odd","a":"\xff"},' + GOOD.encode() + b"]}}")
    assert said is not None
    odd, good = said["result"]["tools"]
    assert (odd["name"], "half a character" in odd[UNREADABLE_TOOL], good) == ("odd", True, json.loads(GOOD))


def test_an_integer_of_64_bits_is_kept_and_counts_in_the_digest() -> None:
    tools = listed(*(f'{{"name":"n","inputSchema":{{"maximum":{18446744073709551615 - less}}}}}' for less in (0, 1)))
    assert tools is not None
    assert tools[0]["inputSchema"]["maximum"] == 2**64 - 1
    one, other = map(tool_digest, tools)
    text = {"name": "n", "inputSchema": {"maximum": str(2**64 - 1)}}
    assert len({one, other, tool_digest(text)}) == 3


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"id":1,"result":{"tools":7}}', b'{"id":1,"id":2,"result":{"tools":[]}}']
)
def test_a_fault_that_is_not_of_a_tool_is_of_the_whole_answer(raw: bytes) -> None:
    assert read_listing(raw) is None
    assert listed(GOOD, cursor="1e999") is None
