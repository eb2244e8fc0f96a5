"""Pages of a list."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.errors import InvalidInput
from contextos.service.pages import MAX_PAGE_ITEMS, check_limit


@pytest.mark.parametrize("limit", [0, -1, MAX_PAGE_ITEMS + 1, "5", True, None, 2.0])
def test_a_page_of_no_or_too_many_items_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidInput, match="from 1 to"):
        check_limit(limit)


def test_a_page_has_one_item_or_more() -> None:
    check_limit(1)
    check_limit(MAX_PAGE_ITEMS)
