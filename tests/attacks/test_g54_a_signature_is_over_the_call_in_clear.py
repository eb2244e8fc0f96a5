"""An attacker between an approver and the server alters what the approver is shown or asked to sign.

Whatever they alter, nothing is signed that was not displayed, and nothing is paid on it. The approver's program makes
the statement of the question that it shows, computes every digest of it, and refuses a difference before a key is used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client import connect
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.statements.question_text import signed_text
from contextos.contracts.statements.questions import approval_statement, question_disagreement
from contextos.errors import ApprovalRefused, ContextOSError, UnfitAnswer
from contextos.service.views import QuestionDocument
from tests.altering_proxy import Alteration, alterations, altering
from tests.http_face import LEAD, OPERATOR, TENANT, HttpFace, begin_refunds, http_face, served_url

ANSWER = ("approved", "checked the order")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("http"), begin_refunds) as made:
        yield made


@pytest.fixture(scope="module")
def upstream(face: HttpFace) -> Iterator[str]:
    with served_url(face) as url:
        yield url


class Signer:
    """Keeps what it is asked to sign."""

    def __init__(self, face: HttpFace, person: str = LEAD) -> None:
        self.signed: list[dict[str, Any]] = []
        self._key = Ed25519PrivateKey.from_private_bytes(
            bytes.fromhex((face.path / "keys" / f"{person}.key").read_text("utf-8"))
        )

    def sign(self, signed: bytes) -> bytes:
        payload = signed.split(b".")[1]
        self.signed.append(json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))))
        return self._key.sign(signed)


class Proxy:
    """What is altered now, by the kind of answer."""

    def __init__(self) -> None:
        self.question: Alteration | None = None
        self.statement: Alteration | None = None

    def __call__(self, _method: str, path: str, document: Any) -> Any:
        if path.endswith("/statement"):
            return self.statement.of(document) if self.statement else document
        if path.startswith("/v1/approvals/") and not path.endswith("/answer"):
            return self.question.of(document) if self.question else document
        return document


@contextmanager
def behind_a_proxy(face: HttpFace, upstream: str, **whose: str) -> Iterator[tuple[Proxy, Any]]:
    proxy = Proxy()
    with altering(upstream, proxy) as url, connect(url, face.token(LEAD), patience_s=0, **whose) as client:
        yield proxy, client


def paid(face: HttpFace, run: str) -> list[dict[str, Any]]:
    entries = face.call(face.app.stores.tenant(TENANT).read(run))
    return [
        json.loads(one.body)
        for one in entries
        if one.kind == "tool.dispatching" and b"issue_refund" in (one.body or b"")
    ]


def content_of(question: dict[str, Any]) -> dict[str, Any]:
    return QuestionDocument.model_validate(question).content()


def rehashed(question: dict[str, Any], **args: Any) -> dict[str, Any]:
    """The question with other arguments, and with every digest computed again."""
    content = content_of(question)
    content["args"] |= args
    content["binding"]["args_digest"] = content_address(content["args"])
    content["binding_digest"] = content_address(content["binding"])
    assert question_disagreement(content) is None
    return QuestionDocument.of_content(content).to_json()


def restated(said: dict[str, Any], question: dict[str, Any], approver: str = LEAD) -> dict[str, Any]:
    """What a server would give to sign for another question, in every part."""
    content = content_of(question)
    statement = approval_statement(content, approver, *ANSWER)
    inputs = {}
    for kid, said_input in said["statements"][0]["signing_inputs"].items():
        payload = base64.urlsafe_b64encode(json.dumps(statement, separators=(",", ":"), sort_keys=True).encode())
        inputs[kid] = f"{said_input.split('.')[0]}.{payload.rstrip(b'=').decode()}"
    return {
        "text": signed_text(content, approver, *ANSWER),
        "statements": [{"statement": statement, "signing_inputs": inputs}],
        "nonce": content_address(statement),
        "passkeys": {},
    }


@pytest.mark.slow
def test_each_altered_place_of_a_question_or_statement_is_found_before_a_key_is_used(
    face: HttpFace, upstream: str
) -> None:
    run = face.waiting_run()
    honest = face.send("GET", f"/v1/approvals/{run}", by=LEAD).json()
    drafted = {"verdict": ANSWER[0], "reason": ANSWER[1]}
    said = face.send("POST", f"/v1/approvals/{run}/statement", by=LEAD, json=drafted).json()
    shown = QuestionDocument.model_validate(honest)
    tried = 0
    with behind_a_proxy(face, upstream, tenant=TENANT, person=LEAD) as (proxy, client):
        for kind, document in (("question", honest), ("statement", said)):
            for one in alterations(document):
                setattr(proxy, kind, one)
                signer, displayed = Signer(face), None

                def sign(signed: bytes, signer: Signer = signer) -> bytes:
                    signer.sign(signed)
                    raise InterruptedError("it was signed")

                try:
                    displayed = client.question(run)
                    client.answer(displayed, *ANSWER, sign=sign)
                except InterruptedError:
                    # A member that nobody knows was left out: what is displayed and signed is what was asked.
                    assert displayed == shown, one.name
                    assert signer.signed == [said["statements"][0]["statement"]], one.name
                    assert one.name.startswith("add /") or "/passkeys" in one.name, one.name
                except ContextOSError:
                    assert signer.signed == [], one.name
                tried += 1
            setattr(proxy, kind, None)
        assert tried > 300
        assert paid(face, run) == []
        client.answer(client.question(run), *ANSWER, sign=Signer(face).sign)
    [refund] = (face.ended(run), paid(face, run))[1]
    assert refund["envelope"]["args"] == {one["name"]: one["value"] for one in honest["args"]}


def test_a_call_of_99000_that_is_shown_as_one_of_42_is_not_paid(face: HttpFace, upstream: str) -> None:
    run = face.waiting_run()
    with behind_a_proxy(face, upstream) as (proxy, client):
        smaller = Alteration("shown as 42", lambda found: rehashed(found, amount_inr=42))
        # The question alone: what the server gives to sign is another call.
        proxy.question = smaller
        signer = Signer(face)
        question = client.question(run)
        assert {one.name: one.value for one in question.args}["amount_inr"] == 42
        with pytest.raises(UnfitAnswer, match="nothing was signed"):
            client.answer(question, *ANSWER, sign=signer.sign)
        assert signer.signed == []
        # The statement too, in every part: what is signed is what was displayed, and the server does not take it.
        proxy.statement = Alteration("all of it", lambda found: restated(found, question.to_json()))
        with pytest.raises(ApprovalRefused) as refused:
            client.answer(client.question(run), *ANSWER, sign=signer.sign)
        assert refused.value.reason in ("other_binding", "assertion_invalid")
        assert [one["args"]["amount_inr"] for one in signer.signed] == [42]
    assert paid(face, run) == []
    assert face.send("GET", f"/v1/approvals/{run}", by=LEAD).status_code == 200, "the question is still open"


@pytest.mark.parametrize("told", ["nobody", "another person", "another tenant"])
def test_a_statement_of_another_person_or_tenant_counts_for_nothing(face: HttpFace, upstream: str, told: str) -> None:
    run = face.waiting_run()
    whose = {"nobody": {}, "another person": {"person": OPERATOR}, "another tenant": {"tenant": "tenant_other"}}[told]
    with behind_a_proxy(face, upstream, **whose) as (proxy, client):
        signer, question = Signer(face), client.question(run)
        if told == "nobody":
            proxy.statement = Alteration("of the operator", lambda found: restated(found, question.to_json(), OPERATOR))
            with pytest.raises(ContextOSError):
                client.answer(question, *ANSWER, sign=signer.sign)
            assert [one["approver"] for one in signer.signed] == [OPERATOR]
        else:
            with pytest.raises(UnfitAnswer):
                client.answer(question, *ANSWER, sign=signer.sign)
            assert signer.signed == []
    assert paid(face, run) == []


def test_a_token_counts_only_over_the_whole_call(face: HttpFace) -> None:
    """Who signs by hand, without a client, signs the same: the server takes no other statement."""
    run = face.waiting_run()
    drafted = {"verdict": ANSWER[0], "reason": ANSWER[1]}
    [said] = face.send("POST", f"/v1/approvals/{run}/statement", by=LEAD, json=drafted).json()["statements"]
    digests_alone = {
        name: said["statement"][name] for name in ("approval_id", "approver", "verdict", "reason", "binding_digest")
    }
    [signed] = said["signing_inputs"].values()
    changes = [(one.name, one.of(said["statement"])) for one in alterations(said["statement"])]
    for name, changed in [("digests alone", digests_alone), *changes]:
        payload = base64.urlsafe_b64encode(json.dumps(changed).encode()).rstrip(b"=").decode()
        token = face.signature(f"{signed.split('.')[0]}.{payload}", LEAD)
        answer = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json={**drafted, "tokens": [token]})
        assert answer.status_code >= 400, name
    assert paid(face, run) == []
    token = face.signature(signed, LEAD)
    assert (
        face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json={**drafted, "tokens": [token]}).status_code
        == 200
    )
    # What it pays changes a fact, which would void the question of the next test.
    face.ended(run)


def test_what_is_shown_has_the_source_of_each_fact_and_the_deadline(face: HttpFace) -> None:
    run = face.waiting_run()
    honest = face.send("GET", f"/v1/approvals/{run}", by=LEAD).json()
    text = face.send("POST", f"/v1/approvals/{run}/statement", by=LEAD, json={"verdict": "approved"}).json()["text"]
    for one in honest["evidence"]:
        assert one["ref"] in text
        assert one["subject"] in text
    assert "until" in text


def test_the_helper_alters_what_it_names() -> None:
    document = {"a": [1, {"b": "c"}], "d": True}
    made = [one.of(document) for one in alterations(document)]
    assert all(json.dumps(one) != json.dumps(document) for one in made)
    assert document == {"a": [1, {"b": "c"}], "d": True}
    assert len(made) > 10
