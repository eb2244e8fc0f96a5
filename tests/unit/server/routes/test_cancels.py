"""A run is stopped over HTTP by the signature of a person who may, and by nothing else."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace


def signed(face: HttpFace, run: str, reason: str = "") -> str:
    said = face.send("POST", f"/v1/runs/{run}/cancel/statement", by=OPERATOR, json={"reason": reason}).json()
    assert (said["statement"]["actor"], said["statement"]["kind"]) == (OPERATOR, "run.cancelled")
    [signing_input] = said["signing_inputs"].values()
    return face.signature(signing_input, OPERATOR)


def test_an_operator_stops_a_run_that_waits_and_its_record_says_so(face: HttpFace) -> None:
    run = face.waiting_run()
    body = {"reason": "a double", "token": signed(face, run, "a double")}
    answer = face.send("POST", f"/v1/runs/{run}/cancel", by=OPERATOR, json=body)
    assert answer.status_code == 202, answer.text
    assert face.ended(run)["state"] == "cancelled"
    again = face.send("POST", f"/v1/runs/{run}/cancel", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_nothing_but_the_signature_for_this_run_and_reason_stops_it(face: HttpFace) -> None:
    run, another = face.waiting_run(), face.waiting_run()
    for by, body, status in (
        (OPERATOR, {"token": signed(face, another)}, 403),
        (OPERATOR, {"token": signed(face, run, "one"), "reason": "another"}, 403),
        (OPERATOR, {"token": face.token(OPERATOR)}, 403),
        (OPERATOR, {"token": ""}, 403),
        (REQUESTER, {"token": signed(face, run)}, 403),
        (LEAD, {"token": signed(face, run)}, 404),
        (OPERATOR, {}, 422),
    ):
        answer = face.send("POST", f"/v1/runs/{run}/cancel", by=by, json=body)
        assert answer.status_code == status, (by, body, answer.text)
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "approval"


@pytest.mark.parametrize("by", [LEAD, "usr_772"])
def test_the_statement_of_a_run_of_others_is_not_there(face: HttpFace, by: str) -> None:
    run = face.waiting_run()
    assert face.send("POST", f"/v1/runs/{run}/cancel/statement", by=by, json={}).status_code == 404


def test_a_void_question_is_listed_as_void_takes_no_approval_and_is_asked_again_by_a_signature(face: HttpFace) -> None:
    run = face.waiting_run()
    draft = {"reason": "a refund elsewhere"}
    held = face.send("POST", f"/v1/runs/{run}/reask", by=OPERATOR, json={**draft, "token": asked(face, run, draft)})
    assert (held.status_code, held.json()["code"]) == (409, "not_void")
    order = face.request("next")["input"]["context"]["order_id"]
    statement = "UPDATE orders SET total_inr = total_inr + 1 WHERE order_id = ?"
    with closing(sqlite3.connect(face.path / "shop.db")) as books, books:
        assert books.execute(statement, (order,)).rowcount == 1
    [question] = [one for one in face.send("GET", "/v1/approvals", by=LEAD).json()["items"] if one["run_id"] == run]
    assert "order_lookup.total_inr was" in question["void"]
    assert face.send("GET", f"/v1/approvals/{run}", by=LEAD).json() == question
    refused = face.send("POST", f"/v1/approvals/{run}/statement", by=LEAD, json={"verdict": "approved"})
    assert (refused.status_code, refused.json()["code"]) == (409, "approval_void")
    body = {**draft, "token": asked(face, run, draft)}
    assert face.send("POST", f"/v1/runs/{run}/reask", by=LEAD, json=body).status_code == 404
    assert face.send("POST", f"/v1/runs/{run}/reask", by=REQUESTER, json=body).status_code == 403
    assert face.send("POST", f"/v1/runs/{run}/reask", by=OPERATOR, json=body).status_code == 202
    for _ in range(200):
        again = face.send("GET", f"/v1/approvals/{run}", by=LEAD)
        if again.status_code == 200 and not again.json()["void"]:
            break
        time.sleep(0.02)
    assert again.json()["binding_digest"] != question["binding_digest"]
    token = face.signed_answer(run)
    assert face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json={"token": token}).status_code == 200
    assert face.ended(run)["status"] == "DECIDED"


def asked(face: HttpFace, run: str, draft: dict[str, str]) -> str:
    """The signature of an operator who has the question of a run asked again."""
    said = face.send("POST", f"/v1/runs/{run}/reask/statement", by=OPERATOR, json=draft).json()
    assert said["statement"]["kind"] == "approval.reasked"
    [signing_input] = said["signing_inputs"].values()
    return face.signature(signing_input, OPERATOR)
