"""The time limit of a session includes its last microsecond, and a run without one is never over."""

from __future__ import annotations

from typing import Any

from contextos.contracts.controls import KnownFacts
from contextos.contracts.scope import RunScope, SessionWindow


def scope(session: SessionWindow | None) -> RunScope:
    nothing: Any = None
    return RunScope(nothing, nothing, nothing, nothing, nothing, KnownFacts({}), session)


def test_a_session_is_over_from_its_deadline_on() -> None:
    window = scope(SessionWindow(10, 1_000))
    assert [window.session_over(at_us) for at_us in (999, 1_000)] == [False, True]
    assert [window.within_session(at_us) for at_us in (999, 1_001)] == [999, 1_000]


def test_a_run_without_a_session_has_no_limit() -> None:
    assert not scope(None).session_over(2**62)
    assert scope(None).within_session(2**62) == 2**62
