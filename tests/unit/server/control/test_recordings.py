"""Packs are judged by, and made from, what sessions recorded: only those that the caller may see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.trust.seal import seal
from tests.http_face import OPERATOR, HttpFace, begin_deploys, http_face
from tests.unit.server.routes.test_sessions import WHERE, answer, asked, call
from tests.unit.service.operations.test_packs import signed


@pytest.fixture(scope="module")
def deploys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("deploys"), begin_deploys) as made:
        yield made


def test_a_pack_is_tested_with_the_calls_that_sessions_made(deploys: HttpFace) -> None:
    """Only with those of runs that the caller may see."""
    run = asked(deploys, "tested")
    answer(deploys, run, "approved")
    call(deploys, "tested", "rollback", WHERE, "rollback", headers={"Prefer": "wait=20"})
    [ref] = [
        one["ref"]
        for one in deploys.send("GET", "/v1/packs", by="otto", tenant="acme").json()["items"]
        if one["kind"] == "context_pack"
    ]
    document = json.dumps(deploys.send("GET", f"/v1/packs/{ref}", by="otto", tenant="acme").json()["document"])
    body = {"document": document, "runs": [run]}
    judged = deploys.send("POST", "/v1/packs/test", by="otto", tenant="acme", json=body)
    assert judged.status_code == 200, judged.text
    verdicts = {one["call_id"]: one["verdict"] for one in judged.json()["calls"]}
    assert verdicts == {"ci": "allowed", "impact": "allowed", "rollback": "ask"}
    nowhere = deploys.send(
        "POST", "/v1/packs/test", by="otto", tenant="acme", json={**body, "runs": ["run_0000000000000000"]}
    )
    assert nowhere.status_code == 404
    unseen = deploys.send("POST", "/v1/packs/test", by="otto", tenant="acme", json={**body, "intents": ["nothing"]})
    assert (unseen.status_code, unseen.json()["errors"][0]["code"]) == (422, "unknown_intent")


def test_a_pack_is_mined_from_what_sessions_did(deploys: HttpFace) -> None:
    run = asked(deploys, "mined")
    body = {"name": "acme.mined", "approver": "oncall", "runs": [run]}
    mined = deploys.send("POST", "/v1/packs/mine", by="otto", tenant="acme", json=body)
    assert mined.status_code == 200, mined.text
    assert "name: acme.mined" in mined.json()["declaration"]
    assert "rollback" not in mined.json()["declaration"].partition("tools:")[2].partition("]")[0]
    assert mined.json()["faults"] == {}
    nothing = deploys.send("POST", "/v1/packs/mine", by="otto", tenant="acme", json={**body, "runs": []})
    assert (nothing.status_code, nothing.json()["errors"][0]["code"]) == (422, "nothing_recorded")
    named = deploys.send("POST", "/v1/packs/mine", by="otto", tenant="acme", json={**body, "name": "../x"})
    assert named.status_code == 422


def test_an_observing_pack_is_published_used_and_its_findings_are_counted_and_mined(deploys: HttpFace) -> None:
    who = {"by": "otto", "tenant": "acme"}
    [old] = [one["ref"] for one in deploys.send("GET", "/v1/packs", **who).json()["items"]]
    document = deploys.send("GET", f"/v1/packs/{old}", **who).json()["document"]
    document["pack_meta"] |= {"mode": "observe", "pack_version": "9.0.0"}
    envelope = seal(PACK_TYPE, canonical(document), deploys.app.keys, "pack")
    sent = deploys.send("POST", "/v1/packs", json=signed(deploys, "/v1/packs", {"envelope": envelope}, **who), **who)
    ref = sent.json()["ref"]
    intent = document["decision_layer"]["intents"][0]["intent_id"]
    version = deploys.send("GET", "/v1/pins", **who).json()["version"]
    pin = {"refs": [ref], "intents": [intent], "expected": version}
    assert deploys.send("POST", "/v1/pins", json=signed(deploys, "/v1/pins", pin, **who), **who).status_code == 201
    opening = {"session": "seen", "agent": "agt_deploy", "delegation": "tok_ana", "pack": ref, "intent": intent}
    run = deploys.send("POST", "/v1/sessions", json=opening, by="ana", tenant="acme").json()["run_id"]
    call(deploys, "seen", "ci_status", {"service": "checkout"}, "ci")
    call(deploys, "seen", "impact", WHERE, "impact")
    assert call(deploys, "seen", "rollback", WHERE, "rollback").json()["status"] == "done", "it stops nothing"
    report = deploys.send("POST", "/v1/packs/observations", json={"intents": [intent]}, **who).json()
    assert (report["sessions"], report["calls"], report["faults"]) == (1, 3, {})
    [asked_for] = [one for one in report["rules"] if one["verdict"] == "ask"]
    assert asked_for["examples"] == [{"run_id": run, "call_id": "rollback"}]
    mined = deploys.send("POST", "/v1/packs/mine", json={"name": "acme.seen", "approver": "oncall"}, **who)
    assert "rollback" in mined.json()["declaration"], mined.text
    tried = {"document": mined.json()["declaration"], "runs": [run]}
    calls = deploys.send("POST", "/v1/packs/test", json=tried, **who).json()["calls"]
    assert {one["verdict"] for one in calls} <= {"allowed", "ask"}
    nowhere = deploys.send("POST", "/v1/packs/observations", json={"runs": ["run_x"]}, **who)
    assert nowhere.status_code == 404


def test_a_limit_of_runs_that_are_named_is_refused(face: HttpFace) -> None:
    answer = face.send("POST", "/v1/packs/test", by=OPERATOR, json={"document": "x: 1", "runs": ["run_1"], "limit": 5})
    assert (answer.status_code, "leave one out" in answer.text) == (422, True)
