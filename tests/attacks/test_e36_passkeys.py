"""E36: a passkey answers one question of one person, on the page that it was registered for, and is verified again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.export import signed_exports
from contextos.audit.exported import read_export, replay_export
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import Batch
from contextos.contracts.statements.questions import approval_statement
from contextos.errors import ApprovalRefused
from contextos.service.approvals import ApprovalQuestions, ApprovalStatement, Question
from contextos.trust.approvals.passkeys import challenge_of, passkey_assertion
from contextos.trust.journal.chain import append
from tests.passkeys import ORIGIN, PRESENT, VERIFIED, Passkey, base64url
from tests.world import APPROVER, TENANT, TestWorld, open_world, request, run

OTHER = "user_finance_lead_78"


async def with_passkeys(path: Path, *listed: dict[str, Any], stores: str = "memory") -> TestWorld:
    """A world whose directory knows these passkeys of the finance lead."""
    world = await open_world(path, stores=stores)

    def add(tenant: dict[str, Any]) -> None:
        for one in tenant["approvers"]:
            if one["approver_id"] == APPROVER:
                one["passkeys"] = list(listed)

    world.edit_directory(add)
    return world


async def asked(world: TestWorld, request_id: str = "req_1", amount: int = 4200) -> Question:
    await world.invoke(request(amount, request_id))
    return await ApprovalQuestions(world.deployment).get(TENANT, request_id)


def yes(question: Question) -> ApprovalStatement:
    return question.statement(APPROVER, "approved", "yes")


async def options(question: Question, statement: ApprovalStatement) -> dict[str, Any]:
    return dict(await question.passkey_options(statement, origin=ORIGIN))


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_passkey_decides_the_run_and_an_export_proves_it_alone(
    tmp_path: Path, stores: str, algorithm: str, verdict: Any
) -> None:
    async def act() -> None:
        passkey = Passkey(algorithm)
        world = await with_passkeys(tmp_path, passkey.listed(), stores=stores)
        question = await asked(world)
        statement = question.statement(APPROVER, verdict, "looked at it")
        shown = await options(question, statement)
        assert (shown["rpId"], shown["userVerification"]) == ("acme.example", "required")
        assert shown["allowCredentials"] == [{"type": "public-key", "id": base64url(passkey.credential_id)}]
        await question.answer_with_passkey(passkey.get(shown), statement)
        await world.deployment.advance(TENANT, question.run_id)
        decided = await world.runs().get(TENANT, question.run_id)
        assert decided.state == ("completed" if verdict == "approved" else "rejected")
        assert decided.record is not None
        assert [(one.approver, one.assertion, one.verdict) for one in decided.record.approvals] == [
            (APPROVER, "webauthn", verdict)
        ]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        assert (await replay(world.deployment, TENANT, question.run_id)).record_hash == decided.record.record_hash
        (file,) = await signed_exports(world.deployment, TENANT, [question.run_id])
        (again,) = await replay_export(read_export(file.raw, world.keys))
        assert again.record_hash == decided.record.record_hash
        await world.aclose()

    run(act())


Attack = Callable[[Passkey, dict[str, Any]], dict[str, Any]]


def altered(part: str, value: Any = ...) -> Attack:
    def make(passkey: Passkey, shown: dict[str, Any]) -> dict[str, Any]:
        made = passkey.get(shown)
        said = made["response"][part]
        made["response"][part] = (said[:-4] + ("AAAA" if said[-4:] != "AAAA" else "BBBB")) if value is ... else value
        return made

    return make


def of_another_key(passkey: Passkey, shown: dict[str, Any]) -> dict[str, Any]:
    return Passkey(passkey.algorithm, passkey.credential_id).get(shown)


ATTACKS: dict[str, Attack] = {
    "a key of the attacker's own under the same id": of_another_key,
    "a passkey that the directory does not know": lambda _, shown: Passkey(credential_id=b"other").get(shown),
    "another challenge": lambda key, shown: key.get({**shown, "challenge": base64url(b"x" * 32)}),
    "an empty challenge": lambda key, shown: key.get({**shown, "challenge": ""}),
    "the challenge with padding": lambda key, shown: key.get({**shown, "challenge": shown["challenge"] + "A"}),
    "a page of another origin": lambda key, shown: key.get(shown, origin="https://acme.example.evil.example"),
    "a page of another port": lambda key, shown: key.get(shown, origin=f"{ORIGIN}:8443"),
    "a page without TLS": lambda key, shown: key.get(shown, origin=ORIGIN.replace("https", "http")),
    "a page of another subdomain": lambda key, shown: key.get(shown, origin="https://evil.acme.example"),
    "a page within another one": lambda key, shown: key.get(shown, client={"crossOrigin": True}),
    "another relying party": lambda key, shown: key.get(shown, rp_id="evil.example"),
    "a person who was not verified": lambda key, shown: key.get(shown, flags=PRESENT),
    "a person who was not there": lambda key, shown: key.get(shown, flags=VERIFIED),
    "a registration": lambda key, shown: key.get(shown, client={"type": "webauthn.create"}),
    "a payment": lambda key, shown: key.get(shown, client={"type": "payment.get"}),
    "no type": lambda key, shown: key.get(shown, client={"type": None}),
    "client data of a list": lambda key, shown: key.get(shown, client={"challenge": [1]}),
    "the handle of another user": lambda key, shown: key.get(shown, handle=b"somebody"),
    "an altered signature": altered("signature"),
    "an altered count": altered("authenticatorData"),
    "altered client data": altered("clientDataJSON", base64url(b'{"type":"webauthn.get"}')),
    "client data that is no JSON": altered("clientDataJSON", base64url(b"\xff\xfe")),
    "client data of deep lists": altered("clientDataJSON", base64url(b"[" * 3000)),
    "authenticator data that is cut": altered("authenticatorData", base64url(b"x" * 20)),
    "authenticator data with more behind": lambda key, shown: key.get(shown, more=b"x"),
    "extensions that are cut": lambda key, shown: key.get(shown, flags=0x85, more=b"\xa1"),
    "extensions of deep lists": lambda key, shown: key.get(shown, flags=0x85, more=b"\x81" * 2_500),
    "no signature": altered("signature", None),
    "an empty signature": altered("signature", ""),
    "a signature that is too long": altered("signature", "A" * 5_000),
    "a signature in another alphabet": altered("signature", "+/+/"),
    "no answer": lambda _key, _shown: {},
    "a text": lambda _key, _shown: "approved",  # type: ignore[return-value,dict-item]
    "another type of credential": lambda key, shown: {**key.get(shown), "type": "password"},
    "an id that is not a text": lambda key, shown: {**key.get(shown), "id": 7},
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_another_assertion_answers_nothing(tmp_path: Path, attack: Attack) -> None:
    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed())
        question = await asked(world)
        shown = await options(question, yes(question))
        with pytest.raises(ApprovalRefused) as refused:
            await question.answer_with_passkey(attack(passkey, shown), yes(question))
        assert refused.value.reason == "assertion_invalid"
        assert await ApprovalQuestions(world.deployment).get(TENANT, "req_1") == question, "it is still open"
        await question.answer_with_passkey(passkey.get(shown), yes(question))

    run(act())


def test_an_assertion_fits_no_other_verdict_reason_person_or_question(tmp_path: Path) -> None:
    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed())
        question, other = await asked(world), await asked(world, "req_2", 4300)
        given = passkey.get(await options(question, yes(question)))
        for said in (
            question.statement(APPROVER, "denied", "yes"),
            question.statement(APPROVER, "approved", "no"),
            question.statement(OTHER, "approved", "yes"),
        ):
            with pytest.raises(ApprovalRefused):
                await question.answer_with_passkey(given, said)
        with pytest.raises(ApprovalRefused):
            await other.answer_with_passkey(given, yes(other))
        with pytest.raises(ApprovalRefused, match="asks about"):
            await other.answer_with_passkey(given, yes(question))
        await question.answer_with_passkey(given, yes(question))
        with pytest.raises(ApprovalRefused) as again:
            await question.answer_with_passkey(given, yes(question))
        assert again.value.reason == "already_answered"

    run(act())


def test_an_algorithm_that_is_not_listed_counts_for_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        passkey = Passkey("PS256")
        world = await with_passkeys(tmp_path, passkey.listed())
        question = await asked(world)
        shown = await options(question, yes(question))
        with pytest.raises(ApprovalRefused, match="algorithm"):
            await question.answer_with_passkey(passkey.get(shown), yes(question))

    run(act())


@pytest.mark.parametrize("key", [base64url(b"\x80"), base64url(b"\xa0"), base64url(b"\xff"), "AAAA", "A"])
def test_a_registered_key_that_is_none_counts_for_nothing(tmp_path: Path, key: str) -> None:
    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed(public_key=key))
        question = await asked(world)
        shown = await options(question, yes(question))
        with pytest.raises(ApprovalRefused) as refused:
            await question.answer_with_passkey(passkey.get(shown), yes(question))
        assert refused.value.reason == "assertion_invalid"

    run(act())


def test_a_passkey_that_counts_backwards_is_a_copy(tmp_path: Path) -> None:
    async def act() -> None:
        passkey = Passkey(count=5)
        world = await with_passkeys(tmp_path, passkey.listed())
        first, second, third = [await asked(world, f"req_{number}", 4200 + number) for number in range(3)]
        await first.answer_with_passkey(passkey.get(await options(first, yes(first))), yes(first))
        for count in (5, 4, -1):
            passkey.count = count
            with pytest.raises(ApprovalRefused, match="copy"):
                await second.answer_with_passkey(passkey.get(await options(second, yes(second))), yes(second))
        passkey.count = None
        with pytest.raises(ApprovalRefused, match="copy"):
            await second.answer_with_passkey(passkey.get(await options(second, yes(second))), yes(second))
        passkey.count = 9
        await second.answer_with_passkey(passkey.get(await options(second, yes(second))), yes(second))
        await third.answer_with_passkey(passkey.get(await options(third, yes(third))), yes(third))

    run(act())


def test_a_passkey_with_the_id_of_somebody_elses_does_not_count_for_them(tmp_path: Path) -> None:
    async def act() -> None:
        mine, theirs = Passkey(count=5), Passkey(count=1_000_000)
        world = await with_passkeys(tmp_path, mine.listed())

        def add(tenant: dict[str, Any]) -> None:
            for one in tenant["approvers"]:
                if one["approver_id"] == OTHER:
                    one["passkeys"] = [theirs.listed()]

        world.edit_directory(add)
        first, second = [await asked(world, f"req_{number}", 4200 + number) for number in range(2)]
        said = first.statement(OTHER, "approved", "yes")
        await first.answer_with_passkey(theirs.get(await options(first, said)), said)
        await second.answer_with_passkey(mine.get(await options(second, yes(second))), yes(second))

    run(act())


def test_passkeys_that_do_not_count_answer_again_and_again(tmp_path: Path) -> None:
    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed())
        for number in range(2):
            question = await asked(world, f"req_{number}", 4200 + number)
            await question.answer_with_passkey(passkey.get(await options(question, yes(question))), yes(question))

    run(act())


def test_a_passkey_that_is_taken_from_the_directory_redeems_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed())
        question = await asked(world)
        await question.answer_with_passkey(passkey.get(await options(question, yes(question))), yes(question))
        world.edit_directory(lambda tenant: [one.pop("passkeys", None) for one in tenant["approvers"]])
        await world.deployment.advance(TENANT, question.run_id)
        assert (await world.runs().get(TENANT, question.run_id)).state != "completed"
        assert world.refunds() == []
        await replay(world.deployment, TENANT, question.run_id)

    run(act())


@pytest.mark.parametrize("stolen", [False, True], ids=["another passkey", "another answer"])
def test_an_answer_that_is_written_into_the_store_is_verified_again(tmp_path: Path, stolen: bool) -> None:
    """Who can write the database appends an answer, past every check of the operator's commands."""

    async def act() -> None:
        passkey = Passkey()
        world = await with_passkeys(tmp_path, passkey.listed())
        question = await asked(world)
        content = question._content
        said = approval_statement(content, APPROVER, "approved", "no" if stolen else "yes")
        signer = passkey if stolen else Passkey()
        given = signer.get({"challenge": challenge_of(said), "rpId": "acme.example"})
        store = world.stores.tenant(TENANT)
        entries = await store.read(question.run_id)
        answer = {
            "approver": APPROVER,
            "verdict": "approved",
            "reason": "yes",
            "binding_digest": question.binding_digest,
            "assertion": passkey_assertion(given).to_json(),
        }
        key = next(one.key for one in entries if one.kind == "approval.asked")
        entry = append(
            entries, "approval.answered", key, by=APPROVER, answer=answer, at_us=world.clock.now_us(), salt=bytes(16)
        )
        await store.commit(Batch(question.run_id, (entry,), wake_at_us=world.clock.now_us()))
        await world.deployment.advance(TENANT, question.run_id)
        view = await world.deployment.view(TENANT, question.run_id)
        assert view.state != "completed"
        assert world.refunds() == []
        assert json.dumps(view.record).count("does not prove this answer") >= 1

    run(act())


def test_nobody_without_a_passkey_for_this_page_is_asked_for_one(tmp_path: Path) -> None:
    async def act() -> None:
        two = [Passkey().listed(), Passkey(credential_id=b"2").listed(rp_id="console.acme.example")]
        world = await with_passkeys(tmp_path, *two)
        question = await asked(world)
        for origin in ("https://evil.example", "", ORIGIN):
            with pytest.raises(ApprovalRefused, match="no passkeys"):
                await question.passkey_options(yes(question), origin=origin)
        nobody = question.statement("nobody", "approved", "yes")
        with pytest.raises(ApprovalRefused, match="not known"):
            await question.passkey_options(nobody, origin=ORIGIN)

    run(act())
