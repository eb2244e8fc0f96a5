"""A page of a list, and the cursor from which the next page begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from contextos.errors import InvalidInput, Problem

ItemT = TypeVar("ItemT")

MAX_PAGE_ITEMS: Final = 1000


@dataclass(frozen=True, slots=True)
class UnverifiedRun:
    """A run that a list leaves out because it does not verify, and the fault that was found."""

    run_id: str
    fault: str


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    """A page of a list. `cursor` asks for the next page; None after the last page.

    A page ends after the requested number of items, or after 1,000 runs: it can be empty and not the last. `unverified`
    are runs that were left out because they were altered.
    """

    items: tuple[ItemT, ...]
    cursor: str | None
    unverified: tuple[UnverifiedRun, ...] = ()


def check_limit(limit: int) -> None:
    """Raise `InvalidInput` unless `limit` is from 1 to `MAX_PAGE_ITEMS`."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE_ITEMS:
        detail = f"a page has from 1 to {MAX_PAGE_ITEMS} items"
        raise InvalidInput(Problem("/limit", "out_of_bounds", detail, "ask for fewer and continue with the cursor"))
