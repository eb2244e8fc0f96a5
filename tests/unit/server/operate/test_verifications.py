"""A tenant is verified over HTTP as by the command, as a whole or a range of its runs at a time."""

from __future__ import annotations

import json

import pytest

from contextos.cli import run_command_line
from contextos.errors import ChainBroken, Integrity
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace


def test_the_whole_tenant_verifies_as_the_command_says(face: HttpFace, capsys: pytest.CaptureFixture[str]) -> None:
    face.send("POST", "/v1/runs", json=face.request())
    answer = face.send("POST", "/v1/verifications", by=OPERATOR, json={})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert (document["first"], document["last"], document["fault"]) == (1, None, None)
    assert document["compared"]["has_witness"] is True
    assert run_command_line(["verify", "--workspace", str(face.path), "--tenant", TENANT, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["streams"], said["entries"]) == (document["streams"], document["entries"])
    assert sorted(one["head"] for one in said["verified"]) == sorted(one["head"] for one in document["verified"])


def test_a_range_with_an_end_is_not_compared_with_the_witness(face: HttpFace) -> None:
    face.send("POST", "/v1/runs", json=face.request())
    document = face.send("POST", "/v1/verifications", by=OPERATOR, json={"first": 1, "last": 1}).json()
    assert (document["streams"], document["compared"], document["fault"]) == (2, None, None)


def test_a_tenant_of_which_nothing_is_stored_has_nothing_wrong(face: HttpFace) -> None:
    document = face.send("POST", "/v1/verifications", by=OPERATOR, tenant=OTHER_TENANT, json={}).json()
    assert (document["entries"], document["fault"], document["compared"]) == (0, None, None)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"first": 0}, "/first"), ({"last": 0}, "/last"), ({"first": 2, "last": 1}, "/last"), ({"to": 1}, "/to")],
)
def test_a_range_that_is_none_is_refused(face: HttpFace, body: dict[str, int], pointer: str) -> None:
    answer = face.send("POST", "/v1/verifications", by=OPERATOR, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_only_an_auditor_or_an_operator_verifies(face: HttpFace, by: str) -> None:
    answer = face.send("POST", "/v1/verifications", by=by, json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_what_does_not_verify_is_named(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_arguments: object, **_options: object) -> None:
        raise ChainBroken("run_1", 3, "was changed")

    monkeypatch.setattr("contextos.server.operate.verifications.verify_stored", broken)
    answer = face.send("POST", "/v1/verifications", by=OPERATOR, json={})
    assert answer.status_code == 200
    assert answer.json()["fault"] == "`run_1` entry 3: was changed"


def test_a_fault_of_the_store_or_the_witness_names_no_file(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def damaged(*_arguments: object, **_options: object) -> None:
        raise Integrity("/srv/contextos.db is damaged")

    monkeypatch.setattr("contextos.server.operate.verifications.verify_stored", damaged)
    answer = face.send("POST", "/v1/verifications", by=OPERATOR, json={})
    assert "the log of the server has the reason" in answer.json()["fault"]
    assert "/srv" not in answer.text


def test_a_verification_that_takes_too_long_is_refused(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    face.send("POST", "/v1/runs", json=face.request())
    monkeypatch.setattr("contextos.server.operate.work.MAX_WORK_S", -1)
    answer = face.send("POST", "/v1/verifications", by=OPERATOR, json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "too_much_work")
