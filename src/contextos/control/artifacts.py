"""The kinds of governed artifact (packs, policies, catalogs): how each is read and named, and how they are merged.

If two artifacts define the same key with different content, the request is refused. Equal definitions count as one.
Source: docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack, DecisionCatalog, IntentCatalog, PolicyArtifact
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, TaskTemplate
from contextos.contracts.envelopes.policy import Level, LeveledBundle, PolicyBundle
from contextos.contracts.ids import PIN
from contextos.contracts.model import Model
from contextos.errors import InvalidArtifact, Problem

GovernedArtifact: TypeAlias = (
    ContextPack | IntentCatalog | DecisionCatalog | PolicyArtifact | ModelProfile | RoutingRules
)

PACK_TYPE: Final = "application/vnd.contextos.context-pack+json"
INTENTS_TYPE: Final = "application/vnd.contextos.intent-catalog+json"
SPECS_TYPE: Final = "application/vnd.contextos.decision-catalog+json"
POLICY_TYPE: Final = "application/vnd.contextos.policy-bundle+json"
PROFILE_TYPE: Final = "application/vnd.contextos.model-profile+json"
ROUTING_TYPE: Final = "application/vnd.contextos.routing-rules+json"
ADAPTER_TYPE: Final = "application/vnd.contextos.adapter-file+json"
"""The payload type of an adapter file, which is signed like an artifact, and pinned by the settings."""
ACTIVE_SET_TYPE: Final = "application/vnd.contextos.active-set+json"
"""The payload type of a tenant's active set, which is not an artifact: nobody publishes it."""

MODELS: Final[dict[str, type[GovernedArtifact]]] = {
    PACK_TYPE: ContextPack,
    INTENTS_TYPE: IntentCatalog,
    SPECS_TYPE: DecisionCatalog,
    POLICY_TYPE: PolicyArtifact,
    PROFILE_TYPE: ModelProfile,
    ROUTING_TYPE: RoutingRules,
}
"""The contract of a payload, by the payload type of its DSSE envelope."""

ARTIFACT_KINDS: Final[dict[type[GovernedArtifact], str]] = {
    ContextPack: "context_pack",
    IntentCatalog: "intent_catalog",
    DecisionCatalog: "decision_catalog",
    PolicyArtifact: "policy_bundle",
    ModelProfile: "model_profile",
    RoutingRules: "routing_rules",
}


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact (pack, policy or catalog) with its exact reference and the digest of its canonical JSON."""

    ref: str
    digest: str
    artifact: GovernedArtifact


@dataclass(slots=True)
class MergedArtifacts:
    """Everything that a pack, the other artifacts of a request and the policies above them define, by key.

    `clashes` lists the keys that are defined more than once with different content.
    """

    pack: ContextPack
    intents: dict[str, Intent] = field(default_factory=dict)
    templates: dict[str, TaskTemplate] = field(default_factory=dict)
    specs: dict[str, DecisionSpec] = field(default_factory=dict)
    gates: dict[str, ApprovalGate] = field(default_factory=dict)
    bundles: dict[str, LeveledBundle] = field(default_factory=dict)
    clashes: list[str] = field(default_factory=list)


def read_artifact(payload_type: str, payload: bytes) -> StoredArtifact:
    """Read an artifact from its signed bytes.

    Raises:
        InvalidArtifact: the payload type is unknown, or id and version do not form an exact ref.
        MalformedJson, InvalidEnvelope: the payload is not JSON, or does not fit its contract.
    """
    model = MODELS.get(payload_type)
    if model is None:
        kinds = ", ".join(sorted(MODELS))
        detail = f"`{payload_type[:80]}` is not an artifact type"
        raise _invalid("/payloadType", "unknown_kind", detail, f"use one of {kinds}")
    artifact: GovernedArtifact = parse(model, payload)
    ref = ref_of(artifact)
    if not PIN.fits(ref):
        raise _invalid("", "not_a_pin", f"`{ref[:200]}` is not an exact ref", f"use the form `{PIN.example}`")
    return StoredArtifact(ref, content_address(artifact.to_json()), artifact)


def ref_of(artifact: GovernedArtifact) -> str:
    """Return the exact reference of an artifact: `<id>@<x.y.z>`."""
    if isinstance(artifact, ContextPack | ModelProfile | RoutingRules):
        return artifact.pin
    if isinstance(artifact, PolicyArtifact):
        return f"{artifact.bundle.bundle_id}@{artifact.version}"
    return f"{artifact.catalog_id}@{artifact.version}"


def model_refs(artifact: GovernedArtifact) -> tuple[str, ...]:
    """Return the refs about models in an artifact: a pack names routing rules, and routing rules name profiles."""
    if isinstance(artifact, ContextPack):
        return tuple(dict.fromkeys(use.rules for use in artifact.decision_layer.models))
    return artifact.profiles() if isinstance(artifact, RoutingRules) else ()


def tenant_of(artifact: GovernedArtifact) -> str | None:
    """Return the tenant that an artifact belongs to, or None for a policy of the whole platform."""
    return artifact.pack_meta.tenant if isinstance(artifact, ContextPack) else artifact.tenant


def merge(
    pack: ContextPack, additional: Sequence[GovernedArtifact] = (), above: Sequence[tuple[Level, PolicyArtifact]] = ()
) -> MergedArtifacts:
    """Merge a pack with the other artifacts of a request and with the policies above it.

    Bundles are ordered from the strongest level down.
    """
    merged = MergedArtifacts(pack)
    for level, policy in above:
        _add_bundle(merged, level, policy.bundle, policy.version)
    layer = pack.decision_layer
    _add_intents(merged, layer.intents, layer.task_templates)
    _add(merged, merged.specs, layer.decision_specs, "decision_key")
    _add(merged, merged.gates, pack.policy_layer.approval_gates, "gate_id")
    for bundle in pack.policy_layer.policy_bundles:
        _add_bundle(merged, "pack", bundle, pack.pack_meta.pack_version)
    for artifact in additional:
        if isinstance(artifact, IntentCatalog):
            _add_intents(merged, artifact.intents, artifact.task_templates)
        elif isinstance(artifact, DecisionCatalog):
            _add(merged, merged.specs, artifact.decision_specs, "decision_key")
        elif not isinstance(artifact, ModelProfile | RoutingRules):
            assert isinstance(artifact, PolicyArtifact), "a request has exactly one pack"
            _add_bundle(merged, "pack", artifact.bundle, artifact.version)
    return merged


def _add_intents(merged: MergedArtifacts, intents: Sequence[Intent], templates: Sequence[TaskTemplate]) -> None:
    _add(merged, merged.intents, intents, "intent_id")
    _add(merged, merged.templates, templates, "template_id")


def _add(merged: MergedArtifacts, into: dict[str, Any], entries: Iterable[Model], key: str) -> None:
    for entry in entries:
        name = getattr(entry, key)
        existing = into.setdefault(name, entry)
        if existing is not entry and content_address(existing.to_json()) != content_address(entry.to_json()):
            merged.clashes.append(name)


def _add_bundle(merged: MergedArtifacts, level: Level, bundle: PolicyBundle, version: str) -> None:
    """Add a bundle. Equal bundles count once, at their strongest level."""
    leveled = LeveledBundle(level, bundle, version, content_address(bundle.to_json()))
    if merged.bundles.setdefault(bundle.bundle_id, leveled).digest != leveled.digest:
        merged.clashes.append(bundle.bundle_id)


def _invalid(pointer: str, code: str, detail: str, remedy: str) -> InvalidArtifact:
    return InvalidArtifact(Problem(pointer, code, detail, remedy))
