"""D23: a failover that lost nothing keeps open approvals, and one act records a restore for every tenant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import ApprovalRefused
from contextos.store.witness.file import FileWitness
from tests.attacks.shop import Shop
from tests.world import TENANT, TestWorld, open_world, request, run


def publisher(world: TestWorld) -> WitnessPublisher:
    """The witness of the deployment, as a process that has just started sees it."""
    return WitnessPublisher(world.stores, FileWitness(world.path / "heads.jsonl"), world.keys, world.clock)


@pytest.mark.parametrize("answered", ["before", "after"])
def test_an_approval_outlives_a_failover_that_lost_nothing(stores: str, answered: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        if answered == "before":
            await world.answer(waiting.run_id)
        await publisher(world).publish([TENANT])
        made = await record_restore(world.deployment, publisher(world), TENANT, by=world.actor())
        assert made.lost_nothing
        world.deployment.close()
        if answered == "after":
            await world.answer(waiting.run_id)
        await world.deployment.advance(TENANT, waiting.run_id)
        assert (await world.deployment.view(TENANT, waiting.run_id)).state == "completed"
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        assert await publisher(world).publish([TENANT]) == 2, "the witness goes on under the same names"
        await publisher(world).check(TENANT)
        await world.aclose()

    run(act())


@pytest.mark.parametrize("witness", ["is behind", "is empty"])
def test_what_the_witness_cannot_prove_voids_the_approval(stores: str, witness: str, tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path, stores=stores)
        if witness == "is behind":
            await publisher(world).publish([TENANT])
        waiting = await world.invoke(request(4200, "req_1"))
        made = await record_restore(world.deployment, publisher(world), TENANT, by=world.actor())
        assert not made.lost_nothing
        with pytest.raises(ApprovalRefused, match="restored"):
            await world.answer(waiting.run_id)
        assert world.refunds() == []
        await world.aclose()

    run(act())


def test_one_command_records_a_restore_for_every_tenant(initialised: Shop) -> None:
    directory = initialised.path / "directory.json"
    known = json.loads(directory.read_text("utf-8"))
    nobody = {**known[TENANT], "approvers": []}
    directory.write_text(json.dumps({**known, "tenant_b": known[TENANT], "tenant_c": nobody}), "utf-8")
    both = initialised.say("store", "restored", "--all", "--tenant", TENANT, *initialised.by)
    assert (both.code, "exclude each other" in both.out) == (2, True)
    done = initialised.say("store", "restored", "--all", *initialised.by)
    told = {one["tenant_id"]: one for one in done.json["tenants"]}
    assert set(told) == {TENANT, "tenant_b", "tenant_c"}
    assert told[TENANT]["epoch"]
    assert told["tenant_b"]["epoch"]
    assert (done.code, told["tenant_c"]["code"]) == (1, "approval_refused"), "one tenant keeps no other from it"
    assert initialised.say("verify", "--tenant", "tenant_b").code == 0
