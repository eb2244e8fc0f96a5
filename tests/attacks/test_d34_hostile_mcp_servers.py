"""An MCP server that floods, lies, hangs or asks for more is bounded, and its text stays out of logs and errors."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from contextos.action.registry import Registry
from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.foreign.drafting import DraftRow
from contextos.adapters.foreign.texts import MAX_DRAFT_PATTERN_BYTES
from contextos.adapters.mcp.adapter import McpAdapter, listed_tools
from contextos.adapters.mcp.connection import MAX_TOOLS
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.adapters.mcp.transports import CHUNK_BYTES, MAX_MCP_BYTES, MAX_STDERR_BYTES
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import MAX_SAID_CHARS, AdapterDefinition, AdapterReply
from contextos.errors import InvalidInput, LostReply, Unavailable
from tests.servers.adapters import against, call_context, calls, drafted, hostile, opened


def said(adapter: McpAdapter) -> AdapterReply:
    return asyncio.run(adapter.call("say", {"text": "a"}, call_context()))


def test_gigabytes_are_not_read(tmp_path: Path) -> None:
    with against("gigabytes", tmp_path) as adapter:
        with pytest.raises(LostReply):
            said(adapter)
        assert adapter._sessions is not None
        transport = adapter._sessions.transport
        assert transport is not None
        # One chunk more than the limit, and what the session said before.
        assert MAX_MCP_BYTES < transport.received_bytes <= MAX_MCP_BYTES + 2 * CHUNK_BYTES
        assert len(transport.stderr_tail) <= MAX_STDERR_BYTES


def resource(mode: str, folder: Path) -> AdapterReply:
    """What the resource `memo://one` of the hostile server is, read through an adapter that a person published."""
    file = asyncio.run(drafted(hostile("plain", folder), folder, resources=["memo://one"]))
    file["connection"] = hostile(mode, folder)
    with opened(file, folder) as adapter:
        return asyncio.run(adapter.call("read_resource", {"uri": "memo://one"}, call_context()))


@pytest.mark.requirement("A-RESOURCE")
def test_a_server_cannot_say_that_its_text_is_another_resource(tmp_path: Path) -> None:
    assert resource("plain", tmp_path).output == {"contents": [{"uri": "memo://one", "text": "oooo"}], "omitted": 0}
    lied = resource("other_resources", tmp_path).output
    assert lied == {"contents": [{"uri": "memo://one", "text": "oooo"}], "omitted": 2}


def test_a_resource_of_any_length_is_not_read(tmp_path: Path) -> None:
    withheld = resource("long_resource", tmp_path).withheld
    assert withheld is not None
    assert f"larger than {MAX_MCP_BYTES} bytes" in withheld.message


def test_a_flood_without_a_question_ends_the_session(tmp_path: Path) -> None:
    with against("floods_at_once", tmp_path) as adapter:
        with pytest.raises(Unavailable):
            said(adapter)
        assert adapter._sessions is not None
        assert adapter._sessions.transport is not None
        assert adapter._sessions.transport.received_bytes <= MAX_MCP_BYTES + 2 * CHUNK_BYTES
    assert calls(tmp_path) == []


def test_questions_of_a_server_buy_it_no_allowance(tmp_path: Path) -> None:
    with against("pings", tmp_path) as adapter:
        with pytest.raises(Unavailable):
            said(adapter)
        assert adapter._sessions is not None
        assert adapter._sessions.transport is not None
        assert adapter._sessions.transport.received_bytes <= 2 * (MAX_MCP_BYTES + CHUNK_BYTES)


def test_notifications_beside_an_answer_change_nothing_and_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with against("flood", tmp_path) as adapter:
        assert said(adapter).output == {"texts": ["a"], "omitted": 0}
    assert "IGNORE" not in caplog.text


def test_the_text_of_an_error_is_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with against("rpc_error", tmp_path) as adapter, pytest.raises(LostReply, match="-32603"):
        asyncio.run(adapter.call("say", {"text": "a"}, call_context(2_000)))
    assert "IGNORE" not in caplog.text


@pytest.mark.parametrize("mode", ["not_json", "wrong_id", "deep"])
def test_what_a_server_sends_wrong_is_in_no_log_and_no_error(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with against(mode, tmp_path) as adapter, pytest.raises(LostReply) as error:
        asyncio.run(adapter.call("say", {"text": "a"}, call_context(2_000)))
    assert "IGNORE" not in caplog.text + str(error.value)


def test_requests_of_a_server_are_refused(tmp_path: Path) -> None:
    with against("asks", tmp_path) as adapter:
        assert said(adapter).output == {"texts": ["[True, True, True]"], "omitted": 0}


def test_the_prompts_of_a_server_are_never_asked_for(tmp_path: Path) -> None:
    """It offers them when it is drafted and when it is called, and says that its list changed."""
    with against("prompts", tmp_path, draft="prompts") as adapter:
        for _ in range(2):
            assert said(adapter).output == {"texts": ["a"], "omitted": 0}
    methods = (tmp_path / "calls.methods").read_text("utf-8").split()
    assert methods.count("tools/call") == 2
    assert [one for one in methods if one.startswith(("prompts/", "completion/"))] == []


def test_the_text_of_an_error_is_bounded(tmp_path: Path) -> None:
    with against("long_error", tmp_path) as adapter:
        error = said(adapter).error
    assert error is not None
    assert len(error.message) == MAX_SAID_CHARS


def test_a_process_gets_the_listed_variables_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", "s3cret")
    monkeypatch.setenv("LISTED", "yes")
    with against("environment", tmp_path) as adapter:
        adapter._config = adapter._config.model_copy(update={"env": ("LISTED",)})
        output = said(adapter).output
    assert output is not None
    names = set(output["texts"][0].split())
    assert "LISTED" in names
    assert names <= {"LISTED", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}, "what Python itself sets may be there"
    assert "SHOP_SECRET" in os.environ


@pytest.mark.parametrize("mode", ["thousands", "many", "endless"])
def test_more_tools_than_a_person_reads_are_refused(mode: str, tmp_path: Path) -> None:
    """Two thousand on one page, ten thousand that are more than a message, and pages without an end."""
    with pytest.raises(Unavailable) as error:
        asyncio.run(listed_tools(McpConnection.model_validate(hostile(mode, tmp_path)), tmp_path))
    assert (f"more than {MAX_TOOLS} tools" in str(error.value)) == (mode != "many")


def nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


DOUBLING = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(20)}

BOMBS = {
    "deep": nested(60),
    "properties that are a number": {"type": "object", "properties": 1.5},
    "required that is a number": {"type": "object", "properties": {"a": {"type": "string"}}, "required": 1},
    "remote": {"type": "object", "$ref": "http://127.0.0.1:9/schema.json"},
    "backtracking": {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "(?=a)(a+)+$"}},
        "required": ["a"],
    },
    "in a header": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
    "in a header, further in": {"type": "object", "$defs": {"a": {"anyOf": [{"x-mcp-header": "A"}]}}},
    "no schema": 7,
    "no object": {"type": "array"},
}

CUT = {
    "doubling": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {**DOUBLING, "d20": {"type": "string"}},
    },
    "itself": {"type": "object", "properties": {"a": {"$ref": "#"}}},
    "remote": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    "backtracking": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)(a+)+$"}}},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_tool_with_a_schema_that_cannot_be_enforced_is_left_out_with_a_reason(name: str) -> None:
    tools = [{"name": "bomb", "inputSchema": BOMBS[name]}, {"name": "fine", "inputSchema": {"type": "object"}}]
    named = McpConnection(kind="mcp", command=("x",))
    file, rows = draft_adapter("lab", named, tools, Stated(local=True))
    assert list(file["operations"]) == ["fine"]
    assert rows[0].why.startswith("left out: ")


KEYWORDS = [
    *("$defs", "$id", "$ref", "additionalProperties", "allOf", "anyOf", "const", "contains", "default", "definitions"),
    *("dependencies", "dependentSchemas", "discriminator", "enum", "exclusiveMaximum", "format", "if", "items"),
    *("maxContains", "maximum", "not", "nullable", "oneOf", "pattern", "patternProperties", "prefixItems"),
    *("properties", "propertyNames", "readOnly", "required", "then", "type", "unevaluatedProperties"),
]
ODD_VALUES = [None, True, 0, 1.5, 2**60, "a", "object", "#", "#/$defs/a", "^(?!a)b", "(", [], {}, [1], ["a"], [["a"]]]


def made_by_chance(chance: random.Random, depth: int = 3) -> dict[str, Any]:
    def value() -> Any:
        kind = chance.randrange(14) if depth else 0
        below = [made_by_chance(chance, depth - 1) for _ in range(chance.randrange(3))] if kind > 8 else []
        if kind < 6:
            return chance.choice(ODD_VALUES)
        if kind < 9:
            return made_by_chance(chance, depth - 1)
        return below if kind < 11 else dict(zip("at", below, strict=False))

    return {chance.choice(KEYWORDS): value() for _ in range(chance.randrange(1, 5))}


def test_a_schema_of_any_shape_costs_the_other_tools_nothing() -> None:
    named, kept = McpConnection(kind="mcp", command=("x",)), 0
    for seed in range(300):
        chance = random.Random(seed)
        schema = {**made_by_chance(chance), "type": "object", "properties": {"a": made_by_chance(chance)}}
        odd = {"name": "odd", "inputSchema": schema, "outputSchema": made_by_chance(chance)}
        file, _ = draft_adapter("lab", named, [odd, {"name": "good", "inputSchema": nested(1)}], Stated(local=True))
        assert "good" in read_adapter_file(canonical(file)).operations, schema
        kept += len(file["operations"]) - 1
    assert kept > 50, "what can be used is used"


@pytest.mark.parametrize("name", CUT)
def test_an_argument_that_cannot_be_checked_is_never_sent(name: str) -> None:
    named = McpConnection(kind="mcp", command=("x",))
    file, [row] = draft_adapter("lab", named, [{"name": "bomb", "inputSchema": CUT[name]}], Stated(local=True))
    registry = Registry()
    [capability] = registry.register((AdapterDefinition.model_validate(file["definition"]),)).values()
    assert registry.check(capability, "input", {}) is None
    assert registry.check(capability, "input", {"a": "aaaa"}) is not None
    assert any(reason in row.why for reason in ("nested deeper", "leads out of", "linear time"))


def test_odd_tools_of_a_server_cost_the_others_nothing(tmp_path: Path) -> None:
    file = asyncio.run(drafted(hostile("odd_tools", tmp_path), tmp_path))
    assert {one["tool"] for one in file["operations"].values()} == {"bounded", "say"}
    with opened(file, tmp_path) as adapter:
        assert asyncio.run(adapter.drifted()) == frozenset()
        assert said(adapter).output == {"texts": ["a"], "omitted": 0}
    # The server lists them later, after the one that is called was published.
    with against("odd_tools", tmp_path) as adapter:
        assert said(adapter).output == {"texts": ["a"], "omitted": 0}


def test_patterns_that_take_megabytes_to_compile_are_left_out_and_the_others_stay() -> None:
    """Each took 8 MB and a third of a second, several times over: a hundred of them half a minute and 730 MB."""
    large = [tool(f"large_{count}", {"pattern": rf"^\p{{L}}{{1,{count}}}$"}) for count in range(189, 89, -1)]
    names = [tool(f"name_{count}", {"pattern": rf"^\p{{L}}{{1,{count}}}$"}) for count in range(50, 30, -1)]
    plain = [tool(f"plain_{count}", {"pattern": rf"^[a-z]{{1,{count}}}$"}) for count in range(1, 20)]
    taken = {one.tool: one.why for one in rows_of([*large, *names, *plain]) if one.capability}
    assert not [name for name in taken if name.startswith("large")]
    assert len([name for name in taken if name.startswith("name")]) <= MAX_DRAFT_PATTERN_BYTES >> 20
    assert len([name for name in taken if name.startswith("plain")]) == 19


@pytest.mark.parametrize("long", [r"(?i)" + r"\pL" * 10_000, "^(?!" + r"\pL" * 10_000 + ")a", r"\s" * 10_000])
def test_a_pattern_that_takes_megabytes_before_its_size_is_known_is_not_read(long: str) -> None:
    """The engine reads the whole pattern first: 30 KB took four seconds and 396 MB."""
    named = {"type": "object", "properties": {}, "patternProperties": {long: {"type": "string"}}}
    listed = [tool("long", {"pattern": long}), {"name": "names", "inputSchema": named}, tool("plain", {"pattern": "a"})]
    left, names, kept = rows_of(listed)
    assert (left.capability, kept.capability) == ("", "plain")
    assert "a pattern has more than 4096 characters" in left.why
    assert "a pattern has more than 4096 characters" in names.why


def test_one_pattern_under_many_defaults_is_bounded_too() -> None:
    """A default is checked with a validator of its own, which has all definitions of the schema."""
    field = {"type": "string", "default": "a"}
    defined = {"N": {"type": "string", "pattern": r"^\p{L}{1,50}$"}}
    properties = {"n": {"$ref": "#/$defs/N"}, **{f"p{number}": field for number in range(500)}}
    many = {"name": "many", "inputSchema": {"type": "object", "properties": properties, "$defs": defined}}
    left, kept = rows_of([many, tool("plain", {"pattern": "^[a-z]+$"})])
    assert (left.capability, kept.capability) == ("", "plain")
    assert "the patterns of the draft" in left.why


def tool(name: str, argument: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string", **argument}}, "required": ["a"]}
    return {"name": name, "inputSchema": schema}


def rows_of(listed: list[dict[str, Any]]) -> list[DraftRow]:
    connection = McpConnection(kind="mcp", command=("server",))
    return draft_adapter("adp_mcp", connection, listed, Stated(local=True))[1]


def test_a_tool_that_is_not_drafted_cannot_be_stated_as_a_read() -> None:
    connection = McpConnection(kind="mcp", command=("server",))
    listed = [tool("a", {}), tool("b", {})]
    with pytest.raises(InvalidInput) as error:
        draft_adapter("adp_mcp", connection, listed, Stated(local=True, only=["a"], reads=["a", "b"]))
    assert error.value.problems[0].code == "read_left_out"


def test_an_object_inside_a_choice_is_closed_too() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"one": {"anyOf": [inner, {"type": "null"}]}, "all": {"allOf": [inner, inner]}},
    }
    named = McpConnection(kind="mcp", command=("x",))
    file, _ = draft_adapter("lab", named, [{"name": "t", "inputSchema": schema}], Stated(local=True))
    definition = AdapterDefinition.model_validate(file["definition"])
    registry = Registry()
    [capability] = registry.register((definition,)).values()
    assert registry.check(capability, "input", {"one": {"a": "x"}, "all": {"a": "x"}}) is None
    assert registry.check(capability, "input", {"one": {"a": "x", "b": 1}}) is not None
    assert registry.check(capability, "input", {"all": {"a": "x", "b": 1}}) is not None


def test_a_server_that_lies_about_its_output_is_caught_by_the_published_schema(tmp_path: Path) -> None:
    with against("structured", tmp_path, draft="structured") as adapter:
        output = said(adapter).output
        [capability] = Registry().register((adapter.describe(),)).values()
        registry = Registry()
        registry.register((adapter.describe(),))
    assert registry.check(capability, "output", output) is not None
    assert registry.check(capability, "output", {"n": 1}) is None
