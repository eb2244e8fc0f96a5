"""Wiring lint of consumers: the nodes with an input `contextSlotBindings`, and the edges that feed it.

A consumer must run after the selection node on every control path; the order of the node list does not matter. It must
belong to the agent itself: a child agent has its own slots and its own selection, and one selection never serves
several children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import Component, FlowGraph, ValueEdge, graph_of
from contextos.slots.lint.oas import names_slots
from contextos.slots.lint.selection_node import BINDINGS, OUTPUTS, SelectionNode


def consumer_faults(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Iterator[Problem]:
    """Yield the problems between a slot's selection node and the consumers of its refs."""
    node, output = selection.node, selection.output
    edges = [edge for edge in graph.out_of(node.id) if edge.input == BINDINGS]
    if not edges:
        yield _no_output(graph, slot_id, selection)
    if node.id not in graph.reached(graph.start):
        detail = f"slot `{slot_id}`: control never reaches `{node.id[:64]}`"
        yield Problem(pointer(node.at), "missing_control_edge", detail, "add control edges from the start node to it")
    after, bypassing = graph.reached(node.id), graph.reached(graph.start, without=frozenset({node.id}))
    for edge in edges:
        consumer = graph.nodes.get(edge.target)
        if consumer is None:
            continue
        if consumer.id not in after:
            detail = f"slot `{slot_id}`: control never goes from `{node.id[:64]}` to `{consumer.id[:64]}`"
            yield Problem(pointer(edge.at), "missing_control_edge", detail, "add a control edge between them")
        elif consumer.id in bypassing:
            yield _reachable(graph, slot_id, selection, consumer, bypassing)
        if edge.output != output:
            detail = f"slot `{slot_id}`: `{BINDINGS}` of `{consumer.id[:64]}` is fed from `{edge.output[:64]}`"
            yield Problem(pointer(edge.at), "wrong_output_edge", detail, f"feed it from `{output}`")
        yield from _use_of_bindings(slot_id, edge, consumer)
    yield from _children(graph, slot_id, edges)


def bypasses(graph: FlowGraph, selections: Sequence[SelectionNode]) -> Iterator[Problem]:
    """Yield the consumers whose input is fed by no selection node, or by several."""
    selection_ids = {one.node.id for one in selections}
    for node in graph.nodes.values():
        if node.id in selection_ids or not _takes_bindings(node):
            continue
        edges = graph.into(node.id, BINDINGS)
        if not edges:
            yield _unfed(node, "the selection node's `contextRefs`")
        if len(edges) > 1:
            detail = f"{len(edges)} edges feed `{BINDINGS}` of `{node.id[:64]}`, and only the last value arrives"
            yield Problem(pointer(edges[1].at), "overwritten_bindings", detail, "give each slot its own consumer")
        for edge in edges:
            if edge.source not in selection_ids:
                detail = f"`{BINDINGS}` of `{node.id[:64]}` is fed from `{edge.source[:64]}`, which is not a selection"
                yield Problem(pointer(edge.at), "bypass", detail, "feed it from a selection node's `contextRefs`")


def inner_bypasses(inside: FlowGraph) -> Iterator[Problem]:
    """Yield the same problems in an inner flow, where the refs come from its start node."""
    for node in inside.nodes.values():
        if not _takes_bindings(node):
            continue
        edges = inside.into(node.id, BINDINGS)
        if not edges:
            yield _unfed(node, "the start node of its flow")
        for edge in edges:
            if edge.source != inside.start:
                detail = f"`{BINDINGS}` of `{node.id[:64]}` is fed from `{edge.source[:64]}`, which is not a selection"
                yield Problem(pointer(edge.at), "bypass", detail, "feed it from the start node of its flow")


def _takes_bindings(node: Component) -> bool:
    return node.kind not in ("StartNode", "EndNode") and BINDINGS in node.properties("inputs")


def _unfed(node: Component, source: str) -> Problem:
    at = pointer(node.properties("inputs")[BINDINGS][1])
    detail = f"no edge feeds `{BINDINGS}` of `{node.id[:64]}`, so it runs without context"
    return Problem(at, "unfed_consumer", detail, f"add a data edge from {source}")


def _no_output(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Problem:
    """The problem of a selection whose refs reach no consumer: an edge has the wrong end, or there is no edge."""
    node = selection.node
    for edge in graph.out_of(node.id):
        target = graph.nodes.get(edge.target)
        if target is not None and target.kind != "EndNode":
            detail = (
                f"slot `{slot_id}`: `{edge.output[:64]}` of `{node.id[:64]}` feeds `{edge.input[:64]}` "
                f"of `{edge.target[:64]}`"
            )
            remedy = f"connect `{selection.output}` to `{BINDINGS}`"
            return Problem(pointer(edge.at), "wrong_output_edge", detail, remedy)
    detail = f"slot `{slot_id}`: the refs of `{node.id[:64]}` reach no consumer"
    remedy = f"add a data edge from `{OUTPUTS[0]}` to the consumer's `{BINDINGS}`"
    return Problem(pointer(node.at), "missing_output_edge", detail, remedy)


def _reachable(
    graph: FlowGraph, slot_id: str, selection: SelectionNode, consumer: Component, bypassing: frozenset[str]
) -> Problem:
    """The problem of a consumer that control can reach from the start without passing the selection node."""
    node = selection.node.id
    detail = f"slot `{slot_id}`: control can reach `{consumer.id[:64]}` without passing `{node[:64]}`"
    at = next((one.at for one in graph.control_into(consumer.id) if one.source in bypassing), consumer.at)
    return Problem(pointer(at), "reachable_around", detail, "route every control path to it through the selection node")


def _use_of_bindings(slot_id: str, edge: ValueEdge, consumer: Component) -> Iterator[Problem]:
    """Check that the input is declared as a list, and that a consumer that is a flow passes it on to a node."""
    schema, at = consumer.properties("inputs").get(BINDINGS, ({}, edge.at))
    if schema.get("type", "array") != "array":
        detail = f"slot `{slot_id}`: `{BINDINGS}` of `{consumer.id[:64]}` is not a list, so it receives JSON text"
        yield Problem(pointer(at), "wrong_type", detail, "declare it as an array of objects")
    waiting = [(consumer, BINDINGS)]
    while waiting:
        node, title = waiting.pop()
        inner = node.inner() if node.kind == "FlowNode" else None
        if inner is None or not inner.once(f"takes {title}"):
            continue
        inside = graph_of(inner)
        used = [one for one in inside.out_of(inside.start) if one.output == title]
        if not used:
            detail = f"slot `{slot_id}`: the flow behind `{node.id[:64]}` receives `{title[:64]}` and does not use it"
            yield Problem(pointer(inner.at), "unused_bindings", detail, "connect it to the node that needs it")
        waiting += [(inside.nodes[one.target], one.input) for one in used if one.target in inside.nodes]


def _children(graph: FlowGraph, slot_id: str, edges: Sequence[ValueEdge]) -> Iterator[Problem]:
    """Check that no child agent with its own slots is fed, and at most one child agent."""
    fed = [(edge, graph.nodes[edge.target]) for edge in edges if edge.target in graph.nodes]
    children = [(edge, node) for edge, node in fed if _is_child(graph, node)]
    for index, (edge, node) in enumerate(children):
        inner = node.inner()
        own = inner is not None and names_slots(inner.value)
        if own or index:
            detail = f"slot `{slot_id}`: the selection is passed to the child agent `{node.id[:64]}`" + (
                ", which has its own slots" if own else " as well"
            )
            yield Problem(pointer(edge.at), "fan_out", detail, "let each child agent make its own selection")


def _is_child(graph: FlowGraph, node: Component) -> bool:
    """Whether a node runs another agent: by its own kind or package, or by those of its inner component."""
    inner = node.inner()
    if node.kind in ("AgentNode", "RemoteAgentNode") or (inner is not None and names_slots(inner.value)):
        return True
    packages = {node.package, inner.package if inner is not None else ""} - {"", graph.flow.package}
    return bool(packages)
