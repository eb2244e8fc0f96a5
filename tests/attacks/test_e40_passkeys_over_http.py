"""E40: over HTTP a passkey answers one question of the person who is logged in, and an export proves it alone. Who is
logged in registers one, and it counts once who keeps the directory signs it.

The authenticator is a program (`tests.passkeys`); what makes an assertion wrong in itself is in `test_e36_passkeys.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fido2 import cbor

from contextos.audit.export import signed_exports
from contextos.audit.exported import read_export, replay_export
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.identities import PASSKEY_REGISTRATIONS, SealedIdentity
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch, Draft, Entry, genesis, link
from contextos.errors import ReplayMismatch
from contextos.server.rates import RequestRates
from contextos.service.passkeys import MAX_REGISTRATIONS
from contextos.trust.journal.chain import verify_chain
from contextos.trust.seal import decode_base64
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.oidc_provider import ORIGIN as HERE
from tests.oidc_provider import Browser, Provider, browser_face
from tests.passkeys import ATTESTED, ORIGIN, PRESENT, VERIFIED, Passkey, base64url
from tests.unit.adapters.test_signed_directory import write

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
    body = {"passkey": given, "verdict": verdict, **more}
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
        face.call(replay_export(replace(export, streams={run: tuple(forged)})))
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
    # What it pays changes a fact, which would void the question of the next test.
    face.ended(run)


def test_one_proof_is_one_proof(face: HttpFace, passkey: Passkey) -> None:
    """Two proofs in one body are refused, also where both are valid: nobody says which one counts."""
    run = face.waiting_run()
    given, signed = passkey.get(statement(face, run)["passkeys"][ORIGIN]), face.signed_answer(run)
    said = {"verdict": "approved"}
    for body in (
        {**signed, "passkey": given},
        {**signed, "login_token": "a.b.c"},
        {**said, "passkey": given, "login_token": "a.b.c"},
        {**said, "tokens": []},
        said,
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


# Registrations.


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpFace, Provider]]:
    """The API with logins of browsers, and their provider."""
    with browser_face(tmp_path_factory.mktemp("console")) as made:
        yield made


def logged_in(console: tuple[HttpFace, Provider], person: str, tenant: str = TENANT) -> Browser:
    browser = Browser(*console)
    browser.provider.tenants = [TENANT, OTHER_TENANT]
    assert browser.log_in(person, tenant=tenant).status_code == 303
    return browser


def begin(browser: Browser) -> dict[str, Any]:
    sent = browser.send("POST", "/v1/passkeys/options", headers=browser.csrf())
    assert sent.status_code == 200, sent.text
    found: dict[str, Any] = sent.json()
    return found


def finish(browser: Browser, credential: Any) -> httpx.Response:
    return browser.send("POST", "/v1/passkeys", headers=browser.csrf(), json={"credential": credential})


def refused(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (403, "assertion_invalid")


def test_a_registered_passkey_counts_once_the_keeper_of_the_directory_signs_it(
    console: tuple[HttpFace, Provider],
) -> None:
    face, lead, key = console[0], logged_in(console, LEAD), Passkey()
    options = begin(lead)
    assert (options["rp"]["id"], options["attestation"]) == ("contextos.acme.example", "none")
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert LEAD not in options["user"]["id"]
    made = finish(lead, key.create(options, origin=HERE))
    assert made.status_code == 201, made.text
    kept = made.json()
    assert (kept["approver_id"], kept["published"], kept["passkey"]["origin"]) == (LEAD, False, HERE)
    # It is not in the directory, so it answers nothing.
    requester = logged_in(console, REQUESTER)
    body = face.request("next")
    body["user"]["delegation"].pop("token_ref")
    run = requester.send("POST", "/v1/runs", headers=requester.csrf(), json=body).json()["run_id"]
    draft, path = {"verdict": "approved"}, f"/v1/approvals/{run}"
    said = lead.send("POST", f"{path}/statement", headers=lead.csrf(), json=draft).json()
    assert said["passkeys"] == {}
    asked = {
        "challenge": base64url(bytes.fromhex(said["nonce"].removeprefix("sha256:"))),
        "rpId": kept["passkey"]["rp_id"],
    }
    early = {"passkey": key.get(asked, origin=HERE), **draft}
    assert refused(lead.send("POST", f"{path}/answer", headers=lead.csrf(), json=early))
    # Who keeps the directory reads the entry, and signs it.
    [listed] = logged_in(console, OPERATOR).send("GET", "/v1/passkeys").json()["items"]
    assert listed == kept
    sign(face, listed)
    assert lead.send("GET", "/v1/passkeys").json()["items"] == [{**kept, "published": True}]
    said = lead.send("POST", f"{path}/statement", headers=lead.csrf(), json=draft).json()
    answer = {"passkey": key.get(said["passkeys"][HERE], origin=HERE), **draft}
    assert lead.send("POST", f"{path}/answer", headers=lead.csrf(), json=answer).status_code == 200
    record = face.call(ended(face, run))
    assert [(one.approver, one.assertion) for one in record.approvals] == [(LEAD, "webauthn")]
    [file] = face.call(signed_exports(face.app.deployment, TENANT, [run]))
    [again] = face.call(replay_export(read_export(file.raw, face.app.keys)))
    assert again.record_hash == record.record_hash
    # The same passkey is not registered twice.
    assert begin(lead)["excludeCredentials"] == [{"type": "public-key", "id": kept["passkey"]["credential_id"]}]
    assert refused(finish(lead, key.create(begin(lead), origin=HERE)))


async def ended(face: HttpFace, run: str) -> Any:
    """The record of a run once it has ended; an engine drives it."""
    async for _ in face.app.runs.stream(TENANT, run, wait=True):
        pass
    return (await face.app.runs.get(TENANT, run)).record


def sign(face: HttpFace, registration: dict[str, Any]) -> None:
    """Publish a version of the directory with the passkey, signed with the key of who keeps it."""
    listed = json.loads((face.path / "directory.json").read_text("utf-8"))
    for one in listed[TENANT]["approvers"]:
        if one["approver_id"] == registration["approver_id"]:
            one["passkeys"] = [registration["passkey"]]
    write(face.path / "directory.dsse.json", 2, {**listed, OTHER_TENANT: listed[TENANT]})


Made = Callable[[Passkey, dict[str, Any]], Any]


def with_key(**members: Any) -> Made:
    """A registration whose public key has other members (COSE)."""

    def make(key: Passkey, options: dict[str, Any]) -> Any:
        listed = {
            **cbor.decode(decode_base64(key.listed()["public_key"])),
            **{int(one): members[one] for one in members},
        }
        made = key.create(options, origin=HERE)
        place = hashlib.sha256(options["rp"]["id"].encode()).digest()
        named = len(key.credential_id).to_bytes(2) + key.credential_id
        data = place + bytes([PRESENT | VERIFIED | ATTESTED]) + bytes(4 + 16) + named + cbor.encode(listed)
        made["response"]["attestationObject"] = base64url(cbor.encode({"fmt": "none", "attStmt": {}, "authData": data}))
        return made

    return make


def without(part: str) -> Made:
    def make(key: Passkey, options: dict[str, Any]) -> Any:
        made = key.create(options, origin=HERE)
        made["response"][part] = base64url(b"\xff" * 40)
        return made

    return make


REGISTRATIONS: dict[str, Made] = {
    "another challenge": lambda key, said: key.create({**said, "challenge": base64url(b"x" * 32)}, origin=HERE),
    "an empty challenge": lambda key, said: key.create({**said, "challenge": ""}, origin=HERE),
    "a page of another origin": lambda key, said: key.create(said, origin="https://evil.example"),
    "a page of another port": lambda key, said: key.create(said, origin=f"{HERE}:8443"),
    "a page without TLS": lambda key, said: key.create(said, origin=HERE.replace("https", "http")),
    "a page within another one": lambda key, said: key.create(said, origin=HERE, client={"crossOrigin": True}),
    "another relying party": lambda key, said: key.create(said, origin=HERE, rp_id="acme.example"),
    "an assertion": lambda key, said: key.create(said, origin=HERE, client={"type": "webauthn.get"}),
    "a person who was not verified": lambda key, said: key.create(said, origin=HERE, flags=PRESENT | ATTESTED),
    "a person who was not there": lambda key, said: key.create(said, origin=HERE, flags=VERIFIED | ATTESTED),
    "no credential": lambda key, said: key.create(said, origin=HERE, flags=PRESENT | VERIFIED),
    "another id within": lambda key, said: key.create(said, origin=HERE, credential_id=b"other"),
    "an algorithm that does not count": lambda _, said: Passkey("PS256", b"new").create(said, origin=HERE),
    "an attestation object that is none": lambda key, said: key.create(said, origin=HERE, attested={"authData": b""}),
    "client data that is no JSON": without("clientDataJSON"),
    "an attestation object that is no CBOR": without("attestationObject"),
    "an answer to another call": lambda key, said: key.get({**said, "rpId": said["rp"]["id"]}, origin=HERE),
    "a point that is not on the curve": with_key(**{"-2": b"\1" * 32, "-3": b"\1" * 32}),
    "another curve": with_key(**{"-1": 2}),
    "half a key": with_key(**{"-3": b""}),
    "an RSA key of 512 bits": with_key(**{"1": 3, "3": -257, "-1": b"\xff" * 64, "-2": b"\x03", "-3": b""}),
    "another type of credential": lambda key, said: {**key.create(said, origin=HERE), "type": "password"},
    "nothing": lambda _key, _said: {},
    "lists": lambda _key, _said: {"type": "public-key", "id": [], "rawId": [], "response": {"clientDataJSON": []}},
}


@pytest.mark.parametrize("make", REGISTRATIONS.values(), ids=REGISTRATIONS)
def test_another_registration_is_refused_and_spends_the_challenge(
    console: tuple[HttpFace, Provider], make: Made
) -> None:
    lead, key = logged_in(console, LEAD), Passkey(credential_id=b"new")
    options = begin(lead)
    before = lead.send("GET", "/v1/passkeys").json()
    assert refused(finish(lead, make(key, options)))
    assert refused(finish(lead, key.create(options, origin=HERE))), "the challenge is spent"
    assert lead.send("GET", "/v1/passkeys").json() == before


def test_a_challenge_counts_once_for_one_person_and_not_for_long(
    console: tuple[HttpFace, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    face, lead, operator = console[0], logged_in(console, LEAD), logged_in(console, OPERATOR)
    key = Passkey(credential_id=b"once")
    options = begin(lead)
    assert refused(finish(operator, key.create(options, origin=HERE))), "of another person, who began none"
    begin(operator)
    assert refused(finish(operator, key.create(options, origin=HERE))), "who began another"
    there = logged_in(console, LEAD, OTHER_TENANT)
    assert refused(finish(there, key.create(options, origin=HERE))), "of the same person in another tenant"
    newer = begin(lead)
    assert newer["challenge"] != options["challenge"]
    assert refused(finish(lead, key.create(options, origin=HERE))), "of the one before"
    newer = begin(lead)
    given = key.create(newer, origin=HERE)
    assert finish(lead, given).status_code == 201
    assert refused(finish(lead, given)), "it was used"
    late = begin(lead)
    clock = face.app.deployment.ports.clock
    with monkeypatch.context() as patched:
        now_us = clock.now_us
        patched.setattr(type(clock), "now_us", lambda _self: now_us() + 300_000_001)
        assert refused(finish(lead, key.create(late, origin=HERE))), "it is too old"
    # After a clock went back, everybody who sent a request before has used up their minute.
    face.api.state.rates = RequestRates(face.app.settings.pressure, clock)


def test_only_an_approver_who_logged_in_with_a_browser_registers(console: tuple[HttpFace, Provider]) -> None:
    face, provider = console
    requester = logged_in(console, REQUESTER)
    answer = requester.send("POST", "/v1/passkeys/options", headers=requester.csrf())
    assert (answer.status_code, answer.json()["code"]) == (403, "not_approver")
    assert finish(requester, {}).json()["code"] == "not_approver"
    provider.tenants = [TENANT]
    logged_in_lead = Browser(face, provider)
    logged_in_lead.log_in(LEAD)
    access = provider.issued[-1]["access_token"]
    for path, body in (("/v1/passkeys/options", {}), ("/v1/passkeys", {"credential": {}})):
        sent = face.send("POST", path, token=access, json=body)
        assert (sent.status_code, sent.json()["code"]) == (403, "no_session")
        assert face.anonymous("POST", path, json=body).status_code == 401


def test_a_person_reads_their_own_registrations_and_a_writer_of_the_database_makes_up_none(
    console: tuple[HttpFace, Provider],
) -> None:
    face, lead = console[0], logged_in(console, LEAD)
    assert finish(lead, Passkey(credential_id=b"own").create(begin(lead), origin=HERE)).status_code == 201
    assert logged_in(console, REQUESTER).send("GET", "/v1/passkeys").json()["items"] == []
    operator = logged_in(console, OPERATOR)
    everybody = operator.send("GET", "/v1/passkeys").json()["items"]
    assert {one["approver_id"] for one in everybody} == {LEAD}
    assert logged_in(console, OPERATOR, OTHER_TENANT).send("GET", "/v1/passkeys").json()["items"] == []
    store, elsewhere = face.app.stores.tenant(TENANT), face.app.stores.tenant(OTHER_TENANT)
    name = hashlib.sha256(LEAD.encode()).hexdigest()
    sealed = face.call(PASSKEY_REGISTRATIONS.one(store, name))
    forged = json.loads(decode_base64(sealed.body.envelope["payload"]))
    forged["registered"][0]["passkey"]["public_key"] = Passkey().listed()["public_key"]
    payload = base64.b64encode(canonical(forged)).decode()

    def put(place: Any, key: str, envelope: dict[str, Any]) -> None:
        before = face.call(PASSKEY_REGISTRATIONS.one(place, key))
        write = PASSKEY_REGISTRATIONS.write(key, before.version if before else 0, SealedIdentity(envelope))
        face.call(place.commit(Batch(run=CONTROL, writes=(write,))))

    put(store, "0" * 64, sealed.body.envelope)
    put(elsewhere, name, sealed.body.envelope)
    assert operator.send("GET", "/v1/passkeys").json()["items"] == everybody, "under another name"
    assert logged_in(console, OPERATOR, OTHER_TENANT).send("GET", "/v1/passkeys").json()["items"] == []
    put(store, name, {**sealed.body.envelope, "payload": payload})
    assert operator.send("GET", "/v1/passkeys").json()["items"] == [], "with another key in it"


def test_a_person_has_a_bounded_number_of_registrations(console: tuple[HttpFace, Provider]) -> None:
    lead = logged_in(console, LEAD)
    for number in range(MAX_REGISTRATIONS + 1):
        made = Passkey("EdDSA", credential_id=b"many-%d" % number).create(begin(lead), origin=HERE)
        assert finish(lead, made).status_code == 201
    items = lead.send("GET", "/v1/passkeys").json()["items"]
    assert len(items) == MAX_REGISTRATIONS
    assert items[-1]["passkey"]["credential_id"] == base64url(b"many-%d" % MAX_REGISTRATIONS)
    page = lead.send("GET", "/v1/passkeys", params={"limit": 3}).json()
    assert page["items"] == items[:3]
    following = {"limit": 1_000, "cursor": page["cursor"]}
    assert lead.send("GET", "/v1/passkeys", params=following).json() == {"items": items[3:], "cursor": None}
    for person, tenant in ((OPERATOR, TENANT), (LEAD, OTHER_TENANT)):
        refused = logged_in(console, person, tenant).send("GET", "/v1/passkeys", params=following)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "unknown_cursor")
