"""Edges count as the sealed acts of their commits state them, and for nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.linked import ASKED_BYTES
from contextos.contracts.envelopes.evidence import EdgeRow
from contextos.contracts.journal import CONTROL
from contextos.errors import Integrity
from contextos.trust.rows.edges import ProvedFacts, ProvedGraph, written_fact_fault
from tests.unit.deployment.acts.test_facts import fact
from tests.world import TENANT, TestWorld, open_world, run

FIRST, LAST = "e1", "e3"


async def written(path: Path) -> tuple[TestWorld, list[EdgeRow], int]:
    """A graph in which an edge was withdrawn, its rows and its newest commit."""
    world = await open_world(path, seed_graph=False)
    await world.put_facts([fact(FIRST), fact("e2")])
    newest = await world.put_facts([fact(LAST, retracts="e2")])
    return world, list(await world.stores.graph(TENANT).rows()), newest


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows, None),
        (lambda rows: rows[1:], f"`{FIRST}` of the graph is gone"),
        (lambda rows: [*rows, replace(rows[0], edge_id="e9")], "`e9` of the graph is not as an act left it"),
        (lambda rows: [replace(rows[0], written=2), *rows[1:]], "not as an act left it"),
        (lambda rows: [replace(rows[0], statement={**rows[0].statement, "dst": "x:y"}), *rows[1:]], "not as an act"),
        (lambda rows: [replace(rows[0], src="x:y"), *rows[1:]], "stored under other ends"),
        (lambda rows: [replace(rows[0], withdrawn=2, withdrawn_ref="r"), *rows[1:]], "not withdrawn as it says"),
        (lambda rows: [rows[0], replace(rows[1], withdrawn=None, withdrawn_ref=None), rows[2]], "not withdrawn as it"),
        (lambda rows: [rows[0], replace(rows[1], withdrawn_ref="other"), rows[2]], "not withdrawn as it says"),
    ],
)
def test_every_edge_is_as_the_acts_left_it(change: Any, told: str | None, tmp_path: Path) -> None:
    async def go() -> None:
        world, rows, newest = await written(tmp_path)
        control = await world.stores.tenant(TENANT).read(CONTROL)
        found = written_fact_fault(control, change(rows), (newest, newest), world.keys)
        assert told in found if told is not None and found is not None else found == told
        assert "made 2" in str(written_fact_fault(control, rows, (newest, newest - 1), world.keys))

    run(go())


def test_what_is_written_during_an_audit_is_no_fault(tmp_path: Path) -> None:
    async def go() -> None:
        world, rows, newest = await written(tmp_path)
        control = await world.stores.tenant(TENANT).read(CONTROL)
        earlier = [rows[0], replace(rows[1], withdrawn=None, withdrawn_ref=None)]
        assert written_fact_fault(control, earlier, (newest - 1, newest), world.keys) is None

    run(go())


def test_the_acts_of_a_commit_are_read_once(tmp_path: Path) -> None:
    async def go() -> None:
        world, _, newest = await written(tmp_path)
        store, asked = world.stores.tenant(TENANT), list[tuple[str, ...]]()

        class Watched:
            async def lines(self, stream: str, *keys: str) -> Any:
                asked.append(keys)
                return await store.lines(stream, *keys)

        watched: Any = Watched()
        graph = ProvedGraph(TENANT, world.stores.graph(TENANT), watched, world.keys, ProvedFacts())
        for _ in range(2):
            found = await graph.step(["customer:cus_77"], "likes", at=newest, limit=9)
            assert [one["edge_id"] for one in found] == [FIRST, LAST]
        assert [sum(key in ("kg_1", "kg_2") for key in keys) for keys in asked if FIRST in keys] == [2, 0]

    run(go())


@pytest.mark.parametrize("forged", ['"value":true', '"value":1.5', '"value":1,"predicate":"owes"'])
def test_an_edge_that_was_proved_before_is_refused_once_its_row_is_altered(forged: str, tmp_path: Path) -> None:
    """Also where Python calls the two values equal."""

    class Altered:
        def __init__(self, graph: Any) -> None:
            self.graph, self.is_altered = graph, False

        async def neighbourhood(self, *seeds: Any, **bounds: Any) -> Any:
            found = await self.graph.neighbourhood(*seeds, **bounds)
            return [{**one, **json.loads(f"{{{forged}}}")} for one in found] if self.is_altered else found

        async def step(self, *asked: Any, **bounds: Any) -> Any:
            return await self.graph.step(*asked, **bounds)

    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        newest = await world.put_facts([fact(FIRST) | {"value": 1}])
        altered: Any = Altered(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, altered, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        for _ in range(2):
            assert await graph.neighbourhood(["customer:cus_77"], at=newest, hops=1, fan_out=9, limit=9)
        altered.is_altered = True
        with pytest.raises(Integrity, match="is not what the act of"):
            await graph.neighbourhood(["customer:cus_77"], at=newest, hops=1, fan_out=9, limit=9)

    run(go())


def test_an_edge_that_was_proved_before_is_refused_once_an_act_withdrew_it(tmp_path: Path) -> None:
    """Its row is put back as it was: only the act tells."""

    class Before:
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        async def neighbourhood(self, seeds: Any, *, at: int, **bounds: Any) -> Any:
            return await self.graph.neighbourhood(seeds, at=2, **bounds)

        async def step(self, *asked: Any, **bounds: Any) -> Any:
            return await self.graph.step(*asked, **bounds)

    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        await world.put_facts([fact(FIRST)])
        await world.put_facts([fact("e2")])
        before: Any = Before(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, before, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        assert len(await graph.neighbourhood(["customer:cus_77"], at=3, hops=1, fan_out=9, limit=9)) == 2
        await world.put_facts([fact(LAST, retracts="e2")])
        with pytest.raises(Integrity, match="`e2` of the graph was withdrawn at `kg_3`"):
            await graph.neighbourhood(["customer:cus_77"], at=3, hops=1, fan_out=9, limit=9)

    run(go())


def test_an_edge_that_is_found_under_another_subject_or_predicate_is_refused(tmp_path: Path) -> None:
    """Its columns were altered, and what it states was not: only then a store finds it there."""

    class Altered:
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        async def step(self, sources: Any, predicate: Any, **bounds: Any) -> Any:
            return await self.graph.step(["customer:cus_77"], "likes", **bounds)

    async def go() -> None:
        world, _, newest = await written(tmp_path)
        altered: Any = Altered(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, altered, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        assert len(await graph.step(["customer:cus_77"], None, at=newest, limit=9)) == 2
        for sources, predicate in ((["customer:cus_77"], "owes"), (["customer:cus_78"], None)):
            with pytest.raises(Integrity, match="is stored under another subject or predicate than it states"):
                await graph.step(sources, predicate, at=newest, limit=9)

    run(go())


@pytest.mark.parametrize("limit", [1, 9])
@pytest.mark.parametrize("change", [{}, {"edge_id": "e9"}, {"value": "other"}, {"edge_id": FIRST}, {"src": "x:y"}])
def test_an_edge_that_ended_is_returned_as_acts_wrote_and_ended_it(
    tmp_path: Path, change: dict[str, str], limit: int
) -> None:
    class Altered:
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        async def step(self, *one: Any, **bounds: Any) -> Any:
            return [{**edge, **change} for edge in await self.graph.step(*one, **bounds)]

    async def go() -> None:
        world, _, newest = await written(tmp_path)
        altered: Any = Altered(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, altered, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        if change:
            with pytest.raises(Integrity):
                await graph.step(["customer:cus_77"], None, at=newest, limit=limit, ended=True)
        else:
            [edge] = await graph.step(["customer:cus_77"], None, at=newest, limit=limit, ended=True)
            assert edge["edge_id"] == "e2"

    run(go())


async def asked(graph: ProvedGraph, *, seeds: str = "customer:cus_77", at: int) -> list[str]:
    found = await graph.neighbourhood([seeds], at=at, hops=1, fan_out=9, limit=9)
    return [str(one["edge_id"]) for one in found]


class Forged:
    """A graph in whose rows somebody wrote one edge more, under a commit that there is."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.adds = graph, True

    async def neighbourhood(self, seeds: Any, **bounds: Any) -> Any:
        found = await self.graph.neighbourhood(seeds, **bounds)
        return [*found, {**found[0], "edge_id": "e9"}] if self.adds and found else found

    async def step(self, *one: Any, **bounds: Any) -> Any:
        return await self.graph.step(*one, **bounds)


def test_an_edge_that_no_act_states_is_refused_each_time_it_is_read(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        newest = await world.put_facts([fact(FIRST)])
        forged: Any = Forged(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, forged, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        for _ in range(3):
            with pytest.raises(Integrity, match="`e9` of the graph is not what the act"):
                await asked(graph, at=newest)
        forged.adds = False
        assert await asked(graph, at=newest) == [FIRST]

    run(go())


def test_what_was_proved_of_one_tenant_proves_nothing_of_another(tmp_path: Path) -> None:
    """The rows of one tenant, copied under another whose acts state nothing, with a table that both share."""

    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        newest = await world.put_facts([fact(FIRST)])
        rows, known = world.stores.graph(TENANT), ProvedFacts()
        assert await asked(ProvedGraph(TENANT, rows, world.stores.tenant(TENANT), world.keys, known), at=newest)
        other = ProvedGraph("other", rows, world.stores.tenant("other"), world.keys, known)
        with pytest.raises(Integrity):
            await asked(other, at=newest)

    run(go())


def test_an_edge_that_ended_is_looked_for_at_each_commit_and_around_each_seed(tmp_path: Path) -> None:
    """Its row says that it ended, and no act did that: who asked before at another commit proved nothing."""

    class Ended:
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        async def neighbourhood(self, seeds: Any, **bounds: Any) -> Any:
            found = await self.graph.neighbourhood(["customer:cus_77"], **bounds)
            return [one for one in found if one["edge_id"] == FIRST]

        async def step(self, sources: Any, *one: Any, at: int, **bounds: Any) -> Any:
            found = await self.graph.step(["customer:cus_77"], *one, at=at, **{**bounds, "ended": False})
            ended = at > 1 or "customer:cus_78" in sources
            return [edge for edge in found if edge["edge_id"] == "e2" and ended]

    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        await world.put_facts([fact(FIRST), fact("e2")])
        ended: Any = Ended(world.stores.graph(TENANT))
        graph = ProvedGraph(TENANT, ended, world.stores.tenant(TENANT), world.keys, ProvedFacts())
        assert await asked(graph, at=1) == [FIRST]
        for at, seeds in ((2, "customer:cus_77"), (1, "customer:cus_78")):
            with pytest.raises(Integrity):
                await asked(graph, at=at, seeds=seeds)

    run(go())


@pytest.mark.parametrize("beside", ["customer:cus_77", "order:near", "order:middle"])
def test_an_edge_that_ended_is_looked_for_around_each_node_from_which_a_walk_went_on(
    beside: str, tmp_path: Path
) -> None:
    """Somebody writes the end of an edge into its row alone, and the walk goes on as if the edge were not there."""

    class Ended:
        def __init__(self, graph: Any) -> None:
            self.graph = graph

        async def neighbourhood(self, *seeds: Any, **bounds: Any) -> Any:
            return [one for one in await self.graph.neighbourhood(*seeds, **bounds) if one["edge_id"] != LAST]

        async def step(self, sources: Any, *one: Any, ended: bool, **bounds: Any) -> Any:
            found = await self.graph.step(sources, *one, **bounds)
            return [edge for edge in found if (edge["edge_id"] == LAST) is ended]

    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        walk = [fact(FIRST) | {"dst": "order:near"}, fact("e2") | {"src": "order:near", "dst": "order:middle"}]
        newest = await world.put_facts([*walk, fact(LAST) | {"src": beside, "dst": "order:far"}])
        graphs: list[Any] = [world.stores.graph(TENANT), Ended(world.stores.graph(TENANT))]
        honest, ended = (
            ProvedGraph(TENANT, one, world.stores.tenant(TENANT), world.keys, ProvedFacts()) for one in graphs
        )
        bounds = {"at": newest, "hops": 3, "fan_out": 9, "limit": 9}
        found = await honest.neighbourhood(["customer:cus_77"], **bounds)
        assert {one["edge_id"] for one in found} == {FIRST, "e2", LAST}
        with pytest.raises(Integrity, match=f"`{LAST}` of the graph was withdrawn by"):
            await ended.neighbourhood(["customer:cus_77"], **bounds)

    run(go())


def test_a_key_that_is_no_longer_trusted_seals_no_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        newest = await world.put_facts([fact(FIRST)])
        graph = ProvedGraph(TENANT, world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys, ProvedFacts())
        assert await graph.head() == newest
        monkeypatch.setattr(type(world.keys), "verify", lambda *_, **__: False)
        with pytest.raises(Integrity, match="no fact counts"):
            await graph.head()

    run(go())


def test_questions_about_what_nobody_knows_take_no_memory_for_ever(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, seed_graph=False)
        newest = await world.put_facts([fact(FIRST)])
        known: Any = ProvedFacts()
        graph = ProvedGraph(TENANT, world.stores.graph(TENANT), world.stores.tenant(TENANT), world.keys, known)
        for number in range(50):
            await asked(graph, at=newest, seeds=f"order:{number}")
        assert known._bytes >= 50 * ASKED_BYTES

    run(go())
