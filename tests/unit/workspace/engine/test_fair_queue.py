"""The tenant that used least goes first, each run waits once, and a run that yielded goes first within its tenant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.workspace.engine.fair_queue import FairQueue


def test_tenants_take_turns_however_many_runs_one_of_them_has() -> None:
    queue = FairQueue(per_tenant=9)
    for number in range(3):
        queue.put(("busy", f"b{number}"))
    queue.put(("quiet", "q0"))
    assert [queue.take() for _ in range(4)] == [("busy", "b0"), ("quiet", "q0"), ("busy", "b1"), ("busy", "b2")]


def test_a_tenant_at_its_share_waits_until_a_drive_is_over() -> None:
    queue = FairQueue(per_tenant=1)
    queue.put(("t", "a"))
    queue.put(("t", "b"))
    first = queue.take()
    assert (first, queue.take()) == (("t", "a"), None)
    queue.done(("t", "a"))
    assert queue.take() == ("t", "b")


def test_a_run_that_yielded_goes_before_new_ones_and_a_withdrawn_run_never_comes() -> None:
    queue = FairQueue(per_tenant=9)
    for run_id in ("a", "b", "a"):
        queue.put(("t", run_id))
    queue.put_back(("t", "c"))
    queue.withdraw(("t", "a"))
    queue.withdraw(("u", "unknown"))
    assert len(queue) == 2
    assert [queue.take(), queue.take(), queue.take()] == [("t", "c"), ("t", "b"), None]
    assert not queue.waits("t")


def test_the_tenant_that_used_least_goes_first_and_a_quiet_one_has_an_eighth_of_its_steps_counted() -> None:
    queue = FairQueue(per_tenant=9)
    for tenant, steps in (("busy", 10), ("less", 9), ("quiet", 71), ("too_much", 81)):
        for _ in range(steps):
            queue.count_step(tenant)
    for number in range(2):
        queue.put(("busy", f"b{number}"))
        queue.put(("less", f"l{number}"))
    queue.put(("too_much", "t0"))
    queue.put(("quiet", "q0"))
    assert [queue.take() for _ in range(4)] == [("quiet", "q0"), ("less", "l0"), ("less", "l1"), ("busy", "b0")]


def test_what_is_kept_for_quiet_tenants_is_taken_by_no_other() -> None:
    queue = FairQueue(per_tenant=9)
    for number in range(2):
        queue.put(("busy", f"b{number}"))
    assert queue.take(quiet=True) is None
    queue.put(("quiet", "q0"))
    assert [queue.take(quiet=True), queue.take(quiet=True)] == [("quiet", "q0"), None]
    # With one driven and one that waits, it is quiet no longer.
    queue.put(("quiet", "q1"))
    assert (queue.take(quiet=True), len(queue)) == (None, 3)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "back", "withdraw", "take"]), st.sampled_from("tu"), st.sampled_from("abc"))
    )
)
def test_the_length_is_the_number_of_distinct_waiting_runs(steps: list[tuple[str, str, str]]) -> None:
    queue, waiting = FairQueue(per_tenant=99), set()
    for act, tenant, run_id in steps:
        run = (tenant, run_id)
        if act == "take":
            waiting.discard(queue.take())
        elif act == "withdraw":
            queue.withdraw(run)
            waiting.discard(run)
        else:
            (queue.put if act == "put" else queue.put_back)(run)
            waiting.add(run)
        assert len(queue) == len(waiting)
        assert queue.waits(tenant) == any(one[0] == tenant for one in waiting)
