"""Verify the terms by which a search finds runs: those of each run are what its entries state, and no others are there.

Nothing signs a term. A row that is gone hides a run from a search, and a row that is made up shows nothing.
Source: docs/adr/0078-runs-are-found-by-terms.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from sys import maxsize

from contextos.contracts.journal import INDEX, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.deployment.queries.run_terms import run_terms
from contextos.errors import ChainBroken


async def verify_terms(store: Store, run_id: str, number: int, entries: Sequence[Entry], keys: Keys) -> None:
    """Check the terms of the run with this number against its verified entries.

    Raises:
        ChainBroken: a term is missing or surplus, or states another time; names the run.
    """
    previous: object = None
    while True:
        rows = await store.terms(number, number)
        expected = {(number, term, entries[0].at_us) for term in await run_terms(store, entries, keys)}
        missing, surplus = expected - {*rows}, {*rows} - expected
        if not missing and not surplus:
            return
        if previous == (len(entries), missing, surplus):
            detail = f"is the last, and a search finds the run by other terms than its entries state ({len(missing)}"
            raise ChainBroken(run_id, len(entries), f"{detail} are missing, {len(surplus)} are surplus)")
        # A run can go on while it is verified, and its terms with it.
        previous, entries = (len(entries), missing, surplus), await store.read(run_id)


async def refuse_other_terms(store: Store, first: int, last: int, numbers: Collection[int]) -> None:
    """Refuse terms of lines `first` to `last` of the index, except the lines `numbers`, at which runs begin.

    Raises:
        ChainBroken: names the first such line.
    """
    for number, *_ in await store.terms(first, last):
        if number not in numbers:
            raise ChainBroken(INDEX, number, "begins no run, and a search finds it by terms")


async def refuse_later_terms(store: Store) -> None:
    """Refuse terms of lines that the index does not have. Raises as `refuse_other_terms`."""
    length = await store.length(INDEX)
    for number, *_ in await store.terms(length + 1, maxsize):
        # A run can have begun since.
        if number > await store.length(INDEX):
            raise ChainBroken(INDEX, number, "is missing, and a search finds a run by terms with this number")
