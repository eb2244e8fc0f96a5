"""An auditor exports runs over HTTP, on record, and others verify and replay them with a key alone. A run is replayed
over HTTP, an altered one is said to differ, and the context of a run is derived again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from contextos.audit.exported import read_export, replay_export
from contextos.cli.demo.workspace import example_operator
from contextos.contracts.journal import CONTROL
from contextos.deployment.operator import erase_entry
from contextos.errors import ReplayMismatch
from contextos.trust.seal import KeyRing
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.service.operations.test_packs import signed


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    """An API of its own: nobody reviews what a run proposes whose requester was erased."""
    with http_face(tmp_path_factory.mktemp("audits")) as made:
        yield made


def ended_run(face: HttpFace) -> dict[str, Any]:
    sent: dict[str, Any] = face.send("POST", "/v1/runs", json=face.request()).json()
    assert sent["ended"]
    return sent


def export(face: HttpFace, signed_runs: list[str], **changes: Any) -> httpx.Response:
    body = signed(face, "/v1/exports", {"runs": signed_runs})
    return face.send("POST", "/v1/exports", by=OPERATOR, json={**body, **changes})


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
    [one] = said["statements"]
    assert one["statement"]["kind"] == "runs.exported"
    assert list(one["statement"]["arguments"]["runs"]) == [run]
    assert acts(face) == before


def test_nothing_but_the_auditors_signature_of_these_runs_exports_them(face: HttpFace) -> None:
    run, another, before = ended_run(face)["run_id"], ended_run(face)["run_id"], acts(face)
    for changes in (
        {"runs": [another]},
        {"runs": [run, another]},
        {"tokens": [face.token(OPERATOR)]},
        {"tokens": [""]},
    ):
        answer = export(face, [run], **changes)
        assert (answer.status_code, answer.json()["code"]) == (403, "assertion_invalid")
    for by in (REQUESTER, LEAD):
        for path, body in (("/v1/exports/statement", {}), ("/v1/exports", {"tokens": ["a.b.c"]})):
            answer = face.send("POST", path, by=by, json={"runs": [run], **body})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert acts(face) == before


def test_too_many_runs_and_none_are_refused(face: HttpFace) -> None:
    for runs in ([], ["run_1"] * 101, ["../x"], "run_1"):
        answer = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": runs})
        assert answer.status_code == 422, (runs, answer.text)


def test_a_run_that_ended_is_equal_to_its_record(face: HttpFace) -> None:
    sent = face.send("POST", "/v1/runs", json=face.request()).json()
    answer = face.send("POST", f"/v1/runs/{sent['run_id']}/replay")
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert (document["equal"], document["difference"], document["erased"]) == (True, None, [])
    assert (document["status"], document["record_hash"]) == ("DECIDED", sent["record"]["record_hash"])
    assert document["compared"] > 10


def test_a_run_that_goes_on_is_not_replayed(face: HttpFace) -> None:
    answer = face.send("POST", f"/v1/runs/{face.waiting_run()}/replay", by=OPERATOR)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "not_ended")


def test_what_differs_is_an_answer_and_no_fault_of_the_server(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def differ(*_arguments: object) -> None:
        raise ReplayMismatch(7, "policy.decided", "another rule matched")

    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    monkeypatch.setattr("contextos.service.operations.audits.replay", differ)
    answer = face.send("POST", f"/v1/runs/{run}/replay")
    assert (answer.status_code, answer.json()["equal"]) == (200, False)
    assert answer.json()["difference"] == "entry 7 (`policy.decided`): another rule matched"


def test_the_context_of_a_run_that_waits_is_shown_with_its_text(face: HttpFace) -> None:
    run = face.waiting_run()
    answer = face.send("GET", f"/v1/runs/{run}/context", by=OPERATOR)
    assert answer.status_code == 200, answer.text
    assert "You propose" in answer.json()["compiled_prompt"]["system"]
    ledger = face.send("GET", f"/v1/runs/{run}/ledgers/context", by=OPERATOR).json()["items"]
    (recorded,) = [one["body"] for one in ledger if one["kind"] == "context.compiled"]
    whole, stated = answer.json()["context_ledger"], recorded["context_ledger"]
    digests = stated["stage_digests"]
    assert stated == {name: whole[name] for name in stated} | {"stage_digests": digests}
    assert digests == {name: whole["stage_digests"][name] for name in digests} != {}
    other = face.send("GET", f"/v1/runs/{run}/context?plan=3", by=OPERATOR)
    assert (other.status_code, other.json()["errors"][0]["code"]) == (422, "not_compiled")
    assert face.send("GET", f"/v1/runs/{run}/context", by="usr_772").status_code == 404, "it is not theirs to read"


@pytest.mark.parametrize("kind", ["identity.resolved", "evidence.retrieved", "context.compiled"])
def test_what_was_erased_is_named_where_the_context_cannot_be_derived(face: HttpFace, kind: str) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    entries = face.call(face.app.stores.tenant(TENANT).read(run))
    seq = next(one.seq for one in entries if one.kind == kind)
    face.call(erase_entry(face.app.deployment, TENANT, run, seq, by=example_operator(face.path), reason="asked for"))
    answer = face.send("GET", f"/v1/runs/{run}/context", by=OPERATOR)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "erased")
    assert kind == "context.compiled" or f"entry {seq} (`{kind}`)" in answer.json()["errors"][0]["detail"]
