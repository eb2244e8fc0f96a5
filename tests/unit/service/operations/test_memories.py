"""Memories over HTTP: a reviewer promotes or rejects by signature what a run proposed, once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace
from tests.unit.service.operations.test_packs import signed


def proposals(face: HttpFace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = face.send("GET", "/v1/memories", by=OPERATOR).json()["items"]
    return found


@pytest.fixture(scope="module")
def waiting(face: HttpFace) -> list[dict[str, Any]]:
    """What a decided run proposes."""
    sent = face.send("POST", "/v1/runs", json=face.request())
    face.ended(sent.json()["run_id"])
    found = proposals(face)
    assert len(found) >= 2
    return found


def verdict(what: str, **changes: Any) -> dict[str, Any]:
    return {"verdict": what, "at_us": time.time_ns() // 1_000, **changes}


def test_a_reviewer_promotes_one_and_rejects_another_once(face: HttpFace, waiting: list[dict[str, Any]]) -> None:
    for one, what in zip(waiting, ("promote", "reject"), strict=False):
        path = f"/v1/memories/{one['proposal_id']}/review"
        body = signed(face, path, verdict(what, reason="looked at it"))
        done = face.send("POST", path, by=OPERATOR, json=body)
        assert done.status_code == 200, done.text
        review = done.json()
        assert (review["verdict"], review["reviewer"], review["at_us"]) == (what, OPERATOR, body["at_us"])
        again = face.send("POST", path, by=OPERATOR, json=body)
        assert (again.status_code, again.json()["code"]) == (409, "already_reviewed")
    left = {one["proposal_id"] for one in proposals(face)}
    assert left.isdisjoint(one["proposal_id"] for one in waiting[:2])


def test_a_review_counts_for_what_was_signed(face: HttpFace) -> None:
    sent = face.send("POST", "/v1/runs", json=face.request("large"))
    if sent.json()["waits_for"] == "approval":
        run = sent.json()["run_id"]
        answer = face.signed_answer(run)
        assert face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=answer).status_code == 200
        face.ended(run)
    one, *_ = proposals(face)
    path = f"/v1/memories/{one['proposal_id']}/review"
    body = signed(face, path, verdict("reject"))
    for by, changed, status in (
        (OPERATOR, {**body, "verdict": "promote", "supersede": True}, 403),
        (OPERATOR, {**body, "at_us": body["at_us"] - 1}, 403),
        (OPERATOR, {**body, "at_us": 0}, 422),
        (OPERATOR, {**body, "at_us": body["at_us"] + 10**12}, 422),
        (OPERATOR, {**body, "reason": "x" * 100_000}, 422),
        (OPERATOR, {**body, "reason": "\u202e"}, 422),
        (OPERATOR, {**body, "tokens": [face.token(OPERATOR)]}, 403),
        (LEAD, body, 403),
        (REQUESTER, body, 403),
    ):
        answer = face.send("POST", path, by=by, json=changed)
        assert answer.status_code == status, (changed, answer.text)
    assert one in proposals(face)


def test_proposals_come_in_pages(face: HttpFace, waiting: list[dict[str, Any]]) -> None:
    whole = proposals(face)
    page = face.send("GET", "/v1/memories", by=OPERATOR, params={"limit": 1}).json()
    assert page["items"] == whole[:1]
    rest = face.send("GET", "/v1/memories", by=OPERATOR, params={"cursor": page["cursor"]}).json()
    assert rest["items"] == whole[1:]
    made_up = face.send("GET", "/v1/memories", by=OPERATOR, params={"cursor": whole[0]["proposal_id"]})
    assert (made_up.status_code, made_up.json()["errors"][0]["code"]) == (422, "unknown_cursor")


@pytest.mark.parametrize("name", ["mwp_nothing", "..", "%2e%2e", "a" * 200, "mwp_%00"])
def test_a_proposal_that_does_not_exist_is_not_found(face: HttpFace, name: str) -> None:
    path = f"/v1/memories/{name}/review/statement"
    assert face.send("POST", path, by=OPERATOR, json=verdict("reject")).status_code == 404


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_reviews_nothing_sees_no_proposal(face: HttpFace, by: str) -> None:
    answer = face.send("GET", "/v1/memories", by=by)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
