"""The nodes of a pack's binding graph: what an edge may lead to, and what of it is not known yet.

A set that is None is not known where the question is asked: at publish, what adapters declare and what a catalog beside
the pack brings. Nothing is judged against it then, and all of it when a run is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from contextos.contracts.envelopes.plan import DecisionSpec
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import CAPABILITY_PREFIX
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.control.artifacts import MergedArtifacts

PointerPath: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class BindingTargets:
    """What exists, by kind.

    `slots` are named as policy names them; `given` is evidence that somebody gives, `evidence` also what specs require.
    """

    intents: frozenset[str] | None
    specs: Mapping[str, DecisionSpec]
    specs_known: bool
    gates: frozenset[str]
    registered: frozenset[str]
    slots: frozenset[str] | None
    adapters: frozenset[str]
    declared: Mapping[str, CapabilityDefinition] | None
    produces: frozenset[str] | None
    given: frozenset[str]
    evidence: frozenset[str]

    def lacks_intent(self, name: str) -> bool:
        """Whether it is certain that there is no such intent."""
        return self.intents is not None and name not in self.intents

    def lacks_spec(self, name: str) -> bool:
        """Whether it is certain that there is no such DecisionSpec."""
        return self.specs_known and name not in self.specs

    def lacks_capability(self, name: str) -> bool:
        """Whether it is certain that a rule on it meets nothing: it is neither registered nor a slot that is filled."""
        if self.is_slot(name):
            return self.slots is not None and name not in self.slots
        return name not in self.registered

    def is_slot(self, name: str) -> bool:
        """Whether policy means the selection for a slot by this name, and no capability of an adapter."""
        return name.startswith(CAPABILITY_PREFIX) and name not in self.registered

    def capability(self, name: str) -> CapabilityDefinition | None:
        """A capability as its adapter declares it; None where that is not known."""
        return self.declared.get(name) if self.declared is not None else None

    def properties(self, name: str) -> Mapping[str, Any] | None:
        """The properties of a capability's input schema; None where they are not known."""
        capability = self.capability(name)
        found = capability.input_schema.get("properties", {}) if capability is not None else None
        return found if isinstance(found, dict) else None


def binding_targets(
    merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition] | None, *, complete: bool
) -> BindingTargets:
    """`complete`: nothing else will be merged, so that a set that is empty is known to be empty."""
    pack = merged.pack
    registered = {f"{e.adapter_id}.{name}" for e in pack.tooling_layer.adapter_registry for name in e.capabilities}
    declared = None
    if definitions is not None:
        declared = {
            f"{adapter_id}.{capability.name}": capability
            for adapter_id, adapter in definitions.items()
            for capability in adapter.capabilities
        }
    produces = None
    if declared is not None:
        produces = frozenset(evidence for name in registered & declared.keys() for evidence in declared[name].produces)
    given = frozenset(path.name for path in pack.intelligence_refs.retrieval.evidence) | (produces or frozenset())
    slots = {
        CAPABILITY_PREFIX + step.slot.slot_id
        for template in merged.templates.values()
        for step in template.context_slots
    }
    required = {name for spec in merged.specs.values() for name in spec.required_evidence}
    return BindingTargets(
        intents=frozenset(merged.intents) if complete or merged.intents else None,
        specs=merged.specs,
        specs_known=complete or bool(merged.specs),
        gates=frozenset(merged.gates),
        registered=frozenset(registered),
        slots=frozenset(slots) if complete or merged.templates else None,
        adapters=frozenset(definitions or ()),
        declared=declared,
        produces=produces,
        given=given,
        evidence=given | required,
    )


def request_has(where: str) -> bool:
    """Whether a pointer can lead anywhere in an `InvokeRequest`; below the open objects it may name anything."""
    tokens = where.split("/")
    model: Any = InvokeRequest
    if tokens[0] or len(tokens) < 2 or any(_bad(token) for token in tokens):
        return False
    for token in tokens[1:]:
        fields = getattr(model, "model_fields", None)
        if fields is None:
            return True
        if token not in fields:
            return bool(model.model_config.get("extra") == "allow")
        model = _model_of(fields[token].annotation)
    return True


def _bad(token: str) -> bool:
    return "~" in token.replace("~0", "").replace("~1", "")


def _model_of(annotation: Any) -> Any:
    """The model inside `Model | None`; anything else is open."""
    options = [one for one in getattr(annotation, "__args__", (annotation,)) if hasattr(one, "model_fields")]
    return options[0] if options else None
