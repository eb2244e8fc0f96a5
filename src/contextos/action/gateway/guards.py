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
    said = f"`{name}` is not in the tool manifest of this run"
    return Refusal("rejected", "tool_not_in_manifest", context.scope.why_not_in_manifest(name, said))


async def not_quarantined(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call of a foreign tool that is in quarantine. Runs before anything else is asked about the call."""
    return await _out_of_quarantine(context, call, call.key)


async def still_not_quarantined(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a write whose tool was quarantined while a person was asked, or while another run had the write's key."""
    reads = call.capability.definition.kind == "read"
    return None if reads else await _out_of_quarantine(context, call, f"redeem/{call.key}")


async def _out_of_quarantine(context: GuardContext, call: ToolCall, key: str) -> Refusal | None:
    quarantine_key = context.ports.quarantine_key(call.capability)
    if not await is_quarantined(context.journal, call.capability, quarantine_key, context.ports.incidents, key):
        return None
    return Refusal("blocked", "quarantined", quarantine_detail(call.capability), decision=call.decision)


async def well_formed(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse arguments that do not satisfy the tool's input schema, or that something was redacted from. The mark
    of a secret argument is refused too, unless the agent of the session sent that secret with this call.
    """
    if secret := next((name for name in call.capability.definition.secrets if name in call.args), None):
        asked = context.ports.secrets.asked(call.args)
        if asked is None:
            detail = f"`{secret}` is a secret argument, and no agent of a session sent it with this call"
            return Refusal("rejected", "argument_out_of_bounds", detail, f"/{secret}")
        if asked.fault is not None:
            return Refusal("rejected", "schema_mismatch", asked.fault, asked.pointer)
    problem = context.registry.check(call.capability, "input", dict(call.args))
    if problem:
        return Refusal("rejected", "schema_mismatch", problem.detail, problem.pointer)
    # The canonical form of the arguments was made before.
    if MARK_BEGINS not in call.raw:
        return None
    declared = call.capability.definition.secrets
    for place, kinds in redacted_places({name: one for name, one in call.args.items() if name not in declared}).items():
        detail = f"a `{kinds[0]}` was redacted from the argument at `{place}`; send a reference to it"
        return Refusal("rejected", "argument_out_of_bounds", detail, place)
    return None


async def consistent_with_request(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse an argument that differs from the value that the request gives for it."""
    given = without_null_defaults(call.capability.definition.input_schema, call.args)
    for permission in call.capability.permissions:
        for argument, where in permission.agrees_with.items():
            stated, final = context.scope.stated_at(where), given.get(argument, MISSING)
            if final is MISSING:
                continue
            if stated is MISSING or not same_json(stated, final):
                detail = f"argument `{argument}` is not what the request states at `{where}`"
                return Refusal("rejected", "argument_out_of_bounds", detail, f"/{argument}")
    return None


async def within_budget(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call that would exceed the run's limits on calls, cost or wall clock.

    Policy decides first, so a call that a rule denies is denied by the rule, however much of the budget is left.
    """
    reached = exceeded_limit(context.scope.run.run_budget, context.ports.spent(), call.capability.definition)
    if not reached:
        return None
    stated = context.scope.run.run_budget.stated(reached)
    return Refusal("blocked", "budget_exhausted", stated, facts=(reached,), decision=call.decision)


async def in_session(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call after the end of the run's time limit (session). Runs before a person is asked and before the
    call.
    """
    over = session_end(context)
    return replace(over, decision=call.decision) if over else None


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
    given = without_null_defaults(call.capability.definition.input_schema, call.open_args)
    if problems := context.check_args(bounds, given, bool(decision.gates)):
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
        given = call.evidence.get(name)
        if given is None or given.value is not True:
            lacks = "is missing about these arguments" if given is None else "does not say `true`"
            detail = f"the consent {context.scope.lacking([name])} {lacks}"
            return Refusal("blocked", "consent_missing", detail, decision=call.decision, facts=(name,))
    return None


async def evidence_frozen(context: GuardContext, call: ToolCall) -> Refusal | None:
    """Refuse a call if required evidence is missing, and fix the evidence in use. Policy and the tool require evidence;
    for the approval modes `network`, `delegated` and `destructive` the decision spec of the call does too.
    """
    decision, definition = call.decision, call.capability.definition
    assert decision is not None, "the policy guard has run"
    of_spec = definition.approval_mode in EVIDENCE_MODES
    if of_spec and call.spec_key is None:
        return Refusal("blocked", "violates_decision_spec", "the call is bound to no decision spec")
    # An approval is bound to the consent too: a consent that is withdrawn meanwhile voids the approval.
    consents = call.capability.consents
    required = required_of(definition, decision.requires)
    needed = sorted({*required, *consents, *(call.required_evidence if of_spec else ())})
    unresolved = [name for name in needed if name not in call.evidence]
    if unresolved:
        detail = "required evidence about these arguments does not resolve: " + context.scope.lacking(unresolved)
        return Refusal("blocked", "missing_evidence", detail)
    if not (of_spec or needed or decision.gates):
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
    items = [{"name": f.name, "evidence_ref": f.evidence_ref, "digest": f.digest} for f in frozen]
    context.journal.derive("evidence.frozen", call.key, {"items": items})
    call.frozen = tuple(frozen)
    return None


def _argument_evidence(context: GuardContext, call: ToolCall) -> list[Fact] | Refusal:
    """Return the evidence that arguments were taken from, by a binding or through a parameter of the intent, whatever
    it is about. Return a refusal if some is not among the evidence of the run.
    """
    facts, found = call.known, list[Fact]()
    for argument, source in call.provenance.items():
        kind, _, place = source.partition(":/")
        if kind == "evidence":
            # The executor reads the newest of each name.
            these = [fact for fact in facts if fact.name == place.partition("/")[0]][-1:]
        elif kind == "parameter" and context.scope.parameters[place].origin == "evidence":
            these = [fact for fact in facts if fact.evidence_ref == context.scope.parameters[place].place]
        else:
            continue
        if not these:
            detail = f"the evidence that `{argument}` was taken from is not among that of the run"
            return Refusal("blocked", "missing_evidence", detail, f"/{argument}", decision=call.decision)
        found += [fact for fact in these if fact not in found]
    return found


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
        {name: one.origins for name, one in call.traced.items() if one.integrity != "trusted"},
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
    again = decide_call(context, call, "redeem", "recommit")
    if decides_otherwise(context, action.decision, again):
        return Refusal(
            "blocked", "approval_void", "policy decides differently than when the approver was asked", decision=again
        )
    journal, ports, session = context.journal, context.ports, context.scope.session
    operation = await idempotency.look_up_operation(journal, ports, call, call.key, "redeem", session)
    if operation["cancelled"]:
        return Refusal("blocked", "cancelled", "the run was cancelled; nothing was sent")
    if operation["denied"] or operation["state"] != "free":
        return Refusal("blocked", "approval_void", "the operation was denied or done meanwhile")
    if not idempotency.is_same_epoch(call.operation, operation):
        return Refusal("blocked", "approval_void", "the store was restored from a backup since the approver was asked")
    call.approval, call.operation, call.decision = redeemed, operation, again
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
    for who, allowed in (("pack", frozenset(pinned.pack.tooling_layer.egress)), ("tenant", pinned.egress)):
        if beyond := [endpoint for endpoint in adapter.egress if endpoint not in allowed]:
            detail = f"`{adapter.adapter_id}` reaches `{beyond[0]}`, which is not in the egress list of the {who}"
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
