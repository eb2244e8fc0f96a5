"""Policies over HTTP: exactly the list that was signed is in force, on the version that its actor saw."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace
from tests.unit.service.operations.test_packs import signed, version_of

HOUSE = {"level": "tenant", "ref": "POLICY_HOUSE@1.0.0"}


def in_force(face: HttpFace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = face.send("GET", "/v1/policies", by=OPERATOR).json()["items"]
    return found


@pytest.fixture(scope="module")
def house(face: HttpFace) -> str:
    """The house policy of the example, which its author signed, published."""
    envelope = json.loads((face.path / "policies" / "house.json").read_text("utf-8"))
    stated = json.loads(base64.b64decode(envelope["payload"]))
    assert stated["bundle"]["bundle_id"] == "POLICY_HOUSE"
    body = signed(face, "/v1/packs", {"envelope": envelope})
    sent = face.send("POST", "/v1/packs", by=OPERATOR, json=body)
    assert sent.json() == {"ref": HOUSE["ref"]}, sent.text
    return str(sent.json()["ref"])


def test_a_policy_is_put_in_force_and_ended(face: HttpFace, house: str) -> None:
    before = in_force(face)
    wanted = {"policies": [*before, HOUSE], "expected": version_of(face)}
    body = signed(face, "/v1/policies", wanted)
    for by, changed, status in (
        (LEAD, body, 403),
        (OPERATOR, {**body, "policies": [*before, {**HOUSE, "level": "platform"}]}, 422),
        (OPERATOR, {**body, "policies": [*before, {**HOUSE, "ref": "NOTHING@1.0.0"}]}, 404),
        (OPERATOR, {**body, "policies": [HOUSE, HOUSE]}, 422),
        (OPERATOR, {**body, "expected": body["expected"] + 1}, 422),
        (OPERATOR, {**body, "tokens": [face.token(OPERATOR)]}, 403),
    ):
        answer = face.send("POST", "/v1/policies", by=by, json=changed)
        assert answer.status_code == status, (changed, answer.text)
    assert in_force(face) == before
    done = face.send("POST", "/v1/policies", by=OPERATOR, json=body)
    assert (done.status_code, done.json()["version"]) == (200, body["expected"] + 1), done.text
    assert [one["detail"] for one in done.json()["unmatched"] if one["ref"] == HOUSE["ref"]] == [
        "no user of the tenant holds the role `intern`"
    ]
    assert HOUSE in in_force(face)
    active = face.send(
        "POST", f"/v1/packs/{house}/withdraw/statement", by=OPERATOR, json={"expected": version_of(face)}
    )
    assert (active.status_code, active.json()["errors"][0]["code"]) == (422, "still_active")
    ended = signed(face, "/v1/policies", {"policies": before, "expected": version_of(face)})
    assert face.send("POST", "/v1/policies", by=OPERATOR, json=ended).status_code == 200
    assert in_force(face) == before


def test_policies_that_the_settings_name_are_changed_in_the_settings(
    face: HttpFace, house: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start of the service would refuse its store."""
    monkeypatch.setattr(face.app.configuration, "settings", replace(face.app.settings, policies=()))
    wanted = {"policies": [HOUSE], "expected": version_of(face)}
    answer = face.send("POST", "/v1/policies/statement", by=OPERATOR, json=wanted)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "policies_differ")


def test_the_facts_of_rules_come_in_pages(face: HttpFace) -> None:
    found, cursor = [], ""
    while cursor is not None:
        page = face.send("GET", "/v1/policies/facts", by=OPERATOR, params={"limit": 7, "cursor": cursor}).json()
        found += page["items"]
        cursor = page["cursor"]
    assert len({one["path"] for one in found}) == len(found) > 20


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_governs_nothing_reads_no_policy(face: HttpFace, by: str) -> None:
    for path in ("/v1/policies", "/v1/policies/facts"):
        assert face.send("GET", path, by=by).status_code == 403
