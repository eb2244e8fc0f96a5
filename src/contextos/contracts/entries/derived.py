"""Bodies of derived journal entries (values that the runtime computes) for which the specification has no model."""

from __future__ import annotations

from typing import Any, Literal

from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.envelopes.identity import Principal
from contextos.contracts.envelopes.memory import MemoryProposal
from contextos.contracts.envelopes.plan import TakenParameter
from contextos.contracts.envelopes.policy import ApprovalMode, PolicyDecision
from contextos.contracts.envelopes.run import BudgetInForce
from contextos.contracts.envelopes.tool import StatedCall, StatedResult
from contextos.contracts.envelopes.verdicts import End, Failure, VerifyVerdict
from contextos.contracts.ids import GateId, ToolCallId
from contextos.contracts.model import Amount, Count, Map, Model, Name, OpenObject, Positive, Seq, Share, Text


class ResolvedIntentBody(Model):
    """Body of `intent.resolved`: the intent and the task templates (`id@version`) that can serve it, best first."""

    intent_id: Name
    version: Name
    risk_class: Name
    templates: Seq[Name]
    confidence: Share


class StatedContext(Model):
    """Body of `run.context`: the parts of the RunContext that neither the request nor the run's identity states."""

    agent_id: Name
    safety_mode: ApprovalMode
    run_budget: BudgetInForce


class TakenParameters(Model):
    """Body of `parameters.taken`: the parameters that have a value, and the names of those that no source has."""

    parameters: Seq[TakenParameter]
    missing: Seq[Name] = ()


class DecidedPolicies(Model):
    """Body of `policy.decided`: the policy decisions about all tools of a run, about all steps of a plan, or about a
    slot.
    """

    decisions: Seq[PolicyDecision]


class VerifiedPlan(Model):
    """Body of `plan.verified`: the Critic's verdict about a plan before it runs, and the problems that it found."""

    verdict: VerifyVerdict
    failures: Seq[Failure]


class ObservedFinding(Model):
    """The effect that enforcing would have had on a call of an observed session, and why.

    `deny`: the call would not have been made. `ask`: a person would have been asked, by the gate `gate_id`. `rule_ids`
    are the policy rules behind it; without one, `code` names the check.
    """

    verdict: Literal["deny", "ask"]
    code: Name
    detail: Text
    rule_ids: Seq[Name] = ()
    gate_id: GateId | None = None
    pointer: Text | None = None
    facts: Seq[Name] = ()


class ObservedCall(Model):
    """Body of `call.observed`: the findings of one check (`by`) in a session whose pack observes. The call went on."""

    by: Name
    findings: Seq[ObservedFinding]


class OpenedSession(Model):
    """Body of `session.opened`: the tools that the agent can call, and the deadline (Unix microseconds).

    `observed`: the pack observes; absent where it enforces.
    """

    tools: Seq[Name]
    deadline_us: Count
    observed: bool = False


class AnsweredCall(Model):
    """Body of `call.answered`: the result of an agent's call, and why it failed or was refused.

    The output of a call that is `done` is in the entry `tool.returned` or `tool.refused` with the key `step`
    (`<revision>/<step id>`). `failed`: the tool answered with an error.
    """

    status: Literal["done", "failed", "refused"]
    step: Name | None
    failures: Seq[Failure]


class RefusedCall(Model):
    """Body of `tool.refused`: why the tool gateway refused a call. Nothing was sent.

    `call` is the call as it would have been sent, as far as the checks had come. It is absent if the tool is not
    registered, or if the call had been dispatched before.
    """

    envelope: StatedResult
    call: StatedCall | None = None


class ScheduledRetry(Model):
    """Body of `tool.retry_scheduled`: when a call is made again (`at_us`, Unix microseconds), and how.

    `send`: nothing was sent so far. `send_again`: under the same key. `look_up`: the system is asked what happened.
    """

    how: Literal["send", "send_again", "look_up"]
    at_us: Count
    tool_call_id: ToolCallId


class DispatchedCall(Model):
    """Body of `tool.dispatching`: a call that is about to be sent, not after `not_after_us` (Unix microseconds). It
    reserves `reserved_cents` (US cents) of the run's budget. `credentials` names the places of its static secrets.
    """

    envelope: StatedCall
    mode: Name
    reserved_cents: Amount
    not_after_us: Count
    approval_id: Name | None = None
    credentials: Seq[Name] = ()


class CheckedCheckpoint(Model):
    """Body of `checkpoint.checked`: the references of the evidence that a decision requires, by name (`satisfied`), and
    the names of the evidence that is not available (`unresolved`).
    """

    decision_key: Name
    decision_version: Name
    satisfied: Map[Name]
    unresolved: Seq[Name]


class TracedArguments(Model):
    """Body of `arguments.traced`: where the arguments of a call come from, by name. A run that has seen no untrusted
    content has no such entry, unless a rule reads these facts. `kept` is the digest of the data about the call that is
    kept for later runs; None if none is kept.
    """

    arguments: Map[TracedArgument]
    kept: Name | None = None


class FrozenItem(Model):
    """One piece of evidence, as it was when a call was checked."""

    name: Name
    evidence_ref: Name
    digest: Name


class FrozenEvidence(Model):
    """Body of `evidence.frozen`: the evidence on which a call is based, fixed from then on."""

    items: Seq[FrozenItem]


class AskedEvidence(Model):
    """Evidence for a call that a person is asked about. `digest` is the digest of the statement that the run froze.
    `volatile` says, by JSON Pointer, by how much a number in the value can differ when the answer is used.
    """

    name: Name
    subject: Name
    value: Any
    ref: Name
    digest: Name
    volatile: Map[Amount] = {}


class ApprovalBinding(Model):
    """The exact object of an approval: one call, for whom it is made, who has to approve, and by when.

    `untrusted` names the arguments whose value no trusted source has, and `secrets` the arguments whose value nobody is
    shown, each with the places where it was found, or `planner` if nowhere. `instructions` names the sources whose text
    addresses an agent: `tool:<id>` or `attachment`. `nonce` is the hash of the last entry of the run's journal when the
    question was asked. `deadline_us` is Unix time in microseconds.
    """

    tenant_id: Name
    run_id: Name
    tool_call_id: Name
    capability_id: Name
    mode: ApprovalMode
    definition_digest: Name
    args_digest: Name
    evidence_snapshot_hash: Name
    policy_decision_id: Name
    pins_digest: Name
    requester_chain: Seq[Principal]
    untrusted: Map[Seq[Name]]
    secrets: Map[Seq[Name]]
    instructions: Seq[Name]
    gate_id: Name
    required_role: Name
    idempotency_key: Name
    nonce: Name
    deadline_us: Count


class AskedApproval(Model):
    """Body of `approval.asked`: a question to an approver about one call.

    An approval is valid for exactly what `binding` describes, which holds the digests of `args` (the final arguments)
    and of `evidence`. The text that the approver sees is derived from these three (`shown_text`). The people in
    `barred` are not allowed to approve.
    """

    approval_id: Name
    gate_id: Name
    required_role: Name
    deadline_us: Count
    binding: ApprovalBinding
    binding_digest: Name
    args: OpenObject
    evidence: Seq[AskedEvidence]
    barred: Seq[Name]


class VoidedApproval(Model):
    """Body of `approval.voided`: why an approval is no longer valid, for example because a fact changed."""

    approval_id: Name
    reason: Text


class ProposedMemories(Model):
    """Body of `memory.proposed`: the statements that the run proposes to remember. Nothing is remembered before a
    review.
    """

    proposals: Seq[MemoryProposal]


class PackedReplay(Model):
    """Body of `replay.packed`: the id of the ReplayPacket, which follows from the record (`build_packet`)."""

    replay_packet_id: Name


class EndedRun(Model):
    """Body of `run.ended`: how the run ended, its final record, and the number of entries including this one."""

    end: End
    record_id: Name
    record_hash: Name
    entries: Positive


class RecheckedValue(Model):
    """The present digest and value of volatile evidence."""

    digest: Name
    value: Any


class RecheckedEvidence(Model):
    """Body of `evidence.rechecked`: the number of pins and facts to which an approval was bound, and those that differ.

    `other` has, by name, the new digest (None: withdrawn), and for volatile evidence also the new value.
    """

    bound: Count
    other: dict[str, str | RecheckedValue | None]
