"""Flows in Open Agent Spec, run on WayFlow (extra `agentspec`) from pause to pause, each in any process.

Loads only components that stay inside this process: a flow, its nodes and tools that were handed over. What talks to
the network by itself (API calls, MCP, remote agents, models) is refused, because it would pass by the tool gateway.
A paused flow is text. Keep it where only the runtime writes, as a journal: it is trusted when it comes back, and goes
on only with the very document that it came from.
A selection is answered by a person alone: `context_finalize` stands right behind the pause that asks, takes its answer
from there and from nowhere else, and takes what `resume` was given, once.
Source: issue 4; shared/spec/context-slots-facts.md, section 10.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, TypeAlias

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.slots import PickRefused
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, LostReply, Problem, RepeatedAct
from contextos.slots.lint.documents import read_document
from contextos.slots.select import bind_selection
from contextos.slots.session import SelectionSession, SlotCall

ALLOWED: Final = (
    "Flow",
    "StartNode",
    "EndNode",
    "FlowNode",
    "ToolNode",
    "ServerTool",
    "BranchingNode",
    "InputMessageNode",
    "OutputMessageNode",
    "ControlFlowEdge",
    "DataFlowEdge",
)

MAX_SAID_CHARS: Final = 300
MAX_STEPS: Final = 1000
"""From one pause to the next; a flow that goes round without asking anybody ends there."""

FINALIZE, ANSWER = "context_finalize", "userResponse"
_said: ContextVar[list[str] | None] = ContextVar("_said", default=None)
"""What the person said to the pause that the flow goes on from; whoever takes it empties the list."""

FlowTools: TypeAlias = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class FlowPaused:
    """The flow waits for a person: what it showed since it last ran, and the state to go on from."""

    shown: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class FlowFinished:
    """The flow ended with these outputs."""

    outputs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlowRefused:
    """An autonomous slot could not be filled; the flow ended before its consumer."""

    why: PickRefused


FlowOutcome: TypeAlias = FlowPaused | FlowFinished | FlowRefused


class _Stopped(Exception):
    """Carries a refusal out of WayFlow, which has no way to end a flow but an exception."""

    def __init__(self, why: PickRefused) -> None:
        self.why = why


class AgentFlow:
    """A flow that was loaded, with the tools it may call. It keeps nothing of a run."""

    def __init__(self, flow: Any, document_digest: str) -> None:
        self._flow, self._digest = flow, document_digest

    async def begin(self, inputs: Mapping[str, Any]) -> FlowOutcome:
        """Run from the start to the first pause or the end.

        Raises:
            InvalidInput: an input is missing or not what the flow takes.
            LostReply: the flow failed; its tools may have acted.
            ContextOSError: what a tool raised.
        """
        with _caught(lambda said: _refused("/inputs", "bad_inputs", f"the flow cannot start with them: {said}")):
            conversation = self._flow.start_conversation(inputs=dict(inputs))
        return await self._drive(conversation, [])

    async def resume(self, state: str, answer: str) -> FlowOutcome:
        """Go on from a pause with what the person said.

        Raises:
            InvalidInput: the state is none of this document's.
            LostReply, ContextOSError: as `begin`.
        """
        from wayflowcore.serialization import autodeserialize
        from wayflowcore.serialization.context import DeserializationContext

        kept = _kept(state)
        if kept["document"] != self._digest:
            raise _refused("/state", "other_document", "the agent's document is not the one that the state is of")
        # One context for one state: it remembers what it has read.
        context = DeserializationContext()
        context.registered_tools = {
            step.tool.name: step.tool
            for flow in _flows_of(self._flow)
            for step in flow.steps.values()
            if hasattr(step, "tool")
        }
        with _caught(lambda said: _refused("/state", "not_a_state", f"the flow cannot go on from it: {said}")):
            conversation = autodeserialize(kept["conversation"], deserialization_context=context)
            conversation.append_user_message(answer)
        return await self._drive(conversation, [answer])

    async def _drive(self, conversation: Any, said: list[str]) -> FlowOutcome:
        from wayflowcore.events.eventlistener import register_event_listeners
        from wayflowcore.executors.executionstatus import FinishedStatus, UserMessageRequestStatus
        from wayflowcore.messagelist import MessageType
        from wayflowcore.serialization import serialize

        before = len(conversation.get_messages())
        told = _said.set(said)
        try:
            with (
                _caught(lambda said: LostReply(f"the flow failed and its tools may have acted: {said}")),
                register_event_listeners([_steps_counted()]),
            ):
                status = await conversation.execute_async()
        except _Stopped as stopped:
            return FlowRefused(stopped.why)
        finally:
            _said.reset(told)
        if isinstance(status, FinishedStatus):
            return FlowFinished(dict(status.output_values))
        assert isinstance(status, UserMessageRequestStatus), "what was allowed to load waits for nothing else"
        new = conversation.get_messages()[before:]
        shown = tuple(one.content for one in new if one.message_type != MessageType.USER)
        return FlowPaused(shown, json.dumps({"document": self._digest, "conversation": serialize(conversation)}))


def load_flow(raw: bytes, tools: FlowTools) -> AgentFlow:
    """A flow from its document (JSON or YAML), with the functions that its tools are, by name.

    Raises:
        InvalidSettings: the extra is not installed.
        MalformedJson, InvalidInput: it is no flow that can be run here, and why.
    """
    try:
        from wayflowcore.agentspec import AgentSpecLoader
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise InvalidSettings(Problem("", "missing_extra", detail, "install `contextos[agentspec]`")) from None
    document = read_document(raw)
    if not isinstance(document, dict) or document.get("component_type") != "Flow":
        raise _refused("/component_type", "not_a_flow", "the document is no flow")
    _only_allowed(document)
    text = canonical(document)
    # It warns that a resumed flow knows more values than it hands out; so it should.
    warnings.filterwarnings("ignore", message="Found additional values", module="wayflowcore")
    loader = AgentSpecLoader(tool_registry=dict(tools), allowed_components=list(ALLOWED))
    with _caught(lambda said: _refused("", "not_loadable", f"WayFlow does not load it: {said}")):
        flow = loader.load_json(text.decode())
    _only_answered(flow)
    return AgentFlow(flow, digest(text))


def _only_allowed(document: JsonValue) -> None:
    """Nothing but the very types of `ALLOWED`. WayFlow's own list lets their subclasses in as well."""
    waiting: list[tuple[JsonValue, tuple[str | int, ...]]] = [(document, ())]
    while waiting:
        value, at = waiting.pop()
        if isinstance(value, dict) and (kind := value.get("component_type")) is not None and kind not in ALLOWED:
            raise _refused(pointer(at), "not_allowed", f"`{str(kind)[:64]}` is not in the allow list")
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(one, (*at, key)) for key, one in inside]


def _only_answered(flow: Any) -> None:
    """A selection takes its answer from a pause that control comes straight from, and no tool waits by itself.

    The loaded flow is asked and not the document, so that what is checked is what runs.
    """
    from wayflowcore.steps import InputMessageStep

    for inner in _flows_of(flow):
        for step in inner.steps.values():
            tool = getattr(step, "tool", None)
            if tool is not None and tool.requires_confirmation:
                raise _refused("", "not_allowed", f"the tool `{tool.name[:64]}` waits for a confirmation")
            if tool is None or tool.name != FINALIZE:
                continue
            before = [edge.source_step for edge in inner.control_flow_edges if edge.destination_step is step]
            said = [
                edge.source_step
                for edge in inner.data_flow_edges
                if edge.destination_step is step and edge.destination_input == ANSWER
            ]
            gate = said[0] if len(said) == 1 and isinstance(said[0], InputMessageStep) else None
            if gate is None or not before or any(one is not gate for one in before):
                detail = f"`{step.name[:64]}` does not take its `{ANSWER}` from a pause right before it"
                raise _refused("", "no_pause", detail)


def _flows_of(flow: Any) -> Iterator[Any]:
    """A flow and the flows inside it, each once however many steps run it."""
    waiting, seen = [flow], {id(flow)}
    while waiting:
        yield (one := waiting.pop())
        inside = [step.flow for step in one.steps.values() if hasattr(step, "flow") and id(step.flow) not in seen]
        seen |= {id(below) for below in inside}
        waiting += inside


def _steps_counted() -> Any:
    """Ends a flow that goes round without a pause."""
    from wayflowcore.events.event import FlowExecutionIterationStartedEvent
    from wayflowcore.events.eventlistener import GenericEventListener

    steps = count(1)

    def one_more(_event: Any) -> None:
        if next(steps) > MAX_STEPS:
            detail = f"the flow made {MAX_STEPS} steps without waiting for a person; its tools may have acted"
            raise LostReply(f"{detail}; mend its control edges")

    return GenericEventListener([FlowExecutionIterationStartedEvent], one_more)


class _caught:
    """Turns what WayFlow, or a tool that is not ours, raised into an error of ours; ours pass through."""

    def __init__(self, refused: Callable[[str], ContextOSError]) -> None:
        self._refused = refused

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, ContextOSError | _Stopped):
            return
        # pyagentspec hides what it has to say behind this message.
        said = "it is not valid" if "required in context" in str(error) else str(error)[:MAX_SAID_CHARS]
        raise self._refused(f"`{type(error).__name__}`: {said}") from None


def selection_tools(desk: SelectionSession) -> dict[str, Callable[..., Any]]:
    """The tools of the selection agent, on the desk of one run."""

    async def context_resolve(
        parentRunId: str, parentPackageName: str, slotId: str, projectId: str = ""
    ) -> dict[str, str]:
        offer = await desk.offer(SlotCall(parentRunId, parentPackageName, slotId, projectId))
        payload = canonical(offer.payload()).decode()
        return {"payload": payload, "selectionMode": offer.slot.selection_mode, "actKey": offer.act_key}

    async def context_finalize(
        parentRunId: str, parentPackageName: str, slotId: str, actKey: str, userResponse: str, projectId: str = ""
    ) -> dict[str, Any]:
        _check_said(userResponse)
        call = SlotCall(parentRunId, parentPackageName, slotId, projectId)
        try:
            done = await desk.finalize(call, actKey, userResponse)
        except RepeatedAct as repeated:
            # Another conversation of this run used the key; the flow resolves again and gets a new one.
            told = repeated.problems[0]
            return _not_taken({"code": told.code, "detail": f"{told.detail}; pick again", "pointer": ""})
        if isinstance(done, PickRefused):
            return _not_taken(done.to_json())
        return {"contextRefs": [bind_selection(done).to_json()], "verdict": "accepted", "reason": ""}

    async def context_take(
        parentRunId: str, parentPackageName: str, slotId: str, actKey: str, projectId: str = ""
    ) -> list[dict[str, Any]]:
        done = await desk.take(SlotCall(parentRunId, parentPackageName, slotId, projectId), actKey)
        if isinstance(done, PickRefused):
            raise _Stopped(done)
        return [bind_selection(done).to_json()]

    return {"context_resolve": context_resolve, "context_finalize": context_finalize, "context_take": context_take}


def _not_taken(why: dict[str, Any]) -> dict[str, Any]:
    return {"contextRefs": [], "verdict": "refused", "reason": canonical(why).decode()}


def _check_said(answer: str) -> None:
    """Refuse an answer that is not what a person said to the pause that the flow went on from; it counts once."""
    said = _said.get()
    if not said or said.pop() != answer:
        detail = f"the flow made up `{ANSWER}`; nobody said this to its pause"
        raise InvalidInput(Problem(f"/{ANSWER}", "nobody_said", detail, "answer the pause with `resume`"))


def _kept(state: str) -> dict[str, str]:
    try:
        kept = json.loads(state)
        return {name: str(kept[name]) for name in ("document", "conversation")}
    except (ValueError, TypeError, KeyError):
        raise _refused("/state", "not_a_state", "the text is no state of a paused flow") from None


def _refused(at: str, code: str, detail: str) -> ContextOSError:
    return InvalidInput(Problem(at, code, detail, "give what the flow was published with"))
