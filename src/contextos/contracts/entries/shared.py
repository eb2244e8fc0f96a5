"""The bodies of entries in the two streams that a tenant has of its own: `index` and `control`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Strict

from contextos.contracts.envelopes.policy import Level
from contextos.contracts.model import Count, Map, Model, Name, Positive, Seq, Text


class IndexedRun(Model):
    """`run.indexed`: a run began."""

    run: Name


class ClosedRun(Model):
    """`run.closed`: a run ended with this many entries, at this head."""

    run: Name
    entries: Positive
    head: Name


class RestoredStore(Model):
    """`store.restored`: an operator began a new epoch; `left` is the length of each shared stream at that time."""

    by: Name
    epoch: Name
    left: Map[Count]


class SettledEffect(Model):
    """`effect.settled`: an operator settled an effect of a run."""

    run: Name
    by: Name
    happened: bool
    evidence_ref: Name


class CancelledRun(Model):
    """`run.cancelled`: somebody asked a run to stop."""

    run: Name
    by: Name
    reason: Text


class ErasedEntry(Model):
    """`entry.erased`: the body of one entry of a run was erased."""

    run: Name
    by: Name
    seq: Positive
    reason: Text


class ExportedRuns(Model):
    """`runs.exported`: the head of each run that was exported."""

    by: Name
    runs: Map[Name]


class PublishedArtifact(Model):
    """`artifact.published`: a ref was published with this digest."""

    ref: Name
    digest: Name
    kind: Name
    by: Name


class WithdrawnArtifact(Model):
    """`artifact.withdrawn`: a ref can no longer be pinned."""

    ref: Name
    reason: Text
    by: Name


class ActivatedPolicies(Model):
    """`policies.activated`: the policies in force from now on, as [level, ref], strongest level first."""

    policies: Seq[Annotated[tuple[Level, Name], Strict(False)]]
    by: Name
