"""The vocabulary of facts of one pack: the arguments and evidence that its adapters, retrieval and specs name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import DecisionSpec
from contextos.contracts.envelopes.tool import AdapterDefinition, capability_id
from contextos.contracts.facts import Vocabulary


def pack_vocabulary(
    pack: ContextPack, specs: Mapping[str, DecisionSpec], definitions: Iterable[AdapterDefinition] | None
) -> Vocabulary:
    """Return the facts that the rules of `pack` can read.

    Without `definitions` the arguments are not known, and evidence can exist that neither retrieval nor a spec names.
    """
    retrieved = [path.name for path in pack.intelligence_refs.retrieval.evidence]
    if definitions is None:
        required = [name for spec in specs.values() for name in spec.required_evidence]
        return Vocabulary(evidence=dict.fromkeys([*retrieved, *required]))
    names = {f"{item.adapter_id}.{name}" for item in pack.tooling_layer.adapter_registry for name in item.capabilities}
    registered = {
        name: capability
        for adapter in definitions
        for capability in adapter.capabilities
        if (name := capability_id(adapter, capability)) in names
    }
    produced = {name: tool.output_schema for tool in registered.values() for name in tool.produces}
    arguments = {name: tool.input_schema for name, tool in registered.items()}
    evidence = {**produced, **dict.fromkeys(retrieved)}
    return Vocabulary(arguments, evidence, complete=True)
