"""Hold the inputs of one compile, grouped by where they come from.

All inputs are values that other planes computed before. The compiler sorts inputs that have no order of their own, so
callers need not sort anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import Intent, TaskTemplate
from contextos.contracts.envelopes.policy import PolicyBundle, PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest, RunContext
from contextos.contracts.ports.outside import Estimator


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """The request, its run, and the intent and task template (a plan with parameters) that were selected for it."""

    request: InvokeRequest
    run: RunContext
    intent: Intent
    template: TaskTemplate


@dataclass(frozen=True, slots=True)
class PackInputs:
    """The pack that the run uses, and its exact reference. `bundles` are policies that apply in addition to the
    pack's own.
    """

    pack: ContextPack
    pack_ref: str
    bundles: Sequence[PolicyBundle] = ()

    @property
    def bundles_in_force(self) -> tuple[PolicyBundle, ...]:
        """Return every policy bundle once, sorted by id. Where an id occurs twice, the pack's own bundle is used."""
        by_id = {bundle.bundle_id: bundle for bundle in (*self.bundles, *self.pack.policy_layer.policy_bundles)}
        return tuple(by_id[bundle_id] for bundle_id in sorted(by_id))


@dataclass(frozen=True, slots=True)
class KnowledgeInputs:
    """Retrieved evidence and recalled memory, and the evidence without which the run cannot be planned.

    `required_evidence` has its names. `required_digests` has digests of contents that a slot needs (`minItems`).
    """

    evidence: Sequence[EvidenceItem]
    memory: Sequence[EvidenceItem]
    required_evidence: Collection[str]
    required_digests: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class SurfaceInputs:
    """Every registered tool (capability) and, for each tool id, the policy decision on whether this run can see the
    tool.

    `announced` are decisions about the steps of the template, by the rules whose facts are already known. They show
    which rules and gates will apply, and hide no tool.
    """

    capabilities: Sequence[SurfaceCapability]
    decisions: Mapping[str, PolicyDecision]
    announced: Sequence[PolicyDecision] = ()

    @property
    def decisions_in_order(self) -> tuple[PolicyDecision, ...]:
        """Return the policy decisions, sorted by capability id, followed by the announced decisions."""
        decided = [self.decisions[capability_id] for capability_id in sorted(self.decisions)]
        return (*decided, *self.announced)


@dataclass(frozen=True, slots=True)
class CompileInput:
    """Everything that one call of the context compiler reads."""

    task: TaskInputs
    pack: PackInputs
    knowledge: KnowledgeInputs
    surface: SurfaceInputs
    estimator: Estimator
