"""The draft of an adapter file: every tool at its strictest, each left out with a reason or usable as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.foreign.drafting import DraftRow
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.adapters.mcp.listings import UNREADABLE_TOOL
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput
from tests.servers.adapters import adapter_of

COMMAND = McpConnection(kind="mcp", command=("server",))
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def tool(name: str = "say", **changed: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"$schema": DRAFT_07, "type": "object"}, **changed}


def draft(*tools: dict[str, Any], **stated: Any) -> tuple[dict[str, Any], list[DraftRow]]:
    return draft_adapter("lab", COMMAND, tools, Stated(**{"local": True, **stated}))


def test_an_unknown_tool_is_drafted_at_its_strictest() -> None:
    file, [row] = draft(tool())
    [capability] = file["definition"]["capabilities"]
    strictest = {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}
    assert strictest.items() <= capability.items()
    assert capability["idempotency"] == {"strategy": "none"}
    assert (row.capability, row.kind, row.mode) == ("say", "write", "destructive")
    assert read_adapter_file(canonical(file)).definition.adapter_id == "lab"


def test_what_a_server_reaches_is_unknown_until_somebody_states_it(tmp_path: Path) -> None:
    unknown, _ = draft(tool(), local=False)
    with pytest.raises(InvalidInput, match="names no endpoint"):
        read_adapter_file(canonical(unknown))
    stated, _ = draft(tool(), local=False, egress=["api.example:443"])
    assert read_adapter_file(canonical(stated)).definition.egress == ("api.example:443",)
    remote = McpConnection(kind="mcp", url="https://tools.example/mcp")
    file, _ = draft_adapter("lab", remote, [tool()], Stated(local=True))
    assert adapter_of(file, tmp_path).describe().egress == ("tools.example:443",)


def test_names_that_become_the_same_stay_two_and_one_name_twice_is_left_out() -> None:
    file, rows = draft(tool("a-b"), tool("a.b"), tool("c"), tool("c"), tool(""), {**tool(), "name": 5})
    one, other = file["operations"]
    assert one.startswith("a_b_")
    assert other.startswith("a_b_")
    assert [one["tool"] for one in file["operations"].values()] == ["a-b", "a.b"]
    assert [row.capability for row in rows] == [one, other, "", "", "", ""]


def test_the_order_of_a_list_says_nothing_of_which_tool_a_name_is() -> None:
    listed = [tool("a.b"), tool("a_b"), tool("a-b"), tool("c.d"), tool("a_b_5db0d3d8")]
    made = []
    for tools in (listed, listed[::-1]):
        file, _ = draft(*tools)
        made.append({one["tool"]: name for name, one in file["operations"].items()})
    assert made[0] == made[1]
    assert (made[0]["a_b"], made[0]["c.d"]) == ("a_b", "c_d")
    assert len({*made[0].values()}) == 5


HIDING: dict[str, dict[str, Any]] = {
    "a value": {"inputSchema": {"type": "object", "properties": {"a": {"enum": ["x\u200b"]}}}},
    "a name": {"name": "a\u202eb"},
    "a pattern": {
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[^\ufeff]*$"}}}
    },
    "a long name": {"name": "x" * 513},
}


@pytest.mark.parametrize("hiding", HIDING)
def test_a_tool_that_no_file_can_have_is_left_out_and_the_file_can_be_published(hiding: str) -> None:
    file, rows = draft(tool("odd") | HIDING[hiding], tool("good", description="hi \U0001f468\u200d\U0001f469"))
    assert [*read_adapter_file(canonical(file)).operations] == ["good"]
    assert rows[0].why.startswith("left out: ")


def test_tools_beyond_what_a_file_holds_are_left_out_by_name() -> None:
    large = {"type": "object", "properties": {"a": {"enum": ["v" * 900 + str(number) for number in range(300)]}}}
    file, rows = draft(*(tool(f"t{number}", inputSchema=large) for number in range(4)))
    assert [*read_adapter_file(canonical(file)).operations] == ["t0"]
    assert [row.capability for row in rows] == ["t0", "", "", ""]
    assert "holds no more" in rows[3].why
    file, rows = draft(*(tool(f"t{number}") for number in range(1_001)))
    read = read_adapter_file(json.dumps(file, indent=2).encode())
    assert len(read.operations) == sum(row.capability != "" for row in rows) > 500


def test_a_name_that_is_too_long_with_that_of_its_adapter_is_cut_without_collision() -> None:
    file, _ = draft(tool("short"), tool("x" * 68), tool("x" * 69))
    names = [*file["operations"]]
    assert names[0] == "short"
    assert len({*names}) == 3
    assert {len(f"lab__{one}") for one in names[1:]} == {64}


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "odd", UNREADABLE_TOOL: "it has a number that JSON does not carry"},
        {"name": "odd", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
        {"name": "odd", "inputSchema": {}, "outputSchema": 7, "annotations": {"a": float("inf")}},
        {},
    ],
)
def test_one_odd_tool_is_left_out_by_name(odd: dict[str, Any]) -> None:
    file, rows = draft(odd, tool("good"), tool("may_be_a_task", execution={"taskSupport": "optional"}))
    assert [*file["operations"]] == ["good", "may_be_a_task"]
    assert rows[0].tool == odd.get("name", "")
    assert rows[0].why.startswith("left out: ")


def test_an_output_that_can_be_enforced_is_the_output(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    file, rows = draft(tool(outputSchema=schema), tool("other", outputSchema={"type": "array"}))
    assert [one["output"] for one in file["operations"].values()] == ["structured", "text"]
    # JSON Schema leaves it open, and a call that was made is not undone by what its answer has more.
    assert file["definition"]["capabilities"][0]["output_schema"] == {**schema, "additionalProperties": True}
    assert "can have more" in rows[0].why
    adapter_of(file, tmp_path)


@pytest.mark.parametrize(
    "stated",
    [
        {"additionalProperties": False},
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"unevaluatedProperties": False},
    ],
)
def test_an_output_schema_is_open_or_closed_as_its_server_says_at_every_depth(
    stated: dict[str, Any], tmp_path: Path
) -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"inner": inner, "list": {"type": "array", "items": inner}, "one": {"$ref": "#/$defs/One"}},
        "$defs": {"One": inner},
        **stated,
    }
    file, _ = draft(tool(outputSchema=schema))
    assert file["definition"]["capabilities"][0]["output_schema"] == schema
    adapter_of(file, tmp_path)


def test_objects_inside_are_closed_and_what_says_that_it_is_open_stays_open() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}}
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"inner": inner, "free": free, "list": {"type": "array", "items": inner}}}
    file, _ = draft(tool(inputSchema=schema))
    made = file["definition"]["capabilities"][0]["input_schema"]["properties"]
    assert made["inner"]["additionalProperties"] is False
    assert made["list"]["items"]["additionalProperties"] is False
    assert made["free"] == free


def test_a_read_is_recorded_as_stated(tmp_path: Path) -> None:
    file, [row] = draft(tool(), reads=["say"])
    assert (row.kind, row.mode, row.why) == ("read", "read_only", "stated as a read")
    assert file["operations"]["say"]["stated_read"] is True
    adapter_of(file, tmp_path)


def test_resources_are_those_that_were_named(tmp_path: Path) -> None:
    file, rows = draft(tool(), resources=["memo://one"])
    assert rows[-1].capability == "read_resource"
    assert file["definition"]["capabilities"][-1]["input_schema"]["properties"]["uri"]["enum"] == ["memo://one"]
    adapter_of(file, tmp_path)
    with pytest.raises(InvalidInput):
        draft(tool("read_resource"), resources=["memo://one"])


def test_a_read_of_a_tool_that_is_not_listed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`other`"):
        draft(tool(), reads=["other"])


def test_a_server_without_a_usable_tool_is_refused() -> None:
    for tools in ((), (tool(inputSchema=1),)):
        with pytest.raises(InvalidInput) as error:
            draft(*tools)
        assert error.value.problems[0].code == "no_tools"


def test_what_a_conversion_does_not_keep_is_a_note() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "phone", "contentEncoding": "base64", "minLenght": 3}},
        "additionalProperties": True,
    }
    _, [row] = draft(tool(inputSchema=schema))
    for part in ("`phone` is not checked", "`contentEncoding`", "`minLenght`", "does not name cannot be sent"):
        assert part in row.why
    _, [row] = draft(tool(outputSchema={"type": "array"}))
    assert "its answers are texts, since the schema of them cannot be used: the answer is not an object" in row.why


@pytest.mark.parametrize(
    "schema", [None, True, {"type": "array"}, {"type": "object", "$ref": "other.json"}, {"type": "object", "not": {}}]
)
def test_one_tool_that_cannot_be_used_costs_the_others_nothing(schema: Any) -> None:
    file, rows = draft(tool("odd", inputSchema=schema), tool("good"))
    assert [one["name"] for one in file["definition"]["capabilities"]] == ["good"]
    assert [row.capability for row in rows] == ["", "good"]
    assert rows[0].why.startswith("left out: ")


ODD: list[Any] = [
    {"type": "object", "pattern": {"type": "string"}, "properties": {"a": {}}},
    {
        "type": "object",
        "properties": {"a": {"oneOf": [{"$ref": "#/$defs/x"}], "discriminator": {"propertyName": "t"}}},
        "$defs": {"x": {"properties": []}},
    },
]


@pytest.mark.parametrize("schema", ODD)
@pytest.mark.parametrize("member", ["inputSchema", "outputSchema"])
def test_a_schema_of_the_wrong_shape_costs_the_other_tools_nothing(schema: Any, member: str) -> None:
    file, _ = draft(tool("odd", **{member: schema}), tool("good"))
    assert "good" in [one["tool"] for one in file["operations"].values()]


def test_a_tool_that_takes_an_argument_in_a_header_is_left_out_and_a_property_of_that_name_is_a_property() -> None:
    named = {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}}
    wants = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    file, rows = draft(tool("named", inputSchema=named), tool("wants", inputSchema=wants))
    assert [one["tool"] for one in file["operations"].values()] == ["named"]
    assert "which proxies read and log" in rows[1].why
