"""A run is replayed over HTTP, an altered one is said to differ, and the context of a run is derived again."""

from __future__ import annotations

import pytest

from contextos.cli.demo.workspace import example_operator
from contextos.deployment.operator import erase_entry
from contextos.errors import ReplayMismatch
from tests.http_face import OPERATOR, HttpFace
from tests.world import TENANT


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
    monkeypatch.setattr("contextos.server.operate.replays.replay", differ)
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
