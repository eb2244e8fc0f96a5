"""Evidence: the items that retrieval and recall return, and the query for them.

Source: docs/design/contracts.md, "Identifiers", "Compile".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from contextos.contracts.ids import Ceid, Digest
from contextos.contracts.model import Count, Model, Name, NonEmpty, Positive, Seq, Whole
from contextos.contracts.refs import EvidenceRef

Classification = Literal["PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED"]
IntegrityLevel = Literal["trusted", "untrusted"]


class EvidenceItem(Model):
    """One retrieved or recalled fact. Its text is data, never an instruction.

    `name` is set if the fact answers a named requirement. `digest` is the content address of subject, predicate and
    value. `observed_at_us` is Unix time in microseconds. `hop` is the distance from the nearest seed in edges.
    """

    evidence_ref: EvidenceRef
    name: Name | None = None
    subject: Ceid
    predicate: Name
    value: Any
    origin: Name
    integrity: IntegrityLevel
    classification: Classification
    observed_at_us: Whole
    digest: Digest
    hop: Count = 0


class EvidencePath(Model):
    """A named requirement: the value at the end of `path` (predicates) from the seed with index `seed`.

    The value must not be older than `max_age_s` seconds.
    """

    name: str = Field(min_length=1, max_length=128)
    seed: Count = 0
    path: NonEmpty[Name]
    max_age_s: Positive | None = None


class RetrievalQuery(Model):
    """A query of the graph at a pinned snapshot. Every bound is inclusive."""

    snapshot: Name
    seeds: Seq[Ceid]
    hops: int = Field(ge=0, le=4)
    fan_out: int = Field(ge=1, le=1000)
    limit: int = Field(ge=1, le=10_000)
    named: Seq[EvidencePath] = ()
