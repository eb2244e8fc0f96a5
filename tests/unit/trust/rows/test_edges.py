"""Edges count as the sealed acts of their commits state them, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.evidence import EdgeRow
from contextos.contracts.journal import CONTROL
from contextos.errors import Integrity
from contextos.trust.rows.edges import MAX_COMMITS, KnownCommits, ProvedGraph, written_fact_fault
from tests.unit.operations.acts.test_facts import fact
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


def test_the_acts_of_a_commit_are_read_once_and_a_process_remembers_few(tmp_path: Path) -> None:
    async def go() -> None:
        world, _, newest = await written(tmp_path)
        known: KnownCommits = KnownCommits((("t", number), {}) for number in range(MAX_COMMITS))
        store = world.stores.tenant(TENANT)
        graph = ProvedGraph(TENANT, world.stores.graph(TENANT), store, world.keys, known)
        found = await graph.step(["customer:cus_77"], "likes", at=newest, limit=9)
        assert [one["edge_id"] for one in found] == [FIRST, LAST]
        assert len(known) == MAX_COMMITS
        assert {(TENANT, 1), (TENANT, 2)} <= known.keys()

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
        graph = ProvedGraph(TENANT, altered, world.stores.tenant(TENANT), world.keys, KnownCommits())
        assert len(await graph.step(["customer:cus_77"], None, at=newest, limit=9)) == 2
        for sources, predicate in ((["customer:cus_77"], "owes"), (["customer:cus_78"], None)):
            with pytest.raises(Integrity, match="is stored under another subject or predicate than it states"):
                await graph.step(sources, predicate, at=newest, limit=9)

    run(go())
