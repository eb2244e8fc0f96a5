"""The upper bound of a prefix excludes every other key, also at the ends of Unicode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.store.shared.key_range import after_prefix

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(TEXT, TEXT)
def test_a_key_is_below_the_bound_exactly_if_it_has_the_prefix(prefix: str, key: str) -> None:
    for candidate in (key, prefix + key):
        bound = after_prefix(prefix)
        in_range = candidate >= prefix and (bound is None or candidate < bound)
        assert in_range == candidate.startswith(prefix)


def test_no_bound_is_a_lone_surrogate() -> None:
    assert after_prefix("a\ud7ff") == "a\ue000"
    assert after_prefix("\U0010ffff") is None
