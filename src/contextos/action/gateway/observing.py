"""Run the guards for a session whose pack observes: a refusal by the pack's own rules is only recorded.

The guards derive the same verdicts as for a pack that enforces. Rules above the pack are still enforced, and so are the
limits that the directory, the user or the request sets.
Source: docs/adr/0036-a-pack-can-observe-first.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextos.action.gateway import guards
from contextos.action.gateway.guarded_call import Guard, GuardContext, Refusal
from contextos.contracts.entries.derived import ObservedCall, ObservedFinding
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyDecision
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.scope import Action


async def observe(context: GuardContext, call: ToolCall, guard: Guard) -> Refusal | None:
    """Take a call of a session whose pack observes through one guard. Return the refusal if it is enforced, else None:
    a refusal by the pack's own rules is only recorded.
    """
    if guard is guards.approved:
        return await _observe_approval(context, call)
    refusal = await guard(context, call)
    if refusal is None or is_from_above(context, call, refusal) or context.scope.withheld_by_others(call.capability):
        return refusal
    call.decision = refusal.decision or call.decision
    _record_finding(context, call, guard.__name__, _denial_finding(refusal, call.decision))
    return None


async def _observe_approval(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Record which approval the pack would ask for. Ask a person only for a gate of a rule above the pack."""
    decision = call.decision
    assert decision is not None, "the policy guard has run"
    gates_above = tuple(gate for gate in decision.gates if gate in context.policy.above.gates)
    pack_gates = tuple(gate for gate in decision.gates if gate not in gates_above)
    if decision.allowed and (pack_gates or not gates_above):
        question = guards.question_about(context, call, _with_gates(decision, pack_gates))
        if isinstance(question, Refusal):
            _record_finding(context, call, guards.approved.__name__, _denial_finding(question, decision))
        elif question is not None:
            _record_finding(context, call, guards.approved.__name__, _ask_finding(question))
    if not gates_above:
        return None
    call.decision = _with_gates(decision, gates_above)
    refusal = await guards.approved(context, call)
    if refusal is not None:
        call.decision = decision
    return refusal


def _with_gates(decision: PolicyDecision, gates: tuple[str, ...]) -> PolicyDecision:
    return decision.model_copy(update={"gates": gates})


def _ask_finding(question: Action) -> ObservedFinding:
    gate = question.gate
    return ObservedFinding(
        verdict="ask",
        code="approval_required",
        detail=f"a person with the role `{gate.required_approver_role}` would be asked",
        rule_ids=question.decision.matched_rule_ids,
        gate_id=gate.gate_id,
    )


def is_from_above(context: GuardContext, call: ToolCall, refusal: Refusal) -> bool:
    """Return whether a rule above the pack refuses the call: denies it, bounds it, or requires missing evidence."""
    above, decision = context.policy.above, refusal.decision or call.decision
    if decision is None:
        return False
    if refusal.code == "missing_evidence":
        return not above.requires.isdisjoint(set(decision.requires) - call.evidence.keys())
    bounds: dict[str, Sequence[ArgConstraint]] = {
        name: [limit for limit in limits if (name, limit) in above.constraints]
        for name, limits in decision.arg_constraints.items()
    }
    return above.deny(decision) or bool(context.check_args(bounds, call.open_args, bool(decision.gates)))


def _denial_finding(refusal: Refusal, decision: PolicyDecision | None) -> ObservedFinding:
    rules: list[str] = []
    if decision is not None and not decision.allowed:
        rules += [*decision.denying_rule_ids, *(rule.rule_id for rule in decision.indeterminate)]
    if decision is not None and refusal.code in ("policy_denied", "must_escalate"):
        rules += [*decision.must_refuse, *decision.must_escalate]
    return ObservedFinding(
        verdict="deny",
        code=refusal.code,
        detail=refusal.detail,
        rule_ids=tuple(dict.fromkeys(rules)),
        pointer=refusal.pointer,
        facts=refusal.facts,
    )


def _record_finding(context: GuardContext, call: ToolCall, by: str, finding: ObservedFinding) -> None:
    body = ObservedCall(by=by, findings=(finding,))
    context.journal.derive("call.observed", f"{call.key}/{by}", body.to_json())
