"""Which exact set of artifacts a run gets, or the typed reason why it gets none. Pure; `catalog` reads and stores.

Source: shared/design/contracts.md, "Packs, pins, budgets"; contextos-facts.md, section 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.ids import PIN
from contextos.control.artifacts import StoredArtifact, merge
from contextos.control.lint.pack import lint_merged

_BOUND: Final = re.compile(r">=([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:[.+a-z-].*)?")


@dataclass(frozen=True, slots=True)
class PinsRefused:
    """Why a request's refs pin nothing."""

    code: Literal["unpinned_ref", "unknown_ref"]
    detail: str


@dataclass(frozen=True, slots=True)
class ResolvedPins:
    """The artifacts of a run: the pack's ref, the digest of each ref, policies by level, the pack's adapters, and who
    published any of them."""

    pack_ref: str
    pins: Mapping[str, str]
    policies: tuple[tuple[Level, str], ...]
    adapters: tuple[str, ...]
    publishers: tuple[str, ...] = ()

    def answer(self, more: Mapping[str, str]) -> dict[str, Any]:
        """What `run.pinned` records, a new object each time; `more` are pins that are no refs."""
        policies = [{"level": level, "ref": ref, "digest": self.pins[ref]} for level, ref in self.policies]
        return {
            "pack_ref": self.pack_ref,
            "pins": {**self.pins, **more},
            "policies": policies,
            "publishers": list(self.publishers),
        }


def check_ref_form(refs: Sequence[str]) -> PinsRefused | None:
    """Before anything is looked up: every ref is an exact pin."""
    for ref in refs:
        if not PIN.fits(ref):
            return PinsRefused("unpinned_ref", f"`{ref[:200]}` is no exact ref; name it like `{PIN.example}`")
    return None


def resolve_pins(
    found: Sequence[StoredArtifact],
    above: Sequence[tuple[Level, StoredArtifact]],
    definitions: Mapping[str, AdapterDefinition],
    runtime_version: str,
) -> ResolvedPins | PinsRefused:
    """The set that a request's artifacts make with the active policies; refuses one that is not whole.

    Refuses: not exactly one pack, two definitions of one key, a need that is unmet, an adapter that is not registered,
    and whatever lint finds once everything is known.
    """
    packs = [stored for stored in found if isinstance(stored.artifact, ContextPack)]
    if len(packs) != 1:
        return PinsRefused("unknown_ref", f"a request names exactly one context pack, this one {len(packs)}; name one")
    pack = packs[0].artifact
    assert isinstance(pack, ContextPack)
    beside = [stored for stored in found if stored is not packs[0]]
    policies = [(level, stored.artifact) for level, stored in above if isinstance(stored.artifact, PolicyArtifact)]
    merged = merge(pack, [stored.artifact for stored in beside], policies)
    if merged.clashes:
        return PinsRefused("unknown_ref", f"`{merged.clashes[0]}` is defined twice and not alike; name one of the two")
    if lack := _unmet(pack, runtime_version):
        return PinsRefused("unknown_ref", f"`{packs[0].ref}` needs {lack}")
    adapters = tuple(dict.fromkeys(entry.adapter_id for entry in pack.tooling_layer.adapter_registry))
    if absent := [name for name in adapters if name not in definitions]:
        return PinsRefused("unknown_ref", f"`{packs[0].ref}` needs the adapter `{absent[0]}`; list it in the settings")
    if problems := lint_merged(merged, definitions):
        return PinsRefused("unknown_ref", f"`{packs[0].ref}` does not fit: {problems[0]}")
    own = [("pack", stored.ref) for stored in beside if isinstance(stored.artifact, PolicyArtifact)]
    levels: list[tuple[Level, str]] = [*((level, stored.ref) for level, stored in above)]
    listed = {ref for _, ref in levels}
    levels += [("pack", ref) for _, ref in own if ref not in listed]
    pins = {stored.ref: stored.digest for stored in (*found, *(stored for _, stored in above))}
    return ResolvedPins(packs[0].ref, pins, tuple(levels), adapters)


def _unmet(pack: ContextPack, runtime_version: str) -> str | None:
    """The first need of the pack that is not met; a need that nobody knows is unmet."""
    known = {"runtime": runtime_version, "ontology": pack.intelligence_refs.ontology.version}
    for name, bound in sorted(pack.contract_meta.compatibility.requires.items()):
        least, have = _BOUND.fullmatch(bound), _VERSION.fullmatch(known.get(name, ""))
        if least is None or have is None:
            return f"`{name[:80]} {bound[:80]}`, which cannot be told; write `runtime` or `ontology` with `>=x.y.z`"
        if tuple(map(int, have.groups())) < tuple(map(int, least.groups())):
            return f"`{name} {bound}` and this is {have[0]}; use another version of either"
    return None
