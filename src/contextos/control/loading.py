"""Puts together the artifacts to which a run was pinned.

Source: docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack, PolicyArtifact
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, TaskTemplate
from contextos.contracts.envelopes.policy import LeveledBundle
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.scope import PINS_OF_ADAPTERS, RUNTIME, ModelRoutes
from contextos.control.artifacts import GovernedArtifact, merge
from contextos.errors import Integrity

ACTIVE_POLICIES: Final = "active_policies"
EGRESS_LIST: Final = "egress"
"""The name of the pin of the tenant's egress list; a run of a tenant without a list does not have this pin."""
REDACTION_LIST: Final = "redaction"
"""The name of the pin of the tenant's redaction rules; a run of a tenant without rules does not have this pin."""


@dataclass(frozen=True, slots=True)
class LoadedArtifacts:
    """Everything that a run was pinned to, by key. `bundles` (policies) are ordered from the strongest level down."""

    pack: ContextPack
    intents: dict[str, Intent]
    templates: dict[str, TaskTemplate]
    specs: dict[str, DecisionSpec]
    gates: dict[str, ApprovalGate]
    bundles: tuple[LeveledBundle, ...]
    definitions: tuple[AdapterDefinition, ...]
    models: Mapping[str, ModelRoutes]


def pinned_refs(pins: Mapping[str, str]) -> dict[str, str]:
    """Return the pins of a run that are artifacts: the digest of each, by reference."""
    excluded = (ACTIVE_POLICIES, EGRESS_LIST, REDACTION_LIST, RUNTIME)
    return {name: pin for name, pin in pins.items() if not name.startswith(PINS_OF_ADAPTERS) and name not in excluded}


def loaded_artifacts(
    pin_set: Mapping[str, Any], artifacts: Mapping[str, GovernedArtifact], definitions: tuple[AdapterDefinition, ...]
) -> LoadedArtifacts:
    """Return everything that a pin set names, by key, from `artifacts` (by reference). The pack has the tenant's
    redaction rules too.

    Raises:
        Integrity: the pins lack the pack, a policy in force, or a profile or routing rules that the pack names.
    """
    pack_ref = pin_set["pack_ref"]
    levels = {policy["ref"]: policy["level"] for policy in pin_set["policies"]}
    pack = artifacts.get(pack_ref)
    governing = [(level, artifacts.get(ref)) for ref, level in levels.items() if level != "pack"]
    if not isinstance(pack, ContextPack):
        raise Integrity(f"the pack `{pack_ref}` is not among the pins; pass a set that `pin` returned")
    policies = [(level, artifact) for level, artifact in governing if isinstance(artifact, PolicyArtifact)]
    if len(policies) != len(governing):
        raise Integrity("a policy in force is not among the pins; pass a set that `pin` returned")
    additional = [item for ref, item in artifacts.items() if ref != pack_ref and levels.get(ref, "pack") == "pack"]
    merged = merge(pack, additional, policies)
    return LoadedArtifacts(
        _with_rules(pack, pin_set.get(REDACTION_LIST, ())),
        merged.intents,
        merged.templates,
        merged.specs,
        merged.gates,
        tuple(merged.bundles.values()),
        definitions,
        _model_routes(pack, artifacts),
    )


def _model_routes(pack: ContextPack, artifacts: Mapping[str, GovernedArtifact]) -> dict[str, ModelRoutes]:
    """Return the routes of each operation that a pack names. Raises `Integrity` if the pins lack a part of them."""
    routes = dict[str, ModelRoutes]()
    for use in pack.decision_layer.models:
        rules = artifacts.get(use.rules)
        if not isinstance(rules, RoutingRules):
            raise Integrity(f"the routing rules `{use.rules}` are not among the pins; pass a set that `pin` returned")
        candidates = {ref: artifacts.get(ref) for ref in rules.profiles()}
        profiles = {ref: profile for ref, profile in candidates.items() if isinstance(profile, ModelProfile)}
        if len(profiles) < len(candidates):
            raise Integrity(f"a profile of `{use.rules}` is not among the pins; pass a set that `pin` returned")
        routes[use.operation] = ModelRoutes(rules, profiles, use.prompt_fragment)
    return routes


def _with_rules(pack: ContextPack, rules: Sequence[str]) -> ContextPack:
    """Return the pack with these redaction rules beside its own."""
    layer = pack.policy_layer
    all_rules = tuple(dict.fromkeys((*layer.guardrails.redaction_rules, *rules)))
    guardrails = layer.guardrails.model_copy(update={"redaction_rules": all_rules})
    return pack.model_copy(update={"policy_layer": layer.model_copy(update={"guardrails": guardrails})})
