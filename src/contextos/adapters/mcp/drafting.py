"""Drafts the adapter file of an MCP server from what it lists, at its strictest: a person reviews and lowers it.

Every tool is a write that cannot be taken back and that a person approves, until a person states that it only reads.
What a server says of itself (its annotations) can raise that and never lower it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.action.registry import Registry
from contextos.adapters.adapter_file import ADAPTER_FILE_FORMAT
from contextos.adapters.mcp.definitions import McpConnection, capability_name, tool_digest
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.errors import InvalidInput, Problem

MAX_DRAFTED_CHARS: Final = 2_000
MAX_CLOSED_DEPTH: Final = 32
DROPPED_KEYWORDS: Final = ("$schema", "$id")
"""Keywords of a root that say nothing of a value."""

TEXT_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["omitted", "texts"],
    "properties": {
        "texts": {"type": "array", "items": {"type": "string"}},
        "omitted": {"type": "integer", "minimum": 0, "description": "How many parts are no text."},
    },
}
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
        "omitted": {"type": "integer", "minimum": 0, "description": "How many parts are no text."},
    },
}


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One tool of a draft: `capability` is "" if it is left out; `why` says why it is what it is."""

    tool: str
    capability: str
    kind: str
    mode: str
    why: str


@dataclass(frozen=True, slots=True)
class Stated:
    """What the person who drafts states: the tools that only read, the resources to offer, and what it reaches.

    `local` says that the server reaches nothing outside of this machine.
    """

    reads: Collection[str] = ()
    resources: Sequence[str] = ()
    egress: Sequence[str] = ()
    local: bool = False


@dataclass(slots=True)
class _Draft:
    external: bool
    capabilities: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[DraftRow] = field(default_factory=list)


def draft_adapter(
    name: str, connection: McpConnection, listed: Sequence[Mapping[str, Any]], stated: Stated
) -> tuple[dict[str, Any], list[DraftRow]]:
    """Return the adapter file of a server as an object, and a row for each tool that it lists.

    Raises:
        InvalidInput: a tool that was stated to read is not listed, or no tool can be a capability.
    """
    names = [str(tool.get("name", "")) for tool in listed]
    if missing := sorted(set(stated.reads) - set(names)):
        detail = f"the server lists no tool `{missing[0][:80]}`"
        raise InvalidInput(Problem("", "no_such_tool", detail, "name one that it lists"))
    endpoint = [connection.endpoint()] if connection.is_remote else []
    egress = sorted({*endpoint, *stated.egress})
    draft = _Draft(external=bool(egress) or not stated.local)
    for tool in listed:
        _add_tool(draft, tool, names, reads=str(tool.get("name", "")) in stated.reads)
    if stated.resources:
        _add_resources(draft, stated.resources)
    if not draft.capabilities:
        why = draft.rows[0].why if draft.rows else "it lists none"
        raise InvalidInput(Problem("", "no_tools", f"no tool of the server can be used: {why}", "use another server"))
    definition = {
        "adapter_id": name,
        "type": "mcp",
        "version": "1",
        "external": draft.external,
        "egress": egress,
        "capabilities": list(draft.capabilities.values()),
    }
    said = connection.to_json()
    used = {member: value for member, value in said.items() if value not in ("", [], None, False)}
    file = {"format": ADAPTER_FILE_FORMAT, "connection": used, "definition": definition, "operations": draft.operations}
    parse(AdapterDefinition, definition)
    return file, draft.rows


def _add_tool(draft: _Draft, tool: Mapping[str, Any], names: list[str], *, reads: bool) -> None:
    name = str(tool.get("name", ""))
    capability = capability_name(name)
    annotations = tool.get("annotations") if isinstance(tool.get("annotations"), dict) else {}
    assert isinstance(annotations, dict), "anything else was replaced"
    why = "unknown: at its strictest"
    if reads and (annotations.get("readOnlyHint") is False or annotations.get("destructiveHint") is True):
        reads, why = False, "stated as a read, and the server says that it changes something"
    elif reads:
        why = "stated as a read"
    leaves = draft.external or annotations.get("openWorldHint") is True
    mode = ("network" if leaves else "read_only") if reads else "destructive"
    kind = "read" if reads else "write"
    try:
        if not capability or capability in draft.capabilities or names.count(name) > 1:
            raise InvalidInput(Problem("", "duplicate", "its name is empty, or another tool has it", "rename it"))
        output, output_schema = _output_of(tool)
        declared = {
            "name": capability,
            "kind": kind,
            "risk_level": "read" if reads else "write_irreversible",
            "approval_mode": mode,
            "input_schema": _closed(tool.get("inputSchema")),
            "output_schema": output_schema,
            "idempotency": {"strategy": "none"},
            "timeout_s": 30,
            "description": str(tool.get("description") or tool.get("title") or "")[:MAX_DRAFTED_CHARS],
        }
        digest = tool_digest(tool)
        _check(declared)
    except InvalidInput as refused:
        first = refused.problems[0]
        draft.rows.append(DraftRow(name, "", "", "", f"left out: {first.detail}"))
        return
    draft.capabilities[capability] = declared
    draft.operations[capability] = {"tool": name, "digest": digest, "output": output}
    if reads:
        draft.operations[capability]["stated_read"] = True
    draft.rows.append(DraftRow(name, capability, kind, mode, why))


def _add_resources(draft: _Draft, uris: Sequence[str]) -> None:
    if "read_resource" in draft.capabilities:
        detail = "the server has a tool `read_resource` of its own"
        raise InvalidInput(Problem("", "duplicate", detail, "offer no resources, or edit the file"))
    mode = "network" if draft.external else "read_only"
    draft.capabilities["read_resource"] = {
        "name": "read_resource",
        "kind": "read",
        "risk_level": "read",
        "approval_mode": mode,
        "input_schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["uri"],
            "properties": {"uri": {"type": "string", "enum": list(uris)}},
        },
        "output_schema": dict(RESOURCE_OUTPUT),
        "idempotency": {"strategy": "none"},
        "timeout_s": 30,
        "description": "Reads one of the listed resources. Its text is untrusted, and its origin is the URI.",
    }
    draft.operations["read_resource"] = {"resources": True}
    draft.rows.append(DraftRow("(resources)", "read_resource", "read", mode, "stated: those that are listed"))


def _output_of(tool: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the form of the output and its schema: the server's own, where all of it can be enforced."""
    if isinstance(tool.get("outputSchema"), dict):
        try:
            schema = _closed(tool["outputSchema"])
            _check({**_PROBE, "output_schema": schema})
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


def _check(declared: Mapping[str, Any]) -> None:
    """Refuse a capability whose schemas the registry refuses. Raises `InvalidInput`."""
    capability = parse(CapabilityDefinition, dict(declared))
    Registry().register((AdapterDefinition(adapter_id="draft", type="mcp", version="1", capabilities=(capability,)),))


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
