"""The attacks are in `tests/attacks/test_g86_what_was_written_untrusted_is_read_untrusted.py`."""

from __future__ import annotations

from contextos.action.content.kept_content import MAX_DIGESTS, unvouched_write
from contextos.contracts.documents.operations import UNVOUCHED_WRITES


def test_of_what_is_too_long_nothing_is_kept() -> None:
    long = " ".join(f"word{number}" for number in range(2 * MAX_DIGESTS))
    writes = [unvouched_write("notes", "run_1", "1/a", [text]) for text in ("short text", long)]
    assert [bool(body.digests) for _, body in UNVOUCHED_WRITES.written(writes)] == [True, False]
