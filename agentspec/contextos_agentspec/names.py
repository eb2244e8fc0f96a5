"""Lint of the ids in an agent document: each id must name one component.

A runtime builds one component per id, and the first one it reads replaces all others with that id, silently and
wherever they are in the document. Two identical copies count as the same component.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.encoding.pointer import MISSING, pointer
from contextos.errors import Problem
from contextos_agentspec.components import DEFINED, Component, FlowGraph, all_components, dangling, graph_of, items


def name_faults(root: Component) -> Iterator[Problem]:
    """Yield a problem for each id that names two components, and for each edge that is duplicated or leads nowhere."""
    first: dict[str, Component] = {}
    for one in all_components(root):
        if one.id and first.setdefault(one.id, one).value != one.value:
            detail = f"a different component has the same id `{one.id[:64]}`, and a runtime builds only one of them"
            yield Problem(pointer((*one.at, "id")), "duplicate_id", detail, "give it its own id")
        if one.at[-2:-1] == (DEFINED,) and one.at[-1] != one.id:
            detail = f"the component is defined as `{str(one.at[-1])[:64]}`, and its id is `{one.id[:64]}`"
            yield Problem(pointer((*one.at, "id")), "wrong_name", detail, "define it under its id")
        if items(one.value.get("nodes")):
            yield from _edges(graph_of(one))


def _edges(graph: FlowGraph) -> Iterator[Problem]:
    for name, at in dangling(graph):
        detail = f"there is no component `{name[:64]}`"
        yield Problem(pointer(at), "dangling_reference", detail, "define it, or correct the reference")
    seen: set[tuple[str, str, str, str]] = set()
    for edge in graph.data:
        ends = (edge.source, edge.output, edge.target, edge.input)
        if ends in seen:
            detail = f"`{edge.output[:64]}` of `{edge.source[:64]}` already feeds `{edge.input[:64]}`"
            yield Problem(pointer(edge.at), "duplicate_edge", detail, "remove one of the two edges")
        seen.add(ends)


def start_faults(graph: FlowGraph) -> Iterator[Problem]:
    """Yield a problem for each input whose default is one in the flow and another in its start node."""
    if not graph.start:
        return
    start, stated = graph.nodes[graph.start], graph.flow.properties("inputs")
    for title, (schema, at) in start.properties("inputs").items():
        if title in stated and schema.get("default", MISSING) != stated[title][0].get("default", MISSING):
            detail = f"`{title[:64]}` has another default in the start node than in the flow"
            yield Problem(pointer(at), "start_default_differs", detail, "state one default in both")


def overwritten(graph: FlowGraph, node: str) -> Iterator[Problem]:
    """Yield a problem for each input of a node that several edges feed: only the value written last arrives."""
    inputs: dict[str, int] = {}
    for edge in graph.all_into(node):
        inputs[edge.input] = inputs.get(edge.input, 0) + 1
        if inputs[edge.input] == 2:
            detail = f"several edges feed `{edge.input[:64]}` of `{node[:64]}`, and only the last written value arrives"
            yield Problem(pointer(edge.at), "overwritten_input", detail, "keep one edge")
