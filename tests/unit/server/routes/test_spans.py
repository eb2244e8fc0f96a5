"""`GET /v1/runs/{run}/spans`: the trace of a run, for those who may read the run, and nothing of its content."""

from __future__ import annotations

import pytest

from contextos.cli.demo.workspace import example_operator
from contextos.deployment.operator import erase_entry
from contextos.telemetry.ended_run import ended_parts
from contextos.telemetry.spans import run_spans
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, TENANT, HttpFace

CARD = "4111 1111 1111 1111"
WORD = "Pemberley"


def test_the_spans_are_those_that_a_collector_gets(face: HttpFace) -> None:
    body = face.request()
    # An amount of its own: the same refund again would be the refund of another test, and no call.
    body["input"]["context"]["refund_amount"] = 871
    made = face.send("POST", "/v1/runs", json=body).json()
    told = face.send("GET", f"/v1/runs/{made['run_id']}/spans").json()
    (run,) = ended_parts(face.call(face.app.stores.tenant(TENANT).read(made["run_id"])))
    computed = run_spans(run)
    assert (told["trace_id"], told["ended"]) == (made["record"]["trace_id"], True)
    assert [one["span_id"] for one in told["spans"]] == [one.span_id for one in computed]
    assert [one["name"] for one in told["spans"]] == [one.name for one in computed]
    parents = {one["span_id"] for one in told["spans"]}
    [root] = [one for one in told["spans"] if one["parent_id"] not in parents]
    assert root["attributes"]["contextos.run_id"] == made["run_id"]
    assert {one["name"] for one in told["events"]} == {"contextos.policy.decided"}
    assert {one["span_id"] for one in told["events"]} <= parents


def test_a_run_that_goes_on_has_no_spans_yet(face: HttpFace) -> None:
    told = face.send("GET", f"/v1/runs/{face.waiting_run()}/spans").json()
    assert (told["ended"], told["spans"], told["events"]) == (False, [], [])


def test_who_may_not_read_the_run_reads_no_span(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    path = f"/v1/runs/{run}/spans"
    assert face.anonymous("GET", path).status_code == 401
    allowed = {"usr_771": 200, OPERATOR: 200, "usr_772": 404, LEAD: 404}
    assert {by: face.send("GET", path, by=by).status_code for by in allowed} == allowed
    for by in ("usr_771", OPERATOR):
        refused = face.send("GET", path, by=by, tenant=OTHER_TENANT)
        assert (refused.status_code, run in refused.text) == (404, False)
    assert face.send("GET", "/v1/runs/run_0000000000000000/spans").status_code == 404


def test_no_secret_and_no_content_is_in_a_span(face: HttpFace) -> None:
    body = face.request()
    body["input"]["message"] = f"{WORD} {CARD}"
    body["input"]["context"] |= {"note": f"{WORD} {CARD}", "mail": "ann@acme.example"}
    run = face.send("POST", "/v1/runs", json=body).json()["run_id"]
    told = face.send("GET", f"/v1/runs/{run}/spans")
    assert told.status_code == 200
    assert [one for one in (WORD, CARD, "acme.example", "ord_881", "usr_771") if one in told.text] == []
    assert "contextos.redaction" in {one["name"] for one in told.json()["events"]}


@pytest.mark.parametrize("erased", ["run.received", "tool.returned", "policy.decided"])
def test_what_was_erased_is_in_no_span(face: HttpFace, erased: str) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    entries = [one for one in face.call(face.app.stores.tenant(TENANT).read(run)) if one.kind == erased]
    before = face.send("GET", f"/v1/runs/{run}/spans").json()
    for one in entries:
        by = example_operator(face.path)
        face.call(erase_entry(face.app.deployment, TENANT, run, one.seq, by=by, reason="asked for"))
    told = face.send("GET", f"/v1/runs/{run}/spans", by=OPERATOR)
    if erased == "run.received":
        assert (told.status_code, told.json()["code"]) == (404, "no_trace")
        return
    assert told.status_code == 200
    digests = {one["attributes"].get("contextos.output_digest") for one in before["spans"]} - {None}
    assert bool(digests)
    assert (set() if erased == "tool.returned" else digests) == {one for one in digests if one in told.text}
    if erased == "policy.decided":
        decided = [one for one in told.json()["events"] if one["name"] == "contextos.policy.decided"]
        assert {frozenset(one["attributes"]) for one in decided} == {
            frozenset({"contextos.run_id", "contextos.tenant_id"})
        }
