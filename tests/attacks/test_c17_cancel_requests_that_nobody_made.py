"""C17: a cancel request counts only with the sealed act of the person who made it.

The attackers write the database and hold no key: the application's role, and the owner of the database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.operator import request_cancel
from contextos.deployment.queries.timeline import tell_story
from contextos.errors import ChainBroken, Integrity
from contextos.runtime import wiring
from contextos.trust.journal.chain import append
from contextos.trust.seal import KeyRing
from tests.attacks.attackers import Attacker
from tests.attacks.conftest import DatabaseOwner
from tests.world import TENANT, TestWorld, open_world, request, run

UNPROVED = "run.cancel_unproved"


@asynccontextmanager
async def opened(path: Path, stores: str) -> AsyncIterator[TestWorld]:
    world = await open_world(path, stores=stores)
    try:
        yield world
    finally:
        await world.aclose()


async def cancel(world: TestWorld, run_id: str) -> None:
    await request_cancel(world.deployment, TENANT, run_id, by=world.actor(), reason="the customer called back")


async def waiting_for_a_turn(world: TestWorld) -> str:
    """A run that is on disk and that nobody has driven yet."""
    return (await world.invoke(request(900, "req_1") | {"mode": "long_running"})).run_id


async def driven(world: TestWorld, run_id: str) -> Any:
    await world.deployment.advance(TENANT, run_id)
    view = await world.deployment.view(TENANT, run_id)
    if view.ended:
        await replay(world.deployment, TENANT, run_id)
    return view


async def verify(world: TestWorld) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


def made_up(run_id: str, stores: str, body: bytes = b'{"by":"user_operator_5","reason":"stop"}') -> str:
    raw = f"x'{body.hex()}'" if stores == "sqlite" else f"decode('{body.hex()}', 'hex')"
    return (
        "INSERT INTO {documents} (tenant, collection, key, version, body)"
        f" VALUES ('{TENANT}', 'cancels', '{run_id}', 1, {raw})"
    )


@pytest.mark.parametrize("body", [b'{"by":"user_operator_5","reason":"stop"}', b"no JSON at all"])
def test_a_request_that_nobody_made_stops_no_run(body: bytes, stores: str, attacker: Attacker, tmp_path: Path) -> None:
    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            return await waiting_for_a_turn(world)

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            view = await driven(world, run_id)
            assert (view.state, len(world.refunds())) == ("completed", 1)
            entries = await world.stores.tenant(TENANT).read(run_id)
            assert [one.kind for one in entries].count(UNPROVED) == 1, "it is on record, once"
            assert any("no sealed act" in one.text for one in tell_story(entries)["Who approved"])
            with pytest.raises(Integrity, match=run_id):
                await verify(world)

    run_id = run(before())
    attacker.application(made_up(run_id, stores, body))
    run(after())


def test_a_request_that_nobody_made_stops_no_approved_payment(stores: str, attacker: Attacker, tmp_path: Path) -> None:
    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            return (await world.invoke(request(4200, "req_large"))).run_id

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            assert (await world.approve(run_id)).state == "completed"
            looked = [
                orjson.loads(one.body)["answer"]
                for one in await world.stores.tenant(TENANT).read(run_id)
                if one.kind == "act.looked_up" and one.key.startswith("redeem/")
            ]
            assert [(one["cancelled"], one["unproved_cancel"]) for one in looked] == [(False, 1)]
            await replay(world.deployment, TENANT, run_id)
            assert len(world.refunds()) == 1

    run_id = run(before())
    attacker.application(made_up(run_id, stores))
    run(after())


def test_a_request_that_nobody_made_keeps_nobody_from_a_real_one(
    stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            return await waiting_for_a_turn(world)

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            await cancel(world, run_id)
            assert (await driven(world, run_id)).state == "cancelled"
            assert world.refunds() == []
            with pytest.raises(ChainBroken, match=f"cancel request of `{run_id}`"):
                await verify(world)

    run_id = run(before())
    attacker.application(made_up(run_id, stores))
    run(after())


@pytest.mark.parametrize("approved", [False, True])
def test_a_request_that_nobody_made_hides_no_real_one_from_a_payment_under_way(
    approved: bool, stores: str, attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real request is committed after the run looked for one and before it dispatches the payment."""

    async def before() -> str:
        async with opened(tmp_path, stores) as world:
            return (await world.invoke(request(4200, "req_1"))).run_id if approved else await waiting_for_a_turn(world)

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            if approved:
                await world.answer(run_id)
            recheck, acted = wiring.recheck_preconditions, False

            async def cancelled_meanwhile(*said: Any) -> Any:
                nonlocal acted
                found = await recheck(*said)
                if not acted:
                    acted = True
                    await cancel(world, run_id)
                return found

            monkeypatch.setattr(wiring, "recheck_preconditions", cancelled_meanwhile)
            assert (await driven(world, run_id)).state == "cancelled"
            assert acted
            assert world.refunds() == []

    run_id = run(before())
    attacker.application(made_up(run_id, stores))
    run(after())


@pytest.mark.parametrize("body", [b'{"by":"usr_123","reason":"not me"}', b"no JSON at all"])
def test_a_request_whose_row_was_altered_stops_the_run_in_the_name_of_who_signed_it(
    body: bytes, stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            run_id = await waiting_for_a_turn(world)
            await cancel(world, run_id)
            await owner.execute(
                f"UPDATE {{documents}} SET body = {owner.blob(body)}"
                f" WHERE tenant = '{TENANT}' AND collection = 'cancels' AND key = '{run_id}'"
            )
            assert (await driven(world, run_id)).state == "cancelled"
            [found] = [
                orjson.loads(one.body)["answer"]
                for one in await world.stores.tenant(TENANT).read(run_id)
                if one.kind == "run.cancel_requested"
            ]
            assert found == {"by": "user_operator_5", "reason": "the customer called back"}
            with pytest.raises(Integrity, match=run_id):
                await verify(world)

    run(act())


def test_a_request_whose_row_was_removed_is_found_by_verify(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    """The documented limit: the run goes on, because it looks for the row first."""

    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            run_id = await waiting_for_a_turn(world)
            await cancel(world, run_id)
            await verify(world)
            await owner.execute(
                f"DELETE FROM {{documents}} WHERE tenant = '{TENANT}' AND collection = 'cancels' AND key = '{run_id}'"
            )
            assert (await driven(world, run_id)).state == "completed"
            with pytest.raises(Integrity, match=run_id):
                await verify(world)

    run(act())


def test_an_act_of_another_run_or_of_other_keys_proves_no_request(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            run_id = await waiting_for_a_turn(world)
            other = (await world.invoke(request(800, "req_2") | {"mode": "long_running"})).run_id
            await cancel(world, other)
            await owner.execute(
                f"UPDATE {{journal}} SET key = '{run_id}'"
                f" WHERE tenant = '{TENANT}' AND run = '{CONTROL}' AND kind = 'run.cancelled'"
            )
            keys, world.deployment.ports = (
                world.deployment.ports.keys,
                replace(world.deployment.ports, keys=KeyRing.from_seed(b"o" * 32)),
            )
            await cancel(world, run_id)
            world.deployment.ports = replace(world.deployment.ports, keys=keys)
            assert (await driven(world, run_id)).state == "completed"

    run(act())


def test_an_entry_that_somebody_appends_to_a_waiting_run_is_no_cancel(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    """It takes the place of an answer, as a forged answer does: the run escalates, and names nobody as its author."""

    async def act() -> None:
        async with opened(tmp_path, stores) as world:
            waiting = await world.invoke(request(4200, "req_large"))
            store = world.stores.tenant(TENANT)
            entries = await store.read(waiting.run_id)
            asked = [one for one in entries if one.kind == "approval.asked"][-1]
            said = {"by": "usr_123", "reason": "never mind"}
            forged = append(
                entries, "run.cancel_requested", asked.key, by="usr_123", answer=said, at_us=asked.at_us, salt=b"s" * 16
            )
            row = CANCELS.write(waiting.run_id, 0, CancelRequest(**said))
            await store.commit(Batch(run=waiting.run_id, entries=(forged,), writes=(row,), wake_at_us=1))
            view = await driven(world, waiting.run_id)
            assert view.state == "escalated"
            [failure] = view.record["rationale"]["failures"]
            assert failure["code"] == "approval_void"
            assert "no sealed act" in failure["detail"]
            assert UNPROVED in await world.kinds(waiting.run_id)
            assert world.refunds() == []

    run(act())
