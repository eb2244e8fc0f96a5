"""C19: somebody puts the clock back, so that what was over counts again: a delegation, a key, evidence, a session.

The store's clock goes back too, as it does where both are one machine. What the tenant has on record does not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.memories import review_memory
from contextos.errors import SignatureInvalid
from contextos.intelligence.memory import list_candidates
from contextos.trust.seal import KeyRing, seal
from tests.attacks.test_a06_nobody_acts_for_a_user_unasked import REF, token
from tests.attacks.test_b10_many_small_effects import denied, limited, refund
from tests.attacks.test_c19_a_clock_that_goes_back import HOUR_US, on_world
from tests.attacks.test_d21_keyed_write_survives_an_outage import with_outage
from tests.world import TENANT, ManualClock, TestWorld, example, open_world, request, run

DAY_US = 24 * HOUR_US
OWN = ("head", "claim", "export", "active", "act")


async def on_record(world: TestWorld, clock: ManualClock, ahead_us: int) -> None:
    """The time goes on and something is recorded; then the clock is put back to where it was."""
    before = clock.at_us
    clock.at_us += ahead_us
    await world.invoke(request(4300, "req_later"))
    clock.at_us = before


def test_a_delegation_that_was_over_does_not_act_again(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        until_s = (clock.at_us + HOUR_US) // 1_000_000
        world.edit_directory(lambda tenant: tenant.update(delegations={REF: token(expires_at=until_s)}))
        await on_record(world, clock, 2 * HOUR_US)
        view = await world.invoke(request(900, "req_back"))
        assert (view.state, world.refunds()) == ("refused", [])
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["facts"] == ["user.delegation.token_ref"]
        await replay(world.deployment, TENANT, view.run_id)

    on_world(tmp_path, stores, act)


def test_a_delegation_that_was_over_sends_no_write_of_a_run_that_began_before(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        until_s = (clock.at_us + HOUR_US) // 1_000_000
        world.edit_directory(lambda tenant: tenant.update(delegations={REF: token(expires_at=until_s)}))
        waiting = await world.invoke(request(4200, "req_large"))
        await world.answer(waiting.run_id)
        await on_record(world, clock, 2 * HOUR_US)
        await world.deployment.advance(TENANT, waiting.run_id)
        assert (await world.deployment.view(TENANT, waiting.run_id)).state != "completed"
        assert world.refunds() == []

    on_world(tmp_path, stores, act)


def test_a_session_that_was_over_does_not_go_on(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        body = request(900, "req_session") | {"mode": "long_running"}
        body["runtime"] = {**body.get("runtime", {}), "max_session_duration_ms": 3_600_000}
        session = await world.invoke(body)
        await on_record(world, clock, 2 * HOUR_US)
        await world.deployment.advance(TENANT, session.run_id)
        assert (await world.deployment.view(TENANT, session.run_id)).state == "exhausted"
        assert world.refunds() == []

    on_world(tmp_path, stores, act)


def test_a_call_is_not_sent_again_under_a_key_that_was_over(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        outage = await with_outage(world, 365 * 24 * 3_600, "l", circuits=False)
        sent = await world.invoke(request(900, "req_lost"))
        assert not sent.ended
        calls = outage.calls
        await on_record(world, clock, 3 * DAY_US)
        clock.at_us += HOUR_US
        await world.deployment.advance(TENANT, sent.run_id)
        assert outage.calls == calls, "the other system has forgotten the key, so this would be another payment"
        view = await world.deployment.view(TENANT, sent.run_id)
        assert view.waiting is not None
        assert view.waiting["for"] == "settlement"

    on_world(tmp_path, stores, act)


def test_an_effect_of_a_clock_that_was_put_back_stays_within_its_window(tmp_path: Path, stores: str) -> None:
    async def attack() -> None:
        clock = ManualClock()
        world = await open_world(tmp_path, stores=stores, clock=clock, pack=limited)
        try:
            await world.stock("ord_x1", total_inr=250_000)
            before = clock.at_us
            clock.at_us -= 2 * DAY_US
            assert not denied(await world.invoke(refund(0, order="ord_x1")))
            clock.at_us = before + HOUR_US
            assert denied(await world.invoke(refund(1, order="ord_x1")))
            assert len(world.refunds()) == 1
        finally:
            await world.aclose()

    run(attack())


def test_evidence_that_was_too_old_does_not_become_fresh(tmp_path: Path, stores: str) -> None:
    clock = ManualClock()
    observed_us = int(datetime.fromisoformat("2026-05-03T09:30:00+00:00").timestamp()) * 1_000_000

    def short_lived(pack: dict[str, Any]) -> None:
        for evidence in pack["intelligence_refs"]["retrieval"]["evidence"]:
            evidence["max_age_s"] = (clock.at_us - observed_us + HOUR_US) // 1_000_000

    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores, clock=clock, pack=short_lived)
        try:
            assert (await world.invoke(request(900, "req_fresh"))).state == "completed"
            await on_record(world, clock, 2 * HOUR_US)
            assert (await world.invoke(request(800, "req_back"))).state == "escalated"
            assert len(world.refunds()) == 1
        finally:
            await world.aclose()

    run(attack())


def test_a_memory_that_was_over_is_not_recalled(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        for proposal in await list_candidates(store):
            await review_memory(world.deployment, TENANT, proposal.proposal_id, "promote", by=world.actor())
        assert await recalled(world, 700)
        await on_record(world, clock, 100 * DAY_US)
        assert not await recalled(world, 600)

    on_world(tmp_path, stores, act)


async def recalled(world: TestWorld, amount: int) -> list[Any]:
    view = await world.invoke(request(amount, f"req_recalls_{amount}"))
    entries = await world.stores.tenant(TENANT).read(view.run_id)
    [answer] = [json.loads(one.body or b"")["answer"] for one in entries if one.kind == "memory.recalled"]
    return list(answer)


def test_a_pack_of_a_retired_key_is_not_published(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        retired = KeyRing({"pack": b"r" * 32})
        [kid] = retired.kids("pack")
        over_us = clock.at_us + HOUR_US
        known = {purpose: [world.keys.public_key(purpose, one) for one in world.keys.kids(purpose)] for purpose in OWN}
        known["pack"] = [retired.public_key("pack", kid)]
        ring = KeyRing({name: bytes([number]) * 32 for number, name in enumerate(OWN)}, known, {kid: over_us})
        world.deployment.ports = replace(world.deployment.ports, keys=ring)
        await on_record(world, clock, 2 * HOUR_US)
        body = example("pack.json")
        body["pack_meta"]["pack_version"] = "9.9.9"
        with pytest.raises(SignatureInvalid):
            await world.publish(seal(PACK_TYPE, canonical(body), retired, "pack"))

    on_world(tmp_path, stores, act)


def test_a_lease_from_before_the_clock_went_back_keeps_nobody_from_the_run(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld, clock: ManualClock) -> None:
        left = await world.invoke(request(900, "req_left") | {"mode": "long_running"})
        store = world.stores.tenant(TENANT)
        known = await LEASES.one(store, left.run_id)
        assert known is not None
        at_us = clock.at_us + 10 * HOUR_US
        lease = Lease(known.body.owner + "_gone", at_us + 60_000_000, at_us=at_us)
        await store.commit(Batch(run=left.run_id, writes=(LEASES.write(left.run_id, known.version, lease),)))
        object.__setattr__(world.deployment.ports, "alive", lambda _owner: True)
        await world.deployment.advance(TENANT, left.run_id)
        assert (await world.deployment.view(TENANT, left.run_id)).state == "completed"

    on_world(tmp_path, stores, act)


def test_a_run_after_the_step_goes_on_from_the_latest_time_on_record(tmp_path: Path, stores: str) -> None:
    """So its own questions last as long as those of any other run, and can be answered."""

    async def act(world: TestWorld, clock: ManualClock) -> None:
        await on_record(world, clock, 3 * DAY_US)
        view = await world.invoke(request(4200, "req_back"))
        store = world.stores.tenant(TENANT)
        assert (await store.read(view.run_id))[0].at_us >= clock.at_us + 3 * DAY_US - HOUR_US
        assert [one.kind for one in await store.read(CONTROL)].count("clock.went_back") == 1
        assert (await world.approve(view.run_id)).state == "completed"

    on_world(tmp_path, stores, act)
