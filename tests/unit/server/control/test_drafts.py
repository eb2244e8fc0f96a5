"""Draft, expand, lint, test and compile over HTTP say what the command line says, and change nothing."""

from __future__ import annotations

import json

import pytest

from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace
from tests.unit.service.operations.test_packs import SHORT


def test_a_draft_expands_and_lint_finds_nothing(face: HttpFace) -> None:
    body = {"name": "ctxpack.drafted", "who": ["support_agent"], "approver": "finance_lead"}
    drafted = face.send("POST", "/v1/packs/draft", by=OPERATOR, json=body)
    assert drafted.status_code == 200, drafted.text
    text = drafted.json()["declaration"]
    assert f"tenant: {TENANT}" in text
    expanded = face.send("POST", "/v1/packs/expand", by=OPERATOR, json={"declaration": text})
    assert expanded.status_code == 200, expanded.text
    assert expanded.json()["origins"]
    for document in (text, json.dumps(expanded.json()["pack"])):
        report = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": document})
        assert report.json() == {"problems": [], "more": 0}


def test_what_is_wrong_with_a_text_is_named_at_its_place(face: HttpFace) -> None:
    for text, code in (
        (SHORT.replace("lookup", "nothing"), "unknown_tool"),
        (SHORT.replace(TENANT, "tenant_other"), "other_tenant"),
        ("name: [", "syntax"),
        ("a: &x 1\nb: *x\n", "alias"),
        ("{}", "missing"),
    ):
        linted = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": text})
        assert (linted.status_code, linted.json()["problems"][0]["code"]) == (200, code), linted.text
    refused = face.send("POST", "/v1/packs/expand", by=OPERATOR, json={"declaration": "name: ["})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "syntax")
    foreign = SHORT.replace(TENANT, "tenant_other")
    refused = face.send("POST", "/v1/packs/expand", by=OPERATOR, json={"declaration": foreign})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "other_tenant")


def test_lint_knows_the_roles_of_this_deployment(face: HttpFace) -> None:
    text = SHORT.replace("approver: finance_lead", "approver: nobody_has_this_role").replace(
        "lookup]", "lookup, adp_payments.issue_refund]"
    )
    here = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": text}).json()
    alone = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": text, "here": False}).json()
    assert {one["code"] for one in here["problems"]} > {one["code"] for one in alone["problems"]}


def test_a_request_is_compiled_as_its_run_would_be_and_no_run_is_made(face: HttpFace) -> None:
    before = face.call(face.app.runs.position(TENANT))
    seen = face.send("POST", "/v1/packs/compile", json=face.request())
    assert seen.status_code == 200, seen.text
    assert seen.json()["failures"] == []
    assert seen.json()["compiled"]["compiled_prompt"]
    untraced = {name: one for name, one in face.request().items() if name != "trace"}
    assert face.send("POST", "/v1/packs/compile", json=untraced).json()["failures"] == []
    assert face.call(face.app.runs.position(TENANT)) == before
    unpinned = face.request()
    unpinned["input"]["intent"] = "support.nothing"
    refused = face.send("POST", "/v1/packs/compile", json=unpinned).json()
    assert refused["compiled"] is None
    assert refused["failures"]
    other = face.send("POST", "/v1/packs/compile", json=face.request(tenant_id="tenant_other"))
    assert other.status_code == 403


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
@pytest.mark.parametrize("path", ["draft", "expand", "lint", "test", "mine"])
def test_who_governs_nothing_authors_nothing(face: HttpFace, by: str, path: str) -> None:
    bodies = {
        "draft": {"name": "a", "who": ["b"]},
        "expand": {"declaration": SHORT},
        "lint": {"document": SHORT},
        "test": {"document": SHORT},
        "mine": {"name": "a.b"},
    }
    answer = face.send("POST", f"/v1/packs/{path}", by=by, json=bodies[path])
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
