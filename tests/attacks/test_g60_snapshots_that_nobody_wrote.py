"""G60: the newest snapshot of the graph is the one that the last sealed act made, whatever the row says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.application.facts import Facts
from contextos.audit.verify import verify_facts, verify_tenant
from contextos.errors import ChainBroken, Integrity
from contextos.trust.rows.edges import ProvedGraph
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.test_c17_rows_that_nobody_signed import FACT, ORDER, opened
from tests.world import TENANT, TestWorld, request, run


async def retracted(world: TestWorld) -> int:
    """The customer of the order was verified once, and is no more. Returns the newest commit."""
    await world.put_facts([{**FACT, "edge_id": "edge_once"}])
    await world.put_facts([{"retracts": "edge_once", "evidence_ref": "artifact:recheck#rev_2"}])
    return await world.stores.graph(TENANT).head()


async def move(owner: DatabaseOwner, head: int) -> None:
    await owner.execute(f"UPDATE {{graph_commits}} SET head = {head} WHERE tenant = '{TENANT}'")


MOVES: dict[str, Any] = {"one back": -1, "two back": -2, "to nothing": None, "one forth": 1, "far forth": 1_000}


@pytest.mark.parametrize("how", MOVES)
def test_a_head_that_was_moved_lets_no_fact_count(how: str, stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def attack() -> None:
        async with opened(tmp_path, stores) as world:
            head = await retracted(world)
            honest = await world.invoke(request(900, "req_honest", order_id=ORDER))
            assert (honest.state, world.refunds()) == ("escalated", [])
            if MOVES[how] is None:
                await owner.execute(f"DELETE FROM {{graph_commits}} WHERE tenant = '{TENANT}'")
            else:
                await move(owner, head + MOVES[how])
            with pytest.raises(Integrity, match="its newest commit is"):
                await world.invoke(request(900, "req_attack", order_id=ORDER))
            with pytest.raises(Integrity, match="its newest commit is"):
                await Facts(world.deployment).get(TENANT, FACT["src"], FACT["predicate"])
            with pytest.raises(Integrity, match="its newest commit is"):
                await world.put_facts([{**FACT, "edge_id": "edge_new", "value": False}])
            assert world.refunds() == []
            if MOVES[how] is not None:
                await move(owner, head)
            else:
                await owner.execute(f"INSERT INTO {{graph_commits}} (tenant, head) VALUES ('{TENANT}', {head})")
            after = await world.invoke(request(900, "req_after", order_id=ORDER))
            assert (after.state, world.refunds()) == ("escalated", [])
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
            await verify_facts(world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys)

    run(attack())


def test_a_run_names_the_entry_of_control_that_its_snapshot_rests_on(stores: str, tmp_path: Path) -> None:
    async def attack() -> None:
        async with opened(tmp_path, stores) as world:
            head = await retracted(world)
            view = await world.invoke(request(900, "req_1", order_id=ORDER))
            entries = await world.stores.tenant(TENANT).read(view.run_id)
            (pinned,) = [orjson.loads(one.body or b"")["answer"] for one in entries if one.kind == "run.pinned"]
            lines = await world.stores.tenant(TENANT).lines("control", f"kg_{head}")
            assert (pinned["snapshot"], pinned["snapshot_line"]) == (f"kg_{head}", lines[-1].seq)

    run(attack())


def test_verify_finds_a_run_that_pinned_a_snapshot_that_no_act_made(
    stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that believes the row pins it, and the record says so."""

    async def attack() -> None:
        async with opened(tmp_path, stores) as world:
            head = await retracted(world)

            async def believed(_: Any) -> int:
                return head + 3

            monkeypatch.setattr(ProvedGraph, "head", believed)
            view = await world.invoke(request(900, "req_1", order_id=ORDER))
            monkeypatch.undo()
            with pytest.raises(ChainBroken, match=rf"`{view.run_id}`.*pins `kg_{head + 3}`"):
                await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)

    run(attack())
