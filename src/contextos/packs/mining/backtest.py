"""Backtest: judges the recorded calls of sessions by a pack, with the code that enforces it.

The sessions are replayed call by call in a deployment in memory. Its directory has the recorded users and agents, its
adapters give the recorded answers, and the pack observes. The Critic and the gateway decide about each call as in a
real run. Nobody is asked, and nothing outside is called. Facts of the graph are not replayed, so a rule that needs such
a fact denies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, Authentication, CallContext, ToolError
from contextos.deployment.deployment import Deployment
from contextos.deployment.gate.opening import open_session
from contextos.deployment.queries.observations import RecordedSession, SessionCall, rules_of, session_calls
from contextos.errors import InvalidInput, Problem
from contextos.runtime.environment import RunLimits

BacktestVerdict = Literal["allowed", "ask", "deny"]

RECORDED_TOKEN: Final = "recorded"
FOR_EVER: Final = 4_102_444_800
"""When the delegation of a recorded user expires, in Unix seconds: far ahead, because time is not replayed."""
LIMITS: Final = RunLimits(max_tool_calls=100_000, wall_clock_ms=3_600_000, max_cost_cents=1_000_000)
"""The limits of the deployment: so high that only the limits of the pack count."""


class HasDeployment(Protocol):
    """An object with a deployment, such as an open workspace."""

    @property
    def deployment(self) -> Deployment: ...


MemoryOpener = Callable[..., AbstractAsyncContextManager[HasDeployment]]
"""Opens a deployment in memory: `workspace.in_memory.in_memory`."""


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A recorded call, the verdict of the pack on it, and the rules, gates or checks behind the verdict."""

    call: SessionCall
    verdict: BacktestVerdict
    rules: tuple[str, ...]
    detail: str


class RecordedAnswers:
    """An `Adapter` that gives the recorded answer of the call that is replayed, whatever its arguments are."""

    unsafe = ("unsafe_recorded_answers",)

    def __init__(self, definition: AdapterDefinition) -> None:
        # Nothing outside is called, so nobody issues a credential.
        tools = [tool.model_copy(update={"auth": Authentication(mode="none")}) for tool in definition.capabilities]
        self._definition = definition.model_copy(update={"capabilities": tuple(tools)})
        self.answer: Mapping[str, Any] = {}

    def describe(self) -> AdapterDefinition:
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:  # noqa: ARG002 - the port's signature
        error = self.answer.get("error")
        if error is not None:
            return AdapterReply(error=ToolError.model_validate(error))
        return AdapterReply(output=self.answer.get("output"), mutations=tuple(self.answer.get("mutations", ())))

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:  # noqa: ARG002 - the port's signature
        return None


async def backtest(
    pack: Mapping[str, Any],
    definitions: Sequence[AdapterDefinition],
    sessions: Iterable[RecordedSession],
    in_memory: MemoryOpener,
) -> list[JudgedCall]:
    """Return the verdict of a whole pack on each recorded call that a tool answered.

    Raises:
        InvalidInput: a session is of another tenant than the pack.
        InvalidArtifact: lint refuses the pack with these adapters, or it has a fixed plan.
    """
    tenant_id = str(pack["pack_meta"]["tenant"])
    groups: dict[str, list[RecordedSession]] = {}
    for session in sessions:
        if session.request["tenant_id"] != tenant_id:
            detail = f"`{session.run_id}` is of another tenant than the pack"
            raise InvalidInput(Problem("/tenant", "other_tenant", detail, "name runs of the pack's tenant"))
        principals = session.principals.model_copy(update={"delegation": None, "directory_version": None})
        groups.setdefault(content_address(principals.to_json()), []).append(session)
    judged_calls: list[JudgedCall] = []
    for group in groups.values():
        judged_calls += await _judge(pack, definitions, tenant_id, group, in_memory)
    return judged_calls


async def _judge(
    pack: Mapping[str, Any],
    definitions: Sequence[AdapterDefinition],
    tenant_id: str,
    sessions: Sequence[RecordedSession],
    in_memory: MemoryOpener,
) -> list[JudgedCall]:
    """Judge sessions of the same user and agent."""
    observing = {**pack, "pack_meta": {**pack["pack_meta"], "mode": "observe"}}
    adapters = [RecordedAnswers(definition) for definition in definitions]
    intents = {intent["intent_id"] for intent in pack["decision_layer"]["intents"]}
    judged_calls: list[JudgedCall] = []
    async with in_memory(
        packs=[observing],
        lint=False,
        adapters=adapters,
        directory={tenant_id: _recorded_directory(sessions[0].principals)},
        limits=LIMITS,
        egress={tenant_id: sorted({endpoint for definition in definitions for endpoint in definition.egress})},
    ) as workspace:
        for session in sessions:
            calls = [call for call in session.calls if call.status in ("done", "failed")]
            intent = session.request["input"]["intent"]
            if intent in intents:
                replayed = await _replay(workspace.deployment, tenant_id, session, calls, adapters)
                judged_calls += [_judge_call(call, replayed.get(call.call_id)) for call in calls]
            else:
                reason = f"the pack has no intent `{intent}`"
                judged_calls += [JudgedCall(call, "deny", ("admission: unknown_intent",), reason) for call in calls]
    return judged_calls


async def _replay(
    deployment: Deployment,
    tenant_id: str,
    session: RecordedSession,
    calls: Sequence[SessionCall],
    adapters: Sequence[RecordedAnswers],
) -> dict[str, SessionCall]:
    """Make the calls of a session again. Return the record of each replayed call, by its call id."""
    gate = await open_session(
        deployment,
        tenant_id,
        session.run_id,
        user=session.principals.user.user_id,
        token=RECORDED_TOKEN if session.principals.delegation else None,
        agent=session.principals.agent.agent_id,
        intent=session.request["input"]["intent"],
        context=session.request["input"].get("context", {}),
    )
    for call in calls:
        for adapter in adapters:
            adapter.answer = call.envelope or {}
        await gate.call(call.tool, call.args, call_id=call.call_id)
    entries = await deployment.ports.stores.tenant(tenant_id).read(gate.run_id)
    return {call.call_id: call for call in session_calls(gate.run_id, entries)}


def _recorded_directory(principals: Principals) -> dict[str, Any]:
    """Return the directory of the tenant: the recorded user and agent, and their delegation with a far expiry."""
    recorded = principals.delegation
    delegation = recorded and recorded.model_copy(update={"expires_at": FOR_EVER})
    return {
        "users": [principals.user.to_json()],
        "agents": [principals.agent.to_json()],
        "delegations": {RECORDED_TOKEN: delegation.to_json()} if delegation else {},
        "approvers": [],
        "limits": principals.tenant.to_json(),
    }


def _judge_call(call: SessionCall, replayed: SessionCall | None) -> JudgedCall:
    """Return the strictest verdict on a call, from its replay. `replayed` is None if the session ended before it."""
    if replayed is None:
        return JudgedCall(call, "deny", ("session: ended",), "the session ended before it: a budget was used up")
    if replayed.status == "refused":
        rules = tuple(f"{failure['code']}" for failure in replayed.failures)
        return JudgedCall(call, "deny", rules, "; ".join(str(failure["detail"]) for failure in replayed.failures))
    verdicts: tuple[BacktestVerdict, ...] = ("deny", "ask")
    for verdict in verdicts:
        findings = [finding for finding in replayed.findings if finding["verdict"] == verdict]
        if findings:
            rules = tuple(dict.fromkeys(rule for finding in findings for rule in rules_of(finding)))
            return JudgedCall(call, verdict, rules, str(findings[0]["detail"]))
    return JudgedCall(call, "allowed", (), "")
