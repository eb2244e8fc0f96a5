"""Derive the terms by which a search has to find a run, from its entries and from the acts about its decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextos.contracts.entries.reading import logged
from contextos.contracts.entries.terms import ANY_RUN, standing_terms, stated_terms
from contextos.contracts.journal import TermChange
from contextos.deployment.queries.decisions import decision_of
from contextos.deployment.queries.run_view import run_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store


async def run_terms(store: Store, entries: Sequence[Entry], keys: Keys) -> frozenset[int]:
    """Return the terms of the run that has these entries.

    Raises:
        ChainBroken: an act about its decision is not the one that the runtime recorded.
    """
    view = run_view(entries[0].tenant, entries[0].run, entries)
    status = (await decision_of(store, view, keys)).status
    terms = standing_terms(view.state, status, ended=view.ended)
    return frozenset({ANY_RUN, *terms, *stated_terms(logged(entries))})


async def terms_without(
    store: Store, entries: Sequence[Entry], seq: int, keys: Keys, stored: Iterable[int] = ()
) -> TermChange:
    """Return all terms of a run after its entry `seq` is erased, and which of `stored` and of the terms before are
    removed.

    Raises as `run_terms`.
    """
    remaining = [entry._replace(body=None, salt=None) if entry.seq == seq else entry for entry in entries]
    before, after = await run_terms(store, entries, keys), await run_terms(store, remaining, keys)
    return TermChange(tuple(after), tuple((before | {*stored}) - after), entries[0].at_us)
