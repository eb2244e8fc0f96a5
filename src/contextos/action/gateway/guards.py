"""The guards of the Tool Gateway, in the order of its list. Each looks at one thing, and refuses or lets the call pass.

A guard returns the call with one thing more known, or a `Refusal`. What a guard refuses never reaches an adapter.
Source: shared/design/contracts.md, "Approval modes", "Run"; API Contracts, "ToolResultEnvelope statuses".
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
"""Approval modes whose required evidence must resolve before the call (contracts.md, "Approval modes")."""

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call goes no further."""

    status: ToolStatus
    code: str
    detail: str
    pointer: str | None = None
    output: Any = None
    mutations: tuple[str, ...] = ()
    decision: PolicyDecision | None = None


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call on its way through the guards."""

    call: StepCall
    capability: Capability
    tool_call_id: str
    key: str
    args: Mapping[str, Any]
    decision: PolicyDecision | None = None
    idempotency_key: str | None = None
    act: Mapping[str, Any] = field(default_factory=dict)
    frozen: tuple[Fact, ...] = ()
    approval: Redeemed | None = None
    still: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class PreconditionResult:
    """Who stands behind a run and what is in force, asked again.

    `failure` is what is not as it was at admission (None: nothing), at `policies_version` of the active policies.
    """

    failure: Failure | None
    policies_version: int


@dataclass(frozen=True, slots=True)
class GuardContext:
    """What the guards of one run may use, and nothing else."""

    journal: Journal
    scope: RunScope
    policy: Policy
    approvals: Approvals
    registry: Registry
    outside: DispatchPorts
    check_args: CheckArgs
    standing: Callable[[str], Awaitable[PreconditionResult]]


async def surfaced(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Only what the compiled manifest names; what policy hid is a policy denial."""
    name = governed.capability.capability_id
    if name in at.scope.surfaced:
        return governed
    if name in at.scope.granted:
        return Refusal("blocked", "policy_denied", f"policy does not expose `{name}` to this run")
    return Refusal("rejected", "tool_not_in_manifest", f"`{name}` is not in the tool manifest of this run")


async def well_formed(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """The final arguments satisfy the capability's schema."""
    problem = at.registry.check(governed.capability, "input", dict(governed.args))
    if problem:
        return Refusal("rejected", "schema_mismatch", problem.detail, problem.pointer)
    return governed


async def consistent_with_request(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Where the request and an argument both carry a value, they are the same value."""
    for permission in _permissions(at, governed):
        for argument, where in permission.agrees_with.items():
            stated, final = resolve_pointer(at.scope.asked, where), governed.args.get(argument, MISSING)
            if stated is not MISSING and final is not MISSING and content_address(stated) != content_address(final):
                detail = f"argument `{argument}` is not what the request states at `{where}`"
                return Refusal("rejected", "argument_out_of_bounds", detail, f"/{argument}")
    return governed


async def within_budget(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """One more dispatch stays within calls, cost and wall clock."""
    reached = exceeded_limit(at.scope.run.run_budget, at.outside.spent(), governed.capability.definition)
    return Refusal("blocked", "budget_exhausted", reached) if reached else await in_session(at, governed)


async def in_session(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """A `long_running` run has time left. Looked at before a person is asked, and last of all before the dispatch."""
    session = at.scope.session
    if session is not None and at.scope.session_over(at.journal.now_us):
        return Refusal("blocked", "budget_exhausted", session.limit, decision=governed.decision)
    return governed


async def policy_allows(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Policy decides on the final arguments; the boundary decides, the plan only proposed."""
    decision = decide_call(at, governed, "execute", governed.key)
    at.journal.derive("policy.decided", f"execute/{governed.key}", decision.to_json())
    governed = replace(governed, decision=decision)
    # A guardrail wins over every allow: what it escalates is for a person, unless another one refuses it.
    if decision.must_escalate and not decision.must_refuse:
        names = ", ".join(decision.must_escalate)
        return Refusal("blocked", "must_escalate", f"a guardrail escalates: {names}", decision=decision)
    if not decision.allowed:
        code = "policy_eval_error" if decision.reason == "indeterminate" else "policy_denied"
        return Refusal("blocked", code, _why_denied(decision), decision=decision)
    # A gate that is about to be asked lifts what is bounded `unless_approved`; without one nothing lifts it.
    problems = at.check_args(_bounds(at, governed, decision), governed.args, bool(decision.gates))
    if problems:
        problem = problems[0]
        return Refusal("rejected", "argument_out_of_bounds", problem.detail, problem.pointer, decision=decision)
    return governed


def decide_call(at: GuardContext, governed: GuardedCall, point: str, ordinal: str) -> PolicyDecision:
    """Ask policy about this call; also used when an approval is redeemed.

    A gate that the plan's step requires is as active as one that a rule demands.
    """
    scope = at.scope
    facts = {
        **scope.facts,
        "args": dict(governed.args),
        "evidence": nested_facts({name: fact.value for name, fact in governed.call.evidence.items()}),
        "provenance": dict(governed.call.provenance),
    }
    capability = governed.capability
    view = CapabilityView(capability.capability_id, capability.definition.approval_mode, capability_facts(capability))
    decision = at.policy.decide(
        "execute",
        facts,
        capability=view,
        granted=capability.capability_id in scope.granted,
        decision_id=derive("pol_", scope.run.run_id, f"policy.{point}", ordinal),
    )
    gates = tuple(sorted(set(decision.gates).union(governed.call.step.requires)))
    return decision.model_copy(update={"gates": gates}) if gates != decision.gates else decision


def capability_facts(capability: Capability) -> dict[str, Any]:
    """What rules may read under `capability`."""
    definition = capability.definition
    return {
        "capability_id": capability.capability_id,
        "kind": definition.kind,
        "risk_level": definition.risk_level,
        "approval_mode": definition.approval_mode,
        "external": capability.adapter.external,
    }


def nested_facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence as rules read it: a dotted name such as `policy.eval` is a path, so it stands under its first part."""
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


def _bounds(at: GuardContext, governed: GuardedCall, decision: PolicyDecision) -> dict[str, Sequence[ArgConstraint]]:
    bounds: dict[str, Sequence[ArgConstraint]] = dict(decision.arg_constraints)
    for permission in _permissions(at, governed):
        for argument, bound in permission.arg_constraints.items():
            bounds[argument] = (*bounds.get(argument, ()), bound)
    return bounds


def _permissions(at: GuardContext, governed: GuardedCall) -> list[Permission]:
    """What the pack says about this capability, for whatever role: a bound counts even for those it does not grant."""
    adapter, _, capability = governed.capability.capability_id.partition(".")
    listed = at.scope.pack.tooling_layer.permissions
    return [one for one in listed if (one.adapter_id, one.capability) == (adapter, capability)]


async def idempotency_check(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """What is known of this act: cancelled, denied before, done before. Asked before a person is."""
    if governed.capability.definition.kind == "read":
        return governed
    definition = governed.capability.definition
    key = idempotency.key_for_call(at.scope, definition.idempotency, governed.capability.capability_id, governed.call)
    act = await _look_up(at, governed, key, "before")
    if act["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if act["denied"]:
        return Refusal("blocked", "approval_denied", "a person denied this act before; a denial is final")
    if act["state"] == "other_body":
        return Refusal("rejected", "idempotency_conflict", f"key `{key}` was used with other arguments")
    if act["state"] == "completed":
        return Refusal("completed", "replayed", "done before", output=act["output"], mutations=tuple(act["mutations"]))
    if act["state"] == "claimed" and at.scope.session is not None:
        return Refusal("blocked", "budget_exhausted", f"another run is doing the act, and {at.scope.session.limit}")
    if act["state"] == "unusable":
        return Refusal("blocked", "unsafe_output", "the act was done before, and what it gave back was quarantined")
    return replace(governed, idempotency_key=key, act=act)


async def _look_up(
    at: GuardContext, governed: GuardedCall, key: str, when: Literal["before", "redeem"]
) -> dict[str, Any]:
    return await idempotency.look_up_operation(
        at.journal,
        at.outside.store,
        at.outside.clock,
        governed.capability,
        key,
        governed.args,
        step_key=governed.key,
        when=when,
        session=at.scope.session,
    )


async def evidence_frozen(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Required evidence resolves before `network`, `delegated` and `destructive` calls, and is frozen as it is."""
    decision = governed.decision
    assert decision is not None, "the policy guard has run"
    if governed.capability.definition.approval_mode not in EVIDENCE_MODES:
        return governed
    if governed.call.spec_key is None:
        return Refusal("blocked", "violates_decision_spec", "the call is bound to no decision spec")
    needed = sorted({*decision.requires, *governed.call.required_evidence})
    unresolved = [name for name in needed if name not in governed.call.evidence]
    if unresolved:
        return Refusal("blocked", "missing_evidence", "required evidence does not resolve: " + ", ".join(unresolved))
    # What rules read decided as well: an approval must not outlive it.
    read = {
        name for name in governed.call.evidence if any(reads_evidence(path, name) for path in at.policy.evidence_paths)
    }
    frozen = tuple(governed.call.evidence[name] for name in sorted(read.union(needed)))
    items = [{"name": f.name, "evidence_ref": f.evidence_ref, "digest": f.digest} for f in frozen]
    at.journal.derive("evidence.frozen", governed.key, {"items": items, "snapshot_hash": content_address(items)})
    return replace(governed, frozen=frozen)


def reads_evidence(path: str, name: str) -> bool:
    """Whether a dotted path of a rule reads the evidence of this name, or a part of it."""
    return path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.")


async def approved(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Where a gate is active a person agreed to exactly this call, and everything it was bound to still holds."""
    decision = governed.decision
    assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
    if not decision.gates:
        if APPROVAL_MODES.index(decision.effective_approval_mode) >= APPROVAL_MODES.index("destructive"):
            return Refusal("blocked", "policy_denied", "a destructive call needs an approval gate")
        return governed
    if len(decision.gates) > 1:
        return Refusal("blocked", "policy_denied", "more than one gate is active; this version asks one person")
    gate = at.scope.gates.get(decision.gates[0])
    if gate is None:
        return Refusal("blocked", "policy_denied", f"`{decision.gates[0]}` is no gate of the pack")
    if governed.idempotency_key is None:
        return Refusal("blocked", "policy_denied", "a gate is for writes; bind its rule to the capability it is about")
    action = Action(
        governed.tool_call_id,
        governed.key,
        governed.capability,
        governed.args,
        governed.frozen,
        decision.effective_approval_mode,
        gate,
        decision,
        governed.idempotency_key,
    )
    redeemed = await at.approvals.obtain(action)
    if isinstance(redeemed, Failure):
        return Refusal("blocked", redeemed.code, redeemed.detail)
    again = decide_call(at, governed, "redeem", governed.key)
    at.journal.derive("policy.decided", f"redeem/{governed.key}", again.to_json())
    if not again.allowed or again.must_escalate or again.gates != decision.gates:
        return Refusal("blocked", "approval_void", "policy no longer says what the approver was told", decision=again)
    act = await _look_up(at, governed, governed.idempotency_key, "redeem")
    if act["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if act["denied"] or act["state"] != "free":
        return Refusal("blocked", "approval_void", "the act was denied or done meanwhile")
    if not idempotency.in_one_epoch(governed.act, act):
        return Refusal("blocked", "approval_void", "since it was asked the store was restored from a backup")
    return replace(governed, approval=redeemed, act=act, decision=again)


async def credentialed(at: GuardContext, governed: GuardedCall) -> GuardedCall | Refusal:
    """Both identities stand behind the call, and nothing leaves for where no allow-list lets it.

    Before a write both are asked again, and so is everything pinned: a run may have waited long since it was admitted.
    Refuses an agent that is not active, from `delegated` on a user without a live delegation, and from `network` on
    what leaves the machine: this version has no egress allow-list, and an empty one denies.
    """
    decision, principals = governed.decision, at.scope.principals
    assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
    if principals.agent.lifecycle != "active":
        return Refusal("blocked", "identity_refused", f"the agent is `{principals.agent.lifecycle}`")
    mode = APPROVAL_MODES.index(decision.effective_approval_mode)
    leaves = governed.capability.adapter.external or governed.capability.definition.approval_mode == "network"
    if leaves and mode >= APPROVAL_MODES.index("network"):
        return Refusal("blocked", "policy_denied", "no egress allow-list names this adapter")
    if mode >= APPROVAL_MODES.index("delegated") and not principals.user.delegation_live:
        return Refusal("blocked", "identity_refused", "the user's delegation is not live; ask for it again")
    if governed.capability.definition.kind == "read":
        return governed
    standing = await at.standing(governed.key)
    if standing.failure:
        return Refusal("blocked", standing.failure.code, standing.failure.detail)
    return replace(governed, still=(POLICY_LISTS.check(POLICY_LIST_KEY, standing.policies_version),))
