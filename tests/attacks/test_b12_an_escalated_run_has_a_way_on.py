"""B12: a person resolves, closes or reopens what escalated, as a signed act; nothing is sent twice, nothing else opens.

The attackers: the requester, an operator who wants more than was exhausted, the application's role that opens a run
without a signature, and the owner of the database who cuts a reopened run back to its first end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.export import signed_exports
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, INDEX, Batch
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.deployment.queries.decisions import decision_of
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, ChainBroken, InvalidInput
from contextos.trust.journal.chain import append
from tests.attacks.attackers import Attacker
from tests.world import OPERATOR_KEY, TENANT, TestWorld, open_world, request

REASON = "ticket 4711"


def on_world(path: Path, stores: str, act: Callable[[TestWorld], Awaitable[None]], **how: Any) -> None:
    async def go() -> None:
        world = await open_world(path, stores=stores, **how)
        try:
            await act(world)
        finally:
            await world.aclose()

    asyncio.run(go())


def bounded(amount: int, request_id: str, **limits: Any) -> dict[str, Any]:
    body = request(amount, request_id)
    body["runtime"] |= limits
    return body


async def status(world: TestWorld, run_id: str) -> str | None:
    view = await world.deployment.view(TENANT, run_id)
    return (await decision_of(world.stores.tenant(TENANT), view, world.keys)).status


async def reopened(world: TestWorld, run_id: str, to: float | None = None) -> RunView:
    await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON, to=to)
    assert await status(world, run_id) == "IN_FLIGHT"
    due = [name async for _, name in world.stores.due(world.clock.now_us())]
    assert run_id in due, "an engine drives it at once"
    await world.deployment.advance(TENANT, run_id)
    return await world.deployment.view(TENANT, run_id)


async def is_sound(world: TestWorld, view: RunView) -> None:
    """The tenant verifies, and the run replays byte for byte."""
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    if view.ended:
        assert view.record is not None
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]


async def exhausted(world: TestWorld, calls: int = 2) -> RunView:
    """A run that may make two calls, and needs three."""
    view = await world.invoke(bounded(900, "req_short", max_tool_calls=calls))
    assert (view.state, world.refunds()) == ("exhausted", [])
    assert await status(world, view.run_id) == "ESCALATED"
    return view


@pytest.mark.requirement("R-WAY-ON")
def test_a_run_that_exhausted_its_calls_goes_on_with_more_of_them(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        view = await reopened(world, (await exhausted(world)).run_id, 9)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        assert await status(world, view.run_id) == "DECIDED"
        await is_sound(world, view)
        assert (await world.invoke(bounded(900, "req_short", max_tool_calls=2))).run_id == view.run_id

    on_world(tmp_path, stores, act)


def test_an_effect_on_record_is_not_sent_again_by_a_reopened_run(stores: str, tmp_path: Path) -> None:
    def dear(pack: dict[str, Any]) -> None:
        pack["pack_meta"]["run_budget"]["max_cost_cents"] = 5

    async def act(world: TestWorld) -> None:
        inner, calls = world.adapters["adp_payments"], list[str]()

        class Dear:
            def describe(self) -> Any:
                return inner.describe()

            async def call(self, name: str, args: Any, context: Any) -> Any:
                calls.append(name)
                reply = await inner.call(name, args, context)
                return reply.model_copy(update={"cost_cents": 6})

            async def lookup(self, name: str, key: str, context: Any) -> Any:
                return await inner.lookup(name, key, context)

        world.adapters["adp_payments"] = Dear()
        view = await world.invoke(request(900, "req_dear"))
        assert (view.state, len(world.refunds())) == ("exhausted", 1)
        with pytest.raises(InvalidInput):
            await reopened(world, view.run_id, 4)
        view = await reopened(world, view.run_id, 25)
        assert (view.state, len(world.refunds()), calls) == ("completed", 1, ["issue_refund"])
        assert view.record is not None
        assert [effect["state"] for effect in view.record["effects"]] == ["happened"]
        await is_sound(world, view)

    on_world(tmp_path, stores, act, pack=dear)


def test_an_expired_approval_is_asked_anew_and_the_old_answer_opens_nothing(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        waiting = await world.invoke(request(4200, "req_late"))
        first = await world.binding_digest(waiting.run_id)
        world.clock.at_us += 2 * 3_600 * 1_000_000
        await world.deployment.advance(TENANT, waiting.run_id)
        assert (await world.deployment.view(TENANT, waiting.run_id)).state == "escalated"
        with pytest.raises(InvalidInput):
            await reopened(world, waiting.run_id, 9)
        view = await reopened(world, waiting.run_id)
        assert view.waiting is not None
        assert view.waiting["for"] == "approval"
        assert view.waiting["binding_digest"] != first
        with pytest.raises(ApprovalRefused):
            await world.answer(view.run_id, binding_digest=first)
        view = await world.approve(view.run_id)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        await is_sound(world, view)

    on_world(tmp_path, stores, act)


def test_a_hard_stopped_session_goes_on_from_its_checkpoint(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        body = bounded(4200, "req_session", max_session_duration_ms=60_000) | {"mode": "long_running"}
        run_id = (await world.invoke(body)).run_id
        await world.deployment.advance(TENANT, run_id)
        world.clock.at_us += 120 * 1_000_000
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "exhausted"
        with pytest.raises(InvalidInput):
            await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON, to=61_000)
        view = await reopened(world, run_id, 3_600_000)
        assert view.waiting is not None, "the approval is asked anew"
        view = await world.approve(run_id)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        entries = await world.stores.tenant(TENANT).read(run_id)
        checkpoints = [read_body(one) for one in entries if one.kind == "session.checkpointed"]
        assert [one["checkpoint"] for one in checkpoints] == list(range(1, len(checkpoints) + 1))
        assert checkpoints[-1]["deadline_us"] - entries[0].at_us == 3_600_000_000
        await is_sound(world, view)

    on_world(tmp_path, stores, act)


def test_a_run_that_is_exhausted_again_can_be_reopened_again(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        view = await reopened(world, (await exhausted(world, 1)).run_id, 2)
        assert view.state == "exhausted"
        await is_sound(world, view)
        view = await reopened(world, view.run_id, 20)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        await is_sound(world, view)

    on_world(tmp_path, stores, act)


def test_only_another_operator_can_act_and_only_on_what_escalated(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        run_id = (await exhausted(world)).run_id
        requester = request(900, "x")["user"]["user_id"]

        def grant(tenant: dict[str, Any]) -> None:
            for one in tenant["approvers"]:
                if one["approver_id"] == requester:
                    one.update(roles=["operator"], granted_by={"operator": "user_ciso_1"})

        world.know(requester)
        world.edit_directory(grant)
        for person, code in ((requester, "self_settlement"), ("user_finance_lead_77", "not_allowed")):
            world.know(person)
            actor = world.actor(person, OPERATOR_KEY)
            for attempt in (
                lambda by: resolve_escalation(world.deployment, TENANT, run_id, "DECIDED", by=by, reason=REASON),
                lambda by: close_decision(world.deployment, TENANT, run_id, by=by, reason=REASON),
                lambda by: reopen_run(world.deployment, TENANT, run_id, by=by, reason=REASON, to=9),
            ):
                with pytest.raises(ApprovalRefused) as refused:
                    await attempt(actor)
                assert refused.value.reason == code
        with pytest.raises(InvalidInput):
            await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason=" ")
        done = await world.invoke(request(900, "req_done"))
        with pytest.raises(ApprovalRefused):
            await resolve_escalation(world.deployment, TENANT, done.run_id, "REJECTED", by=world.actor(), reason=REASON)
        with pytest.raises(ApprovalRefused):
            await reopen_run(world.deployment, TENANT, done.run_id, by=world.actor(), reason=REASON)
        kinds = [entry.kind for entry in await world.stores.tenant(TENANT).read(CONTROL)]
        assert not {"decision.resolved", "decision.closed", "run.reopened"} & set(kinds)

    on_world(tmp_path, stores, act)


def test_no_operator_grants_more_than_the_directory_allows(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        world.edit_directory(lambda tenant: tenant.setdefault("limits", {}).update(max_tool_calls=5))
        run_id = (await exhausted(world)).run_id
        with pytest.raises(ApprovalRefused, match="tenant of the run has at most 5"):
            await reopened(world, run_id, 6)
        assert (await reopened(world, run_id, 5)).state == "completed"

    on_world(tmp_path, stores, act)


def test_a_resolution_is_about_one_record_and_a_closed_decision_stays_closed(stores: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        run_id = (await exhausted(world)).run_id
        before = await world.deployment.view(TENANT, run_id)
        await resolve_escalation(world.deployment, TENANT, run_id, "REJECTED", by=world.actor(), reason=REASON)
        assert await status(world, run_id) == "REJECTED"
        with pytest.raises(ApprovalRefused):
            await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON, to=9)
        await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON)
        assert await status(world, run_id) == "CLOSED"
        with pytest.raises(ApprovalRefused):
            await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON)
        view = await world.deployment.view(TENANT, run_id)
        assert view.record == before.record, "the record stays as the runtime made it"
        await is_sound(world, view)

    on_world(tmp_path, stores, act)


def test_nobody_without_the_key_of_the_runtime_reopens_a_run(stores: str, attacker: Attacker, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        view = await exhausted(world)
        store = world.stores.tenant(TENANT)
        entries = await store.read(view.run_id)
        answer = {"by": "user_operator_5", "reason": "mine", "limit": "max_tool_calls", "to": 99}
        entry = append(entries, "run.reopened", "", by="user_operator_5", answer=answer, at_us=1, salt=bytes(16))
        await store.commit(Batch(run=view.run_id, entries=(entry,), wake_at_us=1))
        with pytest.raises(ChainBroken):
            await world.deployment.advance(TENANT, view.run_id)
        with pytest.raises(ChainBroken):
            await verify_tenant(store, TENANT, world.keys)
        assert world.refunds() == []

    on_world(tmp_path, stores, act)


@pytest.mark.parametrize("kept", ["the line that reopened it", "the line that closed it twice"])
def test_a_reopened_run_that_is_cut_back_to_its_first_end_is_found(
    kept: str, stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    found: list[tuple[str, int]] = []

    async def act(world: TestWorld) -> None:
        view = await exhausted(world)
        end = len(await world.stores.tenant(TENANT).read(view.run_id))
        assert (await reopened(world, view.run_id, 9)).state == "completed"
        found.append((view.run_id, end))

    on_world(tmp_path, stores, act)
    ((run_id, end),) = found
    where = f"tenant = '{TENANT}' AND run = '{run_id}'"
    attacker.owner(
        f"DELETE FROM {{journal}} WHERE {where} AND seq > {end}",
        f"DELETE FROM {{heads}} WHERE tenant = '{TENANT}' AND stream = '{run_id}' AND seq > {end}",
        f"UPDATE {{runs}} SET wake_at_us = 1 WHERE {where}",
    )
    if kept == "the line that reopened it":
        ((last,),) = attacker.owner(
            f"SELECT max(seq) FROM {{journal}} WHERE tenant = '{TENANT}' AND run = '{INDEX}' AND kind = 'run.reopened'"
        )
        attacker.owner(f"DELETE FROM {{journal}} WHERE tenant = '{TENANT}' AND run = '{INDEX}' AND seq > {last}")

    async def again(world: TestWorld) -> None:
        with pytest.raises(ChainBroken, match="is missing: the index states"):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        with pytest.raises(ChainBroken):
            await world.deployment.advance(TENANT, run_id)
        with pytest.raises(ChainBroken):
            await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason=REASON, to=9)
        with pytest.raises(ChainBroken, match="the index states"):
            await replay(world.deployment, TENANT, run_id)
        with pytest.raises(ChainBroken, match="the index states"):
            await signed_exports(world.deployment, TENANT, [run_id])
        assert len(world.refunds()) == 1

    on_world(tmp_path, stores, again)


def test_a_second_end_without_its_closing_line_is_found(stores: str, attacker: Attacker, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        view = await reopened(world, (await exhausted(world)).run_id, 9)
        assert view.state == "completed"

    on_world(tmp_path, stores, act)
    where = f"tenant = '{TENANT}' AND run = '{INDEX}' AND kind = 'run.closed'"
    ((last,),) = attacker.owner(f"SELECT max(seq) FROM {{journal}} WHERE {where}")
    attacker.owner(f"DELETE FROM {{journal}} WHERE {where} AND seq = {last}")

    async def again(world: TestWorld) -> None:
        with pytest.raises(ChainBroken, match="ended and the index does not say so"):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    on_world(tmp_path, stores, again)
