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
    added = await _merged(catalog, pin)
    known = [pack for other in (await catalog.active()).packs for pack in await _merged(catalog, other)]
    pairs = [(one, other) for one in added for other in (*known, *added)]
    problems = [
        problem
        for one, other in pairs
        if one.pack.pack_meta.pack_id != other.pack.pack_meta.pack_id
        for problem in (*_unseen(one, other), *_unseen(other, one))
    ]
    if problems:
        raise InvalidArtifact(*dict.fromkeys(problems))


async def _merged(catalog: Catalog, pin: PackPin) -> list[MergedArtifacts]:
    return [merge(pack, beside) for pack, beside in await packs_of(catalog, pin)]


def _unseen(limiting: MergedArtifacts, other: MergedArtifacts) -> Iterator[Problem]:
    """Yield a problem for each tool of the pack `other` that a history of `limiting` does not count there."""
    permitted = {f"{one.adapter_id}.{one.capability}" for one in other.pack.tooling_layer.permissions if one.allow}
    for name, fact in _histories(limiting):
        for tool, counted in fact.counted().items():
            if tool in permitted and not any(
                (same.capability, same.over, same.subject) == (fact.capability, fact.over, fact.subject)
                and tool in same.counted()
                and same.counted()[tool].subject == counted.subject
                for _, same in _histories(other)
            ):
                detail = f"`history.{name}` of `{limiting.pack.pin}` does not count `{tool}` in `{other.pack.pin}`"
                remedy = "declare it in a policy of the tenant, which binds every pack"
                yield Problem("/refs", "limit_sees_one_pack", detail, remedy)


def _histories(merged: MergedArtifacts) -> Iterator[tuple[str, HistoryFact]]:
    for leveled in merged.bundles.values():
        yield from leveled.bundle.history.items()
