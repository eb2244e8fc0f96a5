"""The AI Gateway of a run, over the real runtime: attempts, fallbacks, money and what is on record of each call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.modelled import modelled, pack, plan, profile, rules

GOOD = {"text": plan()}
LISTED = [{"profile": "model.large@1.0.0"}, {"profile": "model.small@1.0.0", "weight": 0}]
FIRST_LARGE = [profile(), profile("small"), rules({"operation": "judge.plan", "candidates": LISTED})]


@pytest.mark.parametrize("outcome", ["overloaded", "unavailable", "timed_out", "cut", "malformed"])
def test_after_a_fault_the_next_candidate_is_asked(outcome: str) -> None:
    with modelled(artifacts=FIRST_LARGE, script={"large": [{"outcome": outcome}], "small": [GOOD]}) as world:
        view = world.run()
        answered = [one["outcome"] for one in world.entries(view, "model.answered")]
        asked = [one.profile.model for one in world.models.asked]
        assert world.replay(view).status == "DECIDED"
    assert (answered, asked) == ([outcome, "answered"], ["large", "small"])


@pytest.mark.parametrize("outcome", ["refused", "rejected", "truncated"])
def test_after_what_is_no_fault_of_the_provider_nobody_else_is_asked(outcome: str) -> None:
    with modelled({"outcome": outcome, "text": "half of"}, GOOD) as world:
        view = world.run()
        failure = view.record["rationale"]["failures"][0]
        assert len(world.models.asked) == 1
    assert failure["code"] == "model_failed"
    assert f"({outcome})" in failure["detail"]


def test_nothing_of_an_answer_that_is_not_whole_is_on_record() -> None:
    with modelled({"outcome": "cut", "text": "half of a plan"}, GOOD) as world:
        view = world.run()
        assert "half of a plan" not in str(world.entries(view, "model.answered"))


def test_a_call_without_usage_costs_what_was_reserved() -> None:
    with modelled({**GOOD, "usage": None}) as world:
        view = world.run()
        asked, answered = world.entries(view, "model.asked")[0], world.entries(view, "model.answered")[0]
        assert answered["cost_units"] == asked["reserved_units"]
        assert answered["unpriced"]
        assert world.replay(view).status == "DECIDED"


def test_a_refused_call_costs_nothing() -> None:
    with modelled({"outcome": "overloaded", "usage": None, "billed": False}, GOOD) as world:
        view = world.run()
        assert [one["cost_units"] for one in world.entries(view, "model.answered")] == [0, 600]


def test_the_same_model_is_asked_again_no_earlier_than_it_says() -> None:
    waited: list[int] = []
    with modelled({"outcome": "overloaded", "retry_after_ms": 300}, GOOD) as world:
        sender = world.app.deployment.ports.models
        pause = sender._pause

        async def counted(duration_us: int) -> None:
            waited.append(duration_us)
            await pause(0)

        sender._pause = counted
        assert world.run().state == "completed"
    assert len(waited) == 1
    assert 0 < waited[0] <= 300_000


def test_what_is_asked_is_what_is_on_record() -> None:
    with modelled(GOOD, GOOD) as world:
        one, other = world.run(), world.run(901, "req_2")
        digests = [world.entries(view, "model.asked")[0]["request_digest"] for view in (one, other)]
    assert digests[0] != digests[1], "another request is another prompt"


def test_a_secret_of_the_context_is_in_no_call() -> None:
    with modelled(GOOD) as world:
        world.run(note="mail me at ana@example.com, card 4111 1111 1111 1111")
        sent = "".join(message.text for message in world.models.asked[0].messages)
    assert "4111 1111 1111 1111" not in sent


def test_what_policy_judges_is_what_is_reserved() -> None:
    short = [profile(), rules({"operation": "judge.plan", "max_output_tokens": 100, "candidates": LISTED[:1]})]
    with modelled(GOOD, artifacts=short) as world:
        reserved = world.entries(world.run(), "model.asked")[0]["reserved_units"] / 10_000
    limited = pack()
    # The longest answer of the profile would cost 2.85 cents more.
    dear = {">": [{"var": "model.cost_cents"}, reserved + 1]}
    rule = {"rule_id": "R_DEAR", "applies_to": {"point": "model"}, "if": dear, "then": {"allow": False}}
    limited["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(rule)
    with modelled(GOOD, of=limited, artifacts=short) as world:
        assert world.run().state == "completed"


@pytest.mark.parametrize("text", [plan(), "no plan"], ids=["taken", "asked again"])
def test_a_provider_that_bills_more_than_the_run_has_left_ends_the_run(text: Any) -> None:
    with modelled({"text": text, "usage": {"input": 100_000_000, "output": 1}}, GOOD) as world:
        view = world.run()
        [failure] = view.record["rationale"]["failures"]
        assert (view.state, failure["code"], failure["facts"]) == ("exhausted", "budget_exhausted", ["max_cost_cents"])
        assert "above it after a call of `model.large@1.0.0`" in failure["detail"]
        assert world.entries(view, "plan.verified") == [], "its answer is not used"
        assert len(world.models.asked) == 1
        assert world.replay(view)
