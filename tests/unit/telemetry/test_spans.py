"""The spans of a run: nested, with ids that the record gives, the same for the same entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.ids import SPAN
from contextos.telemetry import genai, spans
from contextos.telemetry.spans import Span, call_span_id, run_spans
from tests.attached_files import NOTE, attaching, decided
from tests.modelled import modelled, plan
from tests.unit.telemetry import runs
from tests.world import TENANT, run

NAMES = ("small", "approved", "denied", "reopened", "planned")


def by_id(found: list[Span]) -> dict[str, Span]:
    return {one.span_id: one for one in found}


@pytest.mark.parametrize("name", NAMES)
def test_every_span_lies_below_one_before_it_and_in_one_trace(name: str) -> None:
    run = runs.ended(name)
    root, *others = found = run_spans(run)
    assert len(by_id(found)) == len(found)
    assert {one.trace_id for one in found} == {run.record["trace_id"]}
    known = {root.span_id}
    for one in others:
        assert SPAN.fits(one.span_id)
        assert one.parent_id in known
        assert root.start_us <= one.start_us <= one.end_us <= root.end_us
        known.add(one.span_id)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_entries_give_the_same_spans(name: str) -> None:
    assert run_spans(runs.ended(name)) == run_spans(runs.read(runs.entries(name)))


def test_a_call_lies_below_its_component_and_that_below_its_plane() -> None:
    run = runs.ended("approved")
    found = by_id(run_spans(run))
    calls = [one for one in found.values() if one.name.startswith("execute_tool ")]
    assert {one.attributes[genai.TOOL_CALL_ID] for one in calls} == {
        entry.body["envelope"]["tool_call_id"] for entry in run.of("tool.dispatching")
    }
    for call in calls:
        component = found[call.parent_id or ""]
        plane = found[component.parent_id or ""]
        assert (component.name, plane.name) == ("action.tool_gateway", "action")
        assert found[plane.parent_id or ""].name == "invoke_agent agt_support"
        assert call.span_id == call_span_id(str(call.attributes[genai.TOOL_CALL_ID]))


def test_the_span_of_the_run_has_the_digests_of_its_attachments(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note, scan = files.attach("note", NOTE), files.attach("scan", b"%PDF-1.7", "application/pdf")
        _, run_id = run(decided(world, note, scan))
        root = run_spans(runs.read(run(world.stores.tenant(TENANT).read(run_id))))[0]
        told = root.attributes["contextos.attachment_hashes"]
        assert isinstance(told, tuple)
        assert sorted(told) == sorted(f"sha256:{one['sha256']}" for one in (note, scan))
    assert "contextos.attachment_hashes" not in run_spans(runs.ended("small"))[0].attributes


def test_the_span_of_the_run_has_the_ids_of_its_record() -> None:
    run = runs.ended("approved")
    told, record = run_spans(run)[0].attributes, run.record
    assert told["contextos.decision_record_id"] == record["record_id"]
    assert told["contextos.decision_record_hash"] == record["record_hash"]
    assert told["contextos.replay_id"] == record["replay"]["replay_id"]
    assert told["contextos.approval_mode_effective"] == "destructive"
    assert told["contextos.policy_bundle_ids"] == ("POLICY_RETURNS_V4",)


def test_the_time_of_a_question_is_in_the_span_of_approvals_and_in_no_other_component_before_it() -> None:
    found = {one.name: one for one in run_spans(runs.ended("approved"))}
    assert found["trust.approvals"].end_us - found["trust.approvals"].start_us >= 90_000_000
    assert found["trust.policy"].end_us - found["trust.policy"].start_us < 90_000_000
    assert "trust.approvals" not in {one.name for one in run_spans(runs.ended("small"))}


def test_only_a_recorded_caller_is_the_parent() -> None:
    received, *others = runs.entries("small")
    root = run_spans(runs.ended("small"))[0]
    assert (root.parent_id, root.remote_parent) == (read_body(received)["request"]["trace"]["span_id"], True)
    unsampled = received._replace(body=(received.body or b"").replace(b'"trace_flags":"01"', b'"trace_flags":"00"'))
    assert run_spans(runs.read([unsampled, *others]))[0][2] is None


def test_a_trace_that_is_not_continued_is_a_link_and_no_parent() -> None:
    received, *others = runs.entries("small")
    link = b'"link":{"span_id":"1234567890123456","trace_id":"12345678901234567890123456789012"},"span_id"'
    body = received.body or b""
    at = body.index(b'"span_id"', body.index(b'"trace":'))
    begun = received._replace(body=body[:at] + link + body[at + len(b'"span_id"') :])
    root = run_spans(runs.read([begun, *others]))[0]
    assert (root.parent_id, root.remote_parent) == (None, False)
    assert root.link == ("12345678901234567890123456789012", "1234567890123456")


def test_what_comes_after_a_reopening_lies_below_the_first_span_of_the_run() -> None:
    before, after = run_spans(runs.first_segment("reopened")), run_spans(runs.ended("reopened"))
    assert (before[0].failed, before[0].attributes[genai.ERROR_TYPE]) == (True, "exhausted")
    assert (after[0].failed, after[0].parent_id, after[0].remote_parent) == (False, before[0].span_id, False)
    assert not by_id(before).keys() & by_id(after).keys()


def test_a_refused_call_has_failed_and_says_why() -> None:
    refused = run_spans(runs.ended("denied"))[-1]
    assert (refused.failed, refused.attributes[genai.ERROR_TYPE]) == (True, "approval_denied")
    assert refused.attributes["contextos.action.attempts"] == 0


def test_work_too_short_for_a_span_is_in_the_span_of_its_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MIN_COMPONENT_US", 1_000_000_000)
    found = {one.name for one in run_spans(runs.ended("approved"))}
    assert {one for one in found if "." in one and " " not in one} == {"action.tool_gateway", "trust.approvals"}
    assert found >= {"control", "intelligence", "context", "decision", "action", "trust"}


def test_a_run_has_a_bounded_number_of_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_spans(runs.ended("small"))
    monkeypatch.setattr(spans, "MAX_SPANS", len(whole) - 2)
    bounded = run_spans(runs.ended("small"))
    assert (len(bounded), bounded[0].attributes["contextos.spans_omitted"]) == (len(whole) - 2, 2)


def test_every_kind_of_entry_has_its_place() -> None:
    of_the_run = {kind.partition(".")[0] for kind, row in KINDS.items() if not row.component}
    assert of_the_run == {"run", "session"}
    components = {one for row in KINDS.values() for one in (row.component, *row.component_by_key.values()) if one}
    planes = {component.partition(".")[0] for component in components}
    assert planes == {"control", "intelligence", "slots", "context", "decision", "action", "trust"}
    assert genai.COMPONENT_OPERATIONS.keys() <= components


def test_each_call_of_a_model_has_a_span_with_the_names_of_the_conventions() -> None:
    run = runs.ended("planned")
    found = by_id(run_spans(run))
    first, spare, again = (one for one in found.values() if one.name.startswith("chat "))
    assert (first.name, spare.name, again.name) == ("chat first", "chat spare", "chat first")
    assert spare.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "spare",
        "gen_ai.request.max_tokens": 2_000,
        "gen_ai.response.model": "spare",
        "gen_ai.response.id": "scripted_0",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "contextos.model.operation": "judge.plan",
        "contextos.model.profile": "model.spare@1.0.0",
        "contextos.model.rule": "R_0",
        "contextos.model.outcome": "not_taken",
        "contextos.model.cost_usd_cents": 0.06,
        "error.type": "not_taken",
    }
    assert (first.failed, first.attributes[genai.ERROR_TYPE]) == (True, "overloaded")
    assert (again.failed, genai.ERROR_TYPE in again.attributes) == (False, False)
    assert {found[one.parent_id or ""].name for one in (first, spare, again)} == {"action.model_gateway"}
    assert "sorry" not in str(found)


def test_the_span_of_a_call_of_a_model_is_the_one_that_the_call_sends_outside() -> None:
    with modelled({"text": plan()}) as world:
        view = world.run()
        (call,) = world.models.asked
        (sent,) = [one for one in run_spans(runs.read(world.journal(view))) if one.name == "chat large"]
    assert call.headers["traceparent"].split("-")[2] == sent.span_id
