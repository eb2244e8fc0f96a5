"""An answer by token counts for one question of one tenant, once, and only from the person whom the question is for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.errors import ApprovalRefused, Integrity, InvalidInput, NotFound
from contextos.service.approvals import ApprovalQuestions, Question
from contextos.trust.identity.jws import sign_compact
from contextos.trust.seal import kid_of
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    OPERATOR,
    OPERATOR_KEY,
    TENANT,
    TestWorld,
    open_world,
    public_key,
    request,
    run,
)

OTHER = "tenant_other_prod"
KID = kid_of(public_key(APPROVER_KEY))


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


async def asked(world: TestWorld, request_id: str, tenant_id: str = TENANT) -> Question:
    await world.invoke(request(4200, request_id) | {"tenant_id": tenant_id})
    return await ApprovalQuestions(world.deployment).get(tenant_id, request_id)


def segment(value: object) -> str:
    return base64.urlsafe_b64encode(canonical(value)).rstrip(b"=").decode()


def altered(question: Question, **change: str) -> str:
    """A valid answer whose payload was changed behind the signature."""
    header, _, signature = question.statement(APPROVER, "denied", "no").signed_with(APPROVER_KEY).split(".")
    stated = json.loads(question.statement(APPROVER, "denied", "no").payload)
    return f"{header}.{segment({**stated, **change})}.{signature}"


def unsigned(question: Question) -> str:
    stated = json.loads(question.statement(APPROVER, "approved").payload)
    return f"{segment({'alg': 'none', 'kid': KID, 'typ': 'contextos-approval+jws'})}.{segment(stated)}.AA"


def of_another_kind(question: Question) -> str:
    """The same statement, signed as an operator's act."""
    stated = json.loads(question.statement(APPROVER, "approved").payload)
    return sign_compact(APPROVER_KEY, KID, "contextos-act+jws", stated)


FORGED: dict[str, tuple[Callable[[Question], str], str]] = {
    "verdict": (lambda question: altered(question, verdict="approved"), "assertion_invalid"),
    "reason": (lambda question: altered(question, reason="yes"), "assertion_invalid"),
    "approval": (lambda question: altered(question, approval_id="apr_0000000000000000"), "assertion_invalid"),
    "unsigned": (unsigned, "assertion_invalid"),
    "kind": (of_another_kind, "assertion_invalid"),
    "key": (lambda question: question.statement(APPROVER, "approved").signed_with(OPERATOR_KEY), "assertion_invalid"),
    "publisher": (lambda question: question.statement(OPERATOR, "approved").signed_with(OPERATOR_KEY), "self_approval"),
    "nobody": (lambda question: question.statement("usr_x", "approved").signed_with(OPERATOR_KEY), "not_approver"),
    "text": (lambda _question: "approved", "assertion_invalid"),
    "long": (lambda _question: "a" * 100_000 + ".b.c", "assertion_invalid"),
    "empty": (lambda _question: f"{segment({})}.{segment({})}.AA", "assertion_invalid"),
    "list": (lambda _question: f"{segment({})}.{segment([])}.AA", "assertion_invalid"),
}


@pytest.mark.parametrize("how", sorted(FORGED))
def test_a_token_that_the_asked_person_did_not_sign_so_answers_nothing(tmp_path: Path, how: str) -> None:
    make, reason = FORGED[how]

    async def act() -> None:
        world = await open_world(tmp_path)
        question = await asked(world, "req_1")
        with pytest.raises(ApprovalRefused) as refused:
            await question.answer(make(question))
        assert refused.value.reason == reason
        assert await ApprovalQuestions(world.deployment).get(TENANT, "req_1") == question, "it is still open"

    run(act())


def test_a_token_for_one_question_does_not_answer_another_and_is_used_once(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        first, second = await asked(world, "req_1"), await asked(world, "req_2")
        token = first.statement(APPROVER, "approved").signed_with(APPROVER_KEY)
        with pytest.raises(ApprovalRefused) as refused:
            await second.answer(token)
        assert refused.value.reason == "other_binding"
        await first.answer(token)
        for again in (first, second):
            with pytest.raises(ApprovalRefused) as refused:
                await again.answer(token)
            assert refused.value.reason == ("already_answered" if again is first else "other_binding")
        await world.aclose()

    run(act())


def test_a_token_of_one_tenant_answers_nothing_in_another(tmp_path: Path, stores: str) -> None:
    """The other tenant has the same people with the same keys, and the same request."""

    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        where = tmp_path / "directory.json"
        directory = json.loads(where.read_text("utf-8"))
        where.write_text(json.dumps({**directory, OTHER: directory[TENANT]}), "utf-8")
        ours = await asked(world, "req_1")
        token = ours.statement(APPROVER, "approved").signed_with(APPROVER_KEY)
        theirs = Question(**{name: getattr(ours, name) for name in ours.__slots__} | {"tenant_id": OTHER})
        with pytest.raises(NotFound, match="there is no run"):
            await theirs.answer(token)
        assert (await ApprovalQuestions(world.deployment).waiting(OTHER)).items == ()
        await world.aclose()

    run(act())


def test_a_question_whose_journal_was_altered_is_listed_apart_and_takes_no_answer(tmp_path: Path) -> None:
    async def act() -> None:
        from tests.attacks.attackers import sql_in_file

        world = await open_world(tmp_path, stores="sqlite")
        good, bad = await asked(world, "req_1"), await asked(world, "req_2")
        where = f"tenant = '{TENANT}' AND run = '{bad.run_id}' AND kind = 'approval.asked'"
        sql_in_file(
            tmp_path / "contextos.db",
            (f"UPDATE {{journal}} SET body = CAST(REPLACE(body, '4200', '9200') AS BLOB) WHERE {where}",),
            owner=True,
        )
        page = await ApprovalQuestions(world.deployment).waiting(TENANT)
        assert [one.run_id for one in page.items] == [good.run_id]
        assert [one.run_id for one in page.unverified] == [bad.run_id]

        with pytest.raises(Integrity):
            await bad.answer(bad.statement(APPROVER, "approved").signed_with(APPROVER_KEY))

    run(act())


def test_a_question_whose_run_was_cut_away_hides_no_other(tmp_path: Path) -> None:
    async def act() -> None:
        from tests.attacks.attackers import sql_in_file

        world = await open_world(tmp_path, stores="sqlite")
        good, cut = await asked(world, "req_1"), await asked(world, "req_2")
        where = f"tenant = '{TENANT}' AND run = '{cut.run_id}'"
        sql_in_file(tmp_path / "contextos.db", (f"DELETE FROM {{journal}} WHERE {where}",), owner=True)
        page = await ApprovalQuestions(world.deployment).waiting(TENANT)
        assert [one.run_id for one in page.items] == [good.run_id]
        assert [one.run_id for one in page.unverified] == [cut.run_id]

    run(act())


def test_what_is_no_token_no_verdict_or_no_reason_is_refused_by_name(tmp_path: Path) -> None:
    """As a web page passes it on: a header or a field that is not there."""

    async def act() -> None:
        world = await open_world(tmp_path)
        question = await asked(world, "req_1")
        for token in (None, b"a.b.c", 7, {}, ""):
            with pytest.raises(ApprovalRefused) as refused:
                await question.answer(token)  # type: ignore[arg-type]
            assert refused.value.reason == "assertion_invalid"
        given: tuple[tuple[Any, Any], ...] = ((None, ""), (7, ""), ("approved", None), ("approved", ["a"]))
        for verdict, reason in given:
            with pytest.raises(InvalidInput):
                question.statement(APPROVER, verdict, reason)
        await world.aclose()

    run(act())
