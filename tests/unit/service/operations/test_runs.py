"""A person stops a run, has its question asked again, settles its effect, has it driven again, or erases of it: over
HTTP, by a signature of exactly that.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.service.operations.test_packs import signed
from tests.unit.service.operations.test_stuck import dead_run


def stated(face: HttpFace, run: str, act: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of an act on a run that an operator signed."""
    return signed(face, f"/v1/runs/{run}/{act}", body)


def test_an_operator_stops_a_run_that_waits_and_its_record_says_so(face: HttpFace) -> None:
    run = face.waiting_run()
    body = stated(face, run, "cancel", {"reason": "a double"})
    answer = face.send("POST", f"/v1/runs/{run}/cancel", by=OPERATOR, json=body)
    assert answer.status_code == 202, answer.text
    assert face.ended(run)["state"] == "cancelled"
    again = face.send("POST", f"/v1/runs/{run}/cancel", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_nothing_but_the_signature_for_this_run_and_reason_stops_it(face: HttpFace) -> None:
    run, another = face.waiting_run(), face.waiting_run()
    for by, body, status in (
        (OPERATOR, stated(face, another, "cancel", {}), 403),
        (OPERATOR, {**stated(face, run, "cancel", {"reason": "one"}), "reason": "another"}, 403),
        (OPERATOR, {"tokens": [face.token(OPERATOR)]}, 403),
        (OPERATOR, {"tokens": [""]}, 403),
        (REQUESTER, stated(face, run, "cancel", {}), 403),
        (LEAD, stated(face, run, "cancel", {}), 404),
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
    held = face.send("POST", f"/v1/runs/{run}/reask/statement", by=OPERATOR, json=draft)
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
    body = stated(face, run, "reask", draft)
    assert face.send("POST", f"/v1/runs/{run}/reask", by=LEAD, json=body).status_code == 404
    assert face.send("POST", f"/v1/runs/{run}/reask", by=REQUESTER, json=body).status_code == 403
    assert face.send("POST", f"/v1/runs/{run}/reask", by=OPERATOR, json=body).status_code == 202
    for _ in range(200):
        again = face.send("GET", f"/v1/approvals/{run}", by=LEAD)
        if again.status_code == 200 and not again.json()["void"]:
            break
        time.sleep(0.02)
    assert again.json()["binding_digest"] != question["binding_digest"]
    answer = face.signed_answer(run)
    assert face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=answer).status_code == 200
    assert face.ended(run)["status"] == "DECIDED"


EVIDENCE = "kg:order:ord_881#snapshot_kg_1"
DID_NOT = {"happened": False, "evidence_ref": EVIDENCE}


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    """An API whose payments promise nothing."""
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path_factory.mktemp("settlements")) as made:
        yield made


@pytest.fixture
def run(losing: HttpFace) -> str:
    """A run whose refund was paid and whose answer was lost."""
    body = losing.request("lost")
    # Another amount is another effect.
    body["input"]["context"]["refund_amount"] = 10 + losing._made
    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        sent = losing.send("POST", "/v1/runs", json=body)
    assert sent.json()["waits_for"] == "settlement", sent.text
    return str(sent.json()["run_id"])


def settle(face: HttpFace, run: str, body: dict[str, Any], by: str = OPERATOR) -> Any:
    return face.send("POST", f"/v1/runs/{run}/settlement", by=by, json=body)


def test_an_operator_settles_what_did_not_happen_once(losing: HttpFace, run: str) -> None:
    body = stated(losing, run, "settlement", DID_NOT)
    answer = settle(losing, run, body)
    assert answer.status_code == 202, answer.text
    assert losing.ended(run)["ended"] is True
    again = settle(losing, run, body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_an_operator_settles_what_happened_with_what_the_call_returned(losing: HttpFace, run: str) -> None:
    output = {"transaction_id": "txn_seen", "refund_amount_inr": 10 + losing._made, "currency": "INR"}
    draft = {"happened": True, "evidence_ref": EVIDENCE, "output": output, "mutations": ["refund:txn_seen"]}
    assert settle(losing, run, stated(losing, run, "settlement", draft)).status_code == 202
    found = losing.ended(run)
    assert (found["state"], found["record"]["effects"][0]["mutations"]) == ("completed", ["refund:txn_seen"])


def test_an_output_that_does_not_fit_is_refused_before_it_is_signed(losing: HttpFace, run: str) -> None:
    draft = {"happened": True, "evidence_ref": EVIDENCE, "output": {"paid": True}}
    answer = losing.send("POST", f"/v1/runs/{run}/settlement/statement", by=OPERATOR, json=draft)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/output")


def test_nothing_but_an_operators_signature_of_this_outcome_settles_it(losing: HttpFace, run: str) -> None:
    said = stated(losing, run, "settlement", DID_NOT)
    for by, body, status, code in (
        (OPERATOR, {**said, "evidence_ref": "kg:order:ord_882#snapshot_kg_1"}, 403, "assertion_invalid"),
        (OPERATOR, {**said, "tokens": [losing.token(OPERATOR)]}, 403, "assertion_invalid"),
        (OPERATOR, {**said, "tokens": [""]}, 403, "assertion_invalid"),
        (REQUESTER, said, 403, "self_settlement"),
        (LEAD, said, 404, "not_found"),
        (OPERATOR, DID_NOT, 422, "invalid_envelope"),
        (OPERATOR, {**said, "unsafe_local": True}, 422, "invalid_envelope"),
    ):
        answer = settle(losing, run, body, by)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (by, body, answer.text)
    assert losing.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["waits_for"] == "settlement"


def test_a_run_that_waits_for_no_settlement_has_nothing_to_sign(losing: HttpFace) -> None:
    answer = losing.send("POST", f"/v1/runs/{losing.waiting_run()}/settlement/statement", by=OPERATOR, json=DID_NOT)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")


def listed(face: HttpFace, run: str) -> bool:
    items = face.send("GET", "/v1/dead-letters", by=OPERATOR, params={"limit": 1000}).json()["items"]
    return run in {one["run_id"] for one in items}


def test_an_operator_takes_a_run_off_the_list_once(face: HttpFace) -> None:
    run = dead_run(face)
    body = stated(face, run, "retry", {})
    assert listed(face, run)
    assert face.send("POST", f"/v1/runs/{run}/retry", by=OPERATOR, json=body).status_code == 202
    assert not listed(face, run)
    again = face.send("POST", f"/v1/runs/{run}/retry", by=OPERATOR, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_nothing_but_the_operators_signature_has_a_run_driven_again(face: HttpFace) -> None:
    run, another = dead_run(face), dead_run(face)
    for by, body, status, code in (
        (OPERATOR, stated(face, another, "retry", {}), 403, "assertion_invalid"),
        (OPERATOR, {"tokens": [face.token(OPERATOR)]}, 403, "assertion_invalid"),
        (REQUESTER, stated(face, run, "retry", {}), 403, "not_allowed"),
        ("usr_772", stated(face, run, "retry", {}), 404, "not_found"),
        (OPERATOR, {}, 422, "invalid_envelope"),
    ):
        answer = face.send("POST", f"/v1/runs/{run}/retry", by=by, json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (by, answer.text)
    assert listed(face, run)
    assert face.call(face.app.runs.get(TENANT, run)).waits_for == "approval"


def test_a_run_that_is_not_on_the_list_has_nothing_to_sign(face: HttpFace) -> None:
    answer = face.send("POST", f"/v1/runs/{face.waiting_run()}/retry/statement", by=OPERATOR, json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")


def test_an_operator_erases_the_content_of_one_entry_by_signature(face: HttpFace) -> None:
    run, another = face.waiting_run(), face.waiting_run()
    body = stated(face, run, "erase", {"seq": 2, "reason": "asked for"})
    for by, changed, target, status, code in (
        (OPERATOR, {**body, "seq": 3}, run, 403, "assertion_invalid"),
        (OPERATOR, body, another, 403, "assertion_invalid"),
        (OPERATOR, {**body, "tokens": []}, run, 422, "invalid_input"),
        (OPERATOR, {**body, "seq": 10_000}, run, 404, "not_found"),
        (REQUESTER, body, run, 403, "not_allowed"),
        (LEAD, body, run, 404, "not_found"),
    ):
        answer = face.send("POST", f"/v1/runs/{target}/erase", by=by, json=changed)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (by, changed, answer.text)
    store = face.app.stores.tenant(TENANT)
    assert all(one.body is not None for one in face.call(store.read(run)))
    done = face.send("POST", f"/v1/runs/{run}/erase", by=OPERATOR, json=body)
    assert (done.status_code, done.json()) == (200, {"run_id": run, "seq": 2})
    assert [one.seq for one in face.call(store.read(run)) if one.body is None] == [2]
    verified = face.send("POST", "/v1/verifications", by=OPERATOR, json={}).json()
    assert verified["fault"] is None
