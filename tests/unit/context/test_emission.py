"""A content address never depends on the shortcut by which it is computed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.emission import address, is_plain
from contextos.contracts.encoding.jcs import content_address

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON.filter(lambda one: one == one), max_size=3))
def test_the_fast_address_of_a_plain_product_is_the_canonical_one(product: dict[str, Any]) -> None:
    try:
        expected = content_address(product)
    except ValueError:
        return
    assert address(product, plain=is_plain(product)) == expected


@pytest.mark.parametrize("foreign", [{"x": 1.0}, {"\U0001f600": 1, "\ufb33": 2}])
def test_floats_and_keys_that_sort_differently_take_the_slow_way(foreign: Any) -> None:
    assert not is_plain(foreign)
