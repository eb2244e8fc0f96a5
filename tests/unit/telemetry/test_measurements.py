"""The metrics of a run equal what its journal says, and name its tenant."""

from __future__ import annotations

from collections import Counter

import pytest

from contextos.telemetry import genai
from contextos.telemetry.ended_run import EndedRunEntries
from contextos.telemetry.measurements import (
    INSTRUMENTS,
    Measurement,
    add_up,
    dropped_measurement,
    replay_measurement,
    run_measurements,
)
from tests.modelled import modelled, plan
from tests.unit.telemetry import runs


def measured(run: EndedRunEntries, name: str) -> list[Measurement]:
    return [one for one in run_measurements(run) if one.name == name]


@pytest.mark.parametrize("name", ["small", "approved", "denied", "reopened", "planned"])
def test_every_measurement_has_an_instrument_and_a_tenant(name: str) -> None:
    found = [*run_measurements(runs.ended(name)), replay_measurement("t", equal=True), dropped_measurement("t", 2)]
    assert {one.name for one in found} <= INSTRUMENTS.keys()
    assert all(one.attributes["contextos.tenant_id"] for one in found)


def test_what_a_run_used_is_what_its_record_says() -> None:
    run = runs.ended("approved")
    spent = run.record["budget_usage"]
    assert [one.value for one in measured(run, "contextos.run.tokens")] == [spent["tokens"]]
    assert [one.value for one in measured(run, "contextos.run.cost")] == [spent["cost_usd_cents"]]
    (duration,) = measured(run, "contextos.run.duration")
    assert (duration.value, duration.attributes["contextos.end"]) == (spent["wall_clock_ms"] / 1000, "completed")


def test_a_reopened_run_counts_what_it_used_once() -> None:
    parts = [runs.first_segment("reopened"), runs.ended("reopened")]
    tokens = [measured(one, "contextos.run.tokens")[0].value for one in parts]
    assert sum(tokens) == parts[-1].record["budget_usage"]["tokens"]
    assert all(tokens)


def test_the_wait_for_a_person_is_measured_by_gate_and_verdict() -> None:
    for name, verdict in (("approved", "approved"), ("denied", "denied")):
        (wait,) = measured(runs.ended(name), "contextos.approval.wait")
        assert wait.attributes["contextos.gate_id"] == "GATE_FINANCE_APPROVAL"
        assert wait.attributes["contextos.verdict"] == verdict
    assert measured(runs.ended("approved"), "contextos.approval.wait")[0].value >= 90


def test_calls_that_were_sent_have_a_duration_and_refused_ones_are_counted() -> None:
    run = runs.ended("denied")
    sent = Counter(one.attributes[genai.TOOL_NAME] for one in measured(run, "contextos.tool.duration"))
    assert sent == {"adp_orders.lookup": 1, "adp_policy.eval": 1}
    (refused,) = measured(run, "contextos.tool.refusals")
    assert refused.attributes[genai.TOOL_NAME] == "adp_payments.issue_refund"
    assert refused.attributes[genai.ERROR_TYPE] == "approval_denied"


def test_the_route_names_the_pack_the_template_and_the_planner() -> None:
    (route,) = measured(runs.ended("small"), "contextos.routes")
    assert route.attributes["contextos.task_template"] == "task_refund_with_eligibility@1.0.0"
    assert route.attributes["contextos.planner"] == "template@1"
    assert route.attributes["contextos.context_pack_ref"] == "ctxpack.support@5.2.0"


def test_each_axis_of_a_scorecard_is_measured() -> None:
    run = runs.ended("denied")
    card = run.first("run.scored")
    found = {one.attributes[genai.EVALUATION_NAME]: one.value for one in measured(run, "contextos.score.points")}
    assert found == {axis: card[axis]["score"] for axis in card if axis != "verdict"}
    assert Counter(one.attributes[genai.EVALUATION_LABEL] for one in measured(run, "contextos.scores")) == {
        "pass": 3,
        "fail": 2,
    }


def test_counters_add_up_by_their_attributes_and_histograms_keep_every_value() -> None:
    each = [*run_measurements(runs.ended("small")), *run_measurements(runs.ended("denied"))]
    added = list(add_up(each))
    for name, instrument in INSTRUMENTS.items():
        values = [one.value for one in each if one.name == name]
        kept = [one.value for one in added if one.name == name]
        assert sum(kept) == pytest.approx(sum(values))
        assert (len(kept) == len(values)) or instrument.kind == "counter"
    (tokens,) = [one for one in added if one.name == "contextos.run.tokens"]
    assert tokens.attributes == {"contextos.tenant_id": "tenant_acme_prod", "contextos.intent": "support.refund"}


def test_a_replay_is_equal_or_different() -> None:
    results = [replay_measurement("t", equal=equal).attributes["contextos.result"] for equal in (True, False)]
    assert results == ["equal", "different"]


def test_calls_of_models_are_measured_by_profile_and_outcome() -> None:
    run = runs.ended("planned")
    calls = [
        (one.attributes["contextos.model.profile"], one.attributes["contextos.model.outcome"])
        for one in measured(run, "contextos.model.duration")
    ]
    assert calls == [
        ("model.first@1.0.0", "overloaded"),
        ("model.spare@1.0.0", "not_taken"),
        ("model.first@1.0.0", "answered"),
    ]
    assert sum(one.value for one in measured(run, "contextos.model.cost")) == pytest.approx(0.12)
    tokens = Counter[object]()
    for one in measured(run, "contextos.model.tokens"):
        tokens[one.attributes["contextos.model.token_kind"]] += int(one.value)
    assert tokens == {"input": 200, "output": 40}


def test_a_prompt_that_is_billed_far_from_its_estimate_is_counted() -> None:
    """The script bills 100 tokens for some three thousand."""
    drifted = measured(runs.ended("planned"), "contextos.model.drift")
    assert [(one.attributes["contextos.model.billed"], one.value) for one in drifted] == [("fewer", 1), ("fewer", 1)]
    estimate = runs.ended("planned").first("model.asked")["input_tokens"]
    for billed, said in ((estimate, []), (estimate * 5 // 4, []), (estimate * 2, ["more"])):
        with modelled({"text": plan(), "usage": {"input": billed, "output": 20}}) as world:
            run = runs.read(world.journal(world.run()))
        found = [one.attributes["contextos.model.billed"] for one in measured(run, "contextos.model.drift")]
        asked = run.first("model.asked")["input_tokens"]
        assert abs(asked - estimate) < estimate / 10
        assert found == said or billed == estimate * 5 // 4
