"""What every `Graph` does. A subclass gives the fixture `world`; `MemoryGraph` is the model to agree with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.contracts.envelopes.evidence import EdgeRow, edge_digest
from contextos.errors import Conflict, InvalidInput
from contextos.store.shared.graph_validation import MAX_PUT
from contextos_sim.memory.graph import MemoryGraph
from tests.suites.store_suite import at_once

_tenants = count()


@dataclass
class GraphWorld:
    """How graphs of a tenant are made, and how their coroutines are run."""

    graph_of: Callable[[str], Any]
    run: Callable[[Awaitable[Any]], Any]

    def graph(self) -> GraphFace:
        return GraphFace(self.graph_of(f"tenant{next(_tenants)}"), self.run)


@dataclass
class GraphFace:
    """A graph without the awaiting."""

    graph: Any
    run: Callable[[Awaitable[Any]], Any]

    def put(self, edges: Any = (), nodes: Any = ()) -> int:
        return self.run(self.graph.put(nodes, edges))

    def head(self) -> int:
        return self.run(self.graph.head())

    def around(self, *seeds: str, at: int = 99, hops: int = 1, fan_out: int = 99, limit: int = 99) -> list[Any]:
        found = self.run(self.graph.neighbourhood(seeds, at=at, hops=hops, fan_out=fan_out, limit=limit))
        return [without_commit(edge) for edge in found]

    def step(
        self, *sources: str, predicate: str | None = "knows", at: int = 99, limit: int = 99, **more: Any
    ) -> list[Any]:
        found = self.run(self.graph.step(sources, predicate, at=at, limit=limit, **more))
        return [without_commit(edge) for edge in found]

    def ids(self, *seeds: str, **bounds: int) -> list[tuple[int, str]]:
        return [(edge["hop"], edge["edge_id"]) for edge in self.around(*seeds, **bounds)]

    def nodes(self, *ceids: str, at: int = 99) -> list[Any]:
        return list(self.run(self.graph.nodes(ceids, at=at)))


def without_commit(edge: Any) -> dict[str, Any]:
    """The edge as it was put, with its hop."""
    return {name: value for name, value in edge.items() if name != "commit"}


def edge(src: str, dst: str, edge_id: str | None = None, **more: Any) -> dict[str, Any]:
    made = {
        "src": src,
        "predicate": "knows",
        "dst": dst,
        "evidence_ref": "artifact:a#1",
        "observed_at": "2026-01-01T00:00:00Z",
        "integrity": "trusted",
        "classification": "INTERNAL",
        **more,
    }
    return made if edge_id is None else {**made, "edge_id": edge_id}


class GraphSuite:
    """Subclass it with a fixture `world`."""

    @pytest.fixture
    def world(self) -> Iterator[GraphWorld]:
        raise NotImplementedError

    def test_every_put_is_one_commit_and_its_number_is_the_head(self, world: GraphWorld) -> None:
        graph = world.graph()
        assert graph.head() == 0
        assert graph.put([edge("a", "b"), edge("b", "c")]) == 1
        assert graph.put([edge("c", "d")]) == 2
        assert graph.head() == 2
        assert world.graph().head() == 0

    def test_an_edge_comes_back_whole_with_its_id_and_hop(self, world: GraphWorld) -> None:
        graph = world.graph()
        statement = edge("a", "b", "e1", value={"amount": 12.5, "tags": ["x", None]})
        graph.put([statement])
        assert graph.around("a") == [{**statement, "hop": 1}]
        assert graph.around("b") == [{**statement, "hop": 1}]
        assert graph.around("c") == []

    @pytest.mark.requirement("I-HOPS")
    def test_hops_go_both_ways_breadth_first_and_then_by_id(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("b", "a", "e9"), edge("a", "c", "e3"), edge("c", "d", "e1"), edge("d", "e", "e2")])
        graph.put([edge("b", "c", "e5")])
        assert graph.ids("a", hops=0) == []
        assert graph.ids("a", hops=1) == [(1, "e3"), (1, "e9")]
        assert graph.ids("a", hops=2) == [(1, "e3"), (1, "e9"), (2, "e1"), (2, "e5")]
        assert graph.ids("a", hops=4) == [(1, "e3"), (1, "e9"), (2, "e1"), (2, "e5"), (3, "e2")]
        assert graph.ids("a", "a", "d", hops=1) == [(1, "e1"), (1, "e2"), (1, "e3"), (1, "e9")]
        assert graph.ids("a", hops=4, limit=3) == [(1, "e3"), (1, "e9"), (2, "e1")]
        assert graph.ids("a", limit=0) == graph.ids("a", fan_out=0) == graph.ids() == []

    @pytest.mark.requirement("I-HOPS")
    def test_a_hub_leads_to_its_first_edges_only_and_those_found_before_do_not_count(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("hub", f"n{number}", f"e{number:02}") for number in range(50)])
        assert graph.ids("hub", fan_out=2) == [(1, "e00"), (1, "e01")]
        assert graph.ids("n7", hops=2, fan_out=2) == [(1, "e07"), (2, "e00"), (2, "e01")]
        assert graph.ids("n0", hops=2, fan_out=2) == [(1, "e00"), (2, "e01"), (2, "e02")]

    @pytest.mark.requirement("I-HOPS")
    def test_a_node_leads_on_only_once_so_the_bound_holds_over_all_hops(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1"), edge("a", "c", "e2"), edge("a", "d", "e3")])
        assert graph.ids("a", hops=4, fan_out=1) == [(1, "e1")]

    def test_an_edge_to_itself_is_found_once(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "a", "e1"), edge("a", "b", "e2")])
        assert graph.ids("a", hops=3) == [(1, "e1"), (1, "e2")]
        assert graph.ids("b", hops=3) == [(1, "e2"), (2, "e1")]

    @pytest.mark.requirement("I-SNAPSHOT", "I-HOPS")
    def test_a_step_finds_every_edge_with_its_predicate_from_its_sources(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e2"), edge("c", "a", "e1"), edge("b", "a", "e3"), edge("a", "c", "e4", value=1)])
        graph.put([edge("a", "d", "e5", predicate="owns"), {"retracts": "e2", "evidence_ref": "artifact:a#2"}])
        assert [one["edge_id"] for one in graph.step("a", "b", at=1)] == ["e2", "e3", "e4"]
        assert [one["edge_id"] for one in graph.step("a", "b", at=1, limit=2)] == ["e2", "e3"]
        assert graph.step("a", at=2) == [edge("a", "c", "e4", value=1)]
        assert [one["edge_id"] for one in graph.step("a", "b", at=2, ended=True)] == ["e2"]
        assert graph.step("a", at=1, ended=True) == graph.step("b", ended=True) == []
        assert graph.step("a", predicate="owns", at=1) == graph.step("z") == graph.step() == []
        assert [one["edge_id"] for one in graph.step("a", predicate="owns")] == ["e5"]

    def test_a_step_from_a_source_that_is_named_twice_finds_each_edge_once(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1"), edge("a", "c", "e2"), edge("b", "a", "e3"), edge("a", "d", "e4")])
        graph.put([{"retracts": "e4", "evidence_ref": "artifact:a#2"}])
        for predicate in ("knows", None):
            found = graph.step("a", "b", "a", predicate=predicate)
            assert [one["edge_id"] for one in found] == ["e1", "e2", "e3"]
            found = graph.step("a", "b", "a", predicate=predicate, limit=2)
            assert [one["edge_id"] for one in found] == ["e1", "e2"]
            found = graph.step("a", "b", "a", predicate=predicate, ended=True)
            assert [one["edge_id"] for one in found] == ["e4"]

    def test_a_step_along_any_predicate_goes_on_behind_an_edge(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e2"), edge("b", "a", "e3"), edge("a", "d", "e5", predicate="owns")])
        graph.put([edge("a", "c", "e4", predicate="has"), {"retracts": "e2", "evidence_ref": "artifact:a#2"}])
        assert [one["edge_id"] for one in graph.step("a", predicate=None, at=1)] == ["e2", "e5"]
        assert [one["edge_id"] for one in graph.step("a", predicate=None)] == ["e4", "e5"]
        assert [one["edge_id"] for one in graph.step("a", predicate=None, limit=1)] == ["e4"]
        assert [one["edge_id"] for one in graph.step("a", predicate=None, after="e4")] == ["e5"]
        assert graph.step("a", predicate=None, after="e5") == graph.step("a", after="e2", at=1) == []

    def test_every_edge_is_read_with_the_commits_that_wrote_and_withdrew_it(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1")])
        graph.put([edge("a", "c", "e2"), {"retracts": "e1", "evidence_ref": "artifact:a#2"}])
        assert [one["commit"] for one in graph.run(graph.graph.step(["a"], "knows", at=1, limit=9))] == [1]
        around = graph.run(graph.graph.neighbourhood(["a"], at=2, hops=1, fan_out=9, limit=9))
        assert [(one["edge_id"], one["commit"]) for one in around] == [("e2", 2)]
        first, second = graph.run(graph.graph.rows())
        assert first == EdgeRow("e1", "a", "knows", "b", edge("a", "b", "e1"), 1, 2, "artifact:a#2")
        assert second == EdgeRow("e2", "a", "knows", "c", edge("a", "c", "e2"), 2, None, None)
        assert graph.run(graph.graph.rows(limit=1)) == [first]
        assert graph.run(graph.graph.rows(after="e1")) == [second]

    def test_a_plan_says_what_a_put_changes_and_a_put_on_another_head_is_refused(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1")])
        wanted = [edge("a", "c", "e2", retracts="e1"), edge("a", "d")]
        planned = graph.run(graph.graph.plan([], wanted))
        assert (planned.number, planned.withdrawn, planned.changes) == (2, {"e1": "artifact:a#1"}, True)
        assert planned.appended["e2"] == edge_digest(wanted[0])
        assert graph.head() == 1
        with pytest.raises(Conflict):
            graph.run(graph.graph.put([], wanted, expect=0))
        assert graph.run(graph.graph.put([], wanted, expect=1)) == 2
        written = {row.edge_id: edge_digest(row.statement) for row in graph.run(graph.graph.rows()) if row.written == 2}
        assert written == planned.appended
        assert graph.run(graph.graph.plan([], wanted[1:])).changes is False

    @pytest.mark.requirement("I-SNAPSHOT")
    def test_a_snapshot_stays_as_it_was(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1")])
        graph.put([edge("a", "c", "e2", retracts="e1")])
        graph.put([{"retracts": "e2", "evidence_ref": "artifact:a#2"}])
        assert graph.head() == 3
        assert [graph.ids("a", at=at) for at in range(5)] == [[], [(1, "e1")], [(1, "e2")], [], []]
        assert graph.ids("b", at=1) == [(1, "e1")]

    @pytest.mark.requirement("I-EDGE-EVIDENCE")
    @pytest.mark.parametrize("missing", ["", None, 7])
    def test_one_edge_without_evidence_refuses_the_whole_put(self, world: GraphWorld, missing: Any) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1")])
        wrong = edge("a", "d", "e3")
        wrong["evidence_ref"] = missing
        without = {name: value for name, value in wrong.items() if name != "evidence_ref"}
        node = {"ceid": "a", "type": "person", "properties": {}}
        for bad in (wrong, without, {"retracts": "e1", "evidence_ref": missing}, {"retracts": "e1"}):
            with pytest.raises(InvalidInput, match="/edges/1/evidence_ref"):
                graph.put([edge("a", "c", "e2"), bad], [node])
        assert graph.head() == 1
        assert graph.ids("a") == [(1, "e1")]
        assert graph.nodes("a") == []

    @pytest.mark.parametrize(
        ("change", "where"),
        [
            ({"src": ""}, "src"),
            ({"dst": 5}, "dst"),
            ({"predicate": None}, "predicate"),
            ({"integrity": "certain"}, "integrity"),
            ({"classification": "internal"}, "classification"),
            ({"observed_at": ""}, "observed_at"),
            ({"observed_at": True}, "observed_at"),
            ({"edge_id": ""}, "edge_id"),
            ({"edge_id": "x" * 801}, "edge_id"),
            ({"src": "x" * 801}, "src"),
            ({"dst": "ä" * 401}, "dst"),
            ({"colour": "red"}, "colour"),
            ({"value": float("nan")}, "value"),
            ({"value": "x" * (1 << 20)}, "edges/0"),
            ({"retracts": "absent"}, "retracts"),
        ],
    )
    def test_a_malformed_edge_is_refused_with_its_place(self, world: GraphWorld, change: Any, where: str) -> None:
        graph = world.graph()
        with pytest.raises(InvalidInput, match=where):
            graph.put([{**edge("a", "b"), **change}])
        for name in ("observed_at", "integrity", "classification", "src"):
            incomplete = edge("a", "b")
            del incomplete[name]
            with pytest.raises(InvalidInput, match=f"/edges/0/{name}"):
                graph.put([incomplete])
        assert graph.head() == 0

    def test_an_edge_that_is_not_valid_cannot_be_withdrawn(self, world: GraphWorld) -> None:
        graph = world.graph()
        end = {"retracts": "e1", "evidence_ref": "artifact:a#2"}
        with pytest.raises(InvalidInput, match="/edges/1/retracts"):
            graph.put([edge("a", "b", "e1"), end])
        graph.put([edge("a", "b", "e1")])
        with pytest.raises(InvalidInput, match="/edges/1/retracts"):
            graph.put([end, end])
        graph.put([end])
        with pytest.raises(InvalidInput, match="/edges/0/retracts"):
            graph.put([end])
        assert graph.head() == 2

    def test_a_known_edge_is_not_put_again(self, world: GraphWorld) -> None:
        graph = world.graph()
        node = {"ceid": "a", "type": "person", "properties": {"name": "A"}}
        assert graph.put([edge("a", "b"), edge("a", "b", "mine"), edge("a", "b")], [node]) == 1
        assert graph.put([edge("a", "b"), edge("a", "b", "mine")], [node]) == 1
        assert graph.put() == 1
        assert len(graph.around("a")) == 2
        replacing = edge("a", "c", "e2", retracts="mine")
        assert graph.put([replacing]) == 2
        assert graph.put([replacing]) == 2

    def test_an_id_is_given_once(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b", "e1")])
        with pytest.raises(InvalidInput, match="taken"):
            graph.put([edge("a", "c", "e1")])
        with pytest.raises(InvalidInput, match="taken"):
            graph.put([edge("a", "c", "e2"), edge("a", "d", "e2")])
        graph.put([{"retracts": "e1", "evidence_ref": "artifact:a#2"}])
        with pytest.raises(InvalidInput, match="taken"):
            graph.put([edge("a", "b", "e1")])
        assert graph.head() == 2

    def test_a_statement_that_was_withdrawn_can_be_made_again_under_another_id(self, world: GraphWorld) -> None:
        graph = world.graph()
        graph.put([edge("a", "b")])
        ((_, first),) = graph.ids("a")
        graph.put([{"retracts": first, "evidence_ref": "artifact:a#2"}])
        assert graph.put([edge("a", "b")]) == 3
        ((_, second),) = graph.ids("a")
        assert second != first
        assert graph.put([edge("a", "b")]) == 3

    def test_nodes_are_read_as_they_were_at_a_commit(self, world: GraphWorld) -> None:
        graph = world.graph()
        first = {"ceid": "a", "type": "person", "properties": {"name": "A"}}
        second = {**first, "properties": {"name": "B"}}
        graph.put(nodes=[first])
        graph.put(nodes=[second, {"ceid": "b", "type": "team", "properties": {}}])
        assert graph.put(nodes=[second]) == 2
        assert graph.nodes("b", "a", "c", "a") == [second, {"ceid": "b", "type": "team", "properties": {}}]
        assert graph.nodes("a", "b", at=1) == [first]
        assert graph.nodes("a", at=0) == []

    @pytest.mark.parametrize(
        "nodes",
        [
            [{"ceid": "a", "type": "t"}],
            [{"ceid": "", "type": "t", "properties": {}}],
            [{"ceid": "a", "type": "t", "properties": []}],
            [{"ceid": "a", "type": "t", "properties": {}, "more": 1}],
            [{"ceid": "x" * 801, "type": "t", "properties": {}}],
            [{"ceid": "a", "type": "t", "properties": {}}, {"ceid": "a", "type": "u", "properties": {}}],
        ],
    )
    def test_a_malformed_node_is_refused(self, world: GraphWorld, nodes: Any) -> None:
        graph = world.graph()
        with pytest.raises(InvalidInput, match="/nodes"):
            graph.put([edge("a", "b")], nodes)
        assert graph.head() == 0

    def test_a_put_that_is_too_large_is_refused(self, world: GraphWorld) -> None:
        graph = world.graph()
        many = [edge("a", f"n{number}") for number in range(MAX_PUT + 1)]
        with pytest.raises(InvalidInput, match="several commits"):
            graph.put(many)
        assert graph.head() == 0

    @pytest.mark.requirement("I-TENANT")
    def test_no_tenant_sees_the_edges_of_another(self, world: GraphWorld) -> None:
        ours, theirs = world.graph(), world.graph()
        ours.put([edge("a", "b", "e1")])
        theirs.put([edge("a", "c", "e1")])
        assert [found["dst"] for found in ours.around("a", hops=3)] == ["b"]
        assert [found["dst"] for found in theirs.around("a", hops=3)] == ["c"]

    def test_any_history_agrees_with_the_reference_model_at_every_commit(self, world: GraphWorld) -> None:
        @settings(max_examples=60)
        @given(data=st.data())
        def agrees(data: st.DataObject) -> None:
            real, model = world.graph(), GraphFace(MemoryGraph(), at_once)
            for change in data.draw(histories(), label="history"):
                assert outcome(real, change) == outcome(model, change)
            assert real.head() == model.head()
            query = data.draw(queries(), label="query")
            for at in range(real.head() + 2):
                for seeds in ("a", "bc", "az"):
                    assert real.around(*seeds, at=at, **query) == model.around(*seeds, at=at, **query)

        agrees()


def outcome(graph: GraphFace, edges: Any) -> Any:
    try:
        return graph.put(edges)
    except InvalidInput as refused:
        return str(refused)


def histories() -> st.SearchStrategy[Any]:
    things, ids = st.sampled_from("abcdef"), st.sampled_from(["e1", "e2", "e3", "e4", None])
    statement = st.builds(edge, things, things, ids, value=st.integers(0, 1))
    ended = st.sampled_from(["e1", "e2", "e3"])
    replacing = st.builds(edge, things, things, ids, retracts=ended)
    withdrawal = ended.map(lambda edge_id: {"retracts": edge_id, "evidence_ref": "artifact:a#2"})
    put = st.lists(st.one_of(statement, statement, replacing, withdrawal), min_size=1, max_size=5)
    return st.lists(put, max_size=6)


def queries() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"hops": st.integers(0, 4), "fan_out": st.integers(0, 4), "limit": st.sampled_from([0, 1, 3, 99])}
    )
