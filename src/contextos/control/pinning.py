"""Resolves the references of a request (`<id>@<x.y.z>`) to the exact artifacts that its run uses, or refuses the
request.

Everything here is pure; `catalog` does the I/O.
Source: docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from contextos.contracts.acts import PackPin
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import name_remedy, nearest_name
from contextos.control.artifacts import GovernedArtifact, StoredArtifact, merge
from contextos.control.lint.pack import lint_merged

_BOUND: Final = re.compile(r">=([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:[.+a-z-].*)?")


@dataclass(frozen=True, slots=True)
class PinsRefused:
    """The reason why the references of a request (packs, catalogs) cannot be resolved to one exact set of artifacts."""

    code: Literal["unpinned_ref", "unknown_ref", "unknown_intent"]
    detail: str
    pointer: str = "/context_pack_refs"


NOTHING_ACTIVE: Final = PinsRefused(
    "unpinned_ref", "nothing is active in this tenant, so nothing can run; run `contextos apply`"
)


@dataclass(frozen=True, slots=True)
class ResolvedPins:
    """The artifacts of one run.

    `pins` maps each reference to its digest, `policies` holds (level, reference), `adapters` the ids of the pack's
    adapters.
    """

    pack_ref: str
    pins: Mapping[str, str]
    policies: tuple[tuple[Level, str], ...]
    adapters: tuple[str, ...]
    publishers: tuple[str, ...] = ()

    def pin_set(self, additional: Mapping[str, str]) -> dict[str, Any]:
        """Return the body of the journal entry `run.pinned`, a new object each time. `additional` are more pins, by
        name, such as those of adapters.
        """
        policies = [{"level": level, "ref": ref, "digest": self.pins[ref]} for level, ref in self.policies]
        return {
            "pack_ref": self.pack_ref,
            "pins": {**self.pins, **additional},
            "policies": policies,
            "publishers": list(self.publishers),
        }


def not_allowed(
    refs: Sequence[str], artifacts: Sequence[GovernedArtifact], pinned: Sequence[str], intent: str, environment: str
) -> PinsRefused:
    """Return the refusal of `refs`, which no tenant pin allows for `intent`.

    The code is `unknown_intent` if they are pinned in `environment` for other intents (`pinned`) and do not define this
    one; else it is `unpinned_ref`. `artifacts` are those that `refs` name.
    """
    names, nearest = ", ".join(f"`{ref[:200]}`" for ref in refs), nearest_name(intent[:200], pinned)
    pack = next((artifact for artifact in artifacts if isinstance(artifact, ContextPack)), None)
    if pinned and pack and intent not in merge(pack, [item for item in artifacts if item is not pack]).intents:
        remedy = (
            f"did you mean `{nearest}`?" if nearest else f"name one of {', '.join(f'`{name}`' for name in pinned[:8])}"
        )
        return PinsRefused("unknown_intent", f"{names} defines no intent `{intent[:80]}`; {remedy}", "/input/intent")
    remedy = f"did you mean `{nearest}`?" if nearest else "see `contextos pack list`"
    detail = f"{names} is not pinned for the intent `{intent[:80]}` in `{environment}`; {remedy}"
    return PinsRefused("unpinned_ref", detail)


def pinned_nowhere(known: Sequence[str], intent: str, environment: str) -> PinsRefused:
    """Return the refusal that no tenant pin of `environment` is for `intent`. `known` are the intents with a pin."""
    detail = f"no pack is pinned in `{environment}` for the intent `{intent[:80]}`; {name_remedy(intent, known)}"
    return PinsRefused("unknown_intent", detail, "/input/intent")


def resolve_pins(
    found: Sequence[StoredArtifact],
    above: Sequence[tuple[Level, StoredArtifact]],
    definitions: Mapping[str, AdapterDefinition],
    runtime_version: str,
) -> ResolvedPins | PinsRefused:
    """Resolve the artifacts of a request and the active policies to one complete set, or return why that is not
    possible.

    Refuses: no pack or several packs, two different definitions of one key, an unmet requirement of the pack, an
    adapter that is not registered, and any problem that lint finds in the complete set.
    """
    packs = [stored for stored in found if isinstance(stored.artifact, ContextPack)]
    if len(packs) != 1:
        return PinsRefused("unknown_ref", f"the request names {len(packs)} context packs; name exactly one")
    pack = packs[0].artifact
    assert isinstance(pack, ContextPack)
    additional = [stored for stored in found if stored is not packs[0]]
    policies = [(level, stored.artifact) for level, stored in above if isinstance(stored.artifact, PolicyArtifact)]
    merged = merge(pack, [stored.artifact for stored in additional], policies)
    if merged.clashes:
        return PinsRefused("unknown_ref", f"`{merged.clashes[0]}` has two different definitions; name only one of them")
    if requirement := unmet_requirement(pack, runtime_version):
        return PinsRefused("unknown_ref", f"`{packs[0].ref}` requires {requirement}")
    adapters = tuple(dict.fromkeys(entry.adapter_id for entry in pack.tooling_layer.adapter_registry))
    if absent := [name for name in adapters if name not in definitions]:
        detail = f"`{packs[0].ref}` requires the adapter `{absent[0]}`; add it to the settings"
        return PinsRefused("unknown_ref", detail)
    if problems := lint_merged(merged, definitions):
        return PinsRefused("unknown_ref", f"lint refuses `{packs[0].ref}`: {problems[0]}")
    pack_policies = [("pack", stored.ref) for stored in additional if isinstance(stored.artifact, PolicyArtifact)]
    levels: list[tuple[Level, str]] = [*((level, stored.ref) for level, stored in above)]
    known_refs = {ref for _, ref in levels}
    levels += [("pack", ref) for _, ref in pack_policies if ref not in known_refs]
    pins = {stored.ref: stored.digest for stored in (*found, *(stored for _, stored in above))}
    return ResolvedPins(packs[0].ref, pins, tuple(levels), adapters)


def unmet_requirement(pack: ContextPack, runtime_version: str) -> str | None:
    """Return the first requirement of the pack that is not met, or None. An unknown requirement is not met."""
    versions = {"runtime": runtime_version, "ontology": pack.intelligence_refs.ontology.version}
    for name, bound in sorted(pack.contract_meta.compatibility.requires.items()):
        minimum, actual = _BOUND.fullmatch(bound), _VERSION.fullmatch(versions.get(name, ""))
        if minimum is None or actual is None:
            return f"`{name[:80]} {bound[:80]}`, which cannot be checked; write `runtime` or `ontology` with `>=x.y.z`"
        if tuple(map(int, actual.groups())) < tuple(map(int, minimum.groups())):
            return f"`{name} {bound}`, and the version is {actual[0]}; use another version of either"
    return None


def pins_failure(*refused: PinsRefused) -> dict[str, Any]:
    """Return the body of `run.pinned` for references that are refused: the first, and under `further` the others."""
    first, *others = (asdict(refusal) for refusal in refused)
    return {"failure": first, "further": others} if others else {"failure": first}


def without_pin(pins: Sequence[PackPin], gone: PackPin) -> tuple[PackPin, ...]:
    """Return the pins without the intents that `gone` allows for the same refs and environment."""
    remaining = []
    for pin in pins:
        is_same = set(pin.refs) == set(gone.refs) and pin.environment == gone.environment
        intents = tuple(intent for intent in pin.intents if not (is_same and intent in gone.intents))
        if intents:
            remaining.append(pin.model_copy(update={"intents": intents}))
    return tuple(remaining)
