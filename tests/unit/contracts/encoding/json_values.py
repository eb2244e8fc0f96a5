"""Strategies for JSON values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from contextos.contracts.encoding.jcs import MAX_INT

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-MAX_INT, MAX_INT)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
REREADABLE = FLOATS.filter(lambda x: abs(x) <= MAX_INT or abs(x) >= 1e21)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def grown(kids: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(kids, max_size=4) | st.dictionaries(TEXT, kids, max_size=4)

    return st.recursive(leaves, grown, max_leaves=12)


LEAVES = st.none() | st.booleans() | INTS | TEXT
