"""Runs Open Agent Spec flows on WayFlow (extra `wayflow`) from one pause to the next; any process can resume one.

Loads only components that stay inside this process: a flow, its nodes, and tools that the caller passes. Components
that use the network themselves (API calls, MCP, remote agents, models) are refused, because they would bypass the Tool
Gateway.
A paused flow is text. Store it where only the runtime writes: it is trusted when it is loaded, and it resumes only
with the document that it was made from.
Only a person answers a selection. `context_finalize` must come directly after the pause that asks the person. It takes
its answer only from that pause, and only the text that was passed to `resume`, once.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, TypeAlias

from contextos.context.slots.select import bind_selection
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.yaml_text import read_document
from contextos.contracts.envelopes.slots import PickRefused
from contextos.errors import ContextOSError, InvalidInput, InvalidSettings, LostReply, Problem, RepeatedAct
from contextos.telemetry.logs import error_fields
from contextos_agentspec.selection_node import ANSWER
from contextos_agentspec.session import SelectionSession, SlotCall

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

MAX_MESSAGE_CHARS: Final = 300
MAX_STEPS: Final = 1000
"""Steps from one pause to the next. A flow that loops without a pause fails after these."""

FINALIZE: Final = "context_finalize"
_answers: ContextVar[list[str] | None] = ContextVar("_answers", default=None)
"""The person's answer to the pause that the flow resumes from. Reading it removes it from the list."""
_LOG: Final = logging.getLogger("contextos.agentspec")

FlowTools: TypeAlias = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class FlowPaused:
    """The flow waits for a person. It holds the messages shown since the last `resume`, and the state to
    resume from.
    """

    shown: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class FlowFinished:
    """The flow ended, with these outputs."""

    outputs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlowRefused:
    """The flow ended early, because a context slot that fills itself could not be filled."""

    why: PickRefused


FlowOutcome: TypeAlias = FlowPaused | FlowFinished | FlowRefused


class _Stopped(Exception):
    """Carries a refusal out of WayFlow, which has no way to end a flow but an exception."""

    def __init__(self, why: PickRefused) -> None:
        self.why = why


class AgentFlow:
    """A loaded agent flow and the tools that it is allowed to call. It keeps no state between calls."""

    def __init__(self, flow: Any, document_digest: str) -> None:
        self._flow, self._digest = flow, document_digest

    async def begin(self, inputs: Mapping[str, Any]) -> FlowOutcome:
        """Run the flow from its start to its first pause or its end.

        Raises:
            InvalidInput: an input is missing or has the wrong type.
            LostReply: the flow failed; its tools may have had effects.
            ContextOSError: raised by a tool.
        """
        with _caught(lambda why: _refused("/inputs", "bad_inputs", f"the flow cannot start with them: {why}")):
            conversation = self._flow.start_conversation(inputs=dict(inputs))
        return await self._drive(conversation, [])

    async def resume(self, state: str, answer: str) -> FlowOutcome:
        """Resume a paused flow with the person's answer, up to its next pause or its end.

        Raises:
            InvalidInput: `state` is not a state of this document.
            LostReply, ContextOSError: as `begin`.
        """
        from wayflowcore.serialization import autodeserialize
        from wayflowcore.serialization.context import DeserializationContext

        stored = _stored_state(state)
        if stored["document"] != self._digest:
            raise _refused("/state", "other_document", "the state was made from another document")
        # A context remembers what it has read, so each state has its own.
        context = DeserializationContext()
        context.registered_tools = {
            step.tool.name: step.tool
            for flow in _flows_of(self._flow)
            for step in flow.steps.values()
            if hasattr(step, "tool")
        }
        with _caught(lambda why: _refused("/state", "not_a_state", f"the flow cannot resume from it: {why}")):
            conversation = autodeserialize(stored["conversation"], deserialization_context=context)
            conversation.append_user_message(answer)
        return await self._drive(conversation, [answer])

    async def _drive(self, conversation: Any, answers: list[str]) -> FlowOutcome:
        from wayflowcore.events.eventlistener import register_event_listeners
        from wayflowcore.executors.executionstatus import FinishedStatus, UserMessageRequestStatus
        from wayflowcore.messagelist import MessageType
        from wayflowcore.serialization import serialize

        before = len(conversation.get_messages())
        token = _answers.set(answers)
        try:
            with (
                _caught(lambda why: LostReply(f"the flow failed and its tools may have had effects: {why}")),
                register_event_listeners([_step_limit()]),
            ):
                status = await conversation.execute_async()
        except _Stopped as stopped:
            return FlowRefused(stopped.why)
        finally:
            _answers.reset(token)
        if isinstance(status, FinishedStatus):
            return FlowFinished(dict(status.output_values))
        assert isinstance(status, UserMessageRequestStatus), "components that are allowed to load wait for nothing else"
        new = conversation.get_messages()[before:]
        shown = tuple(one.content for one in new if one.message_type != MessageType.USER)
        return FlowPaused(shown, json.dumps({"document": self._digest, "conversation": serialize(conversation)}))


def load_flow(raw: bytes, tools: FlowTools) -> AgentFlow:
    """Load an Open Agent Spec flow from JSON or YAML. `tools` maps the tool names in it to the functions to call.

    Raises:
        InvalidSettings: the extra is not installed.
        MalformedJson, InvalidInput: the document is not a flow that can run here.
    """
    try:
        from wayflowcore.agentspec import AgentSpecLoader
    except ModuleNotFoundError as missing:
        detail = f"`{missing.name}` is not installed"
        raise InvalidSettings(Problem("", "missing_extra", detail, "install `contextos-agentspec[wayflow]`")) from None
    document = read_document(raw)
    if not isinstance(document, dict) or document.get("component_type") != "Flow":
        raise _refused("/component_type", "not_a_flow", "the document is not a flow")
    _only_allowed(document)
    text = canonical(document)
    # WayFlow warns that a resumed flow has more values than outputs, which is intended.
    warnings.filterwarnings("ignore", message="Found additional values", module="wayflowcore")
    loader = AgentSpecLoader(tool_registry=dict(tools), allowed_components=list(ALLOWED))
    with _caught(lambda why: _refused("", "not_loadable", f"WayFlow does not load it: {why}")):
        flow = loader.load_json(text.decode())
    _check_selections(flow)
    return AgentFlow(flow, digest(text))


def _only_allowed(document: JsonValue) -> None:
    """Refuse every component type that is not in `ALLOWED`. WayFlow's own list also admits their subclasses."""
    waiting: list[tuple[JsonValue, tuple[str | int, ...]]] = [(document, ())]
    while waiting:
        value, at = waiting.pop()
        if isinstance(value, dict) and (kind := value.get("component_type")) is not None and kind not in ALLOWED:
            raise _refused(pointer(at), "not_allowed", f"`{str(kind)[:64]}` is not in the allow list")
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(one, (*at, key)) for key, one in inside]


def _check_selections(flow: Any) -> None:
    """Refuse a selection whose answer is not from the pause directly before it, and a tool that asks to be confirmed.

    Checks the loaded flow and not the document, so that the flow that runs is the flow that was checked.
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
            answering = [
                edge.source_step
                for edge in inner.data_flow_edges
                if edge.destination_step is step and edge.destination_input == ANSWER
            ]
            pause = answering[0] if len(answering) == 1 and isinstance(answering[0], InputMessageStep) else None
            if pause is None or not before or any(one is not pause for one in before):
                detail = f"`{step.name[:64]}` does not take its `{ANSWER}` from a pause directly before it"
                raise _refused("", "no_pause", detail)


def _flows_of(flow: Any) -> Iterator[Any]:
    """Yield a flow and the flows inside it, each once, however many steps run it."""
    waiting, seen = [flow], {id(flow)}
    while waiting:
        yield (one := waiting.pop())
        inside = [step.flow for step in one.steps.values() if hasattr(step, "flow") and id(step.flow) not in seen]
        seen |= {id(below) for below in inside}
        waiting += inside


def _step_limit() -> Any:
    """An event listener that fails a flow after `MAX_STEPS` steps without a pause."""
    from wayflowcore.events.event import FlowExecutionIterationStartedEvent
    from wayflowcore.events.eventlistener import GenericEventListener

    steps = count(1)

    def one_more(_event: Any) -> None:
        if next(steps) > MAX_STEPS:
            detail = f"the flow made {MAX_STEPS} steps without waiting for a person; its tools may have had effects"
            raise LostReply(f"{detail}; fix its control edges")

    return GenericEventListener([FlowExecutionIterationStartedEvent], one_more)


class _caught:
    """Turns an exception of WayFlow or of a foreign tool into an error of ours. Errors of ours pass through."""

    def __init__(self, refused: Callable[[str], ContextOSError]) -> None:
        self._refused = refused

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, ContextOSError | _Stopped):
            return
        # A handler of the embedding application is foreign code too: it must not change the outcome.
        with suppress(Exception):
            _LOG.error("a flow raised", extra=error_fields(error))
        # pyagentspec hides the reason behind this message.
        why = "it is not valid" if "required in context" in str(error) else str(error)[:MAX_MESSAGE_CHARS]
        raise self._refused(f"`{type(error).__name__}`: {why}") from None


def selection_tools(session: SelectionSession) -> dict[str, Callable[..., Any]]:
    """Return the tools by which an agent flow fills its context slots: `context_resolve`, `context_finalize`,
    `context_take`.
    """

    async def context_resolve(
        parentRunId: str, parentPackageName: str, slotId: str, projectId: str = ""
    ) -> dict[str, str]:
        call = SlotCall(parentRunId, parentPackageName, slotId, projectId)
        offer = await session.offer(call)
        await session.ask_person(call, offer)
        payload = canonical(offer.payload()).decode()
        return {"payload": payload, "selectionMode": offer.slot.selection_mode, "actKey": offer.act_key}

    async def context_finalize(
        parentRunId: str, parentPackageName: str, slotId: str, actKey: str, userResponse: str, projectId: str = ""
    ) -> dict[str, Any]:
        _check_answered(userResponse)
        call = SlotCall(parentRunId, parentPackageName, slotId, projectId)
        try:
            done = await session.finalize(call, actKey, userResponse)
        except RepeatedAct as repeated:
            # Another conversation of this run used the key. The flow resolves again and gets a new key.
            problem = repeated.problems[0]
            return _not_taken({"code": problem.code, "detail": f"{problem.detail}; pick again", "pointer": ""})
        if isinstance(done, PickRefused):
            return _not_taken(done.to_json())
        return {"contextRefs": [bind_selection(done).to_json()], "verdict": "accepted", "reason": ""}

    async def context_take(
        parentRunId: str, parentPackageName: str, slotId: str, actKey: str, projectId: str = ""
    ) -> list[dict[str, Any]]:
        done = await session.take(SlotCall(parentRunId, parentPackageName, slotId, projectId), actKey)
        if isinstance(done, PickRefused):
            raise _Stopped(done)
        return [bind_selection(done).to_json()]

    return {"context_resolve": context_resolve, "context_finalize": context_finalize, "context_take": context_take}


def _not_taken(why: dict[str, Any]) -> dict[str, Any]:
    return {"contextRefs": [], "verdict": "refused", "reason": canonical(why).decode()}


def _check_answered(answer: str) -> None:
    """Refuse an answer that no person gave to the pause that the flow resumed from. An answer counts once."""
    answers = _answers.get()
    if not answers or answers.pop() != answer:
        detail = f"the flow made up `{ANSWER}`; nobody gave this answer to its pause"
        raise InvalidInput(Problem(f"/{ANSWER}", "nobody_said", detail, "answer the pause with `resume`"))


def _stored_state(state: str) -> dict[str, str]:
    try:
        stored = json.loads(state)
        return {name: str(stored[name]) for name in ("document", "conversation")}
    except (ValueError, TypeError, KeyError):
        raise _refused("/state", "not_a_state", "the text is not the state of a paused flow") from None


def _refused(at: str, code: str, detail: str) -> ContextOSError:
    return InvalidInput(Problem(at, code, detail, "pass what the flow was published with"))
