"""An effect of unknown outcome is settled over HTTP by the signature of an operator who is not behind the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace, http_face

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


def signed(face: HttpFace, run: str, draft: dict[str, Any], by: str = OPERATOR) -> dict[str, Any]:
    said = face.send("POST", f"/v1/runs/{run}/settlement/statement", by=by, json=draft)
    assert said.status_code == 200, said.text
    assert said.json()["statement"]["by"] == by
    [signing_input] = said.json()["signing_inputs"].values()
    return {**draft, "token": face.signature(signing_input, by)}


def settle(face: HttpFace, run: str, body: dict[str, Any], by: str = OPERATOR) -> Any:
    return face.send("POST", f"/v1/runs/{run}/settlement", by=by, json=body)


def test_an_operator_settles_what_did_not_happen_once(losing: HttpFace, run: str) -> None:
    body = signed(losing, run, DID_NOT)
    answer = settle(losing, run, body)
    assert answer.status_code == 202, answer.text
    assert losing.ended(run)["ended"] is True
    again = settle(losing, run, body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")


def test_an_operator_settles_what_happened_with_what_the_call_returned(losing: HttpFace, run: str) -> None:
    output = {"transaction_id": "txn_seen", "refund_amount_inr": 10 + losing._made, "currency": "INR"}
    draft = {"happened": True, "evidence_ref": EVIDENCE, "output": output, "mutations": ["refund:txn_seen"]}
    assert settle(losing, run, signed(losing, run, draft)).status_code == 202
    found = losing.ended(run)
    assert (found["state"], found["record"]["effects"][0]["mutations"]) == ("completed", ["refund:txn_seen"])


def test_an_output_that_does_not_fit_is_refused_before_it_is_signed(losing: HttpFace, run: str) -> None:
    draft = {"happened": True, "evidence_ref": EVIDENCE, "output": {"paid": True}}
    answer = losing.send("POST", f"/v1/runs/{run}/settlement/statement", by=OPERATOR, json=draft)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/output")


def test_nothing_but_an_operators_signature_of_this_outcome_settles_it(losing: HttpFace, run: str) -> None:
    said = signed(losing, run, DID_NOT)
    for by, body, status, code in (
        (OPERATOR, {**said, "evidence_ref": "kg:order:ord_882#snapshot_kg_1"}, 403, "assertion_invalid"),
        (OPERATOR, {**said, "token": losing.token(OPERATOR)}, 403, "assertion_invalid"),
        (OPERATOR, {**said, "token": ""}, 403, "assertion_invalid"),
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
