"""The guards of the Tool Gateway, in the order in which a call passes them. Each checks one thing.

A guard returns the call, with what it found out added to it, or a `Refusal`. A refused call never reaches an adapter.
Source: docs/design/contracts.md, "Approval modes", "Run"; API Contracts, "ToolResultEnvelope statuses".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from contextos.action.budget import exceeded_limit
from contextos.action.gateway import idempotency
from contextos.action.gateway.delivery import DispatchPorts
from contextos.action.registry import Registry
from contextos.contracts.documents.catalog import POLICY_LIST_KEY, POLICY_LISTS
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.pack import Permission
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ArgConstraint, CapabilityView, PolicyDecision
from contextos.contracts.envelopes.tool import ToolStatus
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import derive
from contextos.contracts.journal import Write
from contextos.contracts.ports.seams import Approvals, Journal, Policy
from contextos.contracts.scope import Action, Capability, Fact, Redeemed, RunScope, StepCall
from contextos.errors import Problem

EVIDENCE_MODES: Final = ("network", "delegated", "destructive")
"""Approval modes whose required evidence must resolve before the call."""

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The result of a call that a guard stopped: its status, an error code and the reason."""

    status: ToolStatus
    code: str
    detail: str
    pointer: str | None = None
    output: Any = None
    mutations: tuple[str, ...] = ()
    decision: PolicyDecision | None = None


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call on its way through the guards, which fill in the fields that have a default.

    `key` is `<plan revision>/<step id>`. `operation` is the recorded answer of `look_up_operation`, `frozen` the
    evidence in use. `preconditions` are checks that must still hold in the commit that dispatches the call.
    """

    step_call: StepCall
    capability: Capability
    tool_call_id: str
    key: str
    args: Mapping[str, Any]
    decision: PolicyDecision | None = None
    idempotency_key: str | None = None
    operation: Mapping[str, Any] = field(default_factory=dict)
    frozen: tuple[Fact, ...] = ()
    approval: Redeemed | None = None
    preconditions: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class PreconditionResult:
    """The result of checking a run's identities and pinned artifacts again, right before a write.

    `failure` says what changed since the run was admitted, or is None. `policies_version` is the version of the list of
    active policies that was checked.
    """

    failure: Failure | None
    policies_version: int


@dataclass(frozen=True, slots=True)
class GuardContext:
    """Everything that the guards of one run can use. `recheck` takes the call's key."""

    journal: Journal
    scope: RunScope
    policy: Policy
    approvals: Approvals
    registry: Registry
    ports: DispatchPorts
    check_args: CheckArgs
    recheck: Callable[[str], Awaitable[PreconditionResult]]


async def surfaced(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a capability that the compiled tool manifest does not name. One that policy hid is a policy denial."""
    name = call.capability.capability_id
    if name in context.scope.surfaced:
        return call
    if name in context.scope.granted:
        return Refusal("blocked", "policy_denied", f"policy does not expose `{name}` to this run")
    return Refusal("rejected", "tool_not_in_manifest", f"`{name}` is not in the tool manifest of this run")


async def well_formed(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse arguments that do not satisfy the capability's input schema."""
    problem = context.registry.check(call.capability, "input", dict(call.args))
    if problem:
        return Refusal("rejected", "schema_mismatch", problem.detail, problem.pointer)
    return call


async def consistent_with_request(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse an argument that differs from the value that the request states for it."""
    for permission in _permissions(context, call):
        for argument, where in permission.agrees_with.items():
            stated, final = resolve_pointer(context.scope.request_fields, where), call.args.get(argument, MISSING)
            if stated is not MISSING and final is not MISSING and content_address(stated) != content_address(final):
                detail = f"argument `{argument}` is not what the request states at `{where}`"
                return Refusal("rejected", "argument_out_of_bounds", detail, f"/{argument}")
    return call


async def within_budget(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a call that would exceed the run's limits on calls, cost or wall clock, or whose session is over."""
    reached = exceeded_limit(context.scope.run.run_budget, context.ports.spent(), call.capability.definition)
    return Refusal("blocked", "budget_exhausted", reached) if reached else await in_session(context, call)


async def in_session(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a call after the end of its session. Checked before a person is asked, and right before the dispatch."""
    session = context.scope.session
    if session is not None and context.scope.session_over(context.journal.now_us):
        return Refusal("blocked", "budget_exhausted", session.limit, decision=call.decision)
    return call


async def policy_allows(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a call that policy does not allow with its final arguments, whatever the plan assumed."""
    decision = decide_call(context, call, "execute", call.key)
    context.journal.derive("policy.decided", f"execute/{call.key}", decision.to_json())
    call = replace(call, decision=decision)
    # A guardrail overrides every allow: the call is escalated to a person, unless another guardrail refuses it.
    if decision.must_escalate and not decision.must_refuse:
        names = ", ".join(decision.must_escalate)
        return Refusal("blocked", "must_escalate", f"a guardrail escalates: {names}", decision=decision)
    if not decision.allowed:
        code = "policy_eval_error" if decision.reason == "indeterminate" else "policy_denied"
        return Refusal("blocked", code, _why_denied(decision), decision=decision)
    # An active gate lifts constraints marked `unless_approved`; the next guards obtain its approval.
    problems = context.check_args(_bounds(context, call, decision), call.args, bool(decision.gates))
    if problems:
        problem = problems[0]
        return Refusal("rejected", "argument_out_of_bounds", problem.detail, problem.pointer, decision=decision)
    return call


def decide_call(context: GuardContext, call: GuardedCall, point: str, ordinal: str) -> PolicyDecision:
    """Decide by policy about this call, at execution or when its approval is redeemed (`point`, part of the id).

    The gates of the decision include those that the plan's step requires.
    """
    scope = context.scope
    facts = {
        **scope.facts,
        "args": dict(call.args),
        "evidence": nested_facts({name: fact.value for name, fact in call.step_call.evidence.items()}),
        "provenance": dict(call.step_call.provenance),
    }
    capability = call.capability
    view = CapabilityView(capability.capability_id, capability.definition.approval_mode, capability_facts(capability))
    decision = context.policy.decide(
        "execute",
        facts,
        capability=view,
        granted=capability.capability_id in scope.granted,
        decision_id=derive("pol_", scope.run.run_id, f"policy.{point}", ordinal),
    )
    gates = tuple(sorted(set(decision.gates).union(call.step_call.step.requires)))
    return decision.model_copy(update={"gates": gates}) if gates != decision.gates else decision


def capability_facts(capability: Capability) -> dict[str, Any]:
    """Return the facts that rules can read below `capability`."""
    definition = capability.definition
    return {
        "capability_id": capability.capability_id,
        "kind": definition.kind,
        "risk_level": definition.risk_level,
        "approval_mode": definition.approval_mode,
        "external": capability.adapter.external,
    }


def nested_facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest evidence for rules to read: the value of `policy.eval` becomes `{"policy": {"eval": value}}`."""
    tree: dict[str, Any] = {}
    for name in sorted(values):
        *path, last = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                break
        else:
            node[last] = values[name]
    return tree


def _why_denied(decision: PolicyDecision) -> str:
    facts = sorted({fact for lack in decision.indeterminate for fact in lack.facts})
    if facts:
        return "policy cannot decide: missing or mistyped facts " + ", ".join(f"`{fact}`" for fact in facts)
    rules = ", ".join(f"`{rule}`" for rule in (*decision.denying_rule_ids, *decision.must_refuse))
    return f"policy denies: {decision.reason}" + (f" by {rules}" if rules else "")


def _bounds(context: GuardContext, call: GuardedCall, decision: PolicyDecision) -> dict[str, Sequence[ArgConstraint]]:
    bounds: dict[str, Sequence[ArgConstraint]] = dict(decision.arg_constraints)
    for permission in _permissions(context, call):
        for argument, bound in permission.arg_constraints.items():
            bounds[argument] = (*bounds.get(argument, ()), bound)
    return bounds


def _permissions(context: GuardContext, call: GuardedCall) -> list[Permission]:
    """Return the pack's permissions for this capability, of every role: their constraints apply to every caller."""
    adapter, _, capability = call.capability.capability_id.partition(".")
    listed = context.scope.pack.tooling_layer.permissions
    return [one for one in listed if (one.adapter_id, one.capability) == (adapter, capability)]


async def idempotency_check(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a write that was cancelled, denied or done before. Checked before a person is asked."""
    if call.capability.definition.kind == "read":
        return call
    definition = call.capability.definition
    key = idempotency.key_for_call(context.scope, definition.idempotency, call.capability.capability_id, call.step_call)
    operation = await _look_up(context, call, key, "before")
    if operation["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if operation["denied"]:
        return Refusal("blocked", "approval_denied", "a person denied this operation before; a denial is final")
    if operation["state"] == "other_body":
        return Refusal("rejected", "idempotency_conflict", f"key `{key}` was used with other arguments")
    if operation["state"] == "completed":
        return Refusal(
            "completed", "replayed", "done before", output=operation["output"], mutations=tuple(operation["mutations"])
        )
    if operation["state"] == "claimed" and context.scope.session is not None:
        return Refusal(
            "blocked", "budget_exhausted", f"another run is doing the operation, and {context.scope.session.limit}"
        )
    if operation["state"] == "unusable":
        return Refusal("blocked", "unsafe_output", "the operation was done before, and its output was quarantined")
    return replace(call, idempotency_key=key, operation=operation)


async def _look_up(
    context: GuardContext, call: GuardedCall, key: str, when: Literal["before", "redeem"]
) -> dict[str, Any]:
    return await idempotency.look_up_operation(
        context.journal,
        context.ports.store,
        context.ports.clock,
        call.capability,
        key,
        call.args,
        step_key=call.key,
        when=when,
        session=context.scope.session,
    )


async def evidence_frozen(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a `network`, `delegated` or `destructive` call without its required evidence; freeze what it uses."""
    decision = call.decision
    assert decision is not None, "the policy guard has run"
    if call.capability.definition.approval_mode not in EVIDENCE_MODES:
        return call
    if call.step_call.spec_key is None:
        return Refusal("blocked", "violates_decision_spec", "the call is bound to no decision spec")
    needed = sorted({*decision.requires, *call.step_call.required_evidence})
    unresolved = [name for name in needed if name not in call.step_call.evidence]
    if unresolved:
        return Refusal("blocked", "missing_evidence", "required evidence does not resolve: " + ", ".join(unresolved))
    # Evidence that rules read took part in the decision, so the approval is bound to it too.
    read = {
        name
        for name in call.step_call.evidence
        if any(reads_evidence(path, name) for path in context.policy.evidence_paths)
    }
    frozen = tuple(call.step_call.evidence[name] for name in sorted(read.union(needed)))
    items = [{"name": f.name, "evidence_ref": f.evidence_ref, "digest": f.digest} for f in frozen]
    context.journal.derive("evidence.frozen", call.key, {"items": items, "snapshot_hash": content_address(items)})
    return replace(call, frozen=frozen)


def reads_evidence(path: str, name: str) -> bool:
    """Return whether a rule that reads the dotted `path` reads the evidence `name`, or a part of it."""
    return path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.")


async def approved(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a call with an active gate unless a person approved exactly this call and nothing changed since."""
    decision = call.decision
    assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
    if not decision.gates:
        if APPROVAL_MODES.index(decision.effective_approval_mode) >= APPROVAL_MODES.index("destructive"):
            return Refusal("blocked", "policy_denied", "a destructive call needs an approval gate")
        return call
    if len(decision.gates) > 1:
        return Refusal("blocked", "policy_denied", "more than one gate is active; this version can ask only one person")
    gate = context.scope.gates.get(decision.gates[0])
    if gate is None:
        return Refusal("blocked", "policy_denied", f"`{decision.gates[0]}` is not a gate of the pack")
    if call.idempotency_key is None:
        return Refusal(
            "blocked", "policy_denied", "a gate is only for writes; limit its rule to the capability that needs it"
        )
    action = Action(
        call.tool_call_id,
        call.key,
        call.capability,
        call.args,
        call.frozen,
        decision.effective_approval_mode,
        gate,
        decision,
        call.idempotency_key,
    )
    redeemed = await context.approvals.obtain(action)
    if isinstance(redeemed, Failure):
        return Refusal("blocked", redeemed.code, redeemed.detail)
    again = decide_call(context, call, "redeem", call.key)
    context.journal.derive("policy.decided", f"redeem/{call.key}", again.to_json())
    if not again.allowed or again.must_escalate or again.gates != decision.gates:
        return Refusal(
            "blocked", "approval_void", "policy decides differently than when the approver was asked", decision=again
        )
    operation = await _look_up(context, call, call.idempotency_key, "redeem")
    if operation["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if operation["denied"] or operation["state"] != "free":
        return Refusal("blocked", "approval_void", "the operation was denied or done meanwhile")
    if not idempotency.is_same_epoch(call.operation, operation):
        return Refusal("blocked", "approval_void", "the store was restored from a backup since the approver was asked")
    return replace(call, approval=redeemed, operation=operation, decision=again)


async def credentialed(context: GuardContext, call: GuardedCall) -> GuardedCall | Refusal:
    """Refuse a call that its identities do not allow, or that would leave the machine.

    Refuses an agent that is not active, from mode `delegated` on a user without a live delegation, and from `network`
    on every external adapter, because this version has no egress allow-list. Before a write, identities and pins are
    looked up again: the run can have waited long since it was admitted.
    """
    decision, principals = call.decision, context.scope.principals
    assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
    if principals.agent.lifecycle != "active":
        return Refusal("blocked", "identity_refused", f"the agent is `{principals.agent.lifecycle}`")
    mode = APPROVAL_MODES.index(decision.effective_approval_mode)
    leaves = call.capability.adapter.external or call.capability.definition.approval_mode == "network"
    if leaves and mode >= APPROVAL_MODES.index("network"):
        return Refusal("blocked", "policy_denied", "no egress allow-list names this adapter")
    if mode >= APPROVAL_MODES.index("delegated") and not principals.user.delegation_live:
        return Refusal("blocked", "identity_refused", "the user's delegation is not live; ask for it again")
    if call.capability.definition.kind == "read":
        return call
    rechecked = await context.recheck(call.key)
    if rechecked.failure:
        return Refusal("blocked", rechecked.failure.code, rechecked.failure.detail)
    return replace(call, preconditions=(POLICY_LISTS.check(POLICY_LIST_KEY, rechecked.policies_version),))
