"""Drafts the adapter file of an MCP server from its lists, as strict as possible: a person reviews and relaxes it.

Every tool is a write that cannot be taken back and that a person approves, until a person states that it only reads.
The annotations that a server gives to its tools can make a draft stricter and never less strict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.adapters.foreign.drafting import (
    TEXT_OUTPUT,
    DraftRow,
    FileDraft,
    capability_names,
    check_drafted,
    drafted_capability,
    noted,
    plain_name,
    require_listed,
)
from contextos.adapters.foreign.texts import Patterns
from contextos.adapters.foreign.tool_schemas import tool_answer, tool_arguments
from contextos.adapters.mcp.definitions import McpConnection, ToolOperation, tool_digest
from contextos.adapters.mcp.listings import UNREADABLE_TOOL
from contextos.contracts.encoding.codec import parse
from contextos.errors import InvalidInput, Problem

_IN_A_HEADER: Final = "x-mcp-header"
"""The keyword of an argument that goes in a header of the request (MCP, SEP-2243)."""

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
    """The statements of the person who drafts, such as the tools that only read and the resources to offer.

    `local`: the server reaches nothing outside of this machine. `only` names the tools to draft; if it is empty, all
    are drafted.
    """

    reads: Collection[str] = ()
    resources: Sequence[str] = ()
    egress: Sequence[str] = ()
    local: bool = False
    only: Collection[str] = ()


def draft_adapter(
    name: str, connection: McpConnection, listed: Sequence[Mapping[str, Any]], stated: Stated
) -> tuple[dict[str, Any], list[DraftRow]]:
    """Return the adapter file of a server as an object, and a row for each tool of the server that is to be drafted.

    Raises:
        InvalidInput: a tool that was stated to read is not listed or not drafted, or no tool can be a capability.
    """
    names = [_tool_name(tool) for tool in listed]
    require_listed(stated.reads, names, "tool")
    require_listed(stated.only, names, "tool")
    if stated.only and (reads := set(stated.reads) - set(stated.only)):
        detail = f"`{min(reads)[:100]}` is left out of the draft: `--only` does not name it"
        raise InvalidInput(Problem("", "read_left_out", detail, "leave it out of `--read`"))
    endpoint = [connection.endpoint()] if connection.is_remote else []
    egress = {*endpoint, *stated.egress}
    draft = FileDraft(external=bool(egress) or not stated.local)
    capabilities = capability_names({tool: plain_name(tool) for tool in names}, name)
    for tool, tool_name in zip(listed, names, strict=True):
        if stated.only and tool_name not in stated.only:
            continue
        capability = capabilities[tool_name] if names.count(tool_name) == 1 and tool_name else ""
        _add_tool(draft, tool, tool_name, capability, reads=tool_name in stated.reads)
    if stated.resources:
        _add_resources(draft, stated.resources)
    return draft.to_file(name, connection, egress), draft.rows


def _tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool, or "" if the name is not a text."""
    name = tool.get("name")
    return name if isinstance(name, str) else ""


def _add_tool(draft: FileDraft, tool: Mapping[str, Any], name: str, capability: str, *, reads: bool) -> None:
    annotations = tool.get("annotations") if isinstance(tool.get("annotations"), dict) else {}
    assert isinstance(annotations, dict), "anything else was replaced"
    reason = "unknown: at its strictest"
    if reads and (annotations.get("readOnlyHint") is False or annotations.get("destructiveHint") is True):
        reads, reason = False, "stated as a read, and the server says that it changes something"
    elif reads:
        reason = "stated as a read"
    try:
        if not capability:
            raise InvalidInput(Problem("", "duplicate", "its name is empty, or another tool has it", "rename it"))
        if isinstance(tool.get(UNREADABLE_TOOL), str):
            raise InvalidInput(Problem("", "unreadable", tool[UNREADABLE_TOOL], "correct it"))
        if isinstance(tool.get("execution"), dict) and tool["execution"].get("taskSupport") == "required":
            raise InvalidInput(Problem("", "task", "it can be called as a task only, which nothing here does", "wait"))
        if _takes_headers(tool.get("inputSchema")):
            detail = f"it takes arguments in headers (`{_IN_A_HEADER}`), which proxies read and log"
            raise InvalidInput(Problem("", "in_headers", detail, "take them in the body"))
        arguments = tool_arguments(tool.get("inputSchema"), draft.patterns)
        output, output_schema, notes = _output_of(tool, draft.patterns)
        reason = noted(reason, [*arguments.notes, *notes])
        capability_fields = drafted_capability(
            capability,
            reads=reads,
            leaves=draft.external or annotations.get("openWorldHint") is True,
            input_schema=arguments.schema,
            output_schema=output_schema,
            description=str(tool.get("description") or tool.get("title") or ""),
        )
        operation: dict[str, Any] = {"tool": name, "digest": tool_digest(tool), "output": output}
        if reads:
            operation["stated_read"] = True
        parse(ToolOperation, operation)
        check_drafted(capability_fields, operation)
    except InvalidInput as refused:
        draft.leave_out(name, refused.problems[0].detail)
        return
    draft.add(name, capability_fields, operation, reason)


def _takes_headers(schema: Any) -> bool:
    """Return whether an argument goes in a header. A property that only has the name of the keyword does not count."""
    waiting: list[tuple[Any, bool]] = [(schema, True)]
    while waiting:
        node, is_schema = waiting.pop()
        if isinstance(node, dict):
            if is_schema and _IN_A_HEADER in node:
                return True
            waiting += [(child, not (is_schema and keyword == "properties")) for keyword, child in node.items()]
        elif isinstance(node, list):
            waiting += [(child, True) for child in node]
    return False


def _add_resources(draft: FileDraft, uris: Sequence[str]) -> None:
    if "read_resource" in draft.capabilities:
        detail = "the server has a tool `read_resource` of its own"
        raise InvalidInput(Problem("", "duplicate", detail, "offer no resources, or edit the file"))
    capability_fields = drafted_capability(
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
    draft.add("(resources)", capability_fields, {"resources": True}, "stated: those that are listed")


def _output_of(tool: Mapping[str, Any], patterns: Patterns) -> tuple[str, dict[str, Any], list[str]]:
    """Return the form of the output, its schema (made from the server's own, if there is one), and notes about it."""
    schema = tool.get("outputSchema")
    if schema is None:
        return "text", dict(TEXT_OUTPUT), []
    try:
        form = tool_answer(schema, patterns)
    except InvalidInput as refused:
        reason = f"its answers are texts, since the schema of them cannot be used: {refused.problems[0].detail}"
        return "text", dict(TEXT_OUTPUT), [reason]
    note = ["its answers can have more than their schema names, which is recorded too"]
    return "structured", form.schema, [*(note if form.schema.get("additionalProperties") is True else []), *form.notes]
