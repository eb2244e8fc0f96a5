"""Backtest: judges the recorded calls of sessions by a pack, with the code that enforces it.

The sessions are played again, call by call, in a deployment in memory: its directory has the recorded users and agents,
its adapters give the recorded answers, and the pack observes. So the Critic and the gateway decide about each call as
in a real run, but nobody is asked, and nothing outside is called. Facts of the graph are not played again: a rule that
needs such a fact denies.
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
"""When the delegation of a recorded user expires, in Unix seconds: far ahead, because time is not played again."""
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
    """An `Adapter` that gives the recorded answer of the call that is being played, whatever its arguments are."""

    unsafe = ("unsafe_recorded_answers",)

    def __init__(self, definition: AdapterDefinition) -> None:
        # Nothing outside is called, so nobody issues a credential.
        bare = [one.model_copy(update={"auth": Authentication(mode="none")}) for one in definition.capabilities]
        self._definition = definition.model_copy(update={"capabilities": tuple(bare)})
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
    """Return the verdict of a whole pack on each call that a tool answered in these sessions.

    Raises:
        InvalidInput: a session is of another tenant than the pack.
        InvalidArtifact: lint refuses the pack with these adapters, or it has a fixed plan.
    """
    tenant = str(pack["pack_meta"]["tenant"])
    by_people: dict[str, list[RecordedSession]] = {}
    for session in sessions:
        if session.request["tenant_id"] != tenant:
            detail = f"`{session.run_id}` is of another tenant than the pack"
            raise InvalidInput(Problem("/tenant", "other_tenant", detail, "name runs of the pack's tenant"))
        people = session.principals.model_copy(update={"delegation": None, "directory_version": None})
        by_people.setdefault(content_address(people.to_json()), []).append(session)
    judged: list[JudgedCall] = []
    for group in by_people.values():
        judged += await _judge(pack, definitions, tenant, group, in_memory)
    return judged


async def _judge(
    pack: Mapping[str, Any],
    definitions: Sequence[AdapterDefinition],
    tenant: str,
    sessions: Sequence[RecordedSession],
    in_memory: MemoryOpener,
) -> list[JudgedCall]:
    """Judge sessions of the same user and agent."""
    observing = {**pack, "pack_meta": {**pack["pack_meta"], "mode": "observe"}}
    adapters = [RecordedAnswers(one) for one in definitions]
    known = {intent["intent_id"] for intent in pack["decision_layer"]["intents"]}
    judged: list[JudgedCall] = []
    async with in_memory(
        packs=[observing],
        lint=False,
        adapters=adapters,
        directory={tenant: _directory(sessions[0].principals)},
        limits=LIMITS,
        egress={tenant: sorted({endpoint for one in definitions for endpoint in one.egress})},
    ) as opened:
        for session in sessions:
            made = [call for call in session.calls if call.status in ("done", "failed")]
            intent = session.request["input"]["intent"]
            if intent in known:
                played = await _play(opened.deployment, tenant, session, made, adapters)
                judged += [_verdict(call, played.get(call.call_id)) for call in made]
            else:
                why = f"the pack has no intent `{intent}`"
                judged += [JudgedCall(call, "deny", ("admission: unknown_intent",), why) for call in made]
    return judged


async def _play(
    deployment: Deployment,
    tenant: str,
    session: RecordedSession,
    calls: Sequence[SessionCall],
    adapters: Sequence[RecordedAnswers],
) -> dict[str, SessionCall]:
    """Make the calls of a session again; return the record of each new call, by its call id."""
    gate = await open_session(
        deployment,
        tenant,
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
    entries = await deployment.ports.stores.tenant(tenant).read(gate.run_id)
    return {one.call_id: one for one in session_calls(gate.run_id, entries)}


def _directory(principals: Principals) -> dict[str, Any]:
    """Return the recorded user and agent as the directory of their tenant, and the delegation as one that lasts."""
    delegated = principals.delegation
    lasting = delegated and delegated.model_copy(update={"expires_at": FOR_EVER})
    return {
        "users": [principals.user.to_json()],
        "agents": [principals.agent.to_json()],
        "delegations": {RECORDED_TOKEN: lasting.to_json()} if lasting else {},
        "approvers": [],
        "limits": principals.tenant.to_json(),
    }


def _verdict(call: SessionCall, played: SessionCall | None) -> JudgedCall:
    """Return the strictest finding about a call that was played again; if it was refused anyway, it is denied."""
    if played is None:
        return JudgedCall(call, "deny", ("session: ended",), "the session ended before it: a budget was used up")
    if played.status == "refused":
        rules = tuple(f"{one['code']}" for one in played.failures)
        return JudgedCall(call, "deny", rules, "; ".join(str(one["detail"]) for one in played.failures))
    verdicts: tuple[BacktestVerdict, ...] = ("deny", "ask")
    for verdict in verdicts:
        found = [one for one in played.findings if one["verdict"] == verdict]
        if found:
            rules = tuple(dict.fromkeys(rule for one in found for rule in rules_of(one)))
            return JudgedCall(call, verdict, rules, str(found[0]["detail"]))
    return JudgedCall(call, "allowed", (), "")
