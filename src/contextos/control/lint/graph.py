"""Collects everything that a reference in a pack can point to, such as intents, tools and evidence.

A set that is None is not known yet. When a pack is published, the declarations of adapters and the content of separate
catalogs are unknown, so references to them are not checked. When a run is pinned, everything is known and checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.plan import DecisionSpec, TaskTemplate
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.slots import CAPABILITY_PREFIX
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.facts import nearest_name
from contextos.control.artifacts import MergedArtifacts
from contextos.errors import Problem

PointerPath: TypeAlias = tuple[str | int, ...]
REQUEST_PLACE: Final = "field of a request"
"""The kind of a pointer target, as findings name it."""
TO_REGISTER: Final = "add it to `adapter_registry`"


def no_such(at: PointerPath, kind: str, name: str, remedy: str, known: Collection[str] = ()) -> Problem:
    """Return the problem that no `kind` has the name used at `at`; it suggests the most similar name of `known`."""
    suggestion = nearest_name(name[:200], known)
    remedy = f"did you mean `{suggestion}`? otherwise {remedy}" if suggestion else remedy
    return Problem(pointer(at), "unknown_edge", f"there is no {kind} `{name[:200]}`", remedy)


def place_of(entry: object, name: str, own: Sequence[object], collection: str) -> PointerPath:
    """Return the path of an entry of `collection`: its index among the pack's `own` entries of the decision layer, or
    its `name` in the catalog that has it.
    """
    index = next((index for index, other in enumerate(own) if other is entry), None)
    return (collection, name) if index is None else ("decision_layer", collection, index)


@dataclass(frozen=True, slots=True)
class BindingTargets:
    """Everything that a pack can refer to, by kind; None means that the names of this kind are not known yet.

    intents: ids of intents.
    specs: decision specs by key; with `specs_known` there are no others.
    gates: ids of approval gates.
    registered: tool ids that the pack registers.
    slots: names of context slots in policy rules.
    adapters: ids of the adapters whose definitions are given.
    declared: definitions of the tools that these adapters declare, by tool id.
    produces: evidence that registered tools produce.
    available_evidence: evidence that is retrieved or produced.
    evidence: `available_evidence`, and the evidence that decision specs require.
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
    available_evidence: frozenset[str]
    evidence: frozenset[str]

    def lacks_intent(self, name: str) -> bool:
        """Return whether it is certain that no intent has this name. False if the intents are not known yet."""
        return self.intents is not None and name not in self.intents

    def lacks_spec(self, name: str) -> bool:
        """Return whether it is certain that no decision spec has this name. False if the specs are not known yet."""
        return self.specs_known and name not in self.specs

    def lacks_capability(self, name: str) -> bool:
        """Return whether it is certain that `name` is neither a registered tool nor a slot, so a rule on it never
        applies.
        """
        if self.is_slot(name):
            return self.slots is not None and name not in self.slots
        return self.is_unregistered(name)

    def is_unregistered(self, name: str) -> bool:
        """Return whether no tool of this name is registered. False if the registry has the name with a typing error:
        the registry's own check refuses that.
        """
        misspelt = self.registered - self.declared.keys() if self.declared and name in self.declared else ()
        return name not in self.registered and nearest_name(name, misspelt) is None

    def is_slot(self, name: str) -> bool:
        """Return whether this name in a policy rule means the selection for a context slot, not a tool
        of an adapter.
        """
        return name.startswith(CAPABILITY_PREFIX) and name not in self.registered

    def capability(self, name: str) -> CapabilityDefinition | None:
        """Return a tool (capability) as its adapter declares it, or None if that is not known."""
        return self.declared.get(name) if self.declared is not None else None

    def properties(self, name: str) -> Mapping[str, Any] | None:
        """Return the properties of a tool's input schema, or None if they are not known."""
        capability = self.capability(name)
        schema_properties = capability.input_schema.get("properties", {}) if capability is not None else None
        return schema_properties if isinstance(schema_properties, dict) else None


def binding_targets(
    merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition] | None, *, complete: bool
) -> BindingTargets:
    """Collect everything that a pack can refer to.

    `definitions` are the adapters, or None if they are not known. `complete` says that nothing else will be merged, so
    an empty set is known to be empty.
    """
    pack = merged.pack
    registered = {
        f"{entry.adapter_id}.{name}" for entry in pack.tooling_layer.adapter_registry for name in entry.capabilities
    }
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
    available = frozenset(path.name for path in pack.intelligence_refs.retrieval.evidence) | (produces or frozenset())
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
        available_evidence=available,
        evidence=available | required,
    )


def steps_before(template: TaskTemplate) -> dict[str, set[str]]:
    """Return, for each step, all steps that are done before it. A dependency on a later step is ignored."""
    before: dict[str, set[str]] = {}
    for step in template.steps:
        direct = [name for name in step.depends_on if name in before]
        before[step.id] = {*direct, *(indirect for name in direct for indirect in before[name])}
    return before


def governing_keys(template: TaskTemplate, before: Collection[str]) -> list[str]:
    """Return the keys of the decisions that are checked before a step; `before` are the steps that are done then."""
    points = template.decision_checkpoints
    return [point.decision_id for point in points if point.after_step is None or point.after_step in before]


def request_has(request_pointer: str) -> bool:
    """Return whether a JSON Pointer can resolve in an `InvokeRequest`. Below an open object, every pointer can."""
    tokens = request_pointer.split("/")
    model: Any = InvokeRequest
    if tokens[0] or len(tokens) < 2 or any(_is_malformed(token) for token in tokens):
        return False
    for token in tokens[1:]:
        fields = getattr(model, "model_fields", None)
        if fields is None:
            return True
        if token not in fields:
            return bool(model.model_config.get("extra") == "allow")
        model = _model_of(fields[token].annotation)
    return True


def _is_malformed(token: str) -> bool:
    return "~" in token.replace("~0", "").replace("~1", "")


def _model_of(annotation: Any) -> Any:
    """Return the model inside `Model | None`, or None for an open object."""
    options = [option for option in getattr(annotation, "__args__", (annotation,)) if hasattr(option, "model_fields")]
    return options[0] if options else None
