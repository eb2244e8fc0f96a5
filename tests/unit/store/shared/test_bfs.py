"""A breadth-first walk finds each edge once, in order, and stops at its limits."""

from __future__ import annotations

from contextos.store.shared.bfs import BreadthFirstWalk, FoundRow


def row(node: str, edge_id: str, src: str, dst: str) -> FoundRow:
    return node, edge_id, src, dst, b'{"src":"%b"}' % src.encode(), 1


def test_a_walk_goes_on_from_the_new_ends_and_ends_when_there_are_none() -> None:
    walk = BreadthFirstWalk(["a"], fan_out=5, limit=10)
    assert walk.frontier == ["a"]
    walk.take([row("a", "e1", "a", "b"), row("a", "e2", "c", "a")])
    assert walk.frontier == ["b", "c"]
    walk.take([row("b", "e1", "a", "b"), row("c", "e2", "c", "a")])
    assert walk.frontier == []
    assert [(edge["edge_id"], edge["hop"]) for edge in walk.edges()] == [("e1", 1), ("e2", 1)]


def test_a_hub_gives_only_its_first_edges_and_known_edges_do_not_use_up_the_next_query() -> None:
    walk = BreadthFirstWalk(["hub"], fan_out=2, limit=10)
    walk.take([row("hub", f"e{number}", "hub", f"n{number}") for number in range(5)])
    assert [edge["edge_id"] for edge in walk.edges()] == ["e0", "e1"]
    assert walk.wanted == 3, "two new edges, and the one by which each node was found"


def test_a_limit_ends_the_walk_and_cuts_the_result() -> None:
    walk = BreadthFirstWalk(["a"], fan_out=5, limit=1)
    walk.take([row("a", "e2", "a", "c"), row("a", "e1", "a", "b")])
    assert walk.frontier == ()
    assert [edge["edge_id"] for edge in walk.edges()] == ["e1"]
    assert BreadthFirstWalk(["a"], fan_out=5, limit=0).frontier == ()
