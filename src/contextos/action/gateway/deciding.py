"""Make the policy decision about one call with its final arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from contextos.action.gateway.evidence import nested_facts
from contextos.action.gateway.guarded_call import GuardContext
from contextos.contracts.controls import Controls, KnownFacts, bind_prohibited
from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyDecision
from contextos.contracts.ids import derive
from contextos.contracts.ports.calls import ToolCall


def decide_call(context: GuardContext, call: ToolCall, execute: str, commit: str) -> PolicyDecision:
    """Return the policy decision about one call with its final arguments, including the approvals that it needs.

    It unites the decision at `execute` and, for an effect, the decision at `commit`. The two are recorded under the
    names that the arguments give. Controls that were raised before and approvals that the plan's step requires are
    added. For an untrusted destination a gate is added only if no other gate asks: every gate shows what is untrusted.
    """
    extra_gates, facts = _untrusted_gate(context, call), _call_facts(context, call)
    if call.capability.definition.kind == "read" or not context.policy.asked_at("commit"):
        return _decide(context, call, facts, "execute", execute, extra_gates)
    decision = _decide(context, call, facts, "execute", execute, ())
    commit_decision = _decide(context, call, facts, "commit", commit, () if decision.gates else extra_gates)
    if decision.allowed and not commit_decision.allowed:
        return Controls.of(decision).bind(commit_decision)
    return Controls.of(commit_decision).bind(decision)


def _call_facts(context: GuardContext, call: ToolCall) -> KnownFacts:
    """Return the facts about a call: its arguments, where they come from, its evidence, its history and the clock."""
    facts: dict[str, Any] = {
        "args": call.open_args,
        "evidence": nested_facts({name: fact.value for name, fact in call.evidence.items()}),
        "provenance": dict(call.provenance),
        **_origin_facts(call.traced),
        **({"history": dict(call.history["facts"])} if call.history.get("buckets") else {}),
        **({"clock": dict(call.history["clock"])} if "clock" in call.history else {}),
    }
    return context.scope.facts.also(facts, {} if call.has_marks else {"args": call.args_digest})


def _decide(
    context: GuardContext,
    call: ToolCall,
    facts: KnownFacts,
    point: Literal["execute", "commit"],
    name: str,
    fallback_gates: Sequence[str],
) -> PolicyDecision:
    """Return and record the decision of policy at one point. `fallback_gates` are added if the decision has
    no gate.
    """
    scope, capability = context.scope, call.capability
    decision = context.policy.decide(
        point,
        facts,
        capability=capability.view,
        granted=capability.capability_id in scope.tools.granted,
        decision_id=derive("pol_", scope.run.run_id, f"policy.{name}", call.key),
    )
    decision = bind_prohibited(decision, context.journal.account.matched_rules, context.policy.prohibiting)
    decision = scope.controls.on_call(capability.capability_id, call.key).bind(decision)
    if call.step.requires:
        decision = Controls(gates=frozenset(call.step.requires)).bind(decision)
    if fallback_gates and not decision.gates:
        decision = Controls(gates=frozenset(fallback_gates)).bind(decision)
    context.journal.derive("policy.decided", f"{name}/{call.key}", decision.stated())
    return decision


def _origin_facts(traced: Mapping[str, TracedArgument]) -> dict[str, dict[str, str]]:
    """Return the facts about where the arguments come from, by argument name."""
    if not traced:
        return {}
    return {
        "origin": {name: argument.origins[0] for name, argument in traced.items()},
        "integrity": {name: argument.integrity for name, argument in traced.items()},
        "classification": {name: argument.classification for name, argument in traced.items()},
    }


def _untrusted_gate(context: GuardContext, call: ToolCall) -> tuple[str, ...]:
    """Return the gate that asks about an untrusted destination: the pack's first by id, if all ask the same role."""
    gates = context.scope.pinned.gates
    roles = {gate.required_approver_role for gate in gates.values()}
    return (min(gates),) if call.untrusted_destinations and len(roles) == 1 else ()


def bounds_on_call(call: ToolCall, decision: PolicyDecision) -> dict[str, Sequence[ArgConstraint]]:
    bounds: dict[str, Sequence[ArgConstraint]] = dict(decision.arg_constraints)
    for permission in call.capability.permissions:
        for argument, bound in permission.arg_constraints.items():
            bounds[argument] = (*bounds.get(argument, ()), bound)
    return bounds


def decides_otherwise(context: GuardContext, before: PolicyDecision, again: PolicyDecision) -> bool:
    """Return whether `again` denies or escalates the call, or needs other gates than `before`. If the pack observes,
    only the rules above it count.
    """
    if not context.scope.observes:
        return not again.allowed or bool(again.must_escalate) or again.gates != before.gates
    above = context.policy.above
    return above.deny(again) or above.gates.intersection(again.gates) != above.gates.intersection(before.gates)
