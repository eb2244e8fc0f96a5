"""The AI Gateway of a run, over the real runtime: attempts, fallbacks, money and what is on record of each call."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText
from tests.modelled import EVALUATE, LOOKUP, calls, finish, modelled, pack, plan, profile, rules

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


class Together:
    """Answers a plan to each call once so many calls are open."""

    def __init__(self, calls: int) -> None:
        self._calls, self._open, self._all_open = calls, 0, threading.Event()

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        self._open += 1
        if self._open == self._calls:
            self._all_open.set()
        # Runs of other threads have other loops.
        if not await asyncio.to_thread(self._all_open.wait, 60):
            return ModelReply("unavailable", billed=False)
        return ModelReply("answered", json.dumps(plan()), usage=ModelUsage({"input": 100, "output": 20}))


def test_a_slow_model_holds_no_turn_that_another_run_needs() -> None:
    runs = AdmissionLimits().max_turns + 2
    with modelled(models=Together(runs)) as world, ThreadPoolExecutor(runs) as pool:
        made = [pool.submit(world.run, 900 + number, f"req_{number}") for number in range(runs)]
        views = [one.result() for one in made]
        answered = [world.entries(view, "model.answered")[0]["outcome"] for view in views]
        replayed = [world.replay(view).status for view in views]
    assert answered == ["answered"] * runs, "all calls were open at the same time"
    assert replayed == ["DECIDED"] * runs


def test_what_comes_later_in_a_conversation_is_redacted_as_what_came_before() -> None:
    script = [calls(LOOKUP), calls(EVALUATE), finish("denied", "the card 4111 1111 1111 1111 was lost")]
    with modelled(*script, of=pack(chosen_by="model")) as world:
        world.run(note="my card is 4111 1111 1111 1111")
        asked = world.models.asked
    assert [len(one.messages) for one in asked] == [2, 4, 6]
    assert asked[2].messages[:4] == asked[1].messages
    assert "4111" not in str([one.messages for one in asked])
