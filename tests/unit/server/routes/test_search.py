"""Runs are searched over HTTP by subject, decision, approver, rule, status and time, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, TENANT, HttpFace


def found(face: HttpFace, by: str = OPERATOR, **params: Any) -> list[str]:
    """The ids of all runs that a search finds, read one run a page."""
    ids: list[str] = []
    cursor = ""
    while cursor is not None:
        page = face.send("GET", "/v1/runs", by=by, params={**params, "limit": 1, "cursor": cursor}).json()
        ids += [one["run_id"] for one in page["items"]]
        cursor = page["cursor"]
    return ids


def approved_run(face: HttpFace) -> str:
    run = face.waiting_run()
    body = face.signed_answer(run)
    assert face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body).status_code == 200
    assert face.ended(run)["ended"] is True
    return run


def test_each_criterion_finds_the_runs_that_fit_it(face: HttpFace) -> None:
    small = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    approved, waiting = approved_run(face), face.waiting_run()
    began = face.call(face.app.runs.get(TENANT, approved)).began_at_us
    for params, inside, outside in (
        ({"approver": LEAD}, {approved}, {small, waiting}),
        ({"rule": "R_HIGH_VALUE_REQUIRES_APPROVAL"}, {approved, waiting}, {small}),
        ({"rule": "R_LOW_VALUE_DELEGATED"}, {small}, {approved, waiting}),
        ({"status": "DEFERRED"}, {waiting}, {small, approved}),
        ({"subject": "customer:cus_77"}, {small}, {approved, waiting}),
        ({"decision": "support.refund.execute"}, {small, approved, waiting}, set()),
        ({"began_from": began, "began_before": began + 1}, {approved}, {small, waiting}),
        ({"approver": LEAD, "status": "DEFERRED"}, set(), {small, approved, waiting}),
        ({"state": "completed", "approver": LEAD}, {approved}, {small, waiting}),
    ):
        ids = found(face, **params)
        assert len(ids) == len(set(ids)), params
        assert inside <= set(ids), params
        assert not outside & set(ids), params


def test_a_person_searches_their_own_runs_alone(face: HttpFace) -> None:
    run = face.waiting_run()
    assert run in found(face, by="usr_771", status="DEFERRED")
    assert found(face, by="usr_772", status="DEFERRED") == []


@pytest.mark.parametrize(
    "query", ["status=decided", "began_from=-1", "began_before=x", "approver=", "rule=" + "a" * 600, "subject="]
)
def test_a_criterion_that_is_none_is_named(face: HttpFace, query: str) -> None:
    answer = face.send("GET", f"/v1/runs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/" + query.partition("=")[0]
