"""The part of the wiring lint that looks at the whole document: whether each name in it stands for one thing.

A runtime makes one component per id, and the first one that it meets stands for all: a twin of a node or of an edge
replaces it without a word, wherever in the document it is written. Written out twice alike it is the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import DEFINED, Component, FlowGraph, dangling, graph_of, items, written_out


def name_faults(root: Component) -> Iterator[Problem]:
    """Ids that stand twice or under another name, and in every flow the edges that lead nowhere or stand twice."""
    first: dict[str, Component] = {}
    for one in written_out(root):
        if one.id and first.setdefault(one.id, one).value != one.value:
            detail = f"another component has the id `{one.id[:64]}` and differs, and a runtime makes one of the two"
            yield Problem(pointer((*one.at, "id")), "duplicate_id", detail, "give it an id of its own")
        if one.at[-2:-1] == (DEFINED,) and one.at[-1] != one.id:
            detail = f"the component is named `{str(one.at[-1])[:64]}` and its id is `{one.id[:64]}`"
            yield Problem(pointer((*one.at, "id")), "wrong_name", detail, "name it by its id")
        if items(one.value.get("nodes")):
            yield from _edges(graph_of(one))


def _edges(graph: FlowGraph) -> Iterator[Problem]:
    for name, at in dangling(graph):
        detail = f"nothing is called `{name[:64]}`"
        yield Problem(pointer(at), "dangling_reference", detail, "define it, or mend the name")
    seen: set[tuple[str, str, str, str]] = set()
    for wire in graph.data:
        ends = (wire.source, wire.output, wire.target, wire.input)
        if ends in seen:
            detail = f"`{wire.output[:64]}` of `{wire.source[:64]}` is led to `{wire.input[:64]}` already"
            yield Problem(pointer(wire.at), "duplicate_edge", detail, "remove one of them")
        seen.add(ends)


def overwritten(graph: FlowGraph, node: str) -> Iterator[Problem]:
    """Inputs of a node that several edges feed: which of them arrives is a matter of who ran last."""
    inputs: dict[str, int] = {}
    for wire in graph.all_into(node):
        inputs[wire.input] = inputs.get(wire.input, 0) + 1
        if inputs[wire.input] == 2:
            detail = f"several edges feed `{wire.input[:64]}` of `{node[:64]}`, and the last one written arrives"
            yield Problem(pointer(wire.at), "overwritten_input", detail, "keep one of them")
