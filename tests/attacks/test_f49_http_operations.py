"""F49: an operator acts over HTTP by a signature for exactly that act, within one tenant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from unittest.mock import patch

import pytest

from contextos.contracts.journal import CONTROL
from contextos.server.callers import authenticated
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace, http_face
from tests.segments import drop_triggers, entries_as_rows
from tests.unit.service.operations.test_packs import signed

ROLES = {
    ("POST", "/v1/verifications"): {},
    ("POST", "/v1/exports/statement"): {"runs": ["run_1"]},
    ("POST", "/v1/exports"): {"runs": ["run_1"], "tokens": ["a.b.c"]},
    ("GET", "/v1/dead-letters"): None,
    ("GET", "/v1/dead-letters/notices"): None,
    ("GET", "/v1/breakers"): None,
    ("GET", "/metrics"): None,
}
"""What a role is needed for, with a valid body."""
DID_NOT = {"happened": False, "evidence_ref": "kg:order:ord_881#snapshot_kg_1"}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path_factory.mktemp("operations")) as made:
        yield made


def lost_run(face: HttpFace) -> str:
    """A run whose refund was paid and whose answer was lost."""
    body = face.request("lost")
    body["input"]["context"]["refund_amount"] = 10 + face._made
    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        sent = face.send("POST", "/v1/runs", json=body).json()
    assert sent["waits_for"] == "settlement", sent
    return str(sent["run_id"])


def lengths(face: HttpFace, run: str) -> tuple[int, int]:
    """How many entries the run and the control stream have."""
    store = face.app.stores.tenant(TENANT)
    return face.call(store.length(run)), face.call(store.length(CONTROL))


def test_a_statement_that_is_read_records_nothing(face: HttpFace) -> None:
    run = lost_run(face)
    before = lengths(face, run)
    for path, body in (("settlement", DID_NOT), ("cancel", {})):
        assert signed(face, f"/v1/runs/{run}/{path}", body)["tokens"]
    assert lengths(face, run) == before


def test_a_signature_for_one_act_does_no_other_and_for_one_run_on_no_other(face: HttpFace) -> None:
    run, another = lost_run(face), lost_run(face)
    cancel = signed(face, f"/v1/runs/{run}/cancel", {})["tokens"]
    elsewhere = signed(face, f"/v1/runs/{another}/settlement", DID_NOT)["tokens"]
    settle = signed(face, f"/v1/runs/{run}/settlement", DID_NOT)["tokens"]
    before = lengths(face, run)
    for path, body in (
        ("settlement", {**DID_NOT, "tokens": cancel}),
        ("settlement", {**DID_NOT, "tokens": elsewhere}),
        ("cancel", {"tokens": settle}),
    ):
        answer = face.send("POST", f"/v1/runs/{run}/{path}", by=OPERATOR, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "assertion_invalid"), (path, answer.text)
    assert lengths(face, run) == before


def test_the_requester_and_a_lead_settle_nothing_with_the_operators_signature(face: HttpFace) -> None:
    run = lost_run(face)
    body = signed(face, f"/v1/runs/{run}/settlement", DID_NOT)
    before = lengths(face, run)
    answers = [face.send("POST", f"/v1/runs/{run}/settlement", by=by, json=body) for by in (REQUESTER, LEAD)]
    assert [one.json()["code"] for one in answers] == ["self_settlement", "not_found"]
    assert lengths(face, run) == before


def test_what_needs_a_role_is_refused_before_anything_is_looked_up(face: HttpFace) -> None:
    for (method, path), body in ROLES.items():
        for by in (REQUESTER, LEAD):
            answer = face.send(method, path, by=by, **({} if body is None else {"json": body}))
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (method, path, by)


def test_a_token_that_a_person_gave_to_an_agent_has_none_of_their_roles(face: HttpFace) -> None:
    operator = face.call(face.api.state.bearer_tokens.caller(face.token(OPERATOR)))
    face.api.dependency_overrides[authenticated] = lambda: replace(operator, agent_ids=("agt_support",))
    try:
        for (method, path), body in ROLES.items():
            answer = face.send(method, path, by=OPERATOR, **({} if body is None else {"json": body}))
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (method, path)
    finally:
        face.api.dependency_overrides.clear()


def test_an_altered_entry_is_found_over_http_and_is_in_the_list_of_all_runs(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    with closing(sqlite3.connect(face.path / "contextos.db", timeout=30)) as connection, connection:
        drop_triggers(connection)
        with entries_as_rows(connection):
            altered = connection.execute(
                "UPDATE journal SET body = CAST(replace(CAST(body AS TEXT), 'DECIDED', 'DEFERRED') AS BLOB)"
                " WHERE run = ? AND kind = 'record.revised'",
                [run],
            )
            assert altered.rowcount
    found = face.send("POST", "/v1/verifications", by=OPERATOR, json={}).json()
    assert run in found["fault"]
    replayed = face.send("POST", f"/v1/runs/{run}/replay", by=OPERATOR)
    assert replayed.status_code == 200, replayed.text
    assert replayed.json()["equal"] is False
    exported = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": [run]})
    assert exported.status_code == 500
    listed = face.send("GET", "/v1/runs", by=OPERATOR).json()["items"]
    assert run in {one["run_id"] for one in listed if one["fault"]}
