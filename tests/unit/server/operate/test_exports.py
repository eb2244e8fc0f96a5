"""An auditor exports runs over HTTP, on record, and others verify and replay them with a key alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from contextos.audit.exported import read_export, replay_export
from contextos.contracts.journal import CONTROL
from contextos.trust.seal import KeyRing
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace


def ended_run(face: HttpFace) -> dict[str, Any]:
    sent: dict[str, Any] = face.send("POST", "/v1/runs", json=face.request()).json()
    assert sent["ended"]
    return sent


def export(face: HttpFace, signed_runs: list[str], **changes: Any) -> httpx.Response:
    said = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": signed_runs})
    assert said.status_code == 200, said.text
    [signing_input] = said.json()["signing_inputs"].values()
    body = {"runs": signed_runs, "token": face.signature(signing_input, OPERATOR), **changes}
    return face.send("POST", "/v1/exports", by=OPERATOR, json=body)


def acts(face: HttpFace) -> int:
    length: int = face.call(face.app.stores.tenant(TENANT).length(CONTROL))
    return length


def test_what_is_exported_verifies_and_replays_with_the_published_key_alone(face: HttpFace) -> None:
    one, two = ended_run(face), ended_run(face)
    before = acts(face)
    answer = export(face, [one["run_id"], two["record"]["inputs_refs"]["request"], one["run_id"]])
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/jsonl"), answer.text
    assert acts(face) == before + 1
    published = face.send("GET", "/v1/exports/keys").json()["keys"]
    ring = KeyRing({}, {purpose: [bytes.fromhex(key) for key in keys] for purpose, keys in published.items()})
    read = read_export(answer.content, ring)
    assert (read.tenant, read.unproved, read.unsigned) == (TENANT, (), ())
    assert set(read.streams) == {one["run_id"], two["run_id"]}
    replayed = asyncio.run(replay_export(read))
    assert {found.record_hash for found in replayed} == {made["record"]["record_hash"] for made in (one, two)}


def test_a_statement_records_no_export(face: HttpFace) -> None:
    run, before = ended_run(face)["run_id"], acts(face)
    said = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": [run]}).json()
    assert said["statement"]["kind"] == "runs.exported"
    assert list(said["statement"]["arguments"]["runs"]) == [run]
    assert acts(face) == before


def test_nothing_but_the_auditors_signature_of_these_runs_exports_them(face: HttpFace) -> None:
    run, another, before = ended_run(face)["run_id"], ended_run(face)["run_id"], acts(face)
    for changes in ({"runs": [another]}, {"runs": [run, another]}, {"token": face.token(OPERATOR)}, {"token": ""}):
        answer = export(face, [run], **changes)
        assert (answer.status_code, answer.json()["code"]) == (403, "assertion_invalid")
    for by in (REQUESTER, LEAD):
        for path, body in (("/v1/exports/statement", {}), ("/v1/exports", {"token": "a.b.c"})):
            answer = face.send("POST", path, by=by, json={"runs": [run], **body})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert acts(face) == before


def test_too_many_runs_and_none_are_refused(face: HttpFace) -> None:
    for runs in ([], ["run_1"] * 101, ["../x"], "run_1"):
        answer = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": runs})
        assert answer.status_code == 422, (runs, answer.text)
