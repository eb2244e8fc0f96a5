"""Refuse to pin packs together if the limits of one would not see the calls of another.

A history counts the calls of runs whose own policies declare it. A limit over a tenant, a user, an agent or an order
that one pack declares is in force for all only as a policy above the packs.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.acts import PackPin
from contextos.contracts.envelopes.policy import HistoryFact
from contextos.control.artifacts import MergedArtifacts, merge
from contextos.control.catalog import Catalog
from contextos.deployment.acts.unmatched_rules import packs_of
from contextos.errors import InvalidArtifact, Problem


async def refuse_blind_limits(catalog: Catalog, pin: PackPin) -> None:
    """Refuse a pin if a history of one of its packs does not count the calls of a pack that is pinned, or if a pinned
    pack's history does not count theirs. Versions of one pack replace each other and are not compared.

    Raises:
        InvalidArtifact: a history is blind in this way; the error names both packs, the history and the tool.
    """
    added = await _merged_packs(catalog, pin)
    pinned = [pack for other_pin in (await catalog.active()).packs for pack in await _merged_packs(catalog, other_pin)]
    pairs = [(pack, other) for pack in added for other in (*pinned, *added)]
    problems = [
        problem
        for pack, other in pairs
        if pack.pack.pack_meta.pack_id != other.pack.pack_meta.pack_id
        for problem in (*_uncounted_tools(pack, other), *_uncounted_tools(other, pack))
    ]
    if problems:
        raise InvalidArtifact(*dict.fromkeys(problems))


async def _merged_packs(catalog: Catalog, pin: PackPin) -> list[MergedArtifacts]:
    return [merge(pack, artifacts) for pack, artifacts in await packs_of(catalog, pin)]


def _uncounted_tools(limiting: MergedArtifacts, other: MergedArtifacts) -> Iterator[Problem]:
    """Yield a problem for each tool of the pack `other` that a history of `limiting` does not count there."""
    permitted = {f"{item.adapter_id}.{item.capability}" for item in other.pack.tooling_layer.permissions if item.allow}
    for name, fact in _histories(limiting):
        for tool, counted in fact.counted().items():
            if tool in permitted and not any(
                (candidate.capability, candidate.over, candidate.subject) == (fact.capability, fact.over, fact.subject)
                and tool in candidate.counted()
                and candidate.counted()[tool].subject == counted.subject
                for _, candidate in _histories(other)
            ):
                detail = f"`history.{name}` of `{limiting.pack.pin}` does not count `{tool}` in `{other.pack.pin}`"
                remedy = "declare it in a policy of the tenant, which binds every pack"
                yield Problem("/refs", "limit_sees_one_pack", detail, remedy)


def _histories(merged: MergedArtifacts) -> Iterator[tuple[str, HistoryFact]]:
    for leveled in merged.bundles.values():
        yield from leveled.bundle.history.items()
