"""A watcher of a run receives what a row names of a body, and nothing more."""

from __future__ import annotations

from contextos.contracts.entries.row import counted, picked


def test_only_members_that_are_named_and_there_are_copied() -> None:
    assert picked("by", "reason", "limit")({"by": "ana", "secret": "x", "limit": None}) == {"by": "ana"}
    assert picked()({"by": "ana"}) == {}
    assert counted(["a", "b"]) == {"count": 2}
