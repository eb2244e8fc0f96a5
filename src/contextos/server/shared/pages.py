"""The parameters of lists, and answers to `If-None-Match`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from contextos.service.pages import MAX_PAGE_ITEMS

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS, description="The most items of the page.")]
Cursor = Annotated[str, Query(max_length=64, description="The `cursor` of the page before.")]
LongCursor = Annotated[str, Query(max_length=300, description="The `cursor` of the page before.")]


def is_unchanged(tag: str, if_none_match: str | None) -> bool:
    """Return whether `If-None-Match` names this tag. A weak tag counts too (RFC 9110, section 13.1.2), because a proxy
    that compresses makes tags weak.
    """
    tags = [stated_tag.strip().removeprefix("W/") for stated_tag in (if_none_match or "").split(",")]
    return tag in tags or "*" in tags


def unchanged(tag: str) -> Response:
    """Return the answer 304 (not modified) with this tag."""
    return Response(status_code=304, headers={"ETag": tag})
