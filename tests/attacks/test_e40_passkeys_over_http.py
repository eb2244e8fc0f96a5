"""E40: over HTTP a passkey answers one question of the person who is logged in, and an export proves it alone.

The authenticator is a program (`tests.passkeys`); what makes an assertion wrong in itself is in `test_e36_passkeys.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from contextos.audit.export import Export, read_export, replay_export, signed_exports
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.errors import ReplayMismatch
from contextos.trust.journal.chain import verify_chain
from tests.http_face import LEAD, REQUESTER, TENANT, HttpFace, http_face
from tests.passkeys import ORIGIN, PRESENT, Passkey, base64url

OTHER_LEAD = "user_finance_lead_78"


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("passkeys")) as made:
        yield made


@pytest.fixture(scope="module")
def passkey(face: HttpFace) -> Passkey:
    """The passkey of the lead."""
    made = Passkey()
    list_passkeys(face, **{LEAD: [made.listed()]})
    return made


def list_passkeys(face: HttpFace, **listed: list[dict[str, Any]]) -> None:
    """Have the directory list these passkeys of approvers."""
    path = face.path / "directory.json"
    people = json.loads(path.read_text("utf-8"))
    for one in people[TENANT]["approvers"]:
        one["passkeys"] = listed.get(one["approver_id"], one.get("passkeys", []))
    path.write_text(json.dumps(people), "utf-8")


def statement(face: HttpFace, run: str, verdict: str = "approved", *, by: str = LEAD) -> dict[str, Any]:
    sent = face.send("POST", f"/v1/approvals/{run}/statement", by=by, json={"verdict": verdict})
    assert sent.status_code == 200, sent.text
    found: dict[str, Any] = sent.json()
    return found


def answer(
    face: HttpFace, run: str, given: Any, verdict: str = "approved", *, by: str = LEAD, **more: Any
) -> httpx.Response:
    body = {"passkey": given, "answer": {"verdict": verdict, **more}}
    return face.send("POST", f"/v1/approvals/{run}/answer", by=by, json=body)


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_passkey_decides_the_run_and_an_export_proves_it_without_the_server(
    face: HttpFace, passkey: Passkey, verdict: str
) -> None:
    run = face.waiting_run()
    options = statement(face, run, verdict)["passkeys"][ORIGIN]
    assert options["allowCredentials"] == [{"type": "public-key", "id": base64url(passkey.credential_id)}]
    assert (options["rpId"], options["userVerification"]) == ("acme.example", "required")
    assert answer(face, run, passkey.get(options), verdict).status_code == 200
    record = face.ended(run)["record"]
    assert [(one["approver"], one["assertion"], one["verdict"]) for one in record["approvals"]] == [
        (LEAD, "webauthn", verdict)
    ]
    deployment, keys = face.app.deployment, face.app.keys

    async def check() -> None:
        await verify_tenant(face.app.stores.tenant(TENANT), TENANT, keys)
        [file] = await signed_exports(deployment, TENANT, [run])
        [again] = await replay_export(read_export(file.raw, keys))
        assert again.record_hash == record["record_hash"]

    face.call(check())


def test_an_export_in_which_the_proof_was_replaced_does_not_replay(face: HttpFace, passkey: Passkey) -> None:
    """Who holds the keys of the runtime makes a valid chain with a signature of another passkey in it."""
    run = face.waiting_run()
    options = statement(face, run)["passkeys"][ORIGIN]
    assert answer(face, run, passkey.get(options)).status_code == 200
    face.ended(run)
    [file] = face.call(signed_exports(face.app.deployment, TENANT, [run]))
    export = read_export(file.raw, face.app.keys)
    forged: list[Entry] = []
    for one in export.streams[run]:
        body = json.loads(one.body or b"null")
        if one.kind == "approval.answered":
            proof = body["answer"]["assertion"]["passkey"]
            proof["signature"] = Passkey().get(options)["response"]["signature"]
        made = Draft(one.kind, one.key, one.at_us, one.by, canonical(body), one.salt)
        before = forged[-1].hash if forged else genesis(one.tenant, one.run)
        forged.append(link(one.tenant, one.run, one.seq, before, made))
    assert verify_chain(TENANT, run, forged) != verify_chain(TENANT, run, export.streams[run])
    with pytest.raises(ReplayMismatch):
        face.call(replay_export(Export({run: tuple(forged)}, export.artifacts)))
    assert face.call(replay_export(export))


def test_an_assertion_answers_no_other_question_verdict_reason_or_person(face: HttpFace, passkey: Passkey) -> None:
    run, another = face.waiting_run(), face.waiting_run()
    given = passkey.get(statement(face, run)["passkeys"][ORIGIN])
    list_passkeys(face, **{OTHER_LEAD: [passkey.listed()]})
    refused = [
        answer(face, another, given),
        answer(face, run, given, "denied"),
        answer(face, run, given, reason="another"),
        answer(face, run, given, by=OTHER_LEAD),
        answer(face, run, Passkey().get(statement(face, run)["passkeys"][ORIGIN])),
        answer(face, run, passkey.get(statement(face, run)["passkeys"][ORIGIN], flags=PRESENT)),
        answer(face, run, passkey.get(statement(face, run)["passkeys"][ORIGIN], origin="https://evil.example")),
    ]
    list_passkeys(face, **{OTHER_LEAD: []})
    assert [(one.status_code, one.json()["code"]) for one in refused] == [(403, "assertion_invalid")] * len(refused)
    assert [face.send("GET", f"/v1/runs/{one}").json()["waits_for"] for one in (run, another)] == ["approval"] * 2
    assert answer(face, run, given).status_code == 200
    assert answer(face, run, given).status_code == 409


def test_one_proof_is_one_proof(face: HttpFace, passkey: Passkey) -> None:
    """Two proofs in one body are refused, also where both are valid: nobody says which one counts."""
    run = face.waiting_run()
    given, token = passkey.get(statement(face, run)["passkeys"][ORIGIN]), face.signed_answer(run)
    said = {"verdict": "approved"}
    for body in (
        {"passkey": given},
        {"passkey": given, "token": token},
        {"passkey": given, "token": token, "answer": said},
        {"passkey": given, "login_token": "a.b.c", "answer": said},
        {"token": token, "answer": said},
        {"answer": said},
    ):
        sent = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=body)
        assert (sent.status_code, sent.json()["errors"][0]["code"]) == (422, "no_proof"), body
    assert face.send("GET", f"/v1/runs/{run}").json()["waits_for"] == "approval"


@pytest.mark.parametrize(
    "given", [{}, {"type": "public-key"}, {"type": "public-key", "id": "x", "response": {}}, {"id": ["a"] * 100}]
)
def test_what_is_no_assertion_is_refused(face: HttpFace, passkey: Passkey, given: Any) -> None:
    run = face.waiting_run()
    assert statement(face, run)["passkeys"]
    assert answer(face, run, given).status_code == 403


def test_the_options_name_the_passkeys_of_the_caller_alone(face: HttpFace, passkey: Passkey) -> None:
    run = face.waiting_run()
    assert statement(face, run, by=OTHER_LEAD)["passkeys"] == {}
    assert (
        face.send("POST", f"/v1/approvals/{run}/statement", by=REQUESTER, json={"verdict": "denied"}).status_code == 404
    )
    many = [passkey.listed(), replace(passkey, credential_id=b"2").listed(rp_id="other.example")]
    list_passkeys(face, **{LEAD: [*many, replace(passkey, credential_id=b"3").listed(origin="https://b.example")]})
    try:
        assert list(statement(face, run)["passkeys"]) == ["https://b.example"]
    finally:
        list_passkeys(face, **{LEAD: [passkey.listed()]})
