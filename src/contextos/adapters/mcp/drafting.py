"""Drafts the adapter file of an MCP server from what it lists, at its strictest: a person reviews and lowers it.

Every tool is a write that cannot be taken back and that a person approves, until a person states that it only reads.
What a server says of itself (its annotations) can raise that and never lower it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.action.schema_profile import without_unused_defaults
from contextos.adapters.foreign.drafting import (
    TEXT_OUTPUT,
    DraftRow,
    FileDraft,
    capability_name,
    check_drafted,
    drafted_capability,
    require_listed,
)
from contextos.adapters.mcp.definitions import McpConnection, tool_digest
from contextos.errors import InvalidInput, Problem

MAX_CLOSED_DEPTH: Final = 32
DROPPED_KEYWORDS: Final = ("$schema", "$id")
"""Keywords of a root that say nothing of a value."""

RESOURCE_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["contents", "omitted"],
    "properties": {
        "contents": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "uri"],
                "properties": {"uri": {"type": "string"}, "text": {"type": "string"}},
            },
        },
        "omitted": {"type": "integer", "minimum": 0, "description": "How many parts are no text of it."},
    },
}


@dataclass(frozen=True, slots=True)
class Stated:
    """What the person who drafts states: the tools that only read, the resources to offer, and what it reaches.

    `local` says that the server reaches nothing outside of this machine.
    """

    reads: Collection[str] = ()
    resources: Sequence[str] = ()
    egress: Sequence[str] = ()
    local: bool = False


def draft_adapter(
    name: str, connection: McpConnection, listed: Sequence[Mapping[str, Any]], stated: Stated
) -> tuple[dict[str, Any], list[DraftRow]]:
    """Return the adapter file of a server as an object, and a row for each tool that it lists.

    Raises:
        InvalidInput: a tool that was stated to read is not listed, or no tool can be a capability.
    """
    names = [str(tool.get("name", "")) for tool in listed]
    require_listed(stated.reads, names, "tool")
    endpoint = [connection.endpoint()] if connection.is_remote else []
    egress = {*endpoint, *stated.egress}
    draft = FileDraft(external=bool(egress) or not stated.local)
    for tool in listed:
        _add_tool(draft, tool, names, reads=str(tool.get("name", "")) in stated.reads)
    if stated.resources:
        _add_resources(draft, stated.resources)
    return draft.to_file(name, connection, egress), draft.rows


def _add_tool(draft: FileDraft, tool: Mapping[str, Any], names: list[str], *, reads: bool) -> None:
    name = str(tool.get("name", ""))
    capability = capability_name(name)
    annotations = tool.get("annotations") if isinstance(tool.get("annotations"), dict) else {}
    assert isinstance(annotations, dict), "anything else was replaced"
    why = "unknown: at its strictest"
    if reads and (annotations.get("readOnlyHint") is False or annotations.get("destructiveHint") is True):
        reads, why = False, "stated as a read, and the server says that it changes something"
    elif reads:
        why = "stated as a read"
    try:
        if not capability or capability in draft.capabilities or names.count(name) > 1:
            raise InvalidInput(Problem("", "duplicate", "its name is empty, or another tool has it", "rename it"))
        output, output_schema = _output_of(tool)
        input_schema, unused = without_unused_defaults(_closed(tool.get("inputSchema")))
        if unused:
            why += f"; its default at `{unused[0][:80]}` cannot be used, so a value is required"
        if output == "structured" and output_schema.get("additionalProperties") is True:
            why += "; its answers can have more than their schema names, which is recorded too"
        declared = drafted_capability(
            capability,
            reads=reads,
            leaves=draft.external or annotations.get("openWorldHint") is True,
            input_schema=input_schema,
            output_schema=output_schema,
            description=str(tool.get("description") or tool.get("title") or ""),
        )
        operation: dict[str, Any] = {"tool": name, "digest": tool_digest(tool), "output": output}
        check_drafted(declared)
    except InvalidInput as refused:
        draft.leave_out(name, refused.problems[0].detail)
        return
    if reads:
        operation["stated_read"] = True
    draft.add(name, declared, operation, why)


def _add_resources(draft: FileDraft, uris: Sequence[str]) -> None:
    if "read_resource" in draft.capabilities:
        detail = "the server has a tool `read_resource` of its own"
        raise InvalidInput(Problem("", "duplicate", detail, "offer no resources, or edit the file"))
    declared = drafted_capability(
        "read_resource",
        reads=True,
        leaves=draft.external,
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["uri"],
            "properties": {"uri": {"type": "string", "enum": list(uris)}},
        },
        output_schema=RESOURCE_OUTPUT,
        description="Reads one of the listed resources. Anybody can have written its text.",
    )
    draft.add("(resources)", declared, {"resources": True}, "stated: those that are listed")


def _output_of(tool: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the form of the output and its schema: the server's own, where all of it can be enforced."""
    if isinstance(tool.get("outputSchema"), dict):
        try:
            schema = _as_stated(tool["outputSchema"])
            check_drafted({**_PROBE, "output_schema": schema})
        except InvalidInput:
            return "text", dict(TEXT_OUTPUT)
        return "structured", schema
    return "text", dict(TEXT_OUTPUT)


_PROBE: Final[Mapping[str, Any]] = {
    "name": "probe",
    "kind": "read",
    "risk_level": "read",
    "approval_mode": "read_only",
    "input_schema": {"type": "object", "additionalProperties": False},
    "idempotency": {"strategy": "none"},
}


def _as_stated(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an output. Closed, it would refuse answers of calls that were made; so it says that it is
    open where the server does not say otherwise, as JSON Schema does.
    """
    made = {name: value for name, value in schema.items() if name not in DROPPED_KEYWORDS}
    return (
        made
        if {"additionalProperties", "unevaluatedProperties"} & made.keys()
        else {**made, "additionalProperties": True}
    )


def _closed(schema: Any, depth: int = 0) -> dict[str, Any]:
    """Return a schema whose objects accept no unnamed properties, where it does not say whether they do.

    Raises:
        InvalidInput: it is no object, or nested too deep.
    """
    if not isinstance(schema, dict) or depth > MAX_CLOSED_DEPTH:
        raise InvalidInput(Problem("", "bad_schema", "a schema is no object, or is nested too deep", "leave it out"))
    made = {name: value for name, value in schema.items() if depth or name not in DROPPED_KEYWORDS}
    for name in ("properties", "$defs"):
        if isinstance(made.get(name), dict):
            made[name] = {one: _closed_below(child, depth) for one, child in made[name].items()}
    if "items" in made:
        made["items"] = _closed_below(made["items"], depth)
    # Branches of one object share its properties, so the object is closed, and not each branch.
    shared = "allOf" in made or ("properties" in made and not made.keys().isdisjoint(("anyOf", "oneOf")))
    for name in ("prefixItems",) if shared else ("anyOf", "oneOf", "prefixItems"):
        if isinstance(made.get(name), list):
            made[name] = [_closed_below(child, depth) for child in made[name]]
    is_open = made.get("additionalProperties", True) is not False and made.get("unevaluatedProperties") is not False
    if (not depth and is_open) or (
        ("properties" in made or shared) and made.keys().isdisjoint(("additionalProperties", "unevaluatedProperties"))
    ):
        made["unevaluatedProperties" if shared else "additionalProperties"] = False
    return made


def _closed_below(child: Any, depth: int) -> Any:
    return _closed(child, depth + 1) if isinstance(child, dict) else child
