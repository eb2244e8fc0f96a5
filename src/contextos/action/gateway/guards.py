"""Hold the guards: the checks that a tool call passes in the tool gateway, in this order. Each checks one thing.

A guard adds its findings to the call, or returns a `Refusal`. A refused call never reaches an adapter.
Source: docs/design/contracts.md, "Approval modes", "Run"; API Contracts, "ToolResultEnvelope statuses".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contextos.action.budget import exceeded_limit
from contextos.action.cancellation import find_cancel
from contextos.action.gateway import idempotency
from contextos.action.gateway.deciding import bounds_on_call, decide_call, decides_otherwise
from contextos.action.gateway.guarded_call import UNUSABLE, GuardContext, Refusal
from contextos.action.quarantine import can_drift, incidents_sought, is_quarantined, quarantine_detail
from contextos.contracts.controls import required_of
from contextos.contracts.encoding.defaults import without_null_defaults
from contextos.contracts.encoding.jcs import same_json
from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.encoding.redacted import MARK_BEGINS, redacted_places
from contextos.contracts.envelopes.policy import APPROVAL_MODES, PolicyDecision
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.scope import SESSION_LIMIT, Action, Fact

EVIDENCE_MODES: Final = ("network", "delegated", "destructive")
"""Approval modes whose required evidence must resolve before the call."""


async def not_cancelled(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse every call of a run that a person asked to cancel, reads included."""
    failure = await find_cancel(context.journal, context.ports.barrier, context.ports.proved_cancels, call.key)
    return Refusal("blocked", failure.code, failure.detail) if failure else None


async def surfaced(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a tool that is not in the manifest (the list of tools that this run can use).
    The refusal is a policy denial if policy removed the tool from the list.
    """
    name = call.capability.capability_id
    if name in context.scope.tools.surfaced:
        return None
    if name in context.scope.tools.granted:
        return Refusal("blocked", "policy_denied", f"policy does not expose `{name}` to this run")
    if missing := context.scope.platform_scope_missing(name):
        return Refusal("rejected", "platform_scope_missing", missing)
    detail = f"`{name}` is not in the tool manifest of this run"
    return Refusal("rejected", "tool_not_in_manifest", context.scope.why_not_in_manifest(name, detail))


async def not_quarantined(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call of a foreign tool that is in quarantine. Runs before anything else is asked about the call."""
    return await _check_quarantine(context, call, call.key)


async def still_not_quarantined(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a write whose tool was quarantined while a person was asked, or while another run had the write's key."""
    reads = call.capability.definition.kind == "read"
    return None if reads else await _check_quarantine(context, call, f"redeem/{call.key}")


async def _check_quarantine(context: GuardContext, call: ToolCall, key: str) -> Refusal | None:
    quarantine_key = context.ports.quarantine_key(call.capability)
    if not await is_quarantined(context.journal, call.capability, quarantine_key, context.ports.incidents, key):
        return None
    return Refusal("blocked", "quarantined", quarantine_detail(call.capability), decision=call.decision)


async def well_formed(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse arguments that do not satisfy the tool's input schema, or that something was redacted from. The mark
    of a secret argument is refused too, unless the agent of the session sent that secret with this call.
    """
    if secret := next((name for name in call.capability.definition.secrets if name in call.args), None):
        secret_call = context.ports.secrets.asked(call.args)
        if secret_call is None:
            detail = f"`{secret}` is a secret argument, and no agent of a session sent it with this call"
            return Refusal("rejected", "argument_out_of_bounds", detail, f"/{secret}")
        if secret_call.fault is not None:
            return Refusal("rejected", "schema_mismatch", secret_call.fault, secret_call.pointer)
    problem = context.registry.check(call.capability, "input", dict(call.args))
    if problem:
        return Refusal("rejected", "schema_mismatch", problem.detail, problem.pointer)
    # The canonical form of the arguments was made before.
    if MARK_BEGINS not in call.raw:
        return None
    declared = call.capability.definition.secrets
    open_args = {name: value for name, value in call.args.items() if name not in declared}
    for place, kinds in redacted_places(open_args).items():
        detail = f"a `{kinds[0]}` was redacted from the argument at `{place}`; send a reference to it"
        return Refusal("rejected", "argument_out_of_bounds", detail, place)
    return None


async def consistent_with_request(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse an argument that differs from the value that the request gives for it."""
    args = without_null_defaults(call.capability.definition.input_schema, call.args)
    for permission in call.capability.permissions:
        for argument, place in permission.agrees_with.items():
            requested, value = context.scope.stated_at(place), args.get(argument, MISSING)
            if value is MISSING:
                continue
            if requested is MISSING or not same_json(requested, value):
                detail = f"argument `{argument}` is not what the request states at `{place}`"
                return Refusal("rejected", "argument_out_of_bounds", detail, f"/{argument}")
    return None


async def within_budget(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that would exceed the run's limits on calls, cost or wall clock.

    Policy decides first, so a call that a rule denies is denied by the rule, however much of the budget is left.
    """
    limit = exceeded_limit(context.scope.run.run_budget, context.ports.spent(), call.capability.definition)
    if not limit:
        return None
    detail = context.scope.run.run_budget.stated(limit)
    return Refusal("blocked", "budget_exhausted", detail, facts=(limit,), decision=call.decision)


async def in_session(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call after the end of the run's time limit (session). Runs before a person is asked and before the
    call.
    """
    refusal = session_end(context)
    return replace(refusal, decision=call.decision) if refusal else None


def session_end(context: GuardContext) -> Refusal | None:
    """Return the refusal of every call after the end of the run's time limit, or None before it."""
    session = context.scope.session
    if session is None or not context.scope.session_over(context.journal.now_us):
        return None
    return Refusal("blocked", "budget_exhausted", session.limit, facts=(SESSION_LIMIT,))


async def policy_allows(
    context: GuardContext, call: ToolCall, recorded: tuple[str, str] = ("execute", "commit")
) -> Refusal | None:
    """Refuse a call that the policy rules do not allow with its final arguments.

    `recorded` has the names under which the decisions at `execute` and at `commit` are recorded.
    """
    decision = decide_call(context, call, *recorded)
    call.decision = decision
    # A guardrail overrides every allow: the call is escalated to a person, unless another guardrail refuses it.
    if decision.must_escalate and not decision.must_refuse:
        names = ", ".join(decision.must_escalate)
        return Refusal("blocked", "must_escalate", f"a guardrail escalates: {names}", decision=decision)
    if not decision.allowed:
        code = "policy_eval_error" if decision.reason == "indeterminate" else "policy_denied"
        detail = decision.why_denied
        if decision.reason == "indeterminate":
            detail = f"policy cannot decide: missing or mistyped facts {context.scope.lacking(decision.missing_facts)}"
        return Refusal("blocked", code, detail, decision=decision)
    # An active gate lifts constraints marked `unless_approved`; the next guards obtain its approval.
    if not (bounds := bounds_on_call(call, decision)):
        return None
    args = without_null_defaults(call.capability.definition.input_schema, call.open_args)
    if problems := context.check_args(bounds, args, bool(decision.gates)):
        problem = problems[0]
        detail = f"`{call.capability.capability_id}` at `{problem.pointer.removeprefix('/args')}`: {problem.detail}"
        return Refusal("rejected", "argument_out_of_bounds", detail, problem.pointer, decision=decision)
    return None


def expect(context: GuardContext, call: ToolCall) -> None:
    """Announce all documents that the guards of this call read, so that the next read of the store finds them all."""
    if context.journal.on_tape:
        return
    capability, barrier = call.capability, context.ports.barrier
    if can_drift(capability):
        barrier.expect(prefixes=incidents_sought(context.ports.quarantine_key(capability)))
    if capability.definition.kind == "write":
        idempotency.key_of(context.scope, call)
        barrier.expect(active=True, places=idempotency.operation_places(call))


async def idempotency_check(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a write whose run was cancelled, or that was denied or done before. Runs before a person is asked.

    A read that a person is asked about is checked in the same way. A read claims nothing.
    """
    if call.capability.definition.kind == "read" and not call.untrusted_destinations:
        return None
    definition, key = call.capability.definition, idempotency.key_of(context.scope, call)
    if definition.secrets and (earlier := context.ports.secrets.done_elsewhere(call.capability, call.args)):
        detail = f"the call `{earlier}` did the same but for its secret, which nobody can compare any more"
        return Refusal("rejected", "idempotency_conflict", detail)
    journal, ports, session = context.journal, context.ports, context.scope.session
    operation = await idempotency.look_up_operation(journal, ports, call, call.key, "before", session)
    if operation["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if operation["denied"]:
        return Refusal("blocked", "approval_denied", "a person denied this operation before; a denial is final")
    if operation["state"] == "other_body":
        return Refusal("rejected", "idempotency_conflict", f"key `{key}` was used with other arguments")
    if operation["state"] in ("completed", "unusable"):
        return Refusal(
            "completed",
            "replayed",
            "done before",
            output=operation["output"],
            mutations=tuple(operation["mutations"]),
            made_by=operation["made_by"],
            withheld=UNUSABLE if operation["state"] == "unusable" else None,
        )
    if operation["state"] == "claimed" and session is not None:
        detail = f"another run is doing the operation, and {session.limit}"
        return Refusal("blocked", "budget_exhausted", detail, facts=(SESSION_LIMIT,))
    call.idempotency_key, call.operation = key, operation
    return None


async def consented(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call to which the person concerned has not agreed: the evidence that the pack names as their consent is
    missing, is about other arguments, or is not `true`.
    """
    for name in sorted(call.capability.consents):
        consent = call.evidence.get(name)
        if consent is None or consent.value is not True:
            problem = "is missing about these arguments" if consent is None else "does not say `true`"
            detail = f"the consent {context.scope.lacking([name])} {problem}"
            return Refusal("blocked", "consent_missing", detail, decision=call.decision, facts=(name,))
    return None


async def evidence_frozen(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call if required evidence is missing, and fix the evidence in use. Policy and the tool require evidence;
    for the approval modes `network`, `delegated` and `destructive` the decision spec of the call does too.
    """
    decision, definition = call.decision, call.capability.definition
    assert decision is not None, "the policy guard has run"
    by_mode = definition.approval_mode in EVIDENCE_MODES
    if by_mode and call.spec_key is None:
        return Refusal("blocked", "violates_decision_spec", "the call is bound to no decision spec")
    # An approval is bound to the consent too: a consent that is withdrawn meanwhile voids the approval.
    consents = call.capability.consents
    required = required_of(definition, decision.requires)
    needed = sorted({*required, *consents, *(call.required_evidence if by_mode else ())})
    unresolved = [name for name in needed if name not in call.evidence]
    if unresolved:
        detail = "required evidence about these arguments does not resolve: " + context.scope.lacking(unresolved)
        return Refusal("blocked", "missing_evidence", detail)
    if not (by_mode or needed or decision.gates):
        return None
    # Evidence that rules read, or that an argument was taken from, took part in the decision: the approval is bound to
    # it too.
    frozen = [fact for name, fact in call.evidence.items() if name in needed or context.policy.reads_evidence(name)]
    taken = _argument_evidence(context, call)
    if isinstance(taken, Refusal):
        return taken
    # An argument is sent with the value that was taken from the evidence, so that evidence has no volatile parts.
    frozen = [fact for fact in frozen if fact not in taken] + [replace(fact, volatile={}) for fact in taken]
    frozen.sort(key=lambda fact: (fact.name, fact.evidence_ref))
    items = [{"name": fact.name, "evidence_ref": fact.evidence_ref, "digest": fact.digest} for fact in frozen]
    context.journal.derive("evidence.frozen", call.key, {"items": items})
    call.frozen = tuple(frozen)
    return None


def _argument_evidence(context: GuardContext, call: ToolCall) -> list[Fact] | Refusal:
    """Return the evidence that arguments were taken from, by a binding or through a parameter of the intent, whatever
    it is about. Return a refusal if some is not among the evidence of the run.
    """
    facts, taken = call.known, list[Fact]()
    for argument, source in call.provenance.items():
        kind, _, place = source.partition(":/")
        if kind == "evidence":
            # The executor reads the newest of each name.
            sources = [fact for fact in facts if fact.name == place.partition("/")[0]][-1:]
        elif kind == "parameter" and context.scope.parameters[place].origin == "evidence":
            sources = [fact for fact in facts if fact.evidence_ref == context.scope.parameters[place].place]
        else:
            continue
        if not sources:
            detail = f"the evidence that `{argument}` was taken from is not among that of the run"
            return Refusal("blocked", "missing_evidence", detail, f"/{argument}", decision=call.decision)
        taken += [fact for fact in sources if fact not in taken]
    return taken


def question_about(context: GuardContext, call: ToolCall, decision: PolicyDecision | None) -> Action | Refusal | None:
    """Return the action that a person has to approve before this call. Return None if no approval is needed, or a
    refusal if nobody can be asked.
    """
    assert decision is not None and decision.effective_approval_mode is not None, "the policy guard has run"
    if not decision.gates:
        if APPROVAL_MODES.index(decision.effective_approval_mode) >= APPROVAL_MODES.index("destructive"):
            return Refusal("blocked", "policy_denied", "a destructive call needs an approval gate")
        return None
    if len(decision.gates) > 1:
        return Refusal("blocked", "policy_denied", "more than one gate is active; this version can ask only one person")
    gate = context.scope.pinned.gates.get(decision.gates[0])
    if gate is None:
        return Refusal("blocked", "policy_denied", f"`{decision.gates[0]}` is not a gate of the pack")
    if call.idempotency_key is None:
        return Refusal(
            "blocked", "policy_denied", "a gate is only for writes; limit its rule to the capability that needs it"
        )
    return Action(
        call.tool_call_id,
        call.key,
        call.capability,
        call.args,
        call.frozen,
        decision.effective_approval_mode,
        gate,
        decision,
        call.idempotency_key,
        {name: argument.origins for name, argument in call.traced.items() if argument.integrity != "trusted"},
        {name: call.traced[name].origins for name in call.capability.definition.secrets if name in call.traced},
        tuple(context.journal.account.instructing),
    )


async def approved(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that needs an approval, unless a person approved exactly this call and nothing changed since."""
    action = question_about(context, call, call.decision)
    if not isinstance(action, Action):
        return action
    redeemed = await context.approvals.obtain(action)
    if isinstance(redeemed, Failure):
        return Refusal("blocked", redeemed.code, redeemed.detail, facts=redeemed.facts)
    # A person was asked meanwhile, so the guards before this one read old values of the store.
    context.ports.barrier.forget()
    expect(context, call)
    call.evidence = {**call.evidence, **{fact.name: fact for fact in redeemed.moved}}
    new_decision = decide_call(context, call, "redeem", "recommit")
    if decides_otherwise(context, action.decision, new_decision):
        detail = "policy decides differently than when the approver was asked"
        return Refusal("blocked", "approval_void", detail, decision=new_decision)
    journal, ports, session = context.journal, context.ports, context.scope.session
    operation = await idempotency.look_up_operation(journal, ports, call, call.key, "redeem", session)
    if operation["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if operation["denied"] or operation["state"] != "free":
        return Refusal("blocked", "approval_void", "the operation was denied or done meanwhile")
    if not idempotency.is_same_epoch(call.operation, operation):
        return Refusal("blocked", "approval_void", "the store was restored from a backup since the approver was asked")
    call.approval, call.operation, call.decision = redeemed, operation, new_decision
    return None


async def within_egress(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that leaves the machine, unless the adapter names its endpoints and pack and tenant allow them all.

    The declared class of the capability decides, whatever mode a rule sets. The adapter gets the list with the call.
    """
    adapter, pinned = call.capability.adapter, context.scope.pinned
    if not call.capability.leaves:
        return None
    if not adapter.egress:
        detail = f"`{adapter.adapter_id}` leaves the machine and declares no endpoint"
        return Refusal("blocked", "policy_denied", detail, decision=call.decision)
    for owner, allowed in (("pack", frozenset(pinned.pack.tooling_layer.egress)), ("tenant", pinned.egress)):
        if forbidden := [endpoint for endpoint in adapter.egress if endpoint not in allowed]:
            detail = f"`{adapter.adapter_id}` reaches `{forbidden[0]}`, which is not in the egress list of the {owner}"
            return Refusal("blocked", "policy_denied", detail, decision=call.decision)
    return None


async def credentialed(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that the run's user and agent are not allowed to make.

    Refuses an agent that is not active, and a user without a live delegation if the capability is declared `delegated`
    or above, whatever mode a rule sets. Before a write, identities and pinned artifacts are looked up again, because
    the run can have waited long since it was admitted.
    """
    principals = context.scope.identity.principals
    if principals.agent.lifecycle != "active":
        return Refusal("blocked", "identity_refused", f"the agent is `{principals.agent.lifecycle}`")
    declared = APPROVAL_MODES.index(call.capability.definition.approval_mode)
    if declared >= APPROVAL_MODES.index("delegated") and not principals.user.delegation_live:
        return Refusal("blocked", "identity_refused", "the user's delegation is not live; ask for it again")
    if call.capability.definition.kind == "read":
        return None
    failure, unchanged = await context.ports.recheck(call.key, call.capability)
    if failure:
        return Refusal("blocked", failure.code, failure.detail)
    call.preconditions = (unchanged,)
    return None
