"""Requests over HTTP: the same request is one run, its record has a tag, and its journal is shown by ledger."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, TENANT, HttpFace


def test_a_request_is_decided_and_answered_with_the_record_that_the_deployment_has(face: HttpFace) -> None:
    sent = face.send("POST", "/v1/runs", json=face.request())
    assert (sent.status_code, sent.json()["state"], sent.json()["ended"]) == (201, "completed", True)
    run = sent.json()["run_id"]
    assert sent.headers["location"] == f"/v1/runs/{run}"
    view = face.call(face.app.deployment.view(TENANT, run))
    assert sent.json()["record"] == view.record
    assert face.send("GET", f"/v1/runs/{run}").json()["record"] == view.record
    assert face.send("GET", f"/v1/runs/{run}/record").json() == view.record


def test_the_same_request_is_the_same_run_and_another_body_is_refused(face: HttpFace) -> None:
    body = face.request()
    first, again = (face.send("POST", "/v1/runs", json=body) for _ in range(2))
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    body["input"]["message"] = "another"
    other = face.send("POST", "/v1/runs", json=body)
    assert (other.status_code, other.json()["code"]) == (422, "conflicting_request")
    (part,) = other.json()["errors"]
    assert part["pointer"] == "/input/message"
    assert part["detail"].startswith("`/input/message` was `")


def test_a_refused_request_does_not_use_up_its_id(face: HttpFace) -> None:
    right = face.request()
    wrong = {**right, "input": {**right["input"], "intent": "support.nothing"}}
    refused = face.send("POST", "/v1/runs", json=wrong).json()
    assert refused["record"]["rationale"]["failures"][0]["code"] == "unknown_intent"
    assert face.send("POST", "/v1/runs", json=wrong).json()["run_id"] == refused["run_id"]
    mended = face.send("POST", "/v1/runs", json=right).json()
    assert (mended["state"], mended["run_id"] != refused["run_id"]) == ("completed", True)
    assert face.send("GET", f"/v1/runs/{right['request_id']}").json()["run_id"] == mended["run_id"]
    assert face.send("POST", "/v1/runs", json=wrong).json()["run_id"] == refused["run_id"], "the same is the same run"
    other = {**right, "input": {**right["input"], "message": "Another."}}
    again = face.send("POST", "/v1/runs", json=other)
    assert (again.status_code, again.json()["code"]) == (422, "conflicting_request")
    for run in (refused["run_id"], mended["run_id"]):
        assert face.send("GET", f"/v1/runs/{run}").json()["run_id"] == run


def test_an_unknown_intent_is_named_as_such(face: HttpFace) -> None:
    body = face.request()
    body["input"]["intent"] = "support.refnud"
    sent = face.send("POST", "/v1/runs", json=body)
    assert (sent.status_code, sent.json()["state"]) == (201, "rejected")
    (failure,) = sent.json()["record"]["rationale"]["failures"]
    assert failure["code"] == "unknown_intent"
    assert failure["detail"].endswith("did you mean `support.refund`?")


@pytest.mark.parametrize("parameters", ["", ";a=1", '; a; b="c;d" ; e=:YQ==:;f=?1'])
def test_the_idempotency_key_names_a_request_that_has_no_id(face: HttpFace, parameters: str) -> None:
    body = face.request()
    key = body.pop("request_id")
    stated = ({"Idempotency-Key": f'"{key}"{more}'} for more in ("", parameters))
    first, again = (face.send("POST", "/v1/runs", json=body, headers=headers) for headers in stated)
    assert first.status_code == 201, first.text
    assert first.json()["run_id"] == again.json()["run_id"]
    assert face.send("GET", f"/v1/runs/{key}").json()["run_id"] == first.json()["run_id"]


@pytest.mark.parametrize(
    ("key", "with_id", "status", "code"),
    [
        (None, False, 400, "no_idempotency_key"),
        ("bare", False, 400, "bad_idempotency_key"),
        ('"', False, 400, "bad_idempotency_key"),
        ('""', False, 400, "bad_idempotency_key"),
        ('"a"b"', False, 400, "bad_idempotency_key"),
        ('"a\\b"', False, 400, "bad_idempotency_key"),
        ('"a" b', False, 400, "bad_idempotency_key"),
        ('"a";B=1', False, 400, "bad_idempotency_key"),
        # A string with a quote in it, which is no id of a request.
        ('"a\\"b"', False, 422, "invalid_envelope"),
        ('"req_another"', True, 422, "invalid_input"),
    ],
)
def test_a_key_that_is_missing_malformed_or_another_one_stores_nothing(
    face: HttpFace, key: str | None, with_id: bool, status: int, code: str
) -> None:
    body = face.request()
    named = body["request_id"]
    if not with_id:
        del body["request_id"]
    sent = face.send("POST", "/v1/runs", json=body, headers={"Idempotency-Key": key} if key else {})
    assert (sent.status_code, sent.json()["code"]) == (status, code)
    assert face.send("GET", f"/v1/runs/{named}").status_code == 404


def test_a_long_running_request_is_accepted_and_an_engine_drives_it(face: HttpFace) -> None:
    sent = face.send("POST", "/v1/runs", json=face.request(mode="long_running"))
    assert (sent.status_code, sent.json()["waits_for"]) == (202, "engine")
    assert face.ended(sent.json()["run_id"])["state"] == "completed"


@pytest.mark.parametrize(
    "changes", [{"tenant_id": "tenant_other"}, {"tenant_id": "tenant_no"}, {"user": {"user_id": "usr_772"}}]
)
def test_a_token_sends_no_request_for_another_tenant_or_user(face: HttpFace, changes: dict[str, Any]) -> None:
    sent = face.send("POST", "/v1/runs", json=face.request(**changes))
    assert (sent.status_code, sent.json()["code"]) == (403, "invalid_input")
    assert [one["code"] for one in sent.json()["errors"]] == ["identity_refused"]


def test_a_reader_with_the_hash_of_the_record_gets_it_only_once_it_changed(face: HttpFace) -> None:
    run = face.waiting_run()
    first = face.send("GET", f"/v1/runs/{run}/record")
    assert first.headers["etag"] == f'"{first.json()["record_hash"]}"'
    known = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    again = face.send("GET", f"/v1/runs/{run}/record", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert face.send("GET", f"/v1/runs/{run}/record", headers={"If-None-Match": "*"}).status_code == 304
    face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run))
    face.ended(run)
    newer = face.send("GET", f"/v1/runs/{run}/record", headers=known)
    assert (newer.status_code, newer.json()["status"]) == (200, "DECIDED")


def test_a_list_has_the_callers_own_runs_and_for_an_operator_all_of_them_page_by_page(face: HttpFace) -> None:
    body = face.request()
    body["user"] |= {
        "user_id": "usr_772",
        "delegation": {**body["user"]["delegation"], "subject": "usr_772", "token_ref": "tok_usr_772"},
    }
    other = face.send("POST", "/v1/runs", by="usr_772", json=body).json()["run_id"]
    face.send("POST", "/v1/runs", json=face.request())

    def every(by: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            page = face.send("GET", "/v1/runs", by=by, params={"limit": 2, "cursor": cursor}).json()
            found += page["items"]
            cursor = page["cursor"]
        return found

    assert [one["run_id"] for one in every("usr_772")] == [other]
    assert {one["user_id"] for one in every("usr_771")} == {"usr_771"}
    names = [one["run_id"] for one in every(OPERATOR)]
    assert len(names) == len(set(names))
    assert {other, *(one["run_id"] for one in every("usr_771"))} <= set(names)
    assert every(LEAD) == []


def test_the_three_ledgers_are_disjoint_parts_of_the_journal_and_the_story_has_parts(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    ledgers = {
        name: face.send("GET", f"/v1/runs/{run}/ledgers/{name}").json()["items"]
        for name in ("context", "effect", "decision")
    }
    assert all(one["ledger"] == name for name, items in ledgers.items() for one in items)
    seqs = [one["seq"] for items in ledgers.values() for one in items]
    assert len(seqs) == len(set(seqs)) > 10
    assert "tool.dispatching" in {one["kind"] for one in ledgers["effect"]}
    story = face.send("GET", f"/v1/runs/{run}/timeline").json()
    assert story["parts"][0]["title"] == "What was asked"
    assert story["fault"] is None
