"""Facts over HTTP: a writer signs each statement of an act, and what holds is read in pages and in snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace
from tests.unit.service.operations.test_packs import signed

SUBJECT = "customer:cus_http"
KNOWN = {
    "source": "artifact:crm_1#rev_1",
    "integrity": "trusted",
    "classification": "INTERNAL",
    "observed_at_us": 1_700_000_000_000_000,
}


def fact(predicate: str, value: Any, **changes: Any) -> dict[str, Any]:
    return {"subject": SUBJECT, "predicate": predicate, "value": value, **KNOWN, **changes}


def listed(face: HttpFace, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = face.send(
        "GET", "/v1/facts", by=OPERATOR, params={"subject": SUBJECT, **params}
    ).json()["items"]
    return found


def test_a_fact_is_set_replaced_and_retracted_by_signatures(face: HttpFace) -> None:
    made = face.send("POST", "/v1/facts", by=OPERATOR, json=signed(face, "/v1/facts", fact("tier", "silver")))
    assert (made.status_code, made.json()["value"]) == (201, "silver"), made.text
    assert listed(face, predicate="tier") == [made.json()]
    again = signed(face, "/v1/facts", fact("tier", "silver"))
    assert again["tokens"] == [], "nothing is left to do"
    other = face.send("POST", "/v1/facts/statement", by=OPERATOR, json=fact("tier", "gold"))
    assert (other.status_code, other.json()["errors"][0]["code"]) == (422, "fact_exists")
    body = signed(face, "/v1/facts/replace", fact("tier", {"name": "gold"}))
    assert len(body["tokens"]) == 2, "one fact ends, and another begins"
    replaced = face.send("POST", "/v1/facts/replace", by=OPERATOR, json=body)
    assert (replaced.status_code, replaced.json()["value"]) == (200, {"name": "gold"}), replaced.text
    assert listed(face, predicate="tier", snapshot=made.json()["snapshot"]) == [made.json()]
    gone = {"subject": SUBJECT, "predicate": "tier", "source": "artifact:crm_2#rev_1"}
    ended = face.send("POST", "/v1/facts/retract", by=OPERATOR, json=signed(face, "/v1/facts/retract", gone))
    assert ended.json() == {"subject": SUBJECT, "predicate": "tier"}, ended.text
    assert listed(face, predicate="tier") == []
    assert {str(one["value"]) for one in listed(face, predicate="tier", ended="true")} == {"silver", "{'name': 'gold'}"}
    assert listed(face, predicate="tier", ended="true", snapshot=made.json()["snapshot"]) == []
    nothing = face.send("POST", "/v1/facts/retract/statement", by=OPERATOR, json=gone)
    assert nothing.status_code == 404


def test_a_signature_counts_for_its_fact_on_its_graph(face: HttpFace) -> None:
    body = signed(face, "/v1/facts", fact("level", 1))
    for by, changed, status in (
        (OPERATOR, {**body, "value": 2}, 403),
        (OPERATOR, {**body, "subject": "customer:cus_other"}, 403),
        (OPERATOR, {**body, "integrity": "untrusted"}, 403),
        (OPERATOR, {**body, "observed_at_us": 1}, 403),
        (OPERATOR, {**body, "tokens": [face.token(OPERATOR)]}, 403),
        (OPERATOR, {**body, "tokens": body["tokens"] * 2}, 422),
        (OPERATOR, {**body, "source": "a rumour"}, 422),
        (LEAD, body, 403),
        (REQUESTER, body, 403),
    ):
        answer = face.send("POST", "/v1/facts", by=by, json=changed)
        assert answer.status_code == status, (changed, answer.text)
    assert listed(face, predicate="level") == []
    between = signed(face, "/v1/facts", fact("between", 1))
    assert face.send("POST", "/v1/facts", by=OPERATOR, json=between).status_code == 201
    assert face.send("POST", "/v1/facts", by=OPERATOR, json=body).status_code == 403, "the graph is another one now"


def test_a_graph_is_loaded_in_one_commit(face: HttpFace) -> None:
    edges = [
        {
            "src": SUBJECT,
            "predicate": f"loaded_{number}",
            "dst": SUBJECT,
            "value": number,
            "evidence_ref": "artifact:crm_3#rev_1",
            "observed_at": 1_700_000_000_000_000,
            "integrity": "trusted",
            "classification": "INTERNAL",
        }
        for number in range(3)
    ]
    body = {"nodes": [], "edges": edges}
    done = face.send("POST", "/v1/facts/load", by=OPERATOR, json=signed(face, "/v1/facts/load", body))
    assert done.status_code == 200, done.text
    assert {one["snapshot"] for one in listed(face) if one["predicate"].startswith("loaded_")} == {
        done.json()["snapshot"]
    }
    for observed in ("2026-05-03T09:30:00", "9999-01-01T00:00:00Z"):
        wrong = {"nodes": [], "edges": [{**edges[0], "observed_at": observed}]}
        refused = face.send("POST", "/v1/facts/load/statement", by=OPERATOR, json=wrong)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/edges/0/observed_at")
    for wrong in ({"nodes": [], "edges": [{}]}, {"nodes": [1], "edges": []}, {"nodes": []}, {"edges": [], "nodes": {}}):
        assert face.send("POST", "/v1/facts/load/statement", by=OPERATOR, json=wrong).status_code == 422


def test_facts_come_in_pages_and_a_cursor_is_of_its_own_list(face: HttpFace) -> None:
    for number in range(3):
        body = signed(face, "/v1/facts", fact(f"page_{number}", number))
        assert face.send("POST", "/v1/facts", by=OPERATOR, json=body).status_code == 201
    whole, found, cursor = listed(face), [], ""
    while cursor is not None:
        page = face.send(
            "GET", "/v1/facts", by=OPERATOR, params={"subject": SUBJECT, "limit": 2, "cursor": cursor}
        ).json()
        found += page["items"]
        last, cursor = cursor or page["cursor"], page["cursor"]
    assert found == whole
    foreign = face.send("GET", "/v1/facts", by=OPERATOR, params={"subject": "customer:cus_77", "cursor": last})
    assert (foreign.status_code, foreign.json()["errors"][0]["code"]) == (422, "unknown_cursor")


@pytest.mark.parametrize("subject", ["", "x", "customer:cus_77'--", "a:b:c:d", "*", "customer:" + "a" * 500, "\x00"])
def test_what_names_no_subject_is_refused(face: HttpFace, subject: str) -> None:
    assert face.send("GET", "/v1/facts", by=OPERATOR, params={"subject": subject}).status_code == 422


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_writes_and_audits_nothing_reads_no_fact(face: HttpFace, by: str) -> None:
    for subject in (SUBJECT, "customer:nobody"):
        answer = face.send("GET", "/v1/facts", by=by, params={"subject": subject})
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
