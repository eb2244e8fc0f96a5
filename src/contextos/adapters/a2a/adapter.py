"""`A2aAdapter`: the `Adapter` port over an A2A agent: a URL, with code of somebody else.

Before every call the card of the agent is fetched, and the digest of the called skill is compared with the digest in
the adapter file. If it differs, or the skill is gone, nothing is sent.

A call is one message. Its `messageId` is the idempotency key, so a call that is sent again is the same message. The
agent is asked for the task of the message until the task ends or the call's time is over; `tasks` says what each state
means. A call whose capability can be looked up gets the key as its `contextId`, too: a lookup is the list of the tasks
of that context.

Up to the message every fault is `Unavailable`. After it, a fault is `LostReply` for a write and `Unavailable` for a
read. If the agent cannot be asked for the task, that is not a fault before the time of the call is over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from contextos.action.foreign_code import LOOKUP_PASSES, ForeignFaults
from contextos.action.secret_redactor import SecretRedactor
from contextos.adapters.a2a.definitions import A2aConnection, SkillOperation, is_pinned, skill_misfit
from contextos.adapters.a2a.tasks import ACTIVE, AgentAnswer, AgentRefusal, BadAnswer, UnreadableTask, reply_of
from contextos.adapters.foreign.adapter_file import with_auth
from contextos.adapters.foreign.replies import stated_error, unreadable_answer
from contextos.adapters.foreign.server_adapter import ServerAdapter
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, CapabilityDefinition
from contextos.errors import InvalidInput, LostReply, Overloaded, Problem, Unavailable

if TYPE_CHECKING:
    from contextos.adapters.a2a.connection import AgentConnection
    from contextos.adapters.foreign.adapter_file import AdapterFile

FIRST_WAIT_S: Final = 0.05
MAX_WAIT_S: Final = 5.0
"""The wait in seconds before a task is asked for again doubles each time, from `FIRST_WAIT_S` to `MAX_WAIT_S`."""
MAX_POLLS: Final = 100
CARD_TIMEOUT_MS: Final = 30_000
BAD_MESSAGE: Final = frozenset({-32602, -32005})
"""The JSON-RPC errors for wrong parameters and a wrong media type. An agent can send them after an effect too."""


class A2aAdapter(ServerAdapter[SkillOperation]):
    """An adapter whose capabilities are skills of one A2A agent. Nothing is kept open between calls."""

    def __init__(
        self, definition: AdapterDefinition, connection: A2aConnection, operations: Mapping[str, SkillOperation]
    ) -> None:
        super().__init__(definition, operations)
        self._config = connection

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        """Check the card of the agent, send the message, and wait for the end of its task.

        Raises:
            Unavailable: nothing happened.
            LostReply: it may have happened.
        """
        operation, declaration = self._find_operation(capability)
        deadline_s = asyncio.get_running_loop().time() + context.timeout_ms / 1000
        with self._faults(capability, context, is_read=True) as faults:
            agent, card = await self._connect(context, deadline_s, faults)
            hop = context.hop(self._config.url, self._config.tenant) if self._config.hop_claim else ""
            request = _build_message(operation, declaration, args, context, hop)
            redact = self._redactor(context, hop).redact
        if not is_pinned(operation, card):
            return self._drift(capability)
        if context.is_late():
            raise Overloaded(self._definition.adapter_id, "its time was over before it had its turn")
        with self._faults(capability, context, is_read=declaration.kind == "read") as faults:
            try:
                async with asyncio.timeout_at(deadline_s):
                    reply = await self._send(agent, request, operation, declaration, redact)
            except TimeoutError:
                faults.uncertain(f"its task did not end in {context.timeout_ms} ms")
            except BadAnswer as bad:
                faults.uncertain(str(bad))
            except UnreadableTask as fault:
                final = fault.done if declaration.kind == "write" else fault.whole
                reply = unreadable_answer(fault.problem, declaration, redact, final=final)
            except LostReply:
                if declaration.kind == "write":
                    raise
                faults.uncertain("no whole answer came")
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """Find the task of a call whose capability has the strategy `lookup`, and wait for its end.

        Raises:
            LostReply: it is still not known what happened. If the agent lists no task, that proves nothing.
        """
        declaration = self._declared.get(capability)
        can_look = declaration is not None and declaration.idempotency.strategy == "lookup"
        if declaration is None or not can_look:
            raise LostReply(f"`{self._definition.adapter_id}.{capability}` cannot be looked up; settle it by hand")
        operation = self._operations[capability]
        deadline_s = asyncio.get_running_loop().time() + context.timeout_ms / 1000
        with self._faults(capability, context, is_read=False, passing=LOOKUP_PASSES) as faults:
            agent, card = await self._connect(context, deadline_s, faults)
            if not is_pinned(operation, card):
                faults.uncertain("the server does not list it as it was published; nothing was asked")
            try:
                async with asyncio.timeout_at(deadline_s):
                    answer = await _await_end(agent, await agent.only_task(idempotency_key))
                    reply = reply_of(answer, operation, declaration, self._redactor(context).redact)
            except TimeoutError:
                faults.uncertain(f"its task did not end in {context.timeout_ms} ms")
            except BadAnswer as bad:
                faults.uncertain(str(bad))
        return reply

    async def drifted(self) -> frozenset[str]:
        """Ask the agent for its card, and return the capabilities that are not as they were published.

        Raises:
            Unavailable: the agent does not answer.
        """
        context = CallContext("", "", "", None, 0, CARD_TIMEOUT_MS)
        deadline_s = asyncio.get_running_loop().time() + CARD_TIMEOUT_MS / 1000
        with self._faults("card", context, is_read=True) as faults:
            _, card = await self._connect(context, deadline_s, faults)
        return frozenset(name for name, operation in self._operations.items() if not is_pinned(operation, card))

    def close(self) -> None:
        """Do nothing: no connection outlives a call."""

    async def _connect(
        self, context: CallContext, deadline_s: float, faults: ForeignFaults
    ) -> tuple[AgentConnection, dict[str, Any]]:
        """Return a connection for one call, and the card of the agent."""
        from contextos.adapters.a2a.connection import AgentConnection

        try:
            async with asyncio.timeout_at(deadline_s):
                agent = AgentConnection(self._config, os.environ, context.headers(), context.access_token)
                return agent, await agent.card()
        except TimeoutError:
            faults.uncertain(f"it did not send its card in {context.timeout_ms} ms")

    async def _send(
        self,
        agent: AgentConnection,
        request: Any,
        operation: SkillOperation,
        declaration: CapabilityDefinition,
        redact: Callable[[Any], Any],
    ) -> AdapterReply:
        """Send the message, and return the reply when its task ended."""
        try:
            first = await agent.send(request)
        except AgentRefusal as refusal:
            reply = _refusal_reply(refusal, declaration, redact(refusal.said))
            if reply is None:
                raise
            return reply
        if (context_id := request.message.context_id) and first.context_id != context_id:
            raise BadAnswer("the agent answered in the context of another call")
        return reply_of(await _await_end(agent, first), operation, declaration, redact)

    def _redactor(self, context: CallContext, hop: str = "") -> SecretRedactor:
        return SecretRedactor([*self._config.secrets(os.environ), context.access_token, hop])


def a2a_adapter(file: AdapterFile) -> A2aAdapter:
    """Make the adapter of a file of the kind `a2a`, without connecting.

    Raises:
        InvalidInput: the connection or an operation is not valid, the egress list lacks the agent, an operation does
            not fit its capability, or the extra `a2a` is not installed.
    """
    require_a2a()
    connection = parse(A2aConnection, file.connection, at="/connection")
    connection.check()
    if (connection.is_remote or connection.audience) and connection.endpoint() not in file.definition.egress:
        remedy = f"add `{connection.endpoint()}` to `egress`, and set `external` to true"
        raise InvalidInput(Problem("/definition/egress", "no_egress_list", "it lacks the agent itself", remedy))
    operations: dict[str, SkillOperation] = {}
    for capability in file.definition.capabilities:
        operation = parse(SkillOperation, file.operations[capability.name], at=pointer(("operations", capability.name)))
        if (fault := skill_misfit(operation, capability)) is not None:
            raise InvalidInput(Problem(f"/operations/{capability.name}", "misfit", *fault))
        operations[capability.name] = operation
    definition = with_auth(file.definition, dict.fromkeys(operations, connection.auth))
    return A2aAdapter(definition, connection, operations)


def require_a2a() -> None:
    """Raise `InvalidInput` where the extra `a2a` is not installed."""
    if find_spec("a2a") is None:
        raise InvalidInput(Problem("", "missing_extra", "`a2a-sdk` is not installed", "install `contextos[a2a]`"))


def _build_message(
    operation: SkillOperation,
    declaration: CapabilityDefinition,
    args: Mapping[str, Any],
    context: CallContext,
    hop: str,
) -> Any:
    from contextos.adapters.a2a.connection import message_of

    key = context.idempotency_key
    context_id = key if declaration.idempotency.strategy == "lookup" else None
    return message_of(operation, args, key or str(uuid4()), context_id, hop)


async def _await_end(agent: AgentConnection, answer: AgentAnswer) -> AgentAnswer:
    """Ask for the task again, after growing waits, until it is no longer active.

    Raises:
        BadAnswer: the agent answered with another task, or the task does not end.
    """
    wait_s = FIRST_WAIT_S
    for _ in range(MAX_POLLS):
        if answer.state not in ACTIVE:
            return answer
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, MAX_WAIT_S)
        try:
            current = await agent.task(answer.task_id)
        except (Unavailable, LostReply):
            # Asking again changes nothing, and the time of the call limits it.
            continue
        if (current.task_id, current.context_id) != (answer.task_id, answer.context_id):
            raise BadAnswer("the agent answered with another task")
        answer = current
    raise BadAnswer(f"the agent was asked {MAX_POLLS} times, and its task did not end")


def _refusal_reply(refusal: AgentRefusal, declaration: CapabilityDefinition, text: str) -> AdapterReply | None:
    """Return the reply for a refusal after which certainly nothing happened, or None if that is not certain."""
    if refusal.over_http:
        return stated_error(f"http_{refusal.code}", "the agent refuses the token of the connection", declaration)
    if refusal.code in BAD_MESSAGE and declaration.kind == "read":
        return stated_error("message_refused", text, declaration)
    return None
