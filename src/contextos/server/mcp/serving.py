"""Serves the tools of a pack to any MCP client (extra `mcp`), each call through the gate of the client's session.

A client lists the tools that the pack grants to its user through its agent, and `finish_session`. It needs to know
nothing of ContextOS. Protocol revisions 2026-07-28 and 2025-11-25.
A call that waits for a person is answered at once. With the extension `io.modelcontextprotocol/tasks` (2026-07-28) the
answer is a task, and `tasks/get` returns the outcome of the call. Every other client gets a result that says what to
do. No client is ever asked to approve (`elicitation`): it acts for the requester, who cannot approve their own call.
Source: docs/adr/0041-an-mcp-client-is-governed-as-a-session.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.ports.gates import CallAnswer, Waiting
from contextos.deployment.gate.gate import REMEDIES
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, Problem
from contextos.frameworks.offers import OfferedTool
from contextos.server.mcp.answers import call_result, error_result, for_client, utc_text, waiting_text
from contextos.server.mcp.calls import SessionCalls, unknown_call
from contextos.server.mcp.sessions import Callers, ServedSessions

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.lowlevel import Server

TASKS: Final = "io.modelcontextprotocol/tasks"
FINISH_TOOL: Final = "finish_session"
POLL_MS: Final = 2_000

INSTRUCTIONS: Final = (
    "Every call is judged by policy and recorded. A call can be refused, with reasons that you can act on. It can also "
    "wait for a person: its result has `status: waiting`, and is marked as an error only so that nobody takes it for "
    "done. It is not final. Do not try another way; tell your user, and later make exactly the same call again. "
    "When the task is done or given up, call `finish_session`."
)

FINISH_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "outcome": {
            "type": "string",
            "enum": ["approved", "denied", "escalated"],
            "description": "approved: what was asked for is done, or was only read; denied: nothing was done; "
            "escalated: a person has to decide.",
        },
        "reason": {"type": "string", "maxLength": 2000, "description": "Why, in one sentence."},
    },
    "required": ["outcome"],
    "additionalProperties": False,
}


_REFERENCE: Final = re.compile(r'"\$ref":"([^"]*)"')

STATUS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"status": {"enum": ["waiting", "refused", "failed", "done"]}},
    "required": ["status"],
}
"""The schema of an answer without output: the call waits, was refused or failed, or its answer is withheld."""


def governed_server(sessions: ServedSessions, callers: Callers) -> Server[Any]:
    """Return an MCP server that serves the tools of `sessions` to the clients that `callers` identifies.

    A session opens with its first call. Listing tools and asking for a task open none.

    Raises:
        InvalidSettings: the extra is not installed.
    """
    try:
        from mcp import MCPError, types
        from mcp.server.lowlevel import Server
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise InvalidSettings(Problem("", "missing_extra", detail, "install `contextos[mcp]`")) from None

    from contextos import __version__

    async def calls_of(context: Any, meta: Mapping[str, Any] | None = None) -> SessionCalls:
        return await sessions.calls(await callers.client(context), meta)

    async def list_tools(context: Any, _request: Any) -> types.ListToolsResult:
        try:
            visitor = await callers.visitor(context)
            # An open session belongs to its own delegation, which a later token of its user renews.
            client = await callers.client(context) if await sessions.is_open(visitor) else visitor
            offered = await sessions.offered(client)
        except ContextOSError as error:
            raise MCPError(types.INVALID_PARAMS, for_client(error)) from None
        return types.ListToolsResult(tools=[*(_mcp_tool(*tool) for tool in offered), _finish_tool()])

    async def call_tool(context: Any, request: types.CallToolRequestParams) -> Any:
        arguments = request.arguments or {}
        try:
            calls = await calls_of(context, request.meta)
            if request.name == FINISH_TOOL:
                return await _finish(calls, arguments)
            answer = await calls.call(request.name, arguments)
        except ContextOSError as error:
            return error_result(error)
        waits_itself = isinstance(answer, Waiting) and answer.about == answer.call_id
        if waits_itself and _takes_tasks(context):
            assert isinstance(answer, Waiting)
            return {"resultType": "task", **await _task(calls, answer.call_id, "working", _waiting_text(answer, calls))}
        return _mcp_result(answer, calls)

    def check_task_request(context: Any, task_id: str) -> None:
        """Refuse a client that does not declare tasks, and an HTTP request whose header names another task.

        A request without that header is served, because clients of the SDK send none for a task.
        """
        if not _takes_tasks(context):
            detail = f"the client does not declare the extension `{TASKS}`; make the same call again instead"
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, detail, needed)
        if context.request is not None and context.request.headers.get("mcp-name", task_id) != task_id:
            detail = "the header `Mcp-Name` names another task than `taskId`; send the same in both"
            raise MCPError(types.HEADER_MISMATCH, detail)

    async def get_task(context: Any, request: TaskParams) -> dict[str, Any]:
        check_task_request(context, request.task_id)
        try:
            if not await sessions.is_open(await callers.visitor(context)):
                raise unknown_call(request.task_id)
            calls = await calls_of(context)
            answer = await calls.again(request.task_id)
        except ContextOSError as error:
            raise MCPError(types.INVALID_PARAMS, for_client(error)) from None
        if isinstance(answer, Waiting):
            return await _task(calls, request.task_id, "working", _waiting_text(answer, calls))
        result = _mcp_result(answer, calls).model_dump(by_alias=True, mode="json", exclude_none=True)
        task = await _task(calls, request.task_id, "completed", "answered")
        return {**task, "result": {**result, "resultType": "complete"}}

    async def change_task(context: Any, request: TaskParams) -> dict[str, Any]:
        check_task_request(context, request.task_id)
        detail = "a task here waits for a person who is asked elsewhere; its client can neither answer nor cancel it"
        raise MCPError(types.INVALID_PARAMS, f"{detail}; an operator can (`contextos runs cancel`)")

    class TaskParams(types.RequestParams):
        task_id: str

    server: Server[Any] = Server(
        "contextos", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, get_task)
    server.add_request_handler("tasks/update", TaskParams, change_task)
    server.add_request_handler("tasks/cancel", TaskParams, change_task)
    return server


def _mcp_tool(offered: OfferedTool, definition: CapabilityDefinition) -> types.Tool:
    """Return one tool as its registry describes it, with hints from its declared kind and risk level."""
    from mcp import types

    reads = definition.kind == "read"
    hints = types.ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=definition.risk_level == "write_irreversible",
        # A repeated write of a session is the same operation.
        idempotent_hint=True,
        open_world_hint=True,
    )
    return types.Tool(
        name=offered.name,
        description=offered.description,
        input_schema=dict(offered.input_schema),
        output_schema=_output_schema(definition.output_schema),
        annotations=hints,
    )


def _output_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the answers of a tool: its own output schema, or `STATUS_SCHEMA`.

    Clients check `structuredContent` against it also where `isError` is true, so it has to describe both. The
    definitions of the tool's schema stay at the root, where its references look for them. For a schema with references
    to another place, return None.
    """
    if any(not reference.startswith("#/$defs/") for reference in _REFERENCE.findall(canonical(schema).decode())):
        return None
    output = {name: value for name, value in schema.items() if name != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", **shared, "anyOf": [output, STATUS_SCHEMA]}


def _finish_tool() -> types.Tool:
    from mcp import types

    hints = types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    description = "End the session with its outcome. It gets its decision record, and no call is possible any more."
    return types.Tool(name=FINISH_TOOL, description=description, input_schema=FINISH_SCHEMA, annotations=hints)


async def _finish(calls: SessionCalls, arguments: Mapping[str, Any]) -> types.CallToolResult:
    from mcp import types

    unknown = [name for name in arguments if name not in FINISH_SCHEMA["properties"]]
    if unknown:
        detail = f"`{str(unknown[0])[:80]}` is not an argument of `{FINISH_TOOL}`"
        raise InvalidInput(Problem(f"/{unknown[0][:80]}", "unknown_argument", detail, "leave it out"))
    outcome: Any = arguments.get("outcome")
    view = await calls.gate.finish(outcome, arguments.get("reason", ""))
    record = view.record or {}
    failures = (record.get("rationale") or {}).get("failures") or []
    texts = ((failure["code"], failure["detail"]) for failure in failures)
    reasons = [{"code": code, "detail": detail, "remedy": REMEDIES[code]} for code, detail in texts]
    document = {
        "status": record.get("status"),
        "outcome": record.get("outcome"),
        "run": view.run_id,
        "record": record.get("record_id"),
        **({"reasons": reasons} if reasons else {}),
    }
    text = canonical(document).decode()
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=document)


def _mcp_result(answer: CallAnswer, calls: SessionCalls) -> types.CallToolResult:
    return call_result(answer, calls.gate.run_id, sorted(calls.offered), calls.link)


def _takes_tasks(context: Any) -> bool:
    """Return whether the client declares the tasks extension, which only the newest revision has."""
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS

    capabilities = context.session.client_capabilities
    declared = (capabilities.extensions or {}) if capabilities else {}
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and TASKS in declared


def _waiting_text(waiting: Waiting, calls: SessionCalls) -> str:
    return waiting_text(waiting, calls.gate.run_id, calls.link)


async def _task(calls: SessionCalls, call_id: str, status: str, message: str) -> dict[str, Any]:
    """Return the task of a call. `ttlMs` is None, because the journal keeps the call as long as the run."""
    asked_us, changed_us = await calls.times_of(call_id)
    return {
        "taskId": call_id,
        "status": status,
        "statusMessage": message,
        "createdAt": utc_text(asked_us),
        "lastUpdatedAt": utc_text(changed_us),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
