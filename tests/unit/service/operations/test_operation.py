"""A page ends where it says, and a cursor of another list is refused."""

from __future__ import annotations

import pytest

from contextos.errors import InvalidInput
from contextos.service.operations.operation import page_of, sealed_cursor

OF = ("tenant_a", "pins", 3)


def test_the_pages_of_a_list_are_the_list() -> None:
    items, found, cursor = list(range(7)), [], ""
    while True:
        page, following = page_of(items, OF, 3, cursor)
        found += page
        if following is None:
            break
        cursor = following
    assert found == items


@pytest.mark.parametrize("of", [("tenant_b", "pins", 3), ("tenant_a", "policies", 3), ("tenant_a", "pins", 4)])
def test_a_cursor_counts_for_its_own_list_as_it_is(of: tuple[str, str, int]) -> None:
    _, cursor = page_of(range(7), OF, 3, "")
    assert cursor is not None
    with pytest.raises(InvalidInput) as refused:
        page_of(range(7), of, 3, cursor)
    assert refused.value.problems[0].code == "unknown_cursor"


@pytest.mark.parametrize("at", ["x", "-1", "1_0", " 1", "1e9"])
def test_a_cursor_that_somebody_made_up_is_refused(at: str) -> None:
    """It is sealed without a secret: a number that it does not have would be a defect, and `-1` another page."""
    with pytest.raises(InvalidInput) as refused:
        page_of(range(7), OF, 3, sealed_cursor(OF, at) or "")
    assert refused.value.problems[0].code == "unknown_cursor"
