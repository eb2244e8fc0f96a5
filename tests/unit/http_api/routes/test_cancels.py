"""A run is stopped over HTTP by the signature of a person who may, and by nothing else."""

from __future__ import annotations

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
