"""The attacks are in `tests/attacks/test_g86_what_was_written_untrusted_is_read_untrusted.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.content.kept_content import MAX_DIGESTS, MAX_WRITES, digests_of, repeated
from tests.world import run


def test_of_what_is_too_long_nothing_is_kept() -> None:
    assert digests_of(["short text"])
    assert digests_of([" ".join(f"word{number}" for number in range(2 * MAX_DIGESTS))]) is None


@pytest.mark.parametrize(("more", "trusted"), [(0, True), (1, False)])
def test_after_more_writes_than_are_compared_with_every_answer_counts_as_repeated(more: int, trusted: bool) -> None:
    """Who writes often enough would else push the one text out that the next run reads."""
    rows = [
        SimpleNamespace(key=f"bank/run_{at}/1", body=SimpleNamespace(digests=("d",))) for at in range(MAX_WRITES + more)
    ]

    class Written:
        async def through(self, _adapter_id: str, *, limit: int) -> Any:
            return rows[:limit]

    found = run(repeated(Written(), "bank", "run_x", ["an innocent answer"]))  # type: ignore[arg-type]
    assert found == ([] if trusted else None)
