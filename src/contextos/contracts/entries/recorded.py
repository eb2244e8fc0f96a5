"""Bodies of recorded journal entries: answers from ports, operators and users, as the run received them."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from contextos.contracts.acts import OperatorAct
from contextos.contracts.envelopes.artifacts import PinnedContent
from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.envelopes.identity import Approver, IdentityClaim, Principals, SamePrincipals, SignerAssertion
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.contracts.envelopes.tool import AuthRef, StatedResult
from contextos.contracts.envelopes.verdicts import Failure, SessionOutcome
from contextos.contracts.ids import Digest, RunId, ToolCallId
from contextos.contracts.model import Amount, Count, Map, Model, Name, NonEmpty, Number, OpenObject, Positive, Seq, Text
from contextos.contracts.refs import EvidenceRef


class DescribedDeployment(Model):
    """The facts of a deployment that a run records when it begins."""

    runtime_version: Name
    profile: Name
    environment: Name
    unsafe: Seq[Name]
    unsafe_stated_by: Seq[Name] = ()
    limits: Map[Amount]
    semantics: Positive
    planner: Name
    attachments: bool


class ReceivedRun(Model):
    """Body of `run.received`: the request as JSON, its digest, and the facts of the deployment that accepted it.

    `correction` counts the requests with this id that each correct a refused request; absent for the first request.
    """

    request: OpenObject
    fingerprint: Text
    deployment: DescribedDeployment
    correction: int | None = None


class ResumedRun(Model):
    """Body of `run.resumed`: why another process continued the run.

    `behind_us`: how far its clock is behind the time of the entries that follow; None if it is not behind.
    """

    cause: Name
    behind_us: Count | None = None


class RequestedCancel(Model):
    """Body of `run.cancel_requested`: who asked to cancel the run, and the reason. A run that does not wait records it
    when it finds the request, before its next call.
    """

    by: Name
    reason: Text


class UnprovedCancel(Model):
    """Body of `run.cancel_unproved`, which is empty: somebody stored or appended a cancel request of this run, and no
    sealed act proves it. The run goes on. Each stored request is recorded once.
    """


class ReopenedRun(Model):
    """Body of `run.reopened`: an operator lets an escalated run go on, with `to` as the new value of the exhausted
    `limit`. Both are None if no limit was exhausted.
    """

    by: Name
    reason: Text
    limit: Name | None = None
    to: Number | None = None


class ResolvedIdentity(Model):
    """Body of `identity.resolved`, at the start of a run and before a slot is filled: the user and the agent as the
    directory knows them, or None if it does not know both. `claim_fault` says why the identity claim in the request is
    refused.
    """

    principals: Principals | None
    claim: IdentityClaim | None = None
    claim_fault: Text | None = None


class RedeemedIdentity(Model):
    """Body of `identity.resolved` when an approval or a person's selection is used: user, agent, and the person who
    answered (`approver`), as the directory knows them then. `late`: the approval's deadline has passed.
    """

    principals: SamePrincipals | Principals | None
    approver: Approver | None
    unsafe_local: bool
    late: bool = False


class DispatchIdentity(Model):
    """Body of `identity.resolved` right before a write is sent: user and agent, and the pinned artifacts that
    changed.
    """

    principals: SamePrincipals | Principals | None
    policies_version: Count
    changed: Seq[Name]


class SettlingOperator(Model):
    """Body of `identity.resolved` for a settlement (an operator's finding about an effect): the operator's directory
    entry.
    """

    operator: Approver | None
    unsafe_local: bool


class PinsFailure(Model):
    """Why the packs, policies and adapters of a run could not be pinned (fixed to exact versions by digest)."""

    code: Name
    detail: Text
    pointer: Text = ""


class PinnedPolicy(Model):
    """A policy bundle of the tenant or the platform that applied when the run was pinned, in addition to the pack's
    own.
    """

    level: Level
    ref: Name
    digest: Name


class OneOf(Model):
    """A body that has exactly one of its members `one_of`: an answer, or why there is none."""

    one_of: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _has_exactly_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in self.one_of) != 1:
            raise ValueError(f"exactly one of {', '.join(self.one_of)} is needed")
        return self


class PinnedRun(OneOf):
    """Body of `run.pinned`: the exact reference and content digest of everything that the run uses, or the `failure`
    to pin it, with `further` failures. `snapshot_line` is the number of the `control` entry that wrote the snapshot of
    the graph; 0 for an empty graph.
    """

    snapshot: Name
    snapshot_line: Count = 0
    semantics: Positive
    runtime_version: Name
    profile: Name
    estimator: Name
    pack_ref: Name | None = None
    pins: Map[Name] = {}
    policies: Seq[PinnedPolicy] = ()
    publishers: Seq[Name] = ()
    egress: Seq[Name] = ()
    redaction: Seq[Name] = ()
    failure: PinsFailure | None = None
    further: Seq[PinsFailure] = ()

    one_of = ("pack_ref", "failure")


class FetchedAttachment(OneOf):
    """Body of `attachment.fetched`: an attachment of the request whose tenant, digest and media type were checked, or
    the `failure`, why it cannot be used. `text` is the redacted content of a text; other content is not kept.
    """

    evidence_ref: EvidenceRef
    media_type: Name
    size_bytes: Count | None = None
    text: Text | None = None
    failure: Failure | None = None

    one_of = ("size_bytes", "failure")


class AnsweredSlot(Model):
    """Body of `slot.answered`: the artifacts that the run's user selected for a context slot, and their signed act."""

    selection: SelectionAct
    act: OperatorAct
    assertion: SignerAssertion


class SelectedForSlot(OneOf):
    """Body of `slot.selected`: the artifacts selected for a context slot, or `refused`, why there are none. Without
    such an entry in its run, the audit of slots accepts no row.
    """

    act: SelectionAct | None = None
    refused: Text | None = None
    code: Name | None = None

    one_of = ("act", "refused")


class PinnedForSlot(OneOf):
    """Body of `slot.pinned`: the contents of a selection that is in the audit of slots, or why the audit refused it."""

    pinned: Seq[PinnedContent] | None = None
    refused: Text | None = None

    one_of = ("pinned", "refused")


class SeenEpoch(Model):
    """The store's epoch (the period since the last restore) at a look-up. Without any restore the id is empty,
    version 0.
    """

    id: Name
    version: Count
    since_us: Count


class MadeBy(Model):
    """The run and the call that did an operation."""

    run_id: RunId
    tool_call_id: ToolCallId


class OperationLookup(Model):
    """Body of `act.looked_up`: the state of an operation in the idempotency table, and the run and call that did it
    (`made_by`). `unproved_cancel` is the version of a stored cancel request that no sealed act proves.
    `unproved_denials` is the number of stored denials of the operation that count in no run.
    """

    cancelled: bool
    denied: bool
    state: Literal["free", "claimed", "completed", "unusable", "other_body"]
    version: Count
    mutations: Seq[Name]
    epoch: SeenEpoch
    output: OpenObject | None = None
    made_by: MadeBy | None = None
    unproved_cancel: Count | None = None
    unproved_denials: Count | None = None


class CountedUpto(Model):
    """The end of a history bucket: the number of effects that it counts, and the time (Unix microseconds) and digest of
    the last effect.
    """

    number: Count
    at_us: Count
    digest: Digest | Literal[""]


class HistoryRead(Model):
    """Body of `history.read`: the history facts about one call, the time for which they are true (Unix microseconds),
    and the end of each bucket from which they were read. `clock` has the facts of the clock at this
    time, by the name of the business hours, for each clock that rules about the call read.
    """

    facts: Map[Number]
    at_us: Count
    buckets: Map[CountedUpto]
    clock: Map[OpenObject] = {}


class ComparedAnswer(Model):
    """Body of `answer.compared`: the positions of the texts and numbers in a trusted answer that an earlier run wrote
    from untrusted content; None if all of them can be such.
    """

    repeats: Seq[Count] | None


class AnsweredPlanner(OneOf):
    """Body of `planner.answered`: the plan as a foreign planner sent it (`proposal`), why its answer cannot be recorded
    (`refused`), or the limit of the run that had passed when it came (`late`).
    """

    proposal: OpenObject | None = None
    refused: Text | None = None
    late: Text | None = None

    one_of = ("proposal", "refused", "late")


class AskedSecrets(Model):
    """What is recorded of the secret arguments of a call beside their marks. `held_by` is the process that has their
    values, and `traced` says where the values were found. `fault` says why the arguments do not fit their schema, and
    `pointer` at which place.
    """

    held_by: Name
    traced: Map[TracedArgument]
    fault: Text | None = None
    pointer: Text | None = None


class AskedCall(Model):
    """Body of `call.asked`: the call that an agent asks for in its session. The key of the entry is the agent's id of
    the call. In `args` a mark replaces each secret argument; `secrets` has what else is recorded of such arguments.
    """

    tool: Name
    args: OpenObject
    secrets: AskedSecrets | None = None


class FinishedSession(Model):
    """Body of `session.finished`: the outcome that the agent states for its session, and its reason."""

    outcome: SessionOutcome
    reason: Text = ""


class ExpiredSession(Model):
    """Body of `session.expired`: the agent did not finish its session before the deadline."""

    expired: Literal[True]


class IssuedCredential(Model):
    """What is recorded of a token that was issued for one attempt of a call: who issued it, for which user and agent,
    for which service, with which scopes, and when it expires (Unix microseconds). `reference` is the hash of its id, or
    of the token if it has none. The token itself is kept nowhere.
    """

    issuer: Name
    subject: Name
    actor: Name
    audience: Name
    scopes: NonEmpty[Name]
    expires_at_us: Count
    reference: AuthRef


class ExchangedCredential(OneOf):
    """Body of `credential.exchanged`: the credential that was issued for an attempt of a call, or the `failure` to
    issue one.

    `retry_at_us` is when an open circuit admits the next call (Unix microseconds); then the issuer was not asked. 0
    without an open circuit.
    """

    credential: IssuedCredential | None = None
    failure: Failure | None = None
    retry_at_us: Count = 0

    one_of = ("credential", "failure")


class QuarantinedCapability(Model):
    """Body of `capability.quarantined`: a call of this capability is refused. `incidents` is the number of calls that
    found another definition than the published one, and that nobody has released since.
    """

    capability_id: Name
    incidents: Positive


class ReturnedCall(Model):
    """Body of `tool.returned`: the outcome of one attempt of a call.

    `happened` says whether an effect took place. `waited_us` is how long the run waited for its turn, in
    microseconds. `retry_at_us` is when an open circuit admits the next call (Unix microseconds). `no_record`: the
    system answered without saying what the call did: it does not know the call, or refused to receive it again.
    `drifted`: nothing was sent, because the tool is not as it was published. `done_before`: nothing was sent, because a
    run that the store lost in a restore had done it. `definition_age_ms`: the age of the server's list of tools in
    which the tool was compared with its published definition; 0 if the server was asked for this call. `operation`: the
    write was accepted and is still executed under this name, by which it is looked up.
    """

    outcome: Literal["returned", "not_sent", "unknown"]
    envelope: StatedResult
    cost_cents: Amount
    happened: bool
    waited_us: Count = 0
    retry_at_us: Count = 0
    no_record: bool = False
    drifted: bool = False
    done_before: bool = False
    operation: Text | None = None
    definition_age_ms: Count | None = None


class DueRetry(Model):
    """Body of `tool.retry_due`: the wait before the next attempt of a call is over."""

    expired: Literal[True]


class ReaskedApproval(Model):
    """Body of `approval.reasked`: a person had a void question asked again. `changed` names the pins and the evidence
    (`<reference>#<name>`) that had changed; such evidence is not used again.
    """

    by: Name
    reason: Text
    changed: Seq[Name]


class ExpiredApproval(Model):
    """Body of `approval.expired`: nobody answered the question before its deadline."""

    expired: Literal[True]
