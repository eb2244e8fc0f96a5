"""G61: what somebody appends to a run that waits is not an answer unless it is one: the run says so.

The attacker can append to the store and holds no key. Every kind of entry that a person's door appends is tried.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay, replay_tape
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.kinds import UNSIGNED_KINDS
from contextos.contracts.journal import Batch, Draft, link
from contextos.deployment.operator import SettlementInput
from contextos.deployment.queries.timeline import tell_story
from contextos.errors import ChainBroken, InvalidInput
from tests.e2e.test_settlements import uncertain
from tests.world import APPROVER, OPERATOR, TENANT, TestWorld, open_world, request, run

DIGEST = "sha256:" + "0" * 64
ANSWER = {
    "approver": APPROVER,
    "verdict": "approved",
    "reason": "ok",
    "binding_digest": DIGEST,
    "assertion": {"kind": "jws", "token": "x.y.z"},
}
KINDS = sorted(UNSIGNED_KINDS - {"approval.reasked"})
"""A question that is asked again needs its act, without which no process drives the run on."""
BODIES: dict[str, bytes] = {
    "an answer that is not canonical": b'{"request_digest": "", "answer": {}}',
    "a member twice": b'{"answer":{},"answer":{},"request_digest":""}',
    "no JSON": b"\xff",
    "a number": b"5",
    "no answer": b"{}",
    "an empty answer": canonical({"request_digest": DIGEST, "answer": {}}),
    "an answer that is null": canonical({"request_digest": DIGEST, "answer": None}),
    "an answer that is a list": canonical({"request_digest": DIGEST, "answer": [1]}),
    "an answer of another kind": canonical({"request_digest": DIGEST, "answer": {"by": OPERATOR, "reason": "stop"}}),
    "another verdict": canonical({"request_digest": DIGEST, "answer": ANSWER | {"verdict": "maybe"}}),
    "a member too many": canonical({"request_digest": DIGEST, "answer": ANSWER | {"more": 1}}),
    "an assertion that is none": canonical({"request_digest": DIGEST, "answer": ANSWER | {"assertion": {"kind": 1}}}),
}


async def appended(world: TestWorld, run_id: str, kind: str, body: bytes, key: str | None = None) -> None:
    """Append an entry past the operator, which wakes nobody."""
    store = world.stores.tenant(TENANT)
    last = (await store.read(run_id))[-1]
    key = last.key.partition("/")[2] if key is None else key
    draft = Draft(kind, key, last.at_us, APPROVER, body, bytes(16))
    await store.commit(Batch(run=run_id, entries=(link(TENANT, run_id, last.seq + 1, last.hash, draft),)))


async def verify(world: TestWorld) -> None:
    await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)


async def derived_again(world: TestWorld, run_id: str) -> str:
    """The hash of the record that the loop derives again from the entries. `replay` names the entry and does not."""
    with pytest.raises(ChainBroken, match=f"`{run_id}` entry"):
        await replay(world.deployment, TENANT, run_id)
    entries = await world.stores.tenant(TENANT).read(run_id)
    with pytest.MonkeyPatch.context() as unchecked:
        unchecked.setattr("contextos.audit.replay.verify_history", lambda *_: None)
        return (await replay_tape(entries, partial(world.deployment.environment, TENANT))).record_hash


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_a_run_that_waits_for_an_approval_ends_and_says_why(kind: str, name: str, tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path)
        try:
            waiting = await world.invoke(request(4200, "req_large"))
            assert waiting.waiting
            if kind == "run.cancel_requested" and name == "an answer of another kind":
                return  # it is a cancel request, which needs its act (C17)
            await appended(world, waiting.run_id, kind, BODIES[name])
            with pytest.raises(ChainBroken, match=f"`{waiting.run_id}` entry"):
                await verify(world)
            await world.deployment.advance(TENANT, waiting.run_id)
            view = await world.deployment.view(TENANT, waiting.run_id)
            assert (view.state, world.refunds()) == ("escalated", [])
            assert view.record is not None
            assert "somebody appended" in view.record["rationale"]["failures"][0]["detail"]
            assert await derived_again(world, waiting.run_id) == view.record["record_hash"]
            assert tell_story(await world.stores.tenant(TENANT).read(waiting.run_id))
            with pytest.raises(ChainBroken, match=f"`{waiting.run_id}` entry"):
                await verify(world)
        finally:
            await world.aclose()

    run(attack())


def test_an_answer_to_another_question_is_none(stores: str, tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        try:
            waiting = await world.invoke(request(4200, "req_large"))
            body = canonical({"request_digest": DIGEST, "answer": ANSWER})
            await appended(world, waiting.run_id, "approval.answered", body, key="1/another")
            with pytest.raises(ChainBroken, match="does not answer it"):
                await verify(world)
            await world.deployment.advance(TENANT, waiting.run_id)
            assert (await world.deployment.view(TENANT, waiting.run_id)).state == "escalated"
        finally:
            await world.aclose()

    run(attack())


def test_an_approver_who_answers_behind_it_wakes_the_run(stores: str, tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores)
        try:
            waiting = await world.invoke(request(4200, "req_large"))
            await appended(world, waiting.run_id, "approval.answered", b"5")
            with pytest.raises(Exception, match="answered before"):
                await world.approve(waiting.run_id)
            due = [one async for one in world.stores.due(world.clock.now_us())]
            assert (TENANT, waiting.run_id) in due
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_an_effect_that_waits_for_its_settlement_is_settled_all_the_same(kind: str, name: str, tmp_path: Path) -> None:
    async def attack() -> None:
        world, run_id = await uncertain(tmp_path)
        try:
            await appended(world, run_id, kind, BODIES[name])
            with pytest.raises(ChainBroken, match=f"`{run_id}` entry"):
                await verify(world)
            with pytest.raises(Exception, match="no effect to settle"):
                await world.settle(run_id, SettlementInput(False, OPERATOR, "kg:order:ord_881#snapshot_kg_1"))
            assert (TENANT, run_id) in [one async for one in world.stores.due(world.clock.now_us())]
            await world.deployment.advance(TENANT, run_id)
            view = await world.settle(run_id, SettlementInput(False, OPERATOR, "kg:order:ord_881#snapshot_kg_1"))
            assert view.record is not None
            assert await derived_again(world, run_id) == view.record["record_hash"]
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize("name", BODIES)
def test_a_question_that_nobody_had_asked_again_moves_nothing_and_is_named(name: str, tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path)
        try:
            waiting = await world.invoke(request(4200, "req_large"))
            await appended(world, waiting.run_id, "approval.reasked", BODIES[name])
            for act in (verify(world), world.deployment.advance(TENANT, waiting.run_id)):
                with pytest.raises(ChainBroken, match=f"`{waiting.run_id}` entry"):
                    await act
            assert world.refunds() == []
        finally:
            await world.aclose()

    run(attack())


def test_a_malformed_entry_is_shown_without_a_fault(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path)
        try:
            for number, body in enumerate(BODIES.values()):
                waiting = await world.invoke(request(4200 + number, f"req_{number}"))
                await appended(world, waiting.run_id, "approval.answered", body)
                shown: Any = await world.deployment.view(TENANT, waiting.run_id)
                assert not shown.ended
                with pytest.raises((ChainBroken, InvalidInput), match=f"`{waiting.run_id}`"):
                    await replay(world.deployment, TENANT, waiting.run_id)
                tell_story(await world.stores.tenant(TENANT).read(waiting.run_id))
        finally:
            await world.aclose()

    run(attack())
