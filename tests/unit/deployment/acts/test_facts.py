"""Facts are written by an act of the person who writes them, in the commit of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.verify import verify_facts
from contextos.contracts.envelopes.evidence import fact_digest, value_of_edge
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.facts import MAX_WITHDRAWN, write_facts
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.trust.rows.edges import ProvedFacts, ProvedGraph
from tests.world import APPROVER, APPROVER_KEY, OPERATOR, TENANT, TestWorld, open_world, run


def fact(name: str, **more: Any) -> dict[str, Any]:
    return {
        "edge_id": name,
        "src": "customer:cus_77",
        "predicate": "likes",
        "dst": f"thing:{name}",
        "evidence_ref": "artifact:a#rev_1",
        "observed_at": 5,
        "integrity": "trusted",
        "classification": "INTERNAL",
        **more,
    }


async def acts(world: TestWorld, *keys: str) -> list[tuple[str, str, Any]]:
    lines = await world.stores.tenant(TENANT).lines(CONTROL, *keys)
    return [(line.kind, line.by, orjson.loads(line.body)["act"]["arguments"]) for line in lines]


def test_a_commit_has_an_act_with_the_digest_of_each_edge_and_one_for_each_withdrawal(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        first = await world.put_facts([fact("e1"), fact("e2")])
        second = await world.put_facts([fact("e3", retracts="e1")])
        [(kind, by, said)] = await acts(world, f"kg_{first}")
        assert (kind, by, said["commit"], sorted(said["edges"])) == ("graph.written", OPERATOR, first, ["e1", "e2"])
        [(kind, by, said)] = await acts(world, "e1")
        assert (kind, by) == ("graph.withdrawn", OPERATOR)
        ended = fact("e1")
        digest = fact_digest(ended["src"], ended["predicate"], value_of_edge(ended))
        assert said == {"edge_id": "e1", "commit": second, "evidence_ref": "artifact:a#rev_1", "fact_digest": digest}
        length = len(await world.stores.tenant(TENANT).read(CONTROL))
        assert await world.put_facts([fact("e2")]) == second
        assert len(await world.stores.tenant(TENANT).read(CONTROL)) == length, "nothing new is nobody's act"

    run(go())


def test_a_commit_of_many_edges_has_as_many_acts_as_its_signatures_need_and_every_edge_counts(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        edges = [fact(f"{'e' * 100}{number}") for number in range(500)]
        number = await world.put_facts(edges)
        made = await acts(world, f"kg_{number}")
        assert len(made) > 1
        assert sorted(name for _, _, said in made for name in said["edges"]) == sorted(one["edge_id"] for one in edges)
        graph = world.deployment.ports.stores.graph(TENANT)
        proved = ProvedGraph(TENANT, graph, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        found = await proved.step(["customer:cus_77"], "likes", at=number, limit=1000)
        assert len(found) == 500
        assert await verify_facts(graph, world.stores.tenant(TENANT), world.keys) > 500

    run(go())


def test_nothing_is_written_by_somebody_without_the_role_or_beyond_the_bound(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        lead = world.actor(APPROVER, APPROVER_KEY)
        with pytest.raises(ApprovalRefused, match="knowledge_writer"):
            await write_facts(world.deployment, TENANT, [], [fact("e1")], by=lead)
        await world.put_facts([fact(f"e{number}") for number in range(MAX_WITHDRAWN + 1)])
        head = await world.stores.graph(TENANT).head()
        gone = [{"retracts": f"e{number}", "evidence_ref": "artifact:b#rev_1"} for number in range(MAX_WITHDRAWN + 1)]
        with pytest.raises(InvalidInput, match="at most 100"):
            await world.put_facts(gone)
        assert await world.stores.graph(TENANT).head() == head
        await world.put_facts(gone[1:])

    run(go())
