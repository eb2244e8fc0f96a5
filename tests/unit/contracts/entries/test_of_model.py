"""What a person reads of the calls of models: the story, the reasons, the stream, and the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.of_model import MODEL_KINDS, OUTCOME_TEXTS, REASON_TEXTS
from contextos.contracts.entries.row import StoryReader
from contextos.contracts.envelopes.models import ModelOutcome, RouteReason
from contextos.contracts.envelopes.record import BudgetUsage, Lineage
from contextos.contracts.journal import Entry, Logged
from contextos.deployment.queries.timeline import tell_story
from contextos.deployment.stream.folding import stream_events
from contextos.deployment.why.explaining import explain
from tests.modelled import FALLING_BACK, OF_THREE, calls, finish, modelled, pack, profile, rules
from tests.unit.telemetry import runs

PUBLIC = "what the call shows is classified above its limit (CONFIDENTIAL is above PUBLIC)"
NO_PLAN = (
    "the planner `model@1` proposed no plan: it is not one JSON object: expecting value at line 1 column 1; "
    "correct the JSON there"
)
RULE = "rule R_0 of routing.support@1.0.0"


def planned() -> Sequence[Entry]:
    return runs.entries("planned")


def about_models(entries: Sequence[Entry]) -> list[str]:
    return [one.text for one in explain(entries) if one.topic == "model"]


def test_every_outcome_and_every_reason_has_a_text() -> None:
    assert OUTCOME_TEXTS.keys() == {*get_args(ModelOutcome), "lost"}
    assert REASON_TEXTS.keys() == set(get_args(RouteReason))


@pytest.mark.requirement("R-CORE-2")
def test_the_story_tells_each_route_with_what_was_passed_over_and_what_came_back() -> None:
    story = tell_story(planned())
    told = [one.text for one in story["What it knew"]]
    assert told[7:] == [
        f"model.first@1.0.0 is asked for judge.plan, by {RULE}",
        f"passed over model.open@1.0.0: {PUBLIC}",
        "passed over model.spare@1.0.0: the chosen one comes before it",
        "model.first@1.0.0 accepts no more calls now: 0 US cents",
        f"model.spare@1.0.0 is asked for judge.plan, by {RULE}",
        f"passed over model.open@1.0.0: {PUBLIC}",
        "passed over model.first@1.0.0: it was asked before",
        "model.spare@1.0.0 answered: 100 input, 20 output, 0.06 US cents",
        f"its answer was not taken: {NO_PLAN}",
        f"model.first@1.0.0 is asked for judge.plan, by {RULE}",
        f"passed over model.open@1.0.0: {PUBLIC}",
        "passed over model.spare@1.0.0: the chosen one comes before it",
        "model.first@1.0.0 answered: 100 input, 20 output, 0.06 US cents",
    ]
    assert [one.text for one in story["What it cost"]][1:] == [
        "model.first@1.0.0 for judge.plan: 2 calls, 1 answers taken, 120 tokens, 0.06 US cents",
        "model.spare@1.0.0 for judge.plan: 1 calls, 0 answers taken, 120 tokens, 0.06 US cents",
    ]


def test_why_says_of_each_candidate_why_it_was_asked_or_was_not() -> None:
    assert about_models(planned())[:8] == [
        f"`model.open@1.0.0` was not asked for judge.plan: {PUBLIC}",
        f"`model.first@1.0.0` was asked for judge.plan: it meets every limit and comes first ({RULE})",
        "`model.spare@1.0.0` was not asked for judge.plan: the chosen one comes before it",
        "the model accepts no more calls now: 0 US cents",
        f"`model.open@1.0.0` was not asked for judge.plan: {PUBLIC}",
        "`model.first@1.0.0` was not asked for judge.plan: it was asked before",
        f"`model.spare@1.0.0` was asked for judge.plan: it meets every limit and comes first ({RULE})",
        "the model answered: 100 input, 20 output, 0.06 US cents",
    ]
    assert about_models(planned())[8] == f"the answer was not taken: {NO_PLAN}"


def test_who_watches_sees_the_route_the_answer_and_what_was_not_taken() -> None:
    told = [one.members for one in stream_events(planned()) if "model." in str(one.members.get("name"))]
    values = [(one["name"], one["value"]) for one in told if one["value"]["key"] == "plan/0/1"]
    assert [name for name, _ in values] == [
        "contextos.model.routed",
        "contextos.model.asked",
        "contextos.model.answered",
        "contextos.model.judged",
    ]
    routed, _, answered, judged = (value for _, value in values)
    assert routed["candidates"] == [
        {"profile": "model.open@1.0.0", "reason": "data_class", "detail": "CONFIDENTIAL is above PUBLIC"},
        {"profile": "model.first@1.0.0", "reason": "tried"},
        {"profile": "model.spare@1.0.0", "reason": "chosen"},
    ]
    assert answered == {
        "key": "plan/0/1",
        "outcome": "answered",
        "model": "spare",
        "cost_units": 600,
        "usage": {"input": 100, "output": 20},
    }
    assert judged["findings"] == [NO_PLAN]
    assert "sorry" not in str(told), "an answer is in the journal alone"


@pytest.mark.requirement("C-NAME-7")
def test_the_record_has_each_question_in_its_lineage_and_what_models_used() -> None:
    record = runs.ended("planned").record
    lineage = record["lineage"]
    assert lineage["models"] == [
        {
            "operation": "judge.plan",
            "rules": "routing.support@1.0.0",
            "profile": "model.first@1.0.0",
            "attempts": 3,
            "outcome": "answered",
            "cost_usd_cents": 0.12,
        }
    ]
    assert len(set(lineage["routing_decisions"])) == 3
    Lineage.model_validate(lineage)
    assert (record["budget_usage"]["model_calls"], record["budget_usage"]["model_tokens"]) == (3, 240)
    BudgetUsage.model_validate(record["budget_usage"])
    assert record["decision_key"] == "support.refund.execute"


def test_the_record_of_a_run_without_models_says_nothing_of_them() -> None:
    record = runs.ended("small").record
    assert not record["lineage"].keys() & {"models", "routing_decisions"}
    assert record["budget_usage"].keys() == {"tokens", "tool_calls", "cost_usd_cents", "wall_clock_ms"}


@pytest.mark.requirement("T-FAIL-ROUTE")
def test_a_question_without_a_route_has_the_reason_of_each_candidate() -> None:
    with modelled(artifacts=[profile("large", data_class="PUBLIC"), rules()]) as world:
        view = world.run()
        entries = world.journal(view)
    assert view.record is not None
    (asked,) = view.record["lineage"]["models"]
    assert (asked["profile"], asked["attempts"], asked["outcome"], asked["cost_usd_cents"]) == (None, 0, "no_route", 0)
    assert "model_calls" not in view.record["budget_usage"]
    assert [one.text for one in tell_story(entries)["What it knew"]][-2:] == [
        f"no model can be asked for judge.plan, by {RULE}",
        f"passed over model.large@1.0.0: {PUBLIC}",
    ]
    assert about_models(entries) == [f"`model.large@1.0.0` was not asked for judge.plan: {PUBLIC}"]


def test_a_question_to_which_no_rule_applies_says_so() -> None:
    candidates = [{"profile": "model.large@1.0.0"}]
    only_others = rules({"operation": "judge.plan", "candidates": candidates, "intents": ["support.other"]})
    with modelled(artifacts=[profile(), only_others]) as world:
        entries = world.journal(world.run())
    assert about_models(entries) == ["no model was asked for judge.plan: no rule of routing.support@1.0.0"]


def test_each_question_of_a_session_is_in_the_record() -> None:
    lookup = ("adp_orders.lookup", {"order_id": "ord_881"})
    with modelled(calls(lookup), finish("denied", "not due"), of=pack(chosen_by="model")) as world:
        view = world.run()
    assert view.record is not None
    asked = view.record["lineage"]["models"]
    assert [(one["attempts"], one["outcome"]) for one in asked] == [(1, "answered"), (1, "answered")]


def logged(*entries: tuple[str, dict[str, Any] | None]) -> list[Logged]:
    return [Logged(seq, kind, "plan/0/0", seq, "runtime", body, "") for seq, (kind, body) in enumerate(entries, 1)]


ROUTED = {"operation": "judge.plan", "rules": "r@1.0.0", "profile": "m@1.0.0", "candidates": []}
ASKED = {"reserved_units": 700}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"outcome": "lost", "cost_units": 700, "unpriced": True}, "0.07 US cents, which is what was reserved"),
        (
            {"outcome": "refused", "cost_units": 0, "detail": "a filter\x1b[2J"},
            "declined to answer (a filter\\u001b[2J)",
        ),
        (
            {"outcome": "answered", "cost_units": 5, "usage": {"counts": {"requests": 1}}},
            ": 1 requests, 0.0005 US cents",
        ),
    ],
)
def test_what_came_back_has_its_cost(body: dict[str, Any], text: str) -> None:
    log = logged(("model.routed", ROUTED), ("model.asked", ASKED), ("model.answered", body))
    sentence = MODEL_KINDS["model.answered"].story["knew"]
    assert not isinstance(sentence, str)
    (line,) = sentence(log[-1], StoryReader(account_of("run_1", log), {}))
    assert line.startswith("m@1.0.0 ")
    assert text in line


def test_a_call_without_an_answer_counts_with_its_reservation() -> None:
    account = account_of("run_1", logged(("model.routed", ROUTED), ("model.asked", ASKED)))
    (call,) = account.routes.values()
    assert (call.outcome, call.cost_units, account.used().cost_units, account.model_calls) == (None, 700, 700, 0)


def test_the_cost_of_a_call_whose_route_was_erased_still_counts() -> None:
    answer = {"outcome": "answered", "cost_units": 30}
    log = logged(("model.routed", None), ("model.asked", ASKED), ("model.answered", answer), ("model.judged", {}))
    account = account_of("run_1", log)
    assert (account.routes, account.used().cost_units) == ({}, 30)
    sentence = MODEL_KINDS["model.answered"].story["knew"]
    assert not isinstance(sentence, str)
    assert list(sentence(log[2], StoryReader(account, {}))) == ["the model answered: 0.003 US cents"]


def test_the_example_of_the_fallback_is_the_one_that_is_read_here() -> None:
    with modelled(artifacts=OF_THREE, script=FALLING_BACK) as world:
        assert world.replay(world.run()).status == "DECIDED"


@pytest.mark.parametrize(("waited_us", "wall_clock_us"), [(0, 50), (30, 20), (3_600_000_000, 10)])
def test_a_wait_for_a_turn_after_an_answer_is_subtracted_and_never_more(waited_us: int, wall_clock_us: int) -> None:
    answer = {"outcome": "answered", "cost_units": 1} | ({"waited_us": waited_us} if waited_us else {})
    steps = [("run.received", 100, {}), ("model.asked", 105, {"reserved_units": 5}), ("model.answered", 145, answer)]
    entries = [
        Logged(seq, kind, "plan/0/0", at_us, "runtime", body, "")
        for seq, (kind, at_us, body) in enumerate([*steps, ("run.scored", 150, {})], 1)
    ]
    assert account_of("run_00000000000000ab", entries).used().wall_clock_us == wall_clock_us
