"""The audit pages: a verification, the chain of a run, and what people signed. Attacks are in `test_h14…`."""

from __future__ import annotations

import re

from contextos.contracts.journal import CONTROL
from tests.http_face import OPERATOR, REQUESTER, TENANT, HttpFace


def test_the_page_lists_what_people_signed_with_who_when_and_what(face: HttpFace) -> None:
    page = face.page("/sections/audit", OPERATOR)
    assert page.status_code == 200
    for told in ("artifact.published", "packs.pinned", OPERATOR, "<time", "kid_"):
        assert told in page.text, told
    assert "export-file" in page.text


def test_without_the_role_it_says_which_and_offers_only_own_runs(face: HttpFace) -> None:
    page = face.page("/sections/audit", REQUESTER)
    assert (page.status_code, "artifact.published" in page.text, "export-file" in page.text) == (200, False, False)
    assert "you need the role" in page.text
    assert face.page("/audit/verification", REQUESTER).status_code == 403
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    assert face.page(f"/audit/chain?run={run}", REQUESTER).status_code == 200


def test_a_verification_counts_every_stream(face: HttpFace) -> None:
    face.send("POST", "/v1/runs", json=face.request())
    text = face.page("/audit/verification", OPERATOR).text
    said = face.send("POST", "/v1/verifications", by=OPERATOR, json={}).json()
    assert re.findall(r'<dd id="(?:streams|entries)">(\d+)</dd>', text) == [str(said["streams"]), str(said["entries"])]
    assert "verifies</span>" in text
    assert face.page("/audit/verification?first=2&last=1", OPERATOR).status_code == 422
    assert face.page("/audit/verification?first=0", OPERATOR).status_code == 422


def test_the_chain_has_every_entry_once_and_the_hash_that_each_signature_covers(face: HttpFace) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    stored = face.call(face.app.stores.tenant(TENANT).read_run(run))
    text = face.page(f"/audit/chain?run={run}", OPERATOR).text
    kinds = re.findall(r'<span class="kinds">(.*?)</span>\s*<span class="hash">', text, re.DOTALL)
    assert re.findall(r">([a-z_.]+)<", "".join(kinds)) == [entry.kind for entry in stored.entries]
    for seq, _, kid, _ in stored.heads:
        assert stored.entries[seq - 1].hash in text
        assert kid in text
    assert face.page("/audit/chain", OPERATOR).headers["location"] == "/console/sections/audit"
    assert face.page("/audit/chain?run=run_nothing", OPERATOR).status_code == 404


def test_acts_go_on_page_by_page(face: HttpFace) -> None:
    control = face.call(face.app.stores.tenant(TENANT).read(CONTROL))
    signed = [entry.seq for entry in control if entry.kind not in ("person.listed", "directory.used")]
    found, cursor = list[int](), ""
    while cursor is not None:
        query = f"?limit=2&cursor={cursor}" if cursor else "?limit=2"
        page = face.send("GET", f"/v1/acts{query}", by=OPERATOR).json()
        assert len(page["items"]) <= 2
        found += [one["number"] for one in page["items"]]
        cursor = page["cursor"]
    assert set(found) <= set(signed)
    assert found == sorted(found, reverse=True)
    assert {"artifact.published"} <= {entry.kind for entry in control if entry.seq in found}
