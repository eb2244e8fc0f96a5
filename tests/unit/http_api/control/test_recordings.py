"""Packs are judged by, and made from, what sessions recorded: only those that the caller may see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.http_face import HttpFace, begin_deploys, http_face
from tests.unit.http_api.routes.test_sessions import WHERE, answer, asked, call


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
