"""Hints: one for each run, bounded, earliest first; a merged hint is never later or weaker than its parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.engine.durable.hints import MOST_STALE, Hint, Hints

A, B = ("t", "run_a"), ("t", "run_b")


def test_two_hints_of_a_run_become_one_that_is_early_and_strong() -> None:
    hints = Hints(bound=9)
    hints.put(A, Hint(wake_us=50, weak=True, post_us=50))
    hints.put(A, Hint(wake_us=20, weak=False, post_us=60))
    assert hints.get(A) == Hint(wake_us=20, weak=False, post_us=50)
    hints.put(A, Hint(wake_us=90, weak=True))
    assert hints.take(50, limit=9) == [(A, Hint(wake_us=20, weak=False, post_us=50))]
    assert hints.take(1_000, limit=9) == []


def test_past_the_bound_a_new_run_is_dropped_and_a_known_one_is_still_merged() -> None:
    hints = Hints(bound=1)
    hints.put(A, Hint(wake_us=50))
    hints.put(B, Hint(wake_us=1))
    hints.put(A, Hint(wake_us=7))
    assert (len(hints), hints.get(B), hints.get(A)) == (1, None, Hint(wake_us=7))


def test_hints_come_at_their_time_and_no_more_than_asked_for() -> None:
    hints = Hints(bound=9)
    for number in range(4):
        hints.put(("t", f"run_{number}"), Hint(post_us=10 * number))
    assert hints.next_us() == 0
    assert [run for (_, run), _ in hints.take(25, limit=2)] == ["run_0", "run_1"]
    assert [run for (_, run), _ in hints.take(25, limit=9)] == ["run_2"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=300))
def test_every_hint_is_taken_once_and_replaced_ones_do_not_pile_up(puts: list[tuple[int, int]]) -> None:
    hints = Hints(bound=99)
    for run, post_us in puts:
        hints.put(("t", str(run)), Hint(post_us=post_us))
        assert len(hints._order) <= 2 * len(hints) + MOST_STALE
    taken = hints.take(10, limit=999)
    assert {run for (_, run), _ in taken} == {str(run) for run, _ in puts}
    assert [hint.post_us for _, hint in taken] == sorted(hint.post_us for _, hint in taken)
    assert len(taken) == len({run for run, _ in puts})
