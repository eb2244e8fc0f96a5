"""Pages of what is read whole, such as the active set of a tenant, and answers to `If-None-Match`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from fastapi import Response

from contextos.contracts.encoding.jcs import content_address
from contextos.errors import InvalidInput, Problem

ItemT = TypeVar("ItemT")

_CURSOR: Final = re.compile(r"([1-9][0-9]{0,8})\.([0-9a-f]{32})")


def page_of(
    items: Sequence[ItemT], of: tuple[str, str, int], limit: int, cursor: str
) -> tuple[Sequence[ItemT], str | None]:
    """Return a page of `items` behind a cursor, and the cursor of the next page.

    `of` is what the list is of: its tenant, its name and its version. A cursor of another one is refused.

    Raises:
        InvalidInput: the cursor is none of this list as it is now.
    """
    begin = 0
    if cursor:
        named = _CURSOR.fullmatch(cursor)
        begin = int(named[1]) if named else 0
        if not named or _cursor(of, begin) != cursor:
            detail = "the cursor is of no list of this tenant, or the list has changed since"
            raise InvalidInput(Problem("/cursor", "unknown_cursor", detail, "begin without one"))
    end = begin + limit
    return items[begin:end], _cursor(of, end) if end < len(items) else None


def _cursor(of: tuple[str, str, int], at: int) -> str:
    return f"{at}.{content_address([*of, at])[7:39]}"


def is_unchanged(tag: str, if_none_match: str | None) -> bool:
    """Return whether `If-None-Match` names this tag. A proxy that compresses makes a tag weak, and a weak one counts
    (RFC 9110, section 13.1.2).
    """
    stated = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return tag in stated or "*" in stated


def unchanged(tag: str) -> Response:
    """Return the answer 304 of a thing with this tag."""
    return Response(status_code=304, headers={"ETag": tag})
