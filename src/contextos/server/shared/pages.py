"""Cursors that count for one list of one tenant, pages of what is read whole, and answers to `If-None-Match`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query, Response

from contextos.contracts.encoding.jcs import content_address
from contextos.errors import InvalidInput, Problem
from contextos.service.pages import MAX_PAGE_ITEMS

ItemT = TypeVar("ItemT")

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS, description="The most items of the page.")]
Cursor = Annotated[str, Query(max_length=64, description="The `cursor` of the page before.")]
LongCursor = Annotated[str, Query(max_length=300, description="The `cursor` of the page before.")]

ListName = tuple[str | int | None, ...]
"""What a list is of: its tenant, its name, and whatever else its pages have in common."""


def page_of(items: Sequence[ItemT], of: ListName, limit: int, cursor: str) -> tuple[Sequence[ItemT], str | None]:
    """Return a page of `items` behind a cursor, and the cursor of the next page.

    Raises:
        InvalidInput: the cursor is none of this list as it is now.
    """
    at = opened_cursor(of, cursor) or "0"
    # Who knows how a cursor is made can seal anything.
    if not at.isdigit():
        raise _unknown_cursor()
    begin = int(at)
    end = begin + limit
    return items[begin:end], sealed_cursor(of, str(end)) if end < len(items) else None


def sealed_cursor(of: ListName, at: str | None) -> str | None:
    """Return the cursor of a list behind the item `at`; None behind the last."""
    return None if at is None else f"{at}.{content_address([*of, at])[7:39]}"


def opened_cursor(of: ListName, cursor: str) -> str:
    """Return the item that a cursor of this list names; "" for the empty cursor.

    Raises:
        InvalidInput: it is a cursor of another tenant or list, or none.
    """
    at = cursor.rpartition(".")[0]
    if cursor and (not cursor.isascii() or sealed_cursor(of, at) != cursor):
        raise _unknown_cursor()
    return at


def is_unchanged(tag: str, if_none_match: str | None) -> bool:
    """Return whether `If-None-Match` names this tag. A proxy that compresses makes a tag weak, and a weak one counts
    (RFC 9110, section 13.1.2).
    """
    stated = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return tag in stated or "*" in stated


def unchanged(tag: str) -> Response:
    """Return the answer 304 of a thing with this tag."""
    return Response(status_code=304, headers={"ETag": tag})


def _unknown_cursor() -> InvalidInput:
    detail = "the cursor is of no list of this tenant, or the list has changed since"
    return InvalidInput(Problem("/cursor", "unknown_cursor", detail, "begin without one"))
