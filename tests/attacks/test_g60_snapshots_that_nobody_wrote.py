"""G60: the newest snapshot of the graph is the one that the last sealed act made, whatever the row says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.verify import verify_facts, verify_tenant
from contextos.errors import ChainBroken, Integrity
from contextos.service.facts import Facts
from contextos.trust.rows.edges import ProvedGraph
from tests.attacks.attackers import Attacker
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


AGAINST = {**FACT, "edge_id": "edge_no", "value": False, "dst": "check:other"}
CROWD = [{**FACT, "edge_id": f"edge_x{number:03d}", "predicate": "called", "value": number} for number in range(60)]
"""More edges than a query reads around one node."""
HIDDEN: dict[str, list[dict[str, Any]]] = {
    "of two": [{**FACT, "edge_id": "edge_yes"}, AGAINST],
    "among many": [{**FACT, "edge_id": "edge_yes"}, AGAINST, *CROWD],
    "of a moved fact": [{**FACT, "edge_id": "edge_old"}, AGAINST],
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_fact_counts_also_if_a_row_says_that_it_was_withdrawn(
    name: str, stores: str, attacker: Attacker, tmp_path: Path
) -> None:
    """One statement of the application role would hide the fact that contradicts another one."""

    async def before() -> int:
        async with opened(tmp_path, stores) as world:
            await world.put_facts(HIDDEN[name])
            if name == "of a moved fact":
                await world.put_facts([{**FACT, "edge_id": "edge_yes", "retracts": "edge_old"}])
            honest = await world.invoke(request(900, "req_honest", order_id=ORDER))
            assert (honest.state, world.refunds()) == ("escalated", [])
            return await world.put_facts([{**FACT, "src": "customer:other", "edge_id": "edge_other"}])

    async def after() -> None:
        async with opened(tmp_path, stores) as world:
            with pytest.raises(Integrity, match=r"`edge_no`.*no sealed act did that"):
                await world.invoke(request(900, "req_attack", order_id=ORDER))
            assert world.refunds() == []
            with pytest.raises(Integrity, match=r"`edge_no`.*no sealed act did that"):
                await Facts(world.deployment).get(TENANT, FACT["src"], FACT["predicate"])
            # Before the commit at which the row says so, the fact is there.
            earlier = await Facts(world.deployment).get(
                TENANT, FACT["src"], FACT["predicate"], snapshot=f"kg_{head - 1}"
            )
            assert "edge_no" in [one.fact_id for one in earlier]

    head = run(before())
    attacker.application(
        f"UPDATE {{edges}} SET valid_to = {head}, withdrawn_ref = 'artifact:x#rev_1'"
        f" WHERE tenant = '{TENANT}' AND edge_id = 'edge_no'"
    )
    run(after())


def test_a_withdrawal_that_its_row_puts_earlier_hides_nothing(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def attack() -> None:
        async with opened(tmp_path, stores) as world:
            await world.put_facts(HIDDEN["of two"])
            pinned = await world.put_facts([{**FACT, "src": "customer:other", "edge_id": "edge_other"}])
            await world.put_facts([{"retracts": "edge_no", "evidence_ref": "artifact:recheck#rev_2"}])
            facts = Facts(world.deployment)
            (left,) = await facts.get(TENANT, FACT["src"], FACT["predicate"])
            assert left.fact_id == "edge_yes"
            await owner.execute(f"UPDATE {{edges}} SET valid_to = {pinned} WHERE edge_id = 'edge_no'")
            with pytest.raises(Integrity, match=r"`edge_no`.*no sealed act did that"):
                await facts.get(TENANT, FACT["src"], FACT["predicate"], snapshot=f"kg_{pinned}")

    run(attack())


def test_more_withdrawn_facts_than_a_page_are_each_compared_with_their_act(
    stores: str, attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextos.trust.rows.edges._PAGE_EDGES", 2)

    async def before() -> int:
        async with opened(tmp_path, stores) as world:
            await world.put_facts([*CROWD[:7], {**CROWD[7], "edge_id": "edge_y"}])
            return await world.put_facts(
                [{"retracts": one["edge_id"], "evidence_ref": "artifact:recheck#rev_2"} for one in CROWD[:7]]
            )

    async def read(limit: int, cursor: str = "") -> list[str]:
        async with opened(tmp_path, stores) as world:
            page = await Facts(world.deployment).list(TENANT, FACT["src"], "called", limit=limit, cursor=cursor)
            return [one.fact_id for one in page.items]

    head = run(before())
    assert run(read(3)) == ["edge_y"]
    attacker.application(
        f"UPDATE {{edges}} SET valid_to = {head}, withdrawn_ref = 'artifact:x#rev_1'"
        f" WHERE tenant = '{TENANT}' AND edge_id = 'edge_y'"
    )
    with pytest.raises(Integrity, match="`edge_y`"):
        run(read(3))
