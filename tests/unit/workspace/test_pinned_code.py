"""What changed in a pinned file, as a person sees it; `tests/unit/cli/adapters/test_pinning.py` pins it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.workspace.pinned_code import ChangedFile


def test_a_difference_is_shown_where_the_text_before_is_known() -> None:
    known = ChangedFile("a.py:TOOLS", "a.py", "sha256:0", "sha256:1", "x = 1\n", "x = 2\n", ())
    assert known.diff()[-2:] == ["-x = 1", "+x = 2"]
    assert ChangedFile("a.py:TOOLS", "a.py", "sha256:0", "sha256:1", None, "x = 2\n", ()).diff() == []


@given(*[st.text("ab\n\r\x0b\x0c\x1c\x85\u2028\ufeff", max_size=8)] * 2)
def test_two_texts_that_differ_have_a_difference(before: str, after: str) -> None:
    found = ChangedFile("a.py:TOOLS", "a.py", "sha256:0", "sha256:1", before, after, ()).diff()
    assert (found == []) == (before == after)
    assert not any("\n" in line for line in found)
