"""`context_resolve` as an MCP tool (extra `mcp`): lists the artifacts that a slot can take, for agents outside a run.

The client sends the agent's document; only the slot's declaration is read from it. The server sets the actor and the
installed extensions, and refuses a call with a field that it does not know. Nothing is written, because resolving a
slot selects nothing.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from contextos.context.slots.oas import slot_of
from contextos.context.slots.resolve import resolve_installed
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.yaml_text import read_document
from contextos.contracts.envelopes.artifacts import Party
from contextos.contracts.envelopes.slots import SlotActor
from contextos.contracts.model import Model, NotNull
from contextos.contracts.ports.storage import Artifacts, Curation
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, Problem

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

TOOL: Final = "context_resolve"
DESCRIPTION: Final = (
    "List the artifacts that a context slot of an agent can take now, pinned by revision and classification, from the "
    "narrowest scope to the broadest. `parentAgentOas` is the agent's Open Agent Spec document. Reads only."
)


class ResolveCall(Model):
    """The arguments of the tool. `parentAgentOas` is the document as an object, or its JSON or YAML text."""

    parent_agent_oas: Any = Field(alias="parentAgentOas")
    slot_id: str = Field(alias="slotId", min_length=1, max_length=64)
    project_id: Annotated[Party | None, NotNull()] = Field(default_factory=lambda: None, alias="projectId")


async def context_resolve(
    arguments: dict[str, Any], *, actor: SlotActor, artifacts: Artifacts, curation: Curation
) -> dict[str, Any]:
    """Handle one call of the MCP tool: return `slotId`, `resolutionMode` and `refs` (the artifacts that the slot can
    take).

    The result has `more: true` if the store has more than `refs` shows.

    Raises:
        MalformedJson: the document's text is neither JSON nor YAML.
        InvalidInput: the arguments, the document or the slot are not valid, or the actor has no organisation.
    """
    if actor.organization_id is None:
        detail = "there is no active organization"
        raise InvalidInput(Problem("/actor/organization_id", "no_organization", detail, "serve for an actor in one"))
    call = parse(ResolveCall, arguments)
    document = call.parent_agent_oas
    if isinstance(document, str):
        document = read_document(document.encode("utf-8", "replace"))
    slot = slot_of(document, call.slot_id)
    resolution = await resolve_installed(actor, slot, call.project_id, artifacts=artifacts, curation=curation)
    answer = {
        "slotId": resolution.slot_id,
        "resolutionMode": resolution.resolution_mode,
        "refs": [ref.to_json() for ref in resolution.refs],
    }
    return answer | ({"more": True} if resolution.more else {})


def slots_server(actor: SlotActor, artifacts: Artifacts, curation: Curation) -> Server[Any]:
    """Return an MCP server whose one tool lists the artifacts that a context slot can take, for one user.

    Raises:
        InvalidSettings: the extra is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise InvalidSettings(Problem("", "missing_extra", detail, "install `contextos[mcp]`")) from None

    from contextos import __version__

    async def list_tools(_context: Any, _request: Any) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        schema = ResolveCall.model_json_schema(by_alias=True)
        tool = types.Tool(
            name=TOOL, description=DESCRIPTION, input_schema=schema, output_schema=OUTPUT, annotations=hints
        )
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if request.name != TOOL:
                raise InvalidInput(Problem("/name", "unknown_tool", "there is no such tool", f"call `{TOOL}`"))
            answer = await context_resolve(request.arguments or {}, actor=actor, artifacts=artifacts, curation=curation)
        except ContextOSError as error:
            text = "\n".join(str(problem) for problem in getattr(error, "problems", (error,)))
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        content = types.TextContent(type="text", text=canonical(answer).decode())
        return types.CallToolResult(content=[content], structured_content=answer)

    return Server("contextos-slots", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["slotId", "resolutionMode", "refs"],
    "properties": {
        "slotId": {"type": "string"},
        "resolutionMode": {"enum": ["override", "accumulate"]},
        "refs": {"type": "array", "items": {"type": "object"}},
        "more": {"type": "boolean"},
    },
}
