"""A login answers a question only with a fresh token of the trusted issuer for exactly this answer of this person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.journal import Batch
from contextos.contracts.statements.questions import approval_statement
from contextos.deployment.operator import answer_approval, erase_entry
from contextos.deployment.ports import ApprovalLogins
from contextos.errors import ApprovalRefused, ChainBroken, Unavailable
from contextos.service.approvals import ApprovalQuestions, ApprovalStatement, Question
from contextos.trust.approvals.assertion import approval_fault
from contextos.trust.journal.chain import append
from tests.issuer import ISSUER, TRUSTED, issuer, jwks, token
from tests.world import APPROVER, TENANT, TestWorld, open_world, request, run

SUBJECT = "user_9041"
MAX_AGE_S = 300


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


async def with_logins(path: Path, stores: str = "memory", keys: Any = None) -> TestWorld:
    """A world whose directory knows the login of the finance lead, and nobody else's."""
    world = await open_world(path, stores=stores)

    def add(tenant: dict[str, Any]) -> None:
        for one in tenant["approvers"]:
            if one["approver_id"] == APPROVER:
                one["logins"] = [{"issuer": ISSUER, "subject": SUBJECT}]

    world.edit_directory(add)

    async def known(_kid: str) -> Any:
        return jwks()

    logins = ApprovalLogins(TRUSTED, keys or known, MAX_AGE_S, lambda: False)
    world.deployment.ports = replace(world.deployment.ports, approval_logins=logins)
    return world


async def asked(world: TestWorld, request_id: str = "req_1") -> Question:
    await world.invoke(request(4200, request_id))
    return await ApprovalQuestions(world.deployment).get(TENANT, request_id)


def login(world: TestWorld, statement: ApprovalStatement, **changes: Any) -> str:
    """The token of a login for this statement, a moment ago by the clock of the world."""
    now_s = world.clock.now_us() // 1_000_000
    times = {"iat": now_s - 1, "exp": now_s + 300, "auth_time": now_s - 2}
    return token(**{**times, "sub": SUBJECT, "nonce": statement.nonce, **changes})


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_login_for_the_answer_decides_the_run_and_the_record_says_so(
    tmp_path: Path, stores: str, verdict: Any
) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path, stores)
        question = await asked(world)
        statement = question.statement(APPROVER, verdict, "looked at it")
        await question.answer_with_login(login(world, statement), statement)
        await world.deployment.advance(TENANT, question.run_id)
        decided = await world.runs().get(TENANT, question.run_id)
        assert decided.state == ("completed" if verdict == "approved" else "rejected")
        assert decided.record is not None
        assert [(one.approver, one.assertion, one.verdict) for one in decided.record.approvals] == [
            (APPROVER, "oidc", verdict)
        ]
        assert decided.fault is None
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        assert (await replay(world.deployment, TENANT, question.run_id)).record_hash == decided.record.record_hash
        entries = await world.stores.tenant(TENANT).read(question.run_id)
        assert all(login(world, statement).split(".")[2].encode() not in (one.body or b"") for one in entries)
        await world.aclose()

    run(act())


async def of_another_verdict(world: TestWorld, question: Question) -> str:
    return login(world, question.statement(APPROVER, "denied", "yes"))


async def of_another_reason(world: TestWorld, question: Question) -> str:
    return login(world, question.statement(APPROVER, "approved", "no"))


async def of_another_question(world: TestWorld, _question: Question) -> str:
    return login(world, (await asked(world, "req_2")).statement(APPROVER, "approved", "yes"))


def changed(**changes: Any) -> Callable[[TestWorld, Question], Any]:
    async def make(world: TestWorld, question: Question) -> str:
        now_s = world.clock.now_us() // 1_000_000
        moved = {name: now_s + by if isinstance(by, int) else by for name, by in changes.items()}
        return login(world, question.statement(APPROVER, "approved", "yes"), **moved)

    return make


REFUSED: dict[str, Callable[[TestWorld, Question], Any]] = {
    "another verdict": of_another_verdict,
    "another reason": of_another_reason,
    "another question": of_another_question,
    "the binding alone": lambda world, question: changed(nonce=question.binding_digest)(world, question),
    "no nonce": changed(nonce=None),
    "an old login": changed(auth_time=-MAX_AGE_S - 120),
    "no login time": changed(auth_time=None),
    "an expired token": changed(iat=-900, exp=-600),
    "another audience": changed(aud="elsewhere"),
    "another issuer": changed(iss="https://login.evil.example"),
    "another user": changed(sub="user_1"),
    "no token": lambda _world, _question: changed_to("approved"),
    "unsigned": lambda world, question: unsigned(world, question),
}


async def changed_to(text: str) -> str:
    return text


async def unsigned(world: TestWorld, question: Question) -> str:
    head, body, _ = login(world, question.statement(APPROVER, "approved", "yes")).split(".")
    return f"{head}.{body}.AA"


@pytest.mark.parametrize("how", sorted(REFUSED))
def test_another_login_answers_nothing(tmp_path: Path, how: str) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path)
        question = await asked(world)
        statement = question.statement(APPROVER, "approved", "yes")
        with pytest.raises(ApprovalRefused) as refused:
            await question.answer_with_login(await REFUSED[how](world, question), statement)
        assert refused.value.reason == "assertion_invalid"
        assert await ApprovalQuestions(world.deployment).get(TENANT, "req_1") == question, "it is still open"

    run(act())


def test_a_login_is_used_once_and_not_for_a_question_beside_it(tmp_path: Path) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path)
        first, second = await asked(world), await asked(world, "req_2")
        statement = first.statement(APPROVER, "approved")
        made = login(world, statement)
        with pytest.raises(ApprovalRefused) as refused:
            await second.answer_with_login(made, statement)
        assert refused.value.reason == "other_binding"
        await first.answer_with_login(made, statement)
        with pytest.raises(ApprovalRefused) as refused:
            await first.answer_with_login(made, statement)
        assert refused.value.reason == "already_answered"

    run(act())


def test_a_login_that_is_only_stated_answers_nothing(tmp_path: Path) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path)
        question = await asked(world)

        def stated(_statement: Any) -> dict[str, Any]:
            return {"kind": "oidc", "login": {"issuer": ISSUER, "subject": SUBJECT}}

        with pytest.raises(ApprovalRefused) as refused:
            await answer_approval(
                world.deployment,
                TENANT,
                question.run_id,
                approver_id=APPROVER,
                verdict="approved",
                reason="",
                binding_digest=question.binding_digest,
                vouch=stated,
            )
        assert refused.value.reason == "assertion_invalid"

    run(act())


def test_a_login_that_somebody_wrote_into_the_database_stops_the_run_and_pays_nothing(
    tmp_path: Path, stores: str
) -> None:
    """Also while the run is suspended in the memory of the process that drives it on."""

    async def act() -> None:
        from contextos.contracts.encoding.jcs import content_address

        world = await with_logins(tmp_path, stores)
        question = await asked(world)
        store = world.stores.tenant(TENANT)
        entries = await store.read(question.run_id)
        statement = approval_statement(question._content, APPROVER, "approved", "")
        proof = {
            "issuer": ISSUER,
            "subject": SUBJECT,
            "auth_time_s": world.clock.now_us() // 1_000_000,
            "statement_digest": content_address(statement),
            "token_digest": "sha256:" + "0" * 64,
        }
        answer = {
            "approver": APPROVER,
            "verdict": "approved",
            "reason": "",
            "binding_digest": question.binding_digest,
            "assertion": {"kind": "oidc", "login": proof},
        }
        key = next(one.key for one in reversed(entries) if one.kind == "approval.asked")
        forged = append(
            entries, "approval.answered", key, by=APPROVER, answer=answer, at_us=world.clock.now_us(), salt=bytes(16)
        )
        await store.commit(Batch(question.run_id, (forged,), wake_at_us=world.clock.now_us()))
        with pytest.raises(ChainBroken, match="is covered by no signed head"):
            await world.deployment.advance(TENANT, question.run_id)
        assert world.refunds() == []
        assert (await world.runs().get(TENANT, question.run_id)).fault is not None
        await world.aclose()

    run(act())


def test_a_login_for_another_verdict_is_no_proof_when_the_answer_is_used(tmp_path: Path) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path)
        question = await asked(world)
        approver = await world.deployment.ports.directory.approver(TENANT, APPROVER)
        assert approver is not None
        said = {"approver": APPROVER, "reason": "", "binding_digest": question.binding_digest}
        for verdict, refused in (("approved", True), ("denied", False)):
            statement = question.statement(APPROVER, "denied")
            proof = {
                "issuer": ISSUER,
                "subject": SUBJECT,
                "auth_time_s": 1,
                "statement_digest": statement.nonce,
                "token_digest": "sha256:" + "0" * 64,
            }
            answer = {**said, "verdict": verdict, "assertion": {"kind": "oidc", "login": proof}}
            fault = approval_fault(approver, question._content, answer)
            assert (fault is not None) is refused
        await world.aclose()

    run(act())


def test_a_deployment_that_trusts_no_issuer_takes_no_login(tmp_path: Path) -> None:
    async def act() -> None:
        world = await with_logins(tmp_path)
        world.deployment.ports = replace(world.deployment.ports, approval_logins=None)
        question = await asked(world)
        statement = question.statement(APPROVER, "approved")
        with pytest.raises(ApprovalRefused, match="trusts no issuer"):
            await question.answer_with_login(login(world, statement), statement)

    run(act())


def test_an_issuer_that_does_not_answer_leaves_the_question_open(tmp_path: Path) -> None:
    async def act() -> None:
        from contextos.adapters.jwks import HttpJwks
        from contextos.store.shared.clock import SystemClock

        with issuer() as loopback:
            served = HttpJwks(loopback.url, SystemClock())
            world = await with_logins(tmp_path, keys=served.with_key)
            serving = loopback.answer
            loopback.answer = lambda: (503, b"", {})
            question = await asked(world)
            statement = question.statement(APPROVER, "approved")
            with pytest.raises(Unavailable):
                await question.answer_with_login(login(world, statement), statement)
            loopback.answer = serving
            again = HttpJwks(loopback.url, SystemClock())
            logins = ApprovalLogins(TRUSTED, again.with_key, MAX_AGE_S, lambda: False)
            world.deployment.ports = replace(world.deployment.ports, approval_logins=logins)
            await question.answer_with_login(login(world, statement), statement)

    run(act())


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_a_question_that_is_erased_while_the_issuer_answers_takes_no_answer(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        erased: list[str] = []

        async def slowly(_kid: str) -> Any:
            for entry in await world.stores.tenant(TENANT).read(question.run_id):
                if entry.kind == "approval.asked" and not erased:
                    by = world.actor()
                    await erase_entry(world.deployment, TENANT, question.run_id, entry.seq, by=by, reason="private")
                    erased.append(entry.kind)
            return jwks()

        world = await with_logins(tmp_path, stores, keys=slowly)
        await world.invoke(request(4200, "req_1"))
        question = await ApprovalQuestions(world.deployment).get(TENANT, "req_1", answering=True)
        statement = question.statement(APPROVER, "denied")
        before = await world.stores.tenant(TENANT).length(question.run_id)
        with pytest.raises(ApprovalRefused) as refused:
            await question.answer_with_login(login(world, statement), statement)
        assert (refused.value.reason, erased) == ("not_waiting", ["approval.asked"])
        assert await world.stores.tenant(TENANT).length(question.run_id) == before
        await world.aclose()

    run(act())
