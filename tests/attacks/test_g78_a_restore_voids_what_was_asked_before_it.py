"""G78: what was asked before a restore is listed as void and takes no signature; asked again, it pays once."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import ApprovalRefused
from contextos.service.approvals import ApprovalQuestions
from contextos.service.reasks import reask_question
from contextos.store.witness.file import FileWitness
from tests.attacks.backups import Backup
from tests.attacks.shop import Shop
from tests.sessions import REFUND, chosen_by_agent, read_first, refund_args, refund_session
from tests.world import TENANT, TestWorld, open_world, request, run


async def voids(world: TestWorld) -> list[str]:
    return [one.void for one in (await ApprovalQuestions(world.deployment).waiting(TENANT)).items]


async def reasked(world: TestWorld, run_id: str) -> None:
    await reask_question(world.deployment, TENANT, run_id, by=world.actor(), reason="we restored")
    await world.deployment.advance(TENANT, run_id)


def test_it_is_listed_as_void_and_takes_no_signature(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        [void] = await voids(world)
        assert "restored from a backup since" in void
        before = await world.kinds(waiting.run_id)
        question = await ApprovalQuestions(world.deployment).get(TENANT, waiting.run_id)
        with pytest.raises(ApprovalRefused, match="restored") as refused:
            question.statement("user_finance_lead_77", "approved")
        assert refused.value.reason == "approval_void"
        with pytest.raises(ApprovalRefused, match="approvals reask"):
            await world.answer(waiting.run_id)
        assert await world.kinds(waiting.run_id) == before
        assert (await world.approve(waiting.run_id, "denied")).state == "rejected"
        await world.aclose()

    run(go())


def test_asked_again_it_pays_once(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        await reasked(world, waiting.run_id)
        assert await voids(world) == [""]
        view = await world.approve(waiting.run_id)
        assert view.state == "completed", view.record
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        assert (await replay(world.deployment, TENANT, waiting.run_id)).record_hash == view.record["record_hash"]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


def test_so_is_the_question_of_a_session(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=chosen_by_agent)
        gate = await refund_session(world, "s1")
        await read_first(gate)
        await gate.call(REFUND, refund_args(), call_id="pay")
        assert await voids(world) == [""]
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        assert ["restored" in one for one in await voids(world)] == [True]
        await reasked(world, gate.run_id)
        assert await voids(world) == [""]
        world.close()

    run(go())


def test_a_failover_that_lost_nothing_voids_none(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(4200, "req_1"))
        publisher = WitnessPublisher(world.stores, FileWitness(tmp_path / "heads.jsonl"), world.keys, world.clock)
        await publisher.publish([TENANT])
        assert (await record_restore(world.deployment, publisher, TENANT, by=world.actor())).lost_nothing
        assert await voids(world) == [""]
        world.close()

    run(go())


def test_the_command_line_says_it_before_anybody_signs(initialised: Shop, backup: Backup) -> None:
    initialised.settings('witness = "off"\n')
    assert initialised.say("invoke", str(initialised.request("large"))).code == 5
    backup(initialised.path)()
    assert initialised.say("store", "restored", *initialised.by).code == 0
    [question] = initialised.say("approvals", "list").json["questions"]
    assert "restored" in question["void"]
    key = str(initialised.path / "keys" / "user_finance_lead_77.key")
    binding = initialised.say("runs", "show", "req_large").json["waiting"]["binding_digest"]
    said = initialised.say(
        "approvals", "approve", "req_large", "--binding", binding, "--as", "user_finance_lead_77", "--key", key
    )
    assert (said.code, "reask" in said.out) == (1, True)
