"""A scenario comes from its seed alone, and an intruded one asks twice for a payment that needs nobody."""

from __future__ import annotations

from random import Random

from contextos_sim.scenario import draw


def test_the_same_seed_draws_the_same_scenario() -> None:
    assert [draw(Random(seed)) for seed in range(20)] == [draw(Random(seed)) for seed in range(20)]


def test_an_intruded_scenario_asks_again_for_its_first_payment() -> None:
    intruded = [one for one in map(draw, map(Random, range(200))) if one.intruded]
    assert intruded
    for one in intruded:
        first, again = one.requests[0], one.requests[-1]
        assert (again.order_id, again.amount_inr, again.user_id) == (first.order_id, first.amount_inr, first.user_id)
        assert again.request_id != first.request_id
        assert again.at_us > first.at_us
