"""An answer whose run went on since it was read is refused, or judged on what is there, as one that is read only now.
And who may not see a question gets the same refusal whatever its run is like.

The process that takes an answer reads and verifies the run once, and its commit needs the head that it read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.journal import Batch
from contextos.deployment import operator
from contextos.deployment.acts.checks import verified_run
from contextos.errors import ApprovalRefused, Integrity
from contextos.service.approvals import ApprovalQuestions
from contextos.service.reasks import reask_question
from contextos.trust.journal.chain import append
from tests.attacks.attackers import sql_in_file
from tests.e2e.test_approvals import SECOND, SECOND_KEY, in_shop
from tests.e2e.test_settlements import DID_NOT, HAPPENED, jws, uncertain
from tests.http_face import LEAD, OPERATOR, HttpFace, http_face
from tests.world import APPROVER, APPROVER_KEY, OPERATOR_KEY, TENANT, TestWorld, open_world, request, run

Meanwhile = Callable[[TestWorld, str], Awaitable[Any]]


async def denied(world: TestWorld, run_id: str) -> None:
    await world.answer(run_id, "denied", approver=SECOND, seed=SECOND_KEY)


async def paid(world: TestWorld, run_id: str) -> None:
    await world.answer(run_id, approver=SECOND, seed=SECOND_KEY)
    await world.deployment.advance(TENANT, run_id)


async def cancelled(world: TestWorld, run_id: str) -> None:
    await operator.request_cancel(world.deployment, TENANT, run_id, by=world.actor(), reason="a double")


async def asked_again(world: TestWorld, run_id: str) -> None:
    await in_shop("UPDATE orders SET total_inr = total_inr + 1")(world)
    await reask_question(world.deployment, TENANT, run_id, by=world.actor(), reason="another total")
    await world.deployment.advance(TENANT, run_id)


async def too_late(world: TestWorld, run_id: str) -> None:
    world.clock.at_us += 10**12
    await world.deployment.advance(TENANT, run_id)


async def appended(world: TestWorld, run_id: str) -> None:
    """Who can write the store appends an answer to a question that nobody asked."""
    store = world.stores.tenant(TENANT)
    entries = await store.read(run_id)
    at_us, salt = world.clock.now_us(), world.deployment.ports.entropy.take(16)
    bogus = append(entries, "approval.answered", "other", by=APPROVER, answer={}, at_us=at_us, salt=salt)
    await store.commit(Batch(run_id, (bogus,)))


MEANWHILE: dict[str, tuple[Meanwhile, str]] = {
    "denied": (denied, "already_answered"),
    "paid": (paid, "already_answered"),
    "cancelled": (cancelled, "already_answered"),
    "asked_again": (asked_again, "other_binding"),
    "too_late": (too_late, "expired"),
    "appended": (appended, "Integrity"),
}


@pytest.mark.requirement("T-APPROVAL-ONCE")
@pytest.mark.parametrize("answering", [True, False])
@pytest.mark.parametrize("name", MEANWHILE)
def test_an_answer_to_a_question_that_was_read_before_is_judged_as_one_that_is_read_now(
    name: str, answering: bool, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.know(SECOND, SECOND_KEY)
        run_id = (await world.invoke(request(4200, "req_1"))).run_id
        question = await ApprovalQuestions(world.deployment).get(TENANT, run_id, answering=answering)
        token = question.statement(APPROVER, "approved").signed_with(APPROVER_KEY)
        change, reason = MEANWHILE[name]
        await change(world, run_id)
        before = await world.stores.tenant(TENANT).read(run_id)
        with pytest.raises((ApprovalRefused, Integrity)) as refused:
            await question.answer(token)
        assert reason in (getattr(refused.value, "reason", ""), type(refused.value).__name__)
        assert await world.stores.tenant(TENANT).read(run_id) == before
        await world.aclose()

    run(go())


def test_a_settlement_of_a_run_that_was_settled_since_it_was_read_is_refused(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores=stores)
        _, entries = await verified_run(world.deployment, TENANT, run_id)
        await world.settle(run_id, HAPPENED, drive=False)
        before = await world.stores.tenant(TENANT).read(run_id)
        with pytest.raises(ApprovalRefused) as refused:
            await operator.settle_effect(
                world.deployment, TENANT, run_id, DID_NOT, vouch=jws(OPERATOR_KEY), verified=entries
            )
        assert refused.value.reason == "already_answered"
        assert await world.stores.tenant(TENANT).read(run_id) == before
        await world.aclose()

    run(go())


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("strangers")) as made:
        yield made


def test_who_may_not_answer_a_run_learns_nothing_of_it(face: HttpFace) -> None:
    waiting, answered, altered = face.waiting_run(), face.waiting_run(), face.waiting_run()
    never_asked = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    body = face.signed_answer(answered)
    assert face.send("POST", f"/v1/approvals/{answered}/answer", by=LEAD, json=body).status_code == 200
    face.ended(answered)
    sql_in_file(face.path / "contextos.db", (f"DELETE FROM heads WHERE stream = '{altered}'",), owner=True)

    def told(run_id: str, by: str) -> set[tuple[int, str]]:
        sent = [
            face.send("GET", f"/v1/approvals/{run_id}", by=by),
            face.send("POST", f"/v1/approvals/{run_id}/statement", by=by, json={"verdict": "denied"}),
            face.send("POST", f"/v1/approvals/{run_id}/answer", by=by, json={**body, "verdict": "denied"}),
        ]
        return {(one.status_code, one.text) for one in sent}

    [nothing] = told("run_none", OPERATOR)
    assert nothing[0] == 404
    for run_id in (waiting, answered, altered, never_asked):
        assert told(run_id, OPERATOR) == {nothing}, run_id
    assert told(never_asked, LEAD) == {nothing}
    assert {status for status, _ in told(altered, LEAD)} == {500}
    assert all("already_answered" in text for _, text in told(answered, LEAD))
