"""What the adapter file of an MCP server can say, and the digest of a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.mcp.definitions import PINNED_MEMBERS, McpConnection, tool_digest
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput
from tests.servers.adapters import adapter_of
from tests.unit.adapters.foreign.test_adapter_file import CAPABILITY, file

TOOL: dict[str, Any] = {
    "name": "say",
    "title": "Say",
    "description": "Says a text.",
    "inputSchema": {"type": "object", "properties": {"b": {}, "a": {}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


@pytest.mark.parametrize("member", PINNED_MEMBERS)
def test_every_pinned_member_changes_the_digest(member: str) -> None:
    assert tool_digest(TOOL) != tool_digest({**TOOL, member: "other"})
    assert tool_digest(TOOL) != tool_digest({name: value for name, value in TOOL.items() if name != member})


def test_the_order_of_members_and_what_no_model_is_shown_do_not_change_the_digest() -> None:
    turned = {name: TOOL[name] for name in reversed(TOOL)}
    turned["inputSchema"] = {"properties": {"a": {}, "b": {}}, "type": "object"}
    assert tool_digest(turned | {"icons": [], "_meta": {}}) == tool_digest(TOOL)


def test_true_and_one_are_not_the_same() -> None:
    assert tool_digest({**TOOL, "annotations": {"a": True}}) != tool_digest({**TOOL, "annotations": {"a": 1}})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"command": ["x"], "url": "https://x/"},
        {"url": "https://x/", "env": ["A"]},
        {"command": ["x"], "token_env": "A"},
        {"command": [""]},
        {"command": ["x"], "internal": True},
        {"url": "http://192.0.2.1/mcp"},
        {"url": "https://user:word@x/"},
        {"url": "https://x/#a"},
        {"url": "https://x:99999/"},
        {"url": "file:///x"},
    ],
    ids=str,
)
def test_a_connection_that_is_none_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as error:
        McpConnection.model_validate({"kind": "mcp", **said}).check()
    assert error.value.problems[0].code in ("bad_connection", "bad_url")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/mcp", "http://localhost/mcp", "https://10.0.0.1/", "https://x.example/y"]
)
def test_a_connection_is_public_unless_a_person_said_that_it_is_internal(url: str) -> None:
    named = McpConnection(kind="mcp", url=url, internal=True)
    named.check()
    assert named.is_remote == url.startswith("https")
    if "x.example" not in url:
        with pytest.raises(InvalidInput):
            McpConnection(kind="mcp", url=url).check()


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "0x7f.1", "2130706433", "[::ffff:169.254.169.254]", "0.0.0.0", "224.0.0.1", "017700000001"],
)
def test_an_address_that_is_never_allowed_or_no_plain_one_is_refused(host: str) -> None:
    for internal in (False, True):
        with pytest.raises(InvalidInput):
            McpConnection(kind="mcp", url=f"https://{host}/mcp", internal=internal).check()


OPERATION = {"tool": "say", "digest": "sha256:" + "0" * 64, "output": "text"}
KEYED = {"idempotency": {"strategy": "keyed"}}
READ = {"kind": "read", "risk_level": "read", "approval_mode": "read_only"}

CLOSED = {"type": "object", "additionalProperties": False, "properties": {"paid": {"type": "integer"}}}

MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a lookup": ({"idempotency": {"strategy": "lookup"}}, {}),
    "an end of its time": ({"idempotency": {"strategy": "none", "honours_not_after": True}}, {}),
    "a key that nothing sends": (KEYED, {}),
    "a key that nobody makes": ({}, {"key_argument": "key"}),
    "a key of a read": ({**READ, **KEYED}, {"key_argument": "key", "stated_read": True}),
    "a read that nobody stated": (READ, {}),
    "texts that its schema does not list": ({"output_schema": CLOSED}, {}),
    "a write that was stated to read": ({}, {"stated_read": True}),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_a_capability_declares_and_its_operation_does_not_do_is_refused(name: str, tmp_path: Path) -> None:
    capability, operation = MISFITS[name]
    said = file(definition={"capabilities": [CAPABILITY | capability]}, operations={"say": OPERATION | operation})
    with pytest.raises(InvalidInput) as error:
        adapter_of(said, tmp_path)
    assert error.value.problems[0].code == "misfit"


def test_an_argument_of_the_key_is_not_one_of_the_capability(tmp_path: Path) -> None:
    schema = {"type": "object", "additionalProperties": False, "properties": {"key": {"type": "string"}}}
    said = file(
        definition={"capabilities": [CAPABILITY | KEYED | {"input_schema": schema}]},
        operations={"say": OPERATION | {"key_argument": "key"}},
    )
    with pytest.raises(InvalidInput, match="key"):
        adapter_of(said, tmp_path)


def test_a_remote_server_is_in_its_own_egress_list(tmp_path: Path) -> None:
    url = {"kind": "mcp", "url": "https://tools.example/mcp"}
    with pytest.raises(InvalidInput, match=r"tools\.example:443"):
        adapter_of(file(connection=url), tmp_path)
    reaches = {"external": True, "egress": ["tools.example:443"]}
    assert canonical(adapter_of(file(connection=url, definition=reaches), tmp_path).describe().to_json())
