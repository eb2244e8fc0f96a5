"""G67: what a question is bound to changes while it waits. Lists, the question and its statement say so, a signature is
not taken, and one act has the call judged and asked again under what is in force now, without paying twice.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.artifacts import ToolArtifact
from contextos.contracts.envelopes.tool import ToolError
from contextos.contracts.journal import SEMANTICS
from contextos.contracts.ports.gates import Done, Waiting
from contextos.deployment import operator
from contextos.deployment.ports import Ports
from contextos.errors import ApprovalRefused, ChainBroken, UnknownSemantics
from contextos.service.approvals import ApprovalQuestions
from contextos.service.reasks import reask_question
from contextos.trust.approvals.gate_approvals import VoidQuestion
from tests.attacks.test_a04_swapped_code_moves_nothing import Attacked
from tests.e2e.test_approvals import VOIDS, in_shop
from tests.e2e.version_worker import knowing
from tests.sessions import REFUND, chosen_by_agent, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run

ANOTHER = "sha256:" + "a" * 64
CHANGES = {
    "evidence_withdrawn": "identity_verified was true and is null",
    "evidence_replaced": "identity_verified was true and is false",
    "order_total": "order_lookup.total_inr was 9900 and is 9901",
    "policies_changed": "`active_policies` changed",
    "pack_withdrawn": "`ctxpack.support@5.2.0` changed or was withdrawn",
    "definition_of_the_call": "`adapter:adp_payments` changed",
    "user_gone": "the requester or the agent changed",
    "agent_suspended": "the requester or the agent changed",
}


def questions(world: TestWorld) -> ApprovalQuestions:
    return ApprovalQuestions(world.deployment)


async def listed(world: TestWorld) -> list[str]:
    return [one.void for one in (await questions(world).waiting(TENANT)).items]


class SpoiltRereads:
    """An adapter whose answers have, once it is spoilt, the same output and what a first read is refused for."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.beside = inner, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def call(self, name: str, args: Any, context: Any) -> Any:
        return (await self.inner.call(name, args, context)).model_copy(update=self.beside)


async def refused(awaitable: Any) -> str:
    with pytest.raises(ApprovalRefused) as error:
        await awaitable
    return f"{error.value.reason}: {error.value}"


@pytest.mark.parametrize("answered", ["before", "after"])
@pytest.mark.parametrize(
    "beside",
    [
        {"error": ToolError(code="stale_replica", message="this order is not what it was")},
        {"withheld": ToolError(code="unreadable", message="a part cannot be read")},
        {"artifacts": (ToolArtifact(name="a", media_type="text/plain", content="a"),) * 65},
    ],
    ids=["error", "withheld", "artifacts"],
)
def test_a_repeated_read_keeps_an_approval_only_if_a_first_one_would_count(
    beside: dict[str, Any], answered: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="memory")
        world.adapters["adp_orders"] = orders = SpoiltRereads(world.adapters["adp_orders"])
        waiting = await world.invoke(request(4200, "req_1"))
        if answered == "before":
            await world.answer(waiting.run_id)
        orders.beside = beside
        if answered == "before":
            await world.deployment.advance(TENANT, waiting.run_id)
        else:
            assert (await refused(world.answer(waiting.run_id))).startswith("approval_void: ")
        assert world.refunds() == []
        await world.aclose()

    run(go())


@pytest.mark.parametrize("secret", ["a key of the runtime", "AKIAIOSFODNN7EXAMPLE"])
def test_what_evidence_says_now_is_shown_to_nobody_where_it_is_a_secret(secret: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        waiting = await world.invoke(request(4200, "req_1"))
        own = world.keys._signing["head"][1].private_bytes_raw().hex()
        told = own if secret.startswith("a key") else secret
        await in_shop(f"UPDATE orders SET status = '{told}' WHERE order_id = 'ord_881'")(world)
        [said] = await listed(world)
        assert "order_lookup" in said
        assert told not in said + str(await questions(world).get(TENANT, waiting.run_id))
        await world.aclose()

    run(go())


def test_a_question_about_an_answer_that_was_erased_is_refused_with_that_reason(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        waiting = await world.invoke(request(4200, "req_1"))
        entries = await world.stores.tenant(TENANT).read(waiting.run_id)
        place, by = next(one.seq for one in entries if one.kind == "tool.returned"), world.actor()
        await operator.erase_entry(world.deployment, TENANT, waiting.run_id, place, by=by, reason="the law")
        said = await refused(world.answer(waiting.run_id))
        assert said.startswith("not_waiting: ")
        assert "was erased" in said
        view = await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=by, reason="erased")
        assert view.run_id == waiting.run_id
        await world.aclose()

    run(go())


@pytest.mark.parametrize("name", CHANGES)
def test_a_void_question_says_what_changed_and_takes_no_signature(name: str, tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        assert await listed(world) == [""]
        await VOIDS[name](world)
        before = await world.kinds(waiting.run_id)
        assert [CHANGES[name] in said for said in await listed(world)] == [True]
        question = await questions(world).get(TENANT, waiting.run_id)
        assert CHANGES[name] in question.void
        with pytest.raises(ApprovalRefused, match="void") as error:
            question.statement("user_finance_lead_77", "approved")
        assert error.value.reason == "approval_void"
        said = await refused(world.answer(waiting.run_id))
        assert said.startswith("approval_void: ")
        assert f"contextos approvals reask {waiting.run_id}" in said
        assert await world.kinds(waiting.run_id) == before
        assert (await world.deployment.view(TENANT, waiting.run_id)).waiting == waiting.waiting
        await world.aclose()

    run(go())


@pytest.mark.parametrize("name", [*CHANGES, "nothing"])
def test_a_question_is_judged_by_the_run_that_waits_as_by_its_replay(name: str, tmp_path: Path) -> None:
    """The process in which the run waits does not replay it; that it does makes no difference."""

    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        app = world.deployment
        entries = (await operator.open_question(app, TENANT, waiting.run_id)).entries
        assert app.at_question(TENANT, entries) is not None
        assert app.at_question(TENANT, entries[:-1]) is None
        if name in CHANGES:
            await VOIDS[name](world)
        app = world.deployment
        known = await operator.void_question(app, TENANT, entries)
        app.close()
        assert app.at_question(TENANT, entries) is None
        assert await operator.void_question(app, TENANT, entries) == known
        assert (CHANGES[name] in known.detail) if known else name == "nothing"
        await world.aclose()

    run(go())


def test_a_void_question_can_still_be_denied(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await VOIDS["order_total"](world)
        assert (await world.approve(waiting.run_id, "denied")).state == "rejected"
        world.close()

    run(go())


def test_what_is_put_back_makes_the_question_hold_again(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await VOIDS["order_total"](world)
        await in_shop("UPDATE orders SET total_inr = 9900 WHERE order_id = 'ord_881'")(world)
        assert await listed(world) == [""]
        assert (await world.approve(waiting.run_id)).state == "completed"
        world.close()

    run(go())


def test_a_process_that_does_not_know_the_rules_of_a_run_calls_its_question_void_for_nobody(
    tmp_path: Path, stores: str
) -> None:
    """In a rolling upgrade its own worker judges the answer."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        with knowing(SEMANTICS + 5):
            waiting = await world.invoke(request(4200, "req_1"))
        assert await listed(world) == [""]
        assert (await questions(world).get(TENANT, waiting.run_id)).void == ""
        with pytest.raises(UnknownSemantics):
            await reask_question(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="we upgraded")
        await world.answer(waiting.run_id)
        assert not world.refunds()
        with knowing(SEMANTICS + 5):
            assert (await world.deployment.advance(TENANT, waiting.run_id)).state == "completed"
        await world.aclose()

    run(go())


def test_an_answer_after_another_was_used_is_refused_as_that_whatever_the_call_changed(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        look = operator.void_question

        async def after_another(*given: Any) -> VoidQuestion | None:
            monkeypatch.setattr(operator, "void_question", look)
            assert (await world.approve(waiting.run_id)).state == "completed"
            found = await look(*given)
            assert found is not None, "the payment changed what the question rests on"
            return found

        monkeypatch.setattr(operator, "void_question", after_another)
        assert (await refused(world.answer(waiting.run_id))).startswith("already_answered: ")
        await world.aclose()

    run(go())


def with_code(world: TestWorld, **digests: str) -> None:
    """A process that runs other code: another build of the runtime, or of an adapter."""

    class Other:
        def runtime(self) -> str:
            return digests.get("runtime", ports.code.runtime())

        def adapter(self, adapter: Any) -> str | None:
            return digests.get(adapter.describe().adapter_id, ports.code.adapter(adapter))

        def packages(self, adapter: Any) -> Any:
            return ports.code.packages(adapter)

    ports: Ports = world.deployment.ports
    world.deployment.ports = replace(ports, code=Other())
    world.deployment.close()


def test_what_a_call_does_not_use_voids_none_of_sixteen_questions(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        orders = [f"ord_9{number:02}" for number in range(16)]
        await world.stock(*orders)
        for number, order in enumerate(orders):
            body = request(4200, f"req_{number}")
            body["input"]["context"]["order_id"] = order
            assert (await world.invoke(body)).state == "waiting"
        with_code(world, runtime=ANOTHER, adp_notices=ANOTHER)
        assert await listed(world) == [""] * 16
        with_code(world, adp_payments=ANOTHER)
        assert all("code:adp_payments" in one for one in await listed(world))
        world.close()

    run(go())


async def reasked(world: TestWorld, run_id: str, by: Any = None) -> None:
    await reask_question(world.deployment, TENANT, run_id, by=by or world.actor(), reason="we upgraded")
    await world.deployment.advance(TENANT, run_id)


def test_one_act_asks_again_under_the_new_pins_and_pays_once(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        old = await world.binding_digest(waiting.run_id)
        with_code(world, adp_payments=ANOTHER)
        await reasked(world, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.state == "waiting", view
        assert await world.binding_digest(waiting.run_id) != old
        assert await listed(world) == [""]
        assert "other_binding" in await refused(world.answer(waiting.run_id, binding_digest=old))
        done = await world.approve(waiting.run_id)
        assert done.state == "completed", done.record
        entries = await world.stores.tenant(TENANT).read(waiting.run_id)
        pins = [read_body(one)["pins"] for one in entries if one.kind == "run.pinned"][-1]
        assert pins["code:adp_payments"] == ANOTHER
        assert done.record["lineage"]["pins_digest"] == content_address(pins)
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        assert (await replay(world.deployment, TENANT, waiting.run_id)).record_hash == done.record["record_hash"]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


def test_a_changed_fact_is_read_anew_and_shown_in_the_new_question(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await VOIDS["order_total"](world)
        await reasked(world, waiting.run_id)
        question = await questions(world).get(TENANT, waiting.run_id)
        shown = {one.name: one.value for one in question.evidence}
        assert shown["order_lookup"]["total_inr"] == 9901
        assert (await world.approve(waiting.run_id)).state == "completed"
        world.close()

    run(go())


def test_a_session_goes_on_with_the_same_call(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=chosen_by_agent)
        gate = await refund_session(world, "s1")
        await read_first(gate)
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Waiting)
        with_code(world, adp_payments=ANOTHER)
        [said] = await listed(world)
        assert "code:adp_payments" in said
        await reasked(world, gate.run_id)
        assert await listed(world) == [""]
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Waiting)
        await world.approve(gate.run_id)
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Done)
        ended = await gate.finish("approved")
        assert ended.record is not None
        assert (ended.state, ended.record["outcome"]) == ("completed", "approved")
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        assert (await replay(world.deployment, TENANT, gate.run_id)).record_hash == ended.record["record_hash"]
        await world.aclose()

    run(go())


def test_a_question_that_holds_is_not_asked_again(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        assert "not_void" in await refused(reasked(world, waiting.run_id))
        await VOIDS["order_total"](world)
        world.know("somebody")
        assert "not_allowed" in await refused(reasked(world, waiting.run_id, world.actor("somebody")))
        assert "approval.reasked" not in await world.kinds(waiting.run_id)
        world.close()

    run(go())


def test_an_entry_that_nobody_signed_has_nothing_asked_again(tmp_path: Path) -> None:
    async def go() -> None:
        from contextos.contracts.journal import Batch
        from contextos.trust.journal.chain import append

        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        store = world.stores.tenant(TENANT)
        entries = list(await store.read(waiting.run_id))
        key = [one for one in entries if one.kind == "approval.asked"][-1].key
        answer = {"by": "user_operator_5", "reason": "", "changed": []}
        forged = append(
            entries,
            "approval.reasked",
            key,
            by="user_operator_5",
            answer=answer,
            at_us=entries[-1].at_us,
            salt=b"s" * 16,
        )
        await store.commit(Batch(waiting.run_id, (forged,), wake_at_us=1))
        with pytest.raises(ChainBroken, match="no act had a question asked again"):
            await world.deployment.advance(TENANT, waiting.run_id)
        assert world.refunds() == []
        world.close()

    run(go())


def test_an_upgrade_on_disk_is_listed_and_asked_again(tmp_path: Path, stores: str) -> None:
    shop = Attacked(tmp_path / "shop", stores)
    run_id = run(shop.ask())
    shop.edit("shop.py", "import hashlib\n", "import hashlib  # reviewed\n")
    shop.pin_again()

    async def upgraded() -> None:
        from contextos.cli.demo.workspace import example_operator

        app = await shop.open()
        try:
            [question] = (await app.approvals.waiting(TENANT)).items
            assert "`code:adp_" in question.void
            by = example_operator(shop.path)
            await reask_question(app.deployment, TENANT, run_id, by=by, reason="upgraded")
            await app.deployment.advance(TENANT, run_id)
            assert [one.void for one in (await app.approvals.waiting(TENANT)).items] == [""]
        finally:
            app.close()

    assert "the question is void" in run(shop.approve(run_id))
    assert shop.paid() == []
    run(upgraded())
    assert run(shop.approve(run_id)).state == "completed"
    assert shop.paid() == [5000]
