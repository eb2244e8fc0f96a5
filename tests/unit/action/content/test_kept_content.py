"""The attacks are in `tests/attacks/test_g86_what_was_written_untrusted_is_read_untrusted.py`."""

from __future__ import annotations

from contextos.action.content.kept_content import MAX_DIGESTS, digests_of


def test_of_what_is_too_long_nothing_is_kept() -> None:
    assert digests_of(["short text"])
    assert digests_of([" ".join(f"word{number}" for number in range(2 * MAX_DIGESTS))]) is None
