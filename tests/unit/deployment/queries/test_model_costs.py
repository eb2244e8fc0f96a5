"""Costs of models are those of the journals, in pages; what was not read is named."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.entries.account import RoutedCall
from contextos.deployment.operator import erase_entry
from contextos.deployment.queries.model_costs import ERASED_RUN, CostsOfRuns, ModelCosts, add_calls, read_costs
from contextos.testing import TEST_OPERATOR, Person
from contextos.trust.seal import KeyRing
from tests.modelled import FALLING_BACK, OF_THREE, Modelled, modelled, plan
from tests.world import TENANT

FIRST, SPARE = ("model.first@1.0.0", "judge.plan"), ("model.spare@1.0.0", "judge.plan")
LARGE = ("model.large@1.0.0", "judge.plan")


def costs(world: Modelled, keys: Any = None, **period: Any) -> CostsOfRuns:
    ports = world.app.deployment.ports
    of = (ports.stores.tenant(TENANT), TENANT, keys or ports.keys, ports.pause)
    found: CostsOfRuns = world.app.call(read_costs, *of, **{"limit": 50, **period})
    return found


def test_calls_are_added_up_by_profile_and_operation() -> None:
    with modelled(artifacts=OF_THREE, script=FALLING_BACK) as world:
        assert costs(world) == CostsOfRuns()
        world.run()
        page = costs(world)
    tokens = {"input": 100, "output": 20}
    assert page.costs == {
        FIRST: ModelCosts(runs=1, calls=2, taken=1, cost_units=600, tokens=tokens),
        SPARE: ModelCosts(runs=1, calls=1, cost_units=600, tokens=tokens),
    }
    assert (page.runs_read, page.unread, page.next_after) == (1, {}, None)


def test_pages_together_are_the_whole_and_a_period_ends_them() -> None:
    with modelled(*[{"text": plan()}] * 3) as world:
        began = []
        for number in range(3):
            began.append(world.clock.now_us())
            world.run(amount=900 + number, name=f"req_{number}")
            world.clock.advance(10)
        whole = costs(world)
        pages, after = list[CostsOfRuns](), 0
        while True:
            pages.append(costs(world, limit=2, after=after))
            if pages[-1].next_after is None:
                break
            after = pages[-1].next_after
        middle = costs(world, began_from_us=began[1], began_before_us=began[2])
        later = costs(world, began_from_us=began[2] + 4 * 3_600_000_000)
    assert (whole.costs[LARGE].runs, whole.costs[LARGE].cost_units) == (3, 1_800)
    assert [one.runs_read for one in pages] == [2, 1]
    assert sum(one.costs[LARGE].cost_units for one in pages) == 1_800
    assert (middle.runs_read, middle.costs[LARGE].calls) == (1, 1)
    assert later == CostsOfRuns()


def test_a_run_that_does_not_verify_or_was_erased_is_named_and_not_added_up() -> None:
    with modelled(*[{"text": plan()}] * 2) as world:
        kept, gone = world.run(), world.run(amount=901, name="req_2")
        page = costs(world, keys=KeyRing.from_seed(b"o" * 32))
        assert (page.costs, page.runs_read, page.unread.keys()) == ({}, 0, {kept.run_id, gone.run_id})
        seq = next(one.seq for one in world.journal(gone) if one.kind == "model.answered")
        by = Person(TEST_OPERATOR).actor()
        world.app.call(erase_entry, world.app.deployment, TENANT, gone.run_id, seq, by=by, reason="the law")
        page = costs(world)
    assert page.unread == {gone.run_id: ERASED_RUN}
    assert page.costs[LARGE].runs == page.runs_read == 1


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (RoutedCall("judge.plan", "r@1.0.0", None, "no_route"), {}),
        (RoutedCall("judge.plan", "r@1.0.0", "m@1.0.0", None, 5), ModelCosts(runs=1, calls=1, open=1, cost_units=5)),
        (
            RoutedCall("judge.plan", "r@1.0.0", "m@1.0.0", "lost", 5, True),
            ModelCosts(runs=1, calls=1, unpriced=1, cost_units=5),
        ),
    ],
)
def test_a_call_without_a_price_counts_with_its_reservation(call: RoutedCall, expected: Any) -> None:
    assert add_calls([call], {}) == ({("m@1.0.0", "judge.plan"): expected} if expected else {})
