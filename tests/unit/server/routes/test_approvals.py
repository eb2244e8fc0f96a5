"""Approvals over HTTP: who sees a question, what an answer signs, and which answers count."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace


def test_a_lead_reads_the_question_signs_the_statement_and_the_run_is_decided(face: HttpFace) -> None:
    run = face.waiting_run()
    listed = face.send("GET", "/v1/approvals", by=LEAD, params={"role": "finance_lead"}).json()
    question = next(one for one in listed["items"] if one["run_id"] == run)
    assert question == face.send("GET", f"/v1/approvals/{run}", by=LEAD).json()
    assert {one["name"] for one in question["args"]} >= {"amount_inr", "order_id"}
    said = face.send(
        "POST", f"/v1/approvals/{run}/statement", by=LEAD, json={"verdict": "approved", "reason": "ok"}
    ).json()
    assert said["text"].splitlines()[-1] == f"binding {question['binding_digest']}"
    [one] = said["statements"]
    assert (one["statement"]["approver"], one["statement"]["reason"]) == (LEAD, "ok")
    [signed] = one["signing_inputs"].values()
    body = {"verdict": "approved", "reason": "ok", "tokens": [face.signature(signed, LEAD)]}
    answered = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body)
    assert answered.json() == {
        "run_id": run,
        "approval_id": question["approval_id"],
        "binding_digest": question["binding_digest"],
    }
    ended = face.ended(run)
    assert (ended["status"], ended["record"]["approvals"][0]["assertion"]) == ("DECIDED", "jws")


def test_an_answer_counts_once(face: HttpFace) -> None:
    run = face.waiting_run()
    body = face.signed_answer(run, "denied")
    statuses = [face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body) for _ in range(2)]
    assert [one.status_code for one in statuses] == [200, 409]
    assert statuses[1].json()["code"] in ("already_answered", "not_waiting")
    assert face.ended(run)["record"]["outcome"] == "denied"


def test_a_bearer_token_alone_approves_nothing(face: HttpFace) -> None:
    run = face.waiting_run()
    for body, status in (
        ({}, 422),
        ({"verdict": "approved"}, 422),
        ({"tokens": ["a.b.c"]}, 422),
        ({"verdict": "approved", "tokens": ["a.b.c", "a.b.c"]}, 422),
        ({"verdict": "approved", "tokens": ["a.b.c"], "login_token": "a.b.c"}, 422),
        ({"verdict": "approved", "tokens": [face.token(LEAD)]}, 403),
        ({"verdict": "approved", "tokens": ["a.b.c"]}, 403),
        ({"verdict": "approved", "login_token": face.token(LEAD)}, 403),
        ({**face.signed_answer(run, "denied"), "verdict": "approved"}, 403),
        ({**face.signed_answer(run), "reason": "another"}, 403),
    ):
        sent = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body)
        assert sent.status_code == status, (body, sent.text)
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "approval"


def test_a_signature_of_somebody_else_or_for_another_question_does_not_count(face: HttpFace) -> None:
    run, another = face.waiting_run(), face.waiting_run()
    body = face.signed_answer(another)
    sent = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body)
    assert (sent.status_code, sent.json()["code"]) == (409, "other_binding")
    by_another = face.send("POST", f"/v1/approvals/{another}/answer", by="user_finance_lead_78", json=body)
    assert (by_another.status_code, by_another.json()["code"]) == (403, "other_person")
    head, _, signature = body["tokens"][0].rpartition(".")
    forged = f"{head}.{'A' * len(signature)}"
    sent = face.send("POST", f"/v1/approvals/{another}/answer", by=LEAD, json={**body, "tokens": [forged]})
    assert (sent.status_code, sent.json()["code"]) == (403, "assertion_invalid")


@pytest.mark.parametrize("by", [REQUESTER, OPERATOR, "user_support_lead_5"])
def test_who_does_not_hold_the_role_sees_no_question(face: HttpFace, by: str) -> None:
    run = face.waiting_run()
    draft: dict[str, Any] = {"json": {"verdict": "approved"}}
    sent = [
        face.send("GET", f"/v1/approvals/{run}", by=by),
        face.send("POST", f"/v1/approvals/{run}/statement", by=by, **draft),
        face.send("POST", f"/v1/approvals/{run}/answer", by=by, json=face.signed_answer(run)),
    ]
    assert [one.status_code for one in sent] == [404, 404, 404]
    assert face.send("GET", "/v1/approvals", by=by).json()["items"] == []
    refused = face.send("GET", "/v1/approvals", by=by, params={"role": "finance_lead"})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
