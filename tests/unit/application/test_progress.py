"""Every kind of journal entry is one event, also one that was erased."""

from __future__ import annotations

from contextos.application.progress import progress_event
from contextos.contracts.journal import KINDS, Entry

KNOWN = {"run.received", "tool.dispatching", "tool.returned", "run.ended"}


def erased(kind: str, seq: int) -> Entry:
    return Entry("tenant_a", "run_1", seq, kind, "k", 7_000, "runtime", "", "", "", None, None)


def test_every_kind_is_an_event_with_the_number_and_the_time_of_its_entry() -> None:
    for seq, kind in enumerate(KINDS, 1):
        event = progress_event(erased(kind, seq))
        assert (event.seq, event.at_us, event.type) == (seq, 7_000, "CUSTOM")
        assert event.fields == {"name": kind, "value": {"key": "k", "by": "runtime", "ledger": KINDS[kind].ledger}}
    assert KINDS.keys() >= KNOWN
