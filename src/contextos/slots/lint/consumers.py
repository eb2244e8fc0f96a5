"""The part of the wiring lint that looks at consumers: what takes `contextSlotBindings`, from where, and on which way.

A consumer runs after the selection node on every way that control can take; the order of the node list says nothing.
It belongs to the agent itself: a child agent has slots and a selection of its own, and one selection never serves
several children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import Component, FlowGraph, Wire, graph_of
from contextos.slots.lint.oas import names_slots
from contextos.slots.lint.selection_node import BINDINGS, OUTPUTS, SelectionNode


def consumer_faults(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Iterator[Problem]:
    """What is wrong between a slot's selection node and the nodes that its refs are for."""
    node, output = selection.node, selection.output
    wires = [wire for wire in graph.out_of(node.id) if wire.input == BINDINGS]
    if not wires:
        yield _no_output(graph, slot_id, selection)
    if node.id not in graph.reached(graph.start):
        detail = f"slot `{slot_id}`: control never comes to `{node.id[:64]}`"
        yield Problem(pointer(node.at), "missing_control_edge", detail, "lead control from the start node to it")
    after, around = graph.reached(node.id), graph.reached(graph.start, without=frozenset({node.id}))
    for wire in wires:
        consumer = graph.nodes.get(wire.target)
        if consumer is None:
            continue
        if consumer.id not in after:
            detail = f"slot `{slot_id}`: control never goes from `{node.id[:64]}` to `{consumer.id[:64]}`"
            yield Problem(pointer(wire.at), "missing_control_edge", detail, "add a control edge between them")
        elif consumer.id in around:
            yield _reachable(graph, slot_id, selection, consumer, around)
        if wire.output != output:
            detail = f"slot `{slot_id}`: `{BINDINGS}` of `{consumer.id[:64]}` gets `{wire.output[:64]}`"
            yield Problem(pointer(wire.at), "wrong_output_edge", detail, f"lead `{output}` to it")
        yield from _taken(slot_id, wire, consumer)
    yield from _children(graph, slot_id, wires)


def bypasses(graph: FlowGraph, selections: Sequence[SelectionNode]) -> Iterator[Problem]:
    """Consumers whose input is fed by no selection node, or by several."""
    chosen = {one.node.id for one in selections}
    for node in graph.nodes.values():
        if node.id in chosen or node.kind in ("StartNode", "EndNode") or BINDINGS not in node.properties("inputs"):
            continue
        wires = graph.into(node.id, BINDINGS)
        if not wires:
            yield _unfed(node, "the selection node's `contextRefs`")
        if len(wires) > 1:
            detail = f"{len(wires)} edges feed `{BINDINGS}` of `{node.id[:64]}`, and only the last one written arrives"
            yield Problem(pointer(wires[1].at), "overwritten_bindings", detail, "give each slot a consumer of its own")
        for wire in wires:
            if wire.source not in chosen:
                detail = f"`{BINDINGS}` of `{node.id[:64]}` comes from `{wire.source[:64]}`, which selects nothing"
                yield Problem(pointer(wire.at), "bypass", detail, "take it from a selection node's `contextRefs`")


def inner_bypasses(inside: FlowGraph) -> Iterator[Problem]:
    """The same in a flow that the agent runs inside: there the refs come from its start node."""
    for node in inside.nodes.values():
        if node.kind in ("StartNode", "EndNode") or BINDINGS not in node.properties("inputs"):
            continue
        wires = inside.into(node.id, BINDINGS)
        if not wires:
            yield _unfed(node, "the start node of its flow")
        for wire in wires:
            if wire.source != inside.start:
                detail = f"`{BINDINGS}` of `{node.id[:64]}` comes from `{wire.source[:64]}`, which selects nothing"
                yield Problem(pointer(wire.at), "bypass", detail, "take it from the start node of its flow")


def _unfed(node: Component, source: str) -> Problem:
    at = pointer(node.properties("inputs")[BINDINGS][1])
    detail = f"nothing feeds `{BINDINGS}` of `{node.id[:64]}`, which then runs without context"
    return Problem(at, "unfed_consumer", detail, f"add the data edge from {source}")


def _no_output(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Problem:
    """No refs arrive anywhere: an edge leads to the wrong place, or there is none."""
    node = selection.node
    for wire in graph.out_of(node.id):
        target = graph.nodes.get(wire.target)
        if target is not None and target.kind != "EndNode":
            detail = (
                f"slot `{slot_id}`: `{wire.output[:64]}` of `{node.id[:64]}` goes to `{wire.input[:64]}` "
                f"of `{wire.target[:64]}`"
            )
            mend = f"lead `{selection.output}` to `{BINDINGS}`"
            return Problem(pointer(wire.at), "wrong_output_edge", detail, mend)
    detail = f"slot `{slot_id}`: the refs of `{node.id[:64]}` reach no consumer"
    mend = f"add a data edge from `{OUTPUTS[0]}` to the consumer's `{BINDINGS}`"
    return Problem(pointer(node.at), "missing_output_edge", detail, mend)


def _reachable(
    graph: FlowGraph, slot_id: str, selection: SelectionNode, consumer: Component, past: frozenset[str]
) -> Problem:
    """The selection node does not dominate the consumer: from the start there is a way past it."""
    node = selection.node.id
    detail = f"slot `{slot_id}`: `{consumer.id[:64]}` can be reached around `{node[:64]}`"
    at = next((one.at for one in graph.ways_to(consumer.id) if one.source in past), consumer.at)
    return Problem(pointer(at), "reachable_around", detail, "lead every way to it through the selection node")


def _taken(slot_id: str, wire: Wire, consumer: Component) -> Iterator[Problem]:
    """The input is declared as what arrives, and a consumer that is a flow hands it on, down to who uses it."""
    schema, at = consumer.properties("inputs").get(BINDINGS, ({}, wire.at))
    if schema.get("type", "array") != "array":
        detail = f"slot `{slot_id}`: `{BINDINGS}` of `{consumer.id[:64]}` is no list, so it gets JSON text"
        yield Problem(pointer(at), "wrong_type", detail, "declare it as an array of objects")
    waiting = [(consumer, BINDINGS)]
    while waiting:
        node, title = waiting.pop()
        inner = node.below() if node.kind == "FlowNode" else None
        if inner is None or not inner.once(f"takes {title}"):
            continue
        inside = graph_of(inner)
        used = [one for one in inside.out_of(inside.start) if one.output == title]
        if not used:
            detail = f"slot `{slot_id}`: the flow behind `{node.id[:64]}` takes `{title[:64]}` and does not use it"
            yield Problem(pointer(inner.at), "unused_bindings", detail, "lead it from the start node to what needs it")
        waiting += [(inside.nodes[one.target], one.input) for one in used if one.target in inside.nodes]


def _children(graph: FlowGraph, slot_id: str, wires: Sequence[Wire]) -> Iterator[Problem]:
    """Child-local: no child that has slots of its own is fed, and not more than one child agent."""
    fed = [(wire, graph.nodes[wire.target]) for wire in wires if wire.target in graph.nodes]
    children = [(wire, node) for wire, node in fed if _is_child(graph, node)]
    for index, (wire, node) in enumerate(children):
        inner = node.below()
        own = inner is not None and names_slots(inner.value)
        if own or index:
            detail = f"slot `{slot_id}`: the selection is handed to the child agent `{node.id[:64]}`" + (
                ", which has slots of its own" if own else " as well"
            )
            yield Problem(pointer(wire.at), "fan_out", detail, "let each child select for itself")


def _is_child(graph: FlowGraph, node: Component) -> bool:
    """Whether a node runs another agent: it says so, or what it runs does."""
    inner = node.below()
    if node.kind in ("AgentNode", "RemoteAgentNode") or (inner is not None and names_slots(inner.value)):
        return True
    packages = {node.package, inner.package if inner is not None else ""} - {"", graph.flow.package}
    return bool(packages)
