"""When an effect is attempted again: growing waits with jitter, up to a limit; attacks: tests/attacks/test_d21_*.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.retries import FIRST_WAIT_US, MAX_ATTEMPTS, MAX_WAIT_US, next_attempt

DAY_US = 86_400_000_000


def attempted(
    strategy: str = "keyed",
    *,
    attempt: int = 1,
    now_us: int = 0,
    behind_us: int = 0,
    most_s: int | None = None,
    **answer: Any,
) -> Any:
    """The next attempt after this answer of the attempt `attempt`, in a run without a session."""
    rule = SimpleNamespace(strategy=strategy, key_ttl_s=86_400)
    capability = SimpleNamespace(definition=SimpleNamespace(idempotency=rule))
    call: Any = SimpleNamespace(
        capability=capability,
        running=None,
        attempt=attempt,
        first_us=behind_us,
        first_clock_us=0,
        attempt_key=f"0/s1/{attempt}",
    )
    tooling = SimpleNamespace(max_retry_s=most_s)
    scope: Any = SimpleNamespace(
        pinned=SimpleNamespace(pack=SimpleNamespace(tooling_layer=tooling)), within_session=lambda at_us: at_us
    )
    journal: Any = SimpleNamespace(run_id="run_1", now_us=now_us + behind_us, clock_us=now_us)
    return next_attempt(journal, scope, call, {"envelope": {"error": None}, **answer})


@pytest.mark.parametrize(
    ("strategy", "outcome", "how"),
    [
        ("keyed", "unknown", "send_again"),
        ("keyed", "not_sent", "send"),
        ("lookup", "unknown", "look_up"),
        ("lookup", "not_sent", None),
        ("none", "unknown", None),
        ("none", "not_sent", None),
        ("keyed", "returned", None),
    ],
)
def test_what_is_attempted_again_depends_on_the_strategy_and_the_outcome(
    strategy: str, outcome: str, how: str | None
) -> None:
    retry = attempted(strategy, outcome=outcome)
    assert (retry.how if retry else None) == how


@pytest.mark.parametrize("strategy", ["keyed", "lookup", "none"])
def test_what_an_open_circuit_refused_is_sent_when_it_lets_a_call_through(strategy: str) -> None:
    refused = {"envelope": {"error": {"code": "circuit_open"}}, "retry_at_us": 30_000_000}
    retry = attempted(strategy, outcome="not_sent", **refused)
    assert (retry.how, retry.at_us > 30_000_000) == ("send", True)


def test_waits_double_up_to_five_minutes_and_half_of_each_is_jitter() -> None:
    for attempt in range(1, 40):
        most_us = min(FIRST_WAIT_US * 2 ** (attempt - 1), MAX_WAIT_US)
        assert most_us // 2 <= attempted(attempt=attempt, outcome="unknown").at_us <= most_us


def test_the_limit_is_the_life_of_the_key_or_less_and_attempts_are_counted() -> None:
    assert attempted(outcome="unknown", now_us=DAY_US) is None
    assert attempted(outcome="unknown", now_us=10_000_000, most_s=10) is None
    assert attempted(outcome="unknown", now_us=0, attempt=30, most_s=10).at_us == 9_000_000
    assert attempted(outcome="unknown", attempt=MAX_ATTEMPTS) is None


def test_a_wait_goes_by_the_clock_where_it_is_behind_the_record() -> None:
    retry = attempted(outcome="unknown", now_us=5, behind_us=DAY_US)
    assert 5 < retry.at_us <= 5 + FIRST_WAIT_US


def test_a_lookup_that_is_answered_three_times_with_no_such_call_is_enough() -> None:
    assert attempted("lookup", outcome="unknown", no_record=True, attempt=2).how == "look_up"
    assert attempted("lookup", outcome="unknown", no_record=True, attempt=3) is None


def test_a_call_that_was_sent_again_and_refused_is_not_sent_a_third_time() -> None:
    assert attempted("keyed", outcome="unknown", no_record=True, attempt=2) is None
