"""DecisionRecord and ReplayPacket: the durable receipt of a run, and the input of its replay.

Source: API Contracts, "DecisionRecord"; Runtime API Schemas, "Field invariants".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Literal, get_args

from contextos.contracts.envelopes.compiled import RuntimeControls
from contextos.contracts.envelopes.identity import Chain
from contextos.contracts.envelopes.models import AskedOutcome, ModelOperation, ModelRef
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.verdicts import (
    DecisionStatus,
    End,
    Failure,
    RecordStatus,
    ScoreVerdict,
    VerifyVerdict,
)
from contextos.contracts.ids import (
    CapabilityId,
    Ceid,
    Digest,
    GateId,
    PlanId,
    PolicyDecisionId,
    RecordId,
    ReplayPacketId,
    RoutingId,
    RuleId,
    RunId,
    SessionId,
    Timestamp,
    ToolCallId,
    TraceId,
)
from contextos.contracts.model import (
    Amount,
    Cents,
    Count,
    Map,
    Model,
    Name,
    Number,
    OpenObject,
    Positive,
    Seq,
    Share,
    Text,
)
from contextos.contracts.refs import EvidenceRef


class RecordActor(Model):
    """Who decided: an agent, user, service or operator, by id."""

    type: Literal["AGENT", "USER", "SERVICE", "OPERATOR"]
    """What decided."""
    id: Name
    """The id of the actor."""


class RecordIdentity(Model):
    """The agent and the principals (user and agent) of a decision, and the hash of the run's identity token."""

    subject: Name
    """The name and version of the agent."""
    claim_hash: Digest
    """The digest of the run's identity token."""
    principal_chain: Chain
    """The principals from the one who made the request to the one who executes it."""


class PolicyDecisionRef(Model):
    """A policy decision, and the rules that matched in it."""

    policy_decision_id: PolicyDecisionId
    """The id of the policy decision."""
    rule_ids: Seq[RuleId]
    """The ids of the rules that matched."""


class MovedEvidence(Model):
    """A number of volatile evidence that changed between the question and the use of its answer."""

    evidence: Name
    """The name of the evidence."""
    place: Name
    """Where the number is in the value of the evidence, as a JSON Pointer."""
    was: Number | None
    """The number that the approver was shown."""
    now: Number | None
    """The number when the answer was used, or when it was found void; null if it was gone."""
    tolerance: Number
    """The largest difference with which the answer still counts."""


class ApprovalReceipt(Model):
    """A question to an approver that was answered or expired, with digests of the action and its evidence."""

    gate_id: GateId
    """The gate at which a person was asked."""
    approver: Name
    """The id of the person who answered; `nobody` if the question expired, or an answer was void."""
    approval_mode_effective: ApprovalMode
    """The approval mode of the call."""
    evidence_snapshot_hash: Digest
    """The digest of the evidence that the approval covers."""
    decided_at: Timestamp | None = None
    """When the question was answered, in UTC."""
    verdict: Literal["approved", "denied", "expired", "void"] | None = None
    """The answer; `void` if it does not count, because it was not proved or something changed."""
    reason: Text | None = None
    """The reason that the person gave, or why no answer counts."""
    binding_digest: Digest | None = None
    """The digest of everything that the approval is bound to."""
    assertion: Literal["webauthn", "jws", "oidc", "unsafe_local"] | None = None
    """How the answer was proved."""
    moved: Seq[MovedEvidence] = ()
    """The numbers of volatile evidence that had changed when the answer was checked."""


class RecordedEffect(Model):
    """An effect of a run on an external system.

    `made_by` can be an earlier run: an operation that an earlier run did is not done again.
    """

    step_id: Name
    """The step that made the call."""
    capability_id: CapabilityId
    """The id of the tool."""
    tool_call_id: ToolCallId
    """The id of the call."""
    state: Literal["happened", "unknown"]
    """`happened`, or `unknown` if it is not known whether it happened."""
    made_by: RunId
    """The run that made the effect, which can be an earlier run."""
    mutations: Seq[Name] = ()
    """The names of the side effects."""


class Rationale(Model):
    """How a decision came about: its planner, its task template and its failures. It never quotes a language model."""

    strategy: Name
    """The planner, by name and version."""
    alternatives_considered: Seq[Text] = ()
    """Plans and templates that were tried or passed over, as text."""
    failures: Seq[Failure] = ()
    """What went wrong on the way, in order."""


class BudgetUsage(Model):
    """The resources that the run used."""

    tokens: Count
    """The tokens of all prompts of the run."""
    tool_calls: Count
    """The number of calls of tools."""
    cost_usd_cents: Cents
    """The cost of calls, in US cents with at most four decimals."""
    wall_clock_ms: Amount
    """The time that the run worked in milliseconds, without waiting for people."""
    model_tokens: Count | None = None
    """The tokens that models billed, of prompts and of answers; absent if no model was called."""
    model_calls: Count | None = None
    """The number of calls of models; absent if there was none."""


class SessionCheckpoint(Model):
    """The progress of a `long_running` run after a verdict about its plan or its results.

    `head` is the hash of the verdict's journal entry. `steps_done` are the ids of the current plan's finished steps.
    `deadline_us` is Unix time in microseconds.
    """

    checkpoint: Positive
    session_id: SessionId | None
    run_id: RunId
    after: Literal["plan.verified", "run.scored"]
    verdict: VerifyVerdict | ScoreVerdict
    head: Digest
    plan_id: PlanId | None
    revision: Count | None
    pack_ref: Name
    snapshot: Name
    steps_done: Seq[Name]
    budget_used: BudgetUsage
    deadline_us: Count


class LedgerHead(Model):
    """The number of entries in one of a run's ledgers, and a digest of their hashes."""

    entries: Count
    """The number of entries of the ledger."""
    head: Digest
    """The digest over the hashes of these entries."""


class AskedModelQuestion(Model):
    """A question that the run had for a model: how it was routed and what became of it. It is never a decision of the
    run.
    """

    operation: ModelOperation
    """What a model was asked for."""
    rules: ModelRef
    """The routing rules that chose the profile."""
    profile: ModelRef | None
    """The profile that was asked last; null if none was eligible."""
    attempts: Count
    """The number of calls that were made."""
    outcome: AskedOutcome | Literal["not_taken", "no_route"] | None
    """What became of the last call: `answered`, `not_taken` if the answer did not fit, or why there was no answer. It
    is `no_route` if no call was made, and null if the call is still open.
    """
    cost_usd_cents: Cents
    """What the calls cost, in US cents with at most four decimals."""


UNSAFE_OBSERVED: Final = "unsafe_observed"
"""The entry of `unsafe` in the lineage of a run whose pack has the mode `observe`: the pack enforced nothing."""


class Lineage(Model):
    """The versions and pins from which the decision was made.

    `unsafe` names the development stand-ins in use, and also has `unsafe_observed` if the pack only observes.
    `asserted` names the unverified facts of the caller that policy accepted.
    """

    pack_version: Name
    """The pin of the pack, or the text that the request named instead of a pin."""
    snapshot_version: Name
    """The snapshot of the graph that the run saw, or `none`."""
    runtime_version: Name | None = None
    """The version of the runtime."""
    environment: Name | None = None
    """The environment of the deployment that decided: `dev`, `staging` or `prod`."""
    semantics: Count | None = None
    """The version of the rules by which the entries of the run were derived."""
    pins_digest: Digest | None = None
    """The digest of the `pins` of the run's last `run.pinned` entry; without such an entry, the digest of `{}`."""
    ledgers: Map[LedgerHead] | None = None
    """The length and the head of each ledger, by its name."""
    unsafe: Seq[Name] = ()
    """The names of the development stand-ins in use; in production it is empty."""
    unsafe_stated_by: Seq[Name] = ()
    """The classes in use that are not part of this runtime, and state themselves whether they are stand-ins."""
    asserted: Seq[Name] = ()
    """The facts of the caller that policy accepted without proof."""
    routing_decisions: Seq[RoutingId] = ()
    """The ids of the choices of a model in the journal (`model.routed`), in order; absent if there was none."""
    models: Seq[AskedModelQuestion] = ()
    """What was asked of models, in order; absent if nothing was."""


class ReplayHandle(Model):
    """The id of the packet that starts a replay, and the hashes that the replay must reproduce."""

    replay_id: ReplayPacketId
    """The id of the packet that starts the replay."""
    run_id: RunId
    """The run to replay."""
    compiled_context_hash: Digest | None = None
    """The hash of the compiled context; absent if nothing was compiled."""
    tool_transcript_chain_hash: Digest | None = None
    """The hash over the calls of tools and their results."""


class AxisScore(Model):
    """The score of a run on one of five axes, from 0 to 1 (best), and the evaluator that gave it."""

    evaluator: Name
    """The evaluator, by name and version."""
    score: Share
    """The score, from 0 to 1 (best)."""
    threshold: Share
    """The lowest score that passes, from the pack's evaluation layer."""
    status: Literal["pass", "fail"]
    """Whether the score reaches the threshold."""
    findings: Seq[Text] = ()
    """The reasons for a lower score, and other notes on it for people, as text."""


class Scorecard(Model):
    """The scores of a run on five axes, and the verdict that follows: accept, replan or escalate."""

    policy: AxisScore
    """Whether the run kept to policy."""
    utility: AxisScore
    """The share of steps that were completed."""
    latency: AxisScore
    """The share of the wall clock that was left over."""
    safety: AxisScore
    """Whether outputs and effects were safe."""
    economics: AxisScore
    """The share of the cost limit that was left over."""
    verdict: ScoreVerdict
    """What follows from the scores."""


class DecisionRecord(Model):
    """The result of one decision of a run: outcome, evidence, approvals, scores and hashes. A change appends a new
    revision.

    `effects` are the effects of the steps that the decision governs. `outputs` are there however the run ended.
    `record_hash` covers every field except itself.
    """

    record_id: RecordId
    """The id of the decision, the same in each of its revisions."""
    decision_key: Name
    """The name of the decision spec, or `runtime.admission` without one."""
    decision_version: Name
    """The version of the decision spec as `x.y.z`."""
    timestamp: Timestamp | None = None
    """When this revision was made, in UTC."""
    status: DecisionStatus
    """The state of the decision; `DEFERRED` while its run waits. `IN_FLIGHT` (the run is driven) and `CLOSED` (nothing
    more follows) are states of a run and of an export; no record is written with them.
    """
    outcome: Name | None = None
    """The outcome, one that the decision spec allows; absent while the run waits."""
    end: End | None = None
    """How the run ended; absent while it waits."""
    actor: RecordActor
    """Who decided."""
    agent_identity: RecordIdentity | None = None
    """The agent and its principals as proved; absent if the run was not admitted."""
    intent_ref: Name | None = None
    """The id of the intent that was asked for."""
    subject_ids: Seq[Ceid] = ()
    """The entities that the decision is about."""
    inputs_refs: Map[Name] = {}
    """The ids of the inputs by their kind: the request, and the session if there is one."""
    outputs: OpenObject
    """The outputs by name, as the task template binds them."""
    effects: Seq[RecordedEffect] = ()
    """The effects on external systems of the steps that the decision governs."""
    evidence_refs: Seq[EvidenceRef]
    """References to the evidence in the order of its use."""
    policy_decisions: Seq[PolicyDecisionRef]
    """The policy decisions of the run, with the rules that matched."""
    approvals: Seq[ApprovalReceipt]
    """The answers of people."""
    controls_active: RuntimeControls
    """The controls that applied."""
    confidence: Share | None = None
    """How sure the outcome is, from 0 to 1: the lowest of the scores for policy, utility and safety and the confidence
    with which the intent was resolved. No score counts if a rule or a person ended the run. Without a number it is 1.
    """
    rationale: Rationale | None = None
    """How the decision came about."""
    budget_usage: BudgetUsage
    """The resources that the run used."""
    scorecard: Scorecard | None = None
    """The scores of the run; absent if it was not scored."""
    lineage: Lineage | None = None
    """The versions and pins from which the decision was made."""
    trace_id: TraceId
    """The id of the caller's trace."""
    revision: Count | None = None
    """The number of this revision, from 0."""
    replay: ReplayHandle | None = None
    """The id and the hashes for a replay."""
    record_hash: Digest | None = None
    """The digest of every other field."""

    required_when_sealed: ClassVar[tuple[str, ...]] = (
        "timestamp",
        "intent_ref",
        "rationale",
        "lineage",
        "revision",
        "replay",
        "record_hash",
    )

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Yield a fault if the record is `DECIDED` without an outcome, or has a status that records cannot have."""
        if self.status not in get_args(RecordStatus):
            yield "status", "no record is written with this status; it is that of a run, or of a person's act"
        if self.status == "DECIDED" and self.outcome is None:
            yield "outcome", "status `DECIDED` does not say what was decided; give one of the allowed outcomes"


class ReplayExpectation(Model):
    """The final state and hashes that a replay of the run must reproduce."""

    status: RecordStatus
    """The status of the record."""
    decision_record_hash: Digest | None = None
    """The hash of the record; if it is absent, the record is not compared."""


class ReplayPacket(Model):
    """What a replay of a run starts from. The answers of tools are read from the journal; no adapter is called."""

    replay_packet_id: ReplayPacketId
    """The id of the packet."""
    trace_id: TraceId
    """The id of the caller's trace."""
    session_id: SessionId | None = None
    """The session to which the run belongs, if any."""
    source_kind: Literal[
        "decision_record", "quality_replay_case", "environment_episode", "operator_correction", "golden_case"
    ]
    """What the packet was made from; this runtime makes it from a decision record."""
    source_ref: Name
    """The id of what the packet was made from."""
    run_context_ref: Name | None = None
    """The id of the run."""
    context_pack_ref: Name
    """The pin of the pack."""
    knowledge_snapshot_ref: Name | None = None
    """The snapshot of the graph that the run saw."""
    compiled_context_hash: Digest
    """The hash of the compiled context, which the replay has to reproduce."""
    tool_transcript_chain_hash: Digest | None = None
    """The hash over the calls of tools and their results, which the replay has to reproduce."""
    side_effect_policy: Literal["transcript_only", "sandbox", "live_disallowed"]
    """What the replay is allowed to do outside; with `transcript_only` it reads recorded answers and calls nothing."""
    expected: ReplayExpectation
    """The status and hash that the replay has to reproduce."""


class DecisionOutput(Model):
    """The short form of a decision (API Contracts, "Decision output")."""

    decision_id: Name
    """The name of the decision spec, or `runtime.admission` without one."""
    outcome: Name
    """What was decided: `approved`, `denied` or `escalated`."""
    evidence_refs: Seq[EvidenceRef]
    """The evidence of the record in the order of its use, then the policy rules that matched."""
