"""Lints the parameters of intents: their names, patterns and facts, and the seeds and agreements that name them.

A parameter that no run could have is refused here once.
Source: docs/adr/0065-an-intent-declares-its-parameters.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.safe_patterns import safe_pattern
from contextos.contracts.envelopes.plan import Intent
from contextos.contracts.scope import PARAMETERS
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import PointerPath, place_of
from contextos.errors import Problem


def lint_parameters(merged: MergedArtifacts) -> Iterator[Problem]:
    """Yield the problems of each declared parameter, and of each seed and agreement that names one."""
    for intent in merged.intents.values():
        path = place_of(intent, intent.intent_id, merged.pack.decision_layer.intents, "intents")
        yield from _lint_declared(merged, intent, (*path, "parameters"))
    yield from _lint_seeds(merged)
    yield from _lint_agreements(merged)


def _lint_declared(merged: MergedArtifacts, intent: Intent, base: PointerPath) -> Iterator[Problem]:
    retrieved = {path.name for path in merged.pack.intelligence_refs.retrieval.evidence}
    names: set[str] = set()
    for index, parameter in enumerate(intent.parameters):
        if parameter.name in names:
            detail = f"`{parameter.name}` is declared twice"
            yield Problem(pointer((*base, index, "name")), "duplicate", detail, "give it another name")
        names.add(parameter.name)
        for place, source in enumerate(parameter.sources):
            source_path: PointerPath = (*base, index, "from", place)
            if source.message is not None:
                compiled = safe_pattern(source.message)
                if compiled is None or compiled.groups > 1:
                    detail = "the pattern is not valid RE2, is too large, or has more than one group"
                    remedy = "use RE2 syntax without look-around, and `(?:…)` for groups that are not the value"
                    yield Problem(pointer((*source_path, "message")), "pattern_refused", detail, remedy)
            elif source.evidence is not None and source.evidence not in retrieved:
                detail = f"there is no retrieved evidence `{source.evidence[:200]}`"
                remedy = "add a path for it to `retrieval.evidence`; what a tool produces comes too late"
                yield Problem(pointer((*source_path, "evidence")), "unknown_edge", detail, remedy)


def _lint_seeds(merged: MergedArtifacts) -> Iterator[Problem]:
    """Refuse a seed from a parameter that can need a fact of the graph: a seed is read before any such fact."""
    for index, seed in enumerate(merged.pack.intelligence_refs.retrieval.seeds):
        if seed.binding.source != "parameter":
            continue
        place = pointer(("intelligence_refs", "retrieval", "seeds", index, "binding", "pointer"))
        name = seed.binding.pointer.removeprefix("/")
        declaring = [item for intent in merged.intents.values() for item in intent.parameters if item.name == name]
        if merged.intents and not declaring:
            detail = f"no intent has the parameter `{name[:200]}`"
            yield Problem(place, "unknown_edge", detail, "declare it in `parameters` of the intent")
        if any(source.evidence is not None for item in declaring for source in item.sources):
            detail = f"the parameter `{name}` can come from evidence, which the seed is there to find"
            yield Problem(place, "too_early", detail, "take it from the context or the message alone")


def _lint_agreements(merged: MergedArtifacts) -> Iterator[Problem]:
    names = {parameter.name for intent in merged.intents.values() for parameter in intent.parameters}
    for index, permission in enumerate(merged.pack.tooling_layer.permissions):
        for argument, place in permission.agrees_with.items():
            name = place.removeprefix(PARAMETERS)
            if name != place and merged.intents and name not in names:
                path = pointer(("tooling_layer", "permissions", index, "agrees_with", argument))
                detail = f"no intent has the parameter `{name[:200]}`"
                yield Problem(path, "unknown_edge", detail, "declare it in `parameters` of the intent")
