"""The events of a run: what an operator has to see, below the span to which it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.telemetry import genai
from contextos.telemetry.events import AXES, REDACTION_EVENT, run_events
from contextos.telemetry.spans import run_spans
from tests.modelled import modelled, profile, rules
from tests.unit.telemetry import runs
from tests.world import TestWorld, request


@pytest.mark.parametrize("name", ["small", "approved", "denied", "reopened", "planned"])
def test_every_event_names_a_span_of_its_run(name: str) -> None:
    run = runs.ended(name)
    known = {one.span_id for one in run_spans(run)}
    events = list(run_events(run))
    assert {one.span_id for one in events} <= known
    assert all(one.severity in ("info", "warn", "error") for one in events)


def test_a_denied_run_tells_its_gate_its_refusal_and_its_failed_scores() -> None:
    told = {one.name: one for one in run_events(runs.ended("denied"))}
    assert told["contextos.approval.asked"].attributes["contextos.gate_id"] == "GATE_FINANCE_APPROVAL"
    assert told["contextos.approval.answered"].attributes["contextos.verdict"] == "denied"
    assert told["contextos.tool.refused"].attributes[genai.ERROR_TYPE] == "approval_denied"
    assert told[genai.EVALUATION_EVENT].attributes[genai.EVALUATION_LABEL] == "fail"


def test_an_end_that_somebody_has_to_look_at_is_an_error() -> None:
    ends = {
        name: list(run_events(run))[-1].severity
        for name, run in {"exhausted": runs.first_segment("reopened"), "rejected": runs.ended("denied")}.items()
    }
    assert ends == {"exhausted": "error", "rejected": "warn"}


def test_an_erased_entry_is_an_event_without_what_was_erased() -> None:
    entries = [
        one._replace(body=None, salt=None) if one.kind == "approval.asked" else one for one in runs.entries("approved")
    ]
    asked = next(one for one in run_events(runs.read(entries)) if one.name == "contextos.approval.asked")
    assert asked.attributes.keys() == {"contextos.run_id", "contextos.tenant_id"}


def test_the_axes_are_those_of_the_scorecard() -> None:
    assert set(AXES) == runs.ended("small").first("run.scored").keys() - {"verdict"}


def test_a_run_that_only_did_its_work_tells_what_its_policies_decided_and_nothing_else() -> None:
    run = runs.ended("small")
    told = list(run_events(run))
    assert {(one.name, one.severity) for one in told} == {("contextos.policy.decided", "info")}
    points = [one.attributes["contextos.policy.point"] for one in told]
    assert points == ["compile", "execute", "execute", "execute"]
    decided = told[-1].attributes
    assert decided["contextos.policy.rule_ids"] == (
        "R_LOW_VALUE_DELEGATED",
        "R_REFUND_BY_SUPPORT",
        "R_REFUND_REQUIRES_IDV",
    )
    ids = {one for each in told for one in each.attributes["contextos.policy_decision_ids"]}  # type: ignore[union-attr]
    assert len(ids) == 6
    assert not {"contextos.policy.denied", "contextos.policy.gates"} & decided.keys(), "an empty list is left out"


def test_a_gate_that_a_policy_asks_for_is_in_its_event() -> None:
    told = [one.attributes for one in run_events(runs.ended("approved")) if one.name == "contextos.policy.decided"]
    assert ("GATE_FINANCE_APPROVAL",) in [one.get("contextos.policy.gates") for one in told]


def test_the_event_of_a_redaction_has_its_kind_and_never_its_place(tmp_path: Path) -> None:
    async def drive(world: TestWorld) -> str:
        body = request(900, "req_1", **{"4111 1111 1111 1111": "card 4111 1111 1111 1111", "note": "ann@acme.example"})
        return (await world.invoke(body)).run_id

    ended = runs.read(runs.recorded(drive))
    told = [one for one in run_events(ended) if one.name == REDACTION_EVENT]
    assert [one.attributes["contextos.redaction.kinds"] for one in told] == [("pan",)]
    assert told[0].attributes.keys() == {
        "contextos.run_id",
        "contextos.tenant_id",
        "contextos.redaction.places",
        "contextos.redaction.kinds",
        "contextos.redaction.rules",
    }
    assert "note" not in repr(told)


def test_a_model_that_does_not_answer_or_whose_answer_is_not_taken_is_a_warning() -> None:
    run = runs.ended("planned")
    told = [one for one in run_events(run) if one.name.startswith("contextos.model.")]
    assert [(one.name, one.severity) for one in told] == [
        ("contextos.model.answered", "warn"),
        ("contextos.model.judged", "warn"),
    ]
    assert told[0].attributes["contextos.model.outcome"] == "overloaded"
    chats = [one.span_id for one in run_spans(run) if one.name.startswith("chat ")]
    assert [one.span_id for one in told] == chats[:2]
    assert "JSON" not in str(told)


def test_a_question_that_no_model_can_be_asked_is_a_warning() -> None:
    with modelled(artifacts=[profile("large", data_class="PUBLIC"), rules()]) as world:
        run = runs.read(world.journal(world.run()))
    (told,) = [one for one in run_events(run) if one.name.startswith("contextos.model.")]
    assert (told.name, told.severity) == ("contextos.model.routed", "warn")
    assert told.attributes["contextos.model.operation"] == "judge.plan"
    assert told.attributes["contextos.model.rules"] == "routing.support@1.0.0"
