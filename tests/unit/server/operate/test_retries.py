"""A run that failed for good is driven again by an operator's signature."""

from __future__ import annotations

from tests.http_face import OPERATOR, REQUESTER, TENANT, HttpFace
from tests.unit.server.operate.test_stuck import dead_run


def listed(face: HttpFace, run: str) -> bool:
    items = face.send("GET", "/v1/dead-letters", by=OPERATOR, params={"limit": 1000}).json()["items"]
    return run in {one["run_id"] for one in items}


def signed(face: HttpFace, run: str) -> dict[str, str]:
    said = face.send("POST", f"/v1/runs/{run}/retry/statement", by=OPERATOR)
    assert said.status_code == 200, said.text
    assert said.json()["statement"]["kind"] == "run.retried"
    [signing_input] = said.json()["signing_inputs"].values()
    return {"token": face.signature(signing_input, OPERATOR)}


def test_an_operator_takes_a_run_off_the_list_once(face: HttpFace) -> None:
    run = dead_run(face)
    body = signed(face, run)
    assert listed(face, run)
    assert face.send("POST", f"/v1/runs/{run}/retry", by=OPERATOR, json=body).status_code == 202
    assert not listed(face, run)
    again = face.send("POST", f"/v1/runs/{run}/retry", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_nothing_but_the_operators_signature_for_this_run_does_it(face: HttpFace) -> None:
    run, another = dead_run(face), dead_run(face)
    for by, body, status, code in (
        (OPERATOR, signed(face, another), 403, "assertion_invalid"),
        (OPERATOR, {"token": face.token(OPERATOR)}, 403, "assertion_invalid"),
        (REQUESTER, signed(face, run), 403, "not_allowed"),
        ("usr_772", signed(face, run), 404, "not_found"),
        (OPERATOR, {}, 422, "invalid_envelope"),
    ):
        answer = face.send("POST", f"/v1/runs/{run}/retry", by=by, json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (by, answer.text)
    assert listed(face, run)
    assert face.call(face.app.runs.get(TENANT, run)).waits_for == "approval"


def test_a_run_that_is_not_on_the_list_has_nothing_to_sign(face: HttpFace) -> None:
    answer = face.send("POST", f"/v1/runs/{face.waiting_run()}/retry/statement", by=OPERATOR)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")
