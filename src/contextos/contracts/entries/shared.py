"""Bodies of entries in a tenant's own two streams, `index` (every run) and `control` (what operators did), and the
arguments of the operators' acts, whose body is a `RecordedAct`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from contextos.contracts.acts import PackPin
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.ids import Digest
from contextos.contracts.model import Cents, Count, Map, Model, Name, NonEmpty, Number, Positive, Seq, Text


class IndexedRun(Model):
    """Body of `run.indexed`: a run began."""

    run: Name


class RunSoFar(Model):
    """A run, with the number of its entries and the hash of the last one."""

    run: Name
    entries: Positive
    head: Name


class DispatchedRun(RunSoFar):
    """Body of `run.dispatched`: a run is about to send a call, with the number of its entries and the last hash."""


class WaitingRun(RunSoFar):
    """Body of `run.waiting`: a run asked a person, with the number of its entries and the hash of the last one. It
    waits for an approval, for a selection for a slot, or for the settlement of an effect of unknown outcome.
    """

    for_: Literal["approval", "slot", "settlement"] = Field(alias="for")


class AnsweredRun(RunSoFar):
    """Body of `approval.answered`, `slot.answered` and `effect.settled`: a person appended this entry to a run, with
    its number and its hash.
    """


class ClosedRun(RunSoFar):
    """Body of `run.closed`: a run ended, with the number of its entries and the hash of the last one."""


class ReopenedLine(RunSoFar):
    """Body of `run.reopened`: an operator let an ended run go on, with the number of its entries and the last hash."""


class RestoredStore(Model):
    """Arguments of `store.restored`: an operator recorded a restore from a backup. `left` maps each of the tenant's own
    streams to its length at that time. `epoch` is the epoch that begins at `at_us` (Unix microseconds), or goes on if
    it `lost_nothing`.
    """

    epoch: Name
    at_us: Count
    left: Map[Count]
    lost_nothing: bool = False


class SettledEffect(Model):
    """Body of `effect.settled`: an operator stated whether an effect of unknown outcome happened."""

    run: Name
    by: Name
    happened: bool
    evidence_ref: Name


class CancelledRun(Model):
    """Arguments of `run.cancelled`: a person asked to cancel the run that the request `request_id` began."""

    run: Name
    request_id: Name | None
    reason: Text


class ReaskedQuestion(Model):
    """Arguments of `approval.reasked`: a person has the question with this digest asked again, under present pins."""

    run: Name
    binding_digest: Name
    reason: Text


class ReopenedByOperator(Model):
    """Arguments of `run.reopened`: an operator lets an escalated run go on, with `to` as the new value of the exhausted
    `limit`.
    """

    run: Name
    record_hash: Name
    reason: Text
    limit: Name | None
    to: Number | None


class ResolvedDecision(Model):
    """Arguments of `decision.resolved`: what a person decided about the escalated record with this hash."""

    run: Name
    record_hash: Name
    status: Literal["DECIDED", "REJECTED"]
    reason: Text


class ClosedDecision(Model):
    """Arguments of `decision.closed`: nothing more follows from the record with this hash."""

    run: Name
    record_hash: Name
    reason: Text


class BegunWitness(Model):
    """Body of `witness.begun`: from now on this witness holds heads of the tenant's own streams."""

    witness: Text


class SteppedClock(Model):
    """Body of `clock.went_back`: the clock of a process said `clock_us`, and `latest_us` was on record already (Unix
    microseconds).
    """

    clock_us: Count
    latest_us: Count


class RetriedRun(Model):
    """Arguments of `run.retried`: an operator took a run that had failed `failures` times off the dead-letter list."""

    run: Name
    failures: Positive


class ReleasedCapability(Model):
    """Arguments of `capability.released`: these incidents of a capability no longer keep it in quarantine."""

    capability_id: Name
    incidents: NonEmpty[Text]
    reason: Text


class CheckedModelProfile(Model):
    """Arguments of `model.checked`: a model profile is called once outside of any run, at most at this cost. `at_us` is
    when the operator stated it, in Unix microseconds.
    """

    profile: Name
    max_cost_cents: Cents
    at_us: Count


class ErasedEntry(Model):
    """Arguments of `entry.erased`: the content of one entry of a run was deleted, for example on legal grounds.

    `body_digest` is the digest of the deleted body, which the entry keeps.
    """

    run: Name
    seq: Positive
    reason: Text
    body_digest: Name


class RotatedKey(Model):
    """Arguments of `key.rotated`: the runtime's key `old_kid` for `purpose` is replaced by `kid`, whose public half is
    `public_key` (hex).

    Nothing that the old key signs after `retired_at_us` counts. `signature` (hex) is the old key's, over the other
    fields.
    """

    purpose: Name
    old_kid: Name
    kid: Name
    public_key: Name
    activated_at_us: Count
    retired_at_us: Count
    signature: Name


class ExportedRuns(Model):
    """Arguments of `runs.exported`: the runs that were exported, each with the hash of its last entry."""

    runs: Map[Name]


class PublishedArtifact(Model):
    """Arguments of `artifact.published`: a reference was bound to the digest of a pack, policy or catalog."""

    ref: Name
    digest: Name
    kind: Name


class WithdrawnArtifact(Model):
    """Arguments of `artifact.withdrawn`: new runs can no longer use the artifact with this reference. The digest of the
    active set after the act is `active_digest`.
    """

    ref: Name
    reason: Text
    active_digest: Digest


class WrittenFacts(Model):
    """Arguments of `graph.written`: the edges that a commit appended to the graph, each id with the digest of the edge;
    and the digest of all nodes that were written with them.
    """

    commit: Positive
    edges: Map[Digest]
    nodes: Digest | None = None


class WithdrawnFact(Model):
    """Arguments of `graph.withdrawn`: an edge that a commit withdrew from the graph, the digest of its statement, and
    the evidence for the withdrawal.
    """

    edge_id: Name
    fact_digest: Digest
    commit: Positive
    evidence_ref: Name


class ActivatedPolicies(Model):
    """Arguments of `policies.activated`: the policies that apply from now on, as [level, reference], strongest level
    first. `active_digest` is the digest of the active set after the act.
    """

    policies: Seq[Annotated[tuple[Level, Name], Strict(False)]]
    active_digest: Digest


class PinnedPacks(PackPin):
    """Arguments of `packs.pinned` and `packs.withdrawn`: a tenant pin. `active_digest` is the digest of the active set
    after the act.
    """

    active_digest: Digest


class RevisedArtifact(Model):
    """Arguments of `slots.artifact_revised`: the digest of the content that was appended to an artifact, and when (Unix
    microseconds). The text is only in the store of artifacts.
    """

    org_id: Name
    artifact_id: Name
    digest: Name
    created_at_us: Count


class ArchivedAssertion(Model):
    """Arguments of `slots.assertion_archived`: an artifact is no longer of this type."""

    org_id: Name
    artifact_id: Name
    extension: Name


class DeletedArtifact(Model):
    """Arguments of `slots.artifact_deleted`: no later slot can select this artifact."""

    org_id: Name
    artifact_id: Name
