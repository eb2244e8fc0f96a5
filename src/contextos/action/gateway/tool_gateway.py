"""The Tool Gateway: every governed call goes through `GUARDS`, in order, then the adapter, and comes back checked.

A guard takes the call as far as it is known and returns it with one thing more known, or a `Refusal`. What a guard
refuses never reaches an adapter. Anything that may act is durable before it is sent.
Source: architecture.md, step 11; API Contracts, "ToolResultEnvelope statuses".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contextos.action.budget import exceeded_limit, with_dispatch
from contextos.action.gateway import guards
from contextos.action.gateway.delivery import ClearedCall
from contextos.action.gateway.dispatcher import Dispatcher
from contextos.action.gateway.guards import GuardContext, GuardedCall, Refusal
from contextos.contracts.envelopes.plan import PlanStep
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.tool import ToolCallEnvelope, ToolError, ToolResultEnvelope
from contextos.contracts.ids import derive
from contextos.contracts.refs import policy_ref
from contextos.contracts.scope import StepCall

Guard = Callable[[GuardContext, GuardedCall], Awaitable[GuardedCall | Refusal]]

GUARDS: Final[tuple[Guard, ...]] = (
    guards.surfaced,
    guards.well_formed,
    guards.consistent_with_request,
    guards.within_budget,
    guards.policy_allows,
    guards.idempotency_check,
    guards.evidence_frozen,
    guards.approved,
    guards.credentialed,
    guards.in_session,
)
"""In the order in which a call passes them; then it is delivered."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The Tool Gateway of one run (`Tools`)."""

    at: GuardContext

    async def call(self, call: StepCall) -> ToolResultEnvelope:
        """Take one step call through every guard and the adapter. A refusal is a result, never an exception."""
        cleared = await self._clear(call)
        return await self._dispatcher().deliver(cleared) if isinstance(cleared, ClearedCall) else cleared

    async def call_all(self, calls: Sequence[StepCall]) -> list[ToolResultEnvelope]:
        """Take several reads through the guards in order, then send at the same time those that passed.

        The results are in the order of `calls`, and end with the first one that a guard refused.
        """
        cleared: list[ClearedCall] = []
        refused: list[ToolResultEnvelope] = []
        for call in calls:
            passed = await self._clear(call)
            if not isinstance(passed, ClearedCall):
                refused.append(passed)
                break
            cleared.append(passed)
        return [*await self._dispatcher().deliver_all(cleared), *refused]

    def sent_together(self, steps: Sequence[PlanStep]) -> int:
        """How many of these reads, from the first on, fit the budget together and leave each other's policy alone."""
        spent, produced = self.at.outside.spent(), set[str]()
        for count, step in enumerate(steps):
            definition = self.at.scope.capabilities[step.tool].definition
            read = any(guards.reads_evidence(path, name) for path in self.at.policy.evidence_paths for name in produced)
            if read or exceeded_limit(self.at.scope.run.run_budget, spent, definition):
                return count
            spent = with_dispatch(spent, definition)
            produced.update(definition.produces)
        return len(steps)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self.at.journal, self.at.scope, self.at.registry, self.at.outside)

    async def _clear(self, call: StepCall) -> ClearedCall | ToolResultEnvelope:
        """The call as every guard let it pass, or the result that a refusal is."""
        key = f"{call.revision}/{call.step.id}"
        tool_call_id = derive("tool_", self.at.scope.run.run_id, "tool", key)
        capability = self.at.scope.capabilities.get(call.step.tool)
        if capability is None:
            return self._refused(
                call, tool_call_id, key, None, Refusal("rejected", "tool_not_in_manifest", _unknown(call))
            )
        governed = GuardedCall(call, capability, tool_call_id, key, dict(call.args))
        for guard in GUARDS:
            passed = await guard(self.at, governed)
            if isinstance(passed, Refusal):
                return self._refused(call, tool_call_id, key, passed.decision or governed.decision, passed)
            governed = passed
        return ClearedCall(
            envelope=self.envelope(governed),
            capability=capability,
            key=key,
            provenance=call.provenance,
            approval=governed.approval,
            act=governed.act,
            still=governed.still,
        )

    def envelope(self, governed: GuardedCall) -> ToolCallEnvelope:
        """The call as the adapter's side of the gateway and the auditors see it."""
        scope, decision = self.at.scope, governed.decision
        assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
        definition = governed.capability.definition
        refs = [fact.evidence_ref for fact in governed.frozen]
        refs += [policy_ref(bundle, rule) for bundle, rule in self._rules(decision)]
        return ToolCallEnvelope.construct_trusted(
            {
                "envelope_version": "contextos.tool_call.v1",
                "tool_call_id": governed.tool_call_id,
                "run_id": scope.run.run_id,
                "trace_id": scope.run.trace_id,
                "session_id": scope.run.session_id,
                "capability_id": governed.capability.capability_id,
                "args": dict(governed.args),
                "principal_chain": scope.chain,
                "approval_mode_requested": governed.call.step.approval_mode,
                "approval_mode_effective": decision.effective_approval_mode,
                "approval_mode_highest": definition.approval_mode,
                "policy_decision_id": decision.policy_decision_id,
                "evidence_refs": tuple(refs),
                "idempotency_key": governed.idempotency_key,
                "auth_ref": f"claim_hash:{scope.claim.claim_hash}",
                "metadata": {"definition_digest": governed.capability.definition_digest, "gates": list(decision.gates)},
            }
        )

    def _rules(self, decision: PolicyDecision) -> list[tuple[str, str]]:
        home = {
            rule.rule_id: bundle.bundle_id
            for bundle in self.at.scope.pack.policy_layer.policy_bundles
            for rule in bundle.policy_dsl.rules
        }
        return [(home[rule], rule) for rule in decision.matched_rule_ids if rule in home]

    def _refused(
        self, call: StepCall, tool_call_id: str, key: str, decision: PolicyDecision | None, refusal: Refusal
    ) -> ToolResultEnvelope:
        result = ToolResultEnvelope(
            envelope_version="contextos.tool_result.v1",
            tool_call_id=tool_call_id,
            run_id=self.at.scope.run.run_id,
            trace_id=self.at.scope.run.trace_id,
            session_id=self.at.scope.run.session_id,
            capability_id=call.step.tool,
            status=refusal.status,
            output=refusal.output,
            error=None
            if refusal.code == "replayed"
            else ToolError(code=refusal.code, message=refusal.detail, retryable=False, pointer=refusal.pointer),
            artifacts=(),
            citations=(),
            mutations=refusal.mutations,
            risk_tags=(),
            policy_decision_id=decision.policy_decision_id if decision else None,
            latency_ms=0,
            metadata={"idempotent_replayed": True} if refusal.code == "replayed" else {},
        )
        self.at.journal.derive("tool.refused", key, {"envelope": result.to_json()})
        return result


def _unknown(call: StepCall) -> str:
    return f"`{call.step.tool}` is not registered; surface it in the pack"
