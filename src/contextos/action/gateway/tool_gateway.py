"""Take every call through `GUARDS` in order, send it to its adapter, and check the reply (the Tool Gateway).

A guard adds its findings to the call, or returns a `Refusal`. A refused call never reaches an adapter, and the
refusal is recorded. A call that can have an effect is recorded durably before it is sent.
Source: docs/design/architecture.md, step 11; API Contracts, "ToolResultEnvelope statuses".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from contextos.action.budget import exceeded_limit, overrun_limit, with_dispatch
from contextos.action.gateway import guards, history, origins
from contextos.action.gateway.dispatcher import Dispatcher
from contextos.action.gateway.evidence import evidence_about
from contextos.action.gateway.guarded_call import Guard, GuardContext, Refusal
from contextos.action.gateway.observing import observe
from contextos.action.quarantine import can_drift
from contextos.contracts.envelopes.plan import PlanStep
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.tool import Citation, ToolCallEnvelope, ToolError, ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Policy
from contextos.contracts.refs import policy_ref, tool_ref
from contextos.contracts.scope import Capability

GUARDS: Final[tuple[Guard, ...]] = (
    guards.not_cancelled,
    guards.surfaced,
    guards.not_quarantined,
    guards.well_formed,
    guards.consistent_with_request,
    guards.in_session,
    history.history_known,
    origins.traced,
    guards.policy_allows,
    origins.destinations_trusted,
    guards.within_egress,
    guards.within_budget,
    history.not_denied_before,
    guards.idempotency_check,
    guards.consented,
    guards.evidence_frozen,
    guards.approved,
    guards.still_not_quarantined,
    guards.credentialed,
    history.reserved,
    guards.in_session,
)
"""The guards, in the order in which a call passes them."""

_APPLIES: Final[Mapping[Guard, Callable[[Capability, Policy], bool]]] = {
    guards.not_quarantined: lambda tool, _: can_drift(tool),
    guards.consistent_with_request: lambda tool, _: any(permission.agrees_with for permission in tool.permissions),
    history.history_known: history.needs_history,
    origins.destinations_trusted: lambda tool, _: bool(tool.destinations),
    guards.within_egress: lambda tool, _: tool.leaves,
    guards.idempotency_check: lambda tool, _: tool.definition.kind == "write" or bool(tool.destinations),
    guards.consented: lambda tool, _: bool(tool.consents),
    guards.still_not_quarantined: lambda tool, _: can_drift(tool),
    history.reserved: history.needs_history,
}
"""The guards that can refuse calls of some tools only, each with a test of the tool and the policy for that."""


def guards_of(tool: Capability, policy: Policy) -> tuple[Guard, ...]:
    """Return the guards that can refuse a call of a tool under a policy, in order. The pins of the run decide them."""
    return tuple(guard for guard in GUARDS if guard not in _APPLIES or _APPLIES[guard](tool, policy))


OBSERVED: Final[tuple[Guard, ...]] = (
    guards.surfaced,
    guards.consistent_with_request,
    history.history_known,
    guards.policy_allows,
    origins.destinations_trusted,
    guards.consented,
    guards.evidence_frozen,
    guards.approved,
)
"""The guards whose refusals are recorded and not enforced where the pack of the run observes."""


@final_fields
class Gateway:
    """The tool gateway of one run: every call to an external system goes through it. Implements the port `Tools`."""

    context: GuardContext

    async def call(self, call: ToolCall) -> ToolResultEnvelope:
        """Check one call, send it to its adapter and return the result. A refusal is a result, never an exception."""
        try:
            refusal = await self._check(call)
            return refusal or self._result(call, await self._dispatcher().deliver(call))
        finally:
            self.context.ports.barrier.forget()

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResultEnvelope]:
        """Check several reads in order, then send those that passed at the same time.

        The results are in the order of `calls` and end with the first refusal.
        """
        passed: list[ToolCall] = []
        refusals: list[ToolResultEnvelope] = []
        for call in calls:
            refusal = await self._check(call)
            if refusal is not None:
                refusals.append(refusal)
                break
            passed.append(call)
        self.context.ports.barrier.forget()
        if passed and (session_refusal := guards.session_end(self.context)):
            # The session ended while the later calls were checked.
            return [self._record_refusal(passed[0], session_refusal)]
        delivered = await self._dispatcher().deliver_all(passed)
        results = [self._result(*pair) for pair in zip(passed, delivered, strict=False)]
        return results if delivered and isinstance(delivered[-1], Failure) else [*results, *refusals]

    def overrun(self) -> str | None:
        """Return the limit on cost or wall clock that the run is above after the calls so far, or None."""
        return overrun_limit(self.context.scope.run.run_budget, self.context.ports.spent())

    def sent_together(self, steps: Sequence[PlanStep]) -> int:
        """Return how many of these reads, counted from the first, can be sent at the same time.

        Together they must fit the budget, and no policy rule may read evidence that one of them produces. A read that
        a history fact counts is sent alone, because it must be counted before the next is decided. A read whose rules
        need the clock is sent alone too.
        """
        spent, produced = self.context.ports.spent(), set[str]()
        counted = {tool for fact in self.context.policy.history.values() for tool in fact.counted()}
        for count, step in enumerate(steps):
            if step.tool in counted or self.context.policy.hours_of(step.tool):
                return max(count, 1)
            definition = self.context.scope.tools.capabilities[step.tool].definition
            depends = any(map(self.context.policy.reads_evidence, produced))
            if depends or exceeded_limit(self.context.scope.run.run_budget, spent, definition):
                return count
            spent = with_dispatch(spent, definition)
            produced.update(definition.produces)
        return len(steps)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self.context)

    async def _check(self, call: ToolCall) -> ToolResultEnvelope | None:
        """Take a call through every guard; return the result of the refusal, or None if all of them pass it."""
        context = self.context
        call.tool_call_id = derive("tool_", context.scope.run.run_id, "tool", call.key)
        capability = context.scope.tools.capabilities.get(call.step.tool)
        if capability is None:
            detail = f"`{call.step.tool}` is not registered; surface it in the pack"
            return self._record_refusal(call, Refusal("rejected", "tool_not_in_manifest", detail), has_envelope=False)
        call.capability, call.evidence = capability, evidence_about(capability, call)
        guards.expect(context, call)
        checks = context.guards.get(capability.capability_id, GUARDS)
        if context.scope.observes:
            checks = tuple(partial(observe, guard=guard) if guard in OBSERVED else guard for guard in checks)
        for guard in checks:
            refusal = await guard(context, call)
            if refusal is not None:
                call.decision = refusal.decision or call.decision
                call.envelope = self.envelope(call)
                return self._record_refusal(call, refusal)
        call.envelope = self.envelope(call)
        return None

    def _result(self, call: ToolCall, result: ToolResultEnvelope | Failure) -> ToolResultEnvelope:
        """Return the result of a call, or the recorded refusal if the issuer refused its credential."""
        if isinstance(result, ToolResultEnvelope):
            return result
        return self._record_refusal(call, Refusal("blocked", result.code, result.detail))

    def envelope(self, call: ToolCall) -> ToolCallEnvelope:
        """Build the envelope of a call: the object that is recorded and sent, or that is recorded with its refusal.

        A call that was refused before policy decided has no decision, and the declared mode as its effective one.
        """
        scope, decision, homes = self.context.scope, call.decision, self.context.policy.homes
        definition = call.capability.definition
        refs = [fact.evidence_ref for fact in call.frozen]
        matched = decision.matched_rule_ids if decision else ()
        refs += [policy_ref(homes[rule], rule) for rule in matched if rule in homes]
        effective, gates = (decision.effective_approval_mode, decision.gates) if decision else (None, ())
        return ToolCallEnvelope.construct_trusted(
            {
                "envelope_version": "contextos.tool_call.v1",
                "tool_call_id": call.tool_call_id,
                "run_id": scope.run.run_id,
                "trace_id": scope.run.trace_id,
                "session_id": scope.run.session_id,
                "capability_id": call.capability.capability_id,
                "args": dict(call.args),
                "principal_chain": scope.identity.chain,
                "approval_mode_requested": call.step.approval_mode,
                "approval_mode_effective": effective or definition.approval_mode,
                "approval_mode_highest": definition.approval_mode,
                "policy_decision_id": _decision_id(decision),
                "evidence_refs": tuple(refs),
                # A person approves a read under an idempotency key too, but a read claims no operation.
                "idempotency_key": call.idempotency_key if definition.kind == "write" else None,
                "auth_ref": f"claim_hash:{scope.identity.claim.claim_hash}",
                # The digest of the tool's definition, and the gates that ask about the call.
                "metadata": {
                    **call.capability.stated,
                    "gates": list(gates),
                    **({"requires_approval_gate": gates[0]} if gates else {}),
                },
            }
        )

    def _record_refusal(self, call: ToolCall, refusal: Refusal, *, has_envelope: bool = True) -> ToolResultEnvelope:
        """Record a refusal and return it as a result. `has_envelope` is False for a call of an unknown tool."""
        made_by = refusal.made_by
        result = ToolResultEnvelope(
            envelope_version="contextos.tool_result.v1",
            tool_call_id=call.tool_call_id,
            run_id=self.context.scope.run.run_id,
            trace_id=self.context.scope.run.trace_id,
            session_id=self.context.scope.run.session_id,
            capability_id=call.step.tool,
            status=refusal.status,
            output=refusal.output,
            error=_refusal_error(refusal),
            artifacts=(),
            citations=(Citation(evidence_ref=tool_ref(call.step.tool, made_by["tool_call_id"])),)
            if made_by and not refusal.withheld
            else (),
            mutations=refusal.mutations,
            risk_tags=(),
            policy_decision_id=_decision_id(call.decision),
            latency_ms=0,
            metadata={"idempotent_replayed": True, "made_by": dict(made_by)} if made_by else {},
            **({"withheld": refusal.withheld} if refusal.withheld else {}),
        )
        stated_call = {"call": call.envelope.stated()} if has_envelope else {}
        self.context.journal.derive("tool.refused", call.key, {"envelope": result.stated(), **stated_call})
        return result


def _decision_id(decision: PolicyDecision | None) -> str | None:
    return decision.policy_decision_id if decision else None


def _refusal_error(refusal: Refusal) -> ToolError | None:
    """Return the error of a refused call, with the facts that policy lacked or the limit that was exhausted. Return
    None for a call that was done before.
    """
    if refusal.code == "replayed":
        return None
    missing = refusal.decision.missing_facts if refusal.decision and refusal.code == "policy_eval_error" else ()
    facts = missing or refusal.facts
    fields: Any = {"facts": facts} if facts else {}
    return ToolError(code=refusal.code, message=refusal.detail, retryable=False, pointer=refusal.pointer, **fields)
