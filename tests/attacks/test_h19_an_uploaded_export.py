"""H19: an export that somebody uploads is data: it stores nothing, says nothing of another tenant, and costs little."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from contextos.audit.export import signed_file
from contextos.server.operate.exports import MAX_UPLOADED_BYTES
from contextos.trust.seal import KeyRing
from tests.http_face import HOST, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.segments import drop_triggers, entries_as_rows
from tests.unit.service.operations.test_audits import ended_run, export

VERIFICATIONS = "/v1/exports/verifications"
JSONL = {"Content-Type": "application/jsonl"}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("uploads")) as made:
        yield made


@pytest.fixture(scope="module")
def raw(face: HttpFace) -> bytes:
    return export(face, [ended_run(face)["run_id"]]).content


def verified(face: HttpFace, raw: bytes) -> dict[str, object]:
    answer = face.send("POST", VERIFICATIONS, by=OPERATOR, content=raw, headers=JSONL)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_a_true_export_verifies_and_every_changed_line_is_the_first_broken_link(face: HttpFace, raw: bytes) -> None:
    found = verified(face, raw)
    assert (found["fault"], found["stream"], found["entry"], found["unsigned"]) == (None, None, None, [])
    lines = raw.splitlines(keepends=True)
    for number in range(1, len(lines)):
        changed = lines[number].replace(b"0", b"1", 1).replace(b"a", b"b", 1)
        found = verified(face, b"".join([*lines[:number], changed, *lines[number + 1 :]]))
        assert (found["stream"], found["entry"], found["runs"]) == ("export", number + 1, [])
    cut = verified(face, b"".join(lines[:-1]))
    assert (cut["stream"], cut["entry"]) == ("export", len(lines))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"nonsense",
        b"{}",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"manifest":' * 10_000,
        b'{"manifest":{"payload":"","payloadType":"x","signatures":[]}}\n',
        b'{"manifest":null}\n' * 10_000,
        b"<script>alert(1)</script>\n",
    ],
    ids=range(10),
)
def test_what_is_not_an_export_is_named_and_nothing_of_it_is_said(face: HttpFace, content: bytes) -> None:
    found = verified(face, content)
    assert (found["stream"], found["entry"], found["runs"], found["signers"]) == ("export", 1, [], [])
    assert "script" not in json.dumps(found)


def test_an_export_of_another_tenant_is_refused_without_its_content(face: HttpFace) -> None:
    found = verified(face, signed_file(OTHER_TENANT, [], face.app.keys))
    assert "another tenant" in str(found["fault"])
    assert OTHER_TENANT not in json.dumps(found)
    assert (found["runs"], found["acts"]) == ([], 0)


def test_an_export_that_another_key_signed_is_refused(face: HttpFace, raw: bytes) -> None:
    found = verified(face, signed_file(TENANT, raw.splitlines()[1:], KeyRing.from_seed(b"x" * 32)))
    assert (found["stream"], found["entry"], found["runs"]) == ("export", 1, [])


def test_an_upload_that_is_too_large_or_of_another_type_is_not_read(face: HttpFace) -> None:
    large = face.send("POST", VERIFICATIONS, by=OPERATOR, content=b"x" * (MAX_UPLOADED_BYTES + 1), headers=JSONL)
    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    for media_type in ("application/json", "text/html", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": media_type}
        assert face.send("POST", VERIFICATIONS, by=OPERATOR, content=b"{}", headers=headers).status_code == 415


def test_only_auditors_and_operators_and_only_from_a_page_of_here(face: HttpFace, raw: bytes) -> None:
    assert face.send("POST", VERIFICATIONS, by=REQUESTER, content=raw, headers=JSONL).status_code == 403
    cookie = {"Host": HOST, "Cookie": face.cookie(OPERATOR), **JSONL, "Origin": f"http://{HOST}"}
    refused = face.anonymous("POST", VERIFICATIONS, headers=cookie, content=raw)
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf_token")
    elsewhere = {**cookie, "Origin": "https://evil.example"}
    assert face.anonymous("POST", VERIFICATIONS, headers=elsewhere, content=raw).status_code == 403


def test_nothing_is_stored_or_recorded(face: HttpFace, raw: bytes) -> None:
    async def lengths() -> list[int]:
        store = face.app.stores.tenant(TENANT)
        return [await store.length(stream) for stream in ("control", "index")]

    before = face.call(lengths())
    verified(face, raw)
    verified(face, raw[:-9])
    assert face.call(lengths()) == before


def test_the_pages_of_audit_show_nothing_of_another_tenant_or_of_runs_of_others(face: HttpFace) -> None:
    run = face.waiting_run()
    for path in (f"/audit/chain?run={run}", "/sections/audit", "/audit/verification"):
        page = face.page(path, OPERATOR, tenant=OTHER_TENANT)
        assert (run in page.text.replace(path, ""), TENANT in page.text) == (False, False), path
    assert face.page(f"/audit/chain?run={run}", "user_finance_lead_77").status_code == 404
    assert face.send("GET", "/v1/acts", by=REQUESTER).status_code == 403
    for hostile in ("<script>", "../..", "run_" + "0" * 200, "\u202e"):
        page = face.page("/audit/chain", OPERATOR, params={"run": hostile})
        assert (page.status_code, hostile in page.text) == (404, False)


def test_the_chain_of_an_altered_run_names_the_first_broken_link(face: HttpFace) -> None:
    run = face.waiting_run()
    with closing(sqlite3.connect(face.path / "contextos.db", timeout=30)) as connection, connection:
        drop_triggers(connection)
        with entries_as_rows(connection):
            connection.execute("UPDATE temp.journal SET by = 'mallory' WHERE run = ? AND seq = 4", (run,))
    text = face.page(f"/audit/chain?run={run}", OPERATOR).text
    assert ("The first broken link:" in text, f"`{run}` entry 4" in text) == (True, True)
    said = face.send("GET", f"/v1/runs/{run}/chain", by=OPERATOR).json()
    assert (said["broken_at"], f"`{run}` entry 4" in said["fault"]) == (4, True)
    assert run in face.page("/inbox", OPERATOR).text, "it is named as one that does not verify"
    assert "does not verify" in face.page("/audit/verification", OPERATOR).text.lower()
