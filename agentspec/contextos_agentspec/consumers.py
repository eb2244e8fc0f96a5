"""Lint of the nodes that use selected context (those with an input `contextSlotBindings`) and of the edges that feed
them.

On every control path such a node must run after the selection node, which fills the context slot; the order of the node
list does not matter. It must belong to the agent itself: a child agent has its own slots and its own selection, and one
selection never serves several children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextos.context.slots.oas import DocumentPath
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos_agentspec.components import Component, FlowGraph, ValueEdge, graph_of, names_slots
from contextos_agentspec.selection_node import BINDINGS, END, OUTPUTS, SelectionNode, steps_doing


def consumer_faults(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Iterator[Problem]:
    """Yield the problems between a selection node (which fills a context slot) and the nodes that use its result."""
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
    yield from _children(graph, slot_id, [edge for edge in graph.out_of(node.id) if edge.output == output])


def bypasses(graph: FlowGraph, selections: Sequence[SelectionNode]) -> Iterator[Problem]:
    """Yield a problem for each node that uses selected context but gets it from no selection node, or from several."""
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


def pass_throughs(graph: FlowGraph, *, root: bool) -> Iterator[Problem]:
    """Yield a problem for each edge by which a flow returns as `contextRefs` what it was given: nothing is selected.

    From the start of the `root` the value is followed under every name and through the agent's own flows. A flow that
    resolves a slot is left out: `selection_flow` says what it returns.
    """
    if steps_doing(graph, "resolve"):
        return
    into_ends = graph.out_of(graph.start) if graph.start else ()
    if root:
        into_ends = [edge for edge, node, _ in _agents_and_ends_fed(graph, into_ends) if node.kind == END]
    for edge in into_ends:
        if edge.input == OUTPUTS[0] and edge.target in graph.nodes and graph.nodes[edge.target].kind == END:
            detail = f"`{OUTPUTS[0]}` of `{edge.target[:64]}` comes from the start of the flow, and nobody selected it"
            remedy = "return the output of a selection node, or remove the edge"
            yield Problem(pointer(edge.at), "pass_through", detail, remedy)


def inner_bypasses(inside: FlowGraph) -> Iterator[Problem]:
    """Yield a problem for each such node in an inner flow that does not get its context from the flow's start node."""
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
    return node.kind not in ("StartNode", END) and BINDINGS in node.properties("inputs")


def _unfed(node: Component, source: str) -> Problem:
    at = pointer(node.properties("inputs")[BINDINGS][1])
    detail = f"no edge feeds `{BINDINGS}` of `{node.id[:64]}`, so it runs without context"
    return Problem(at, "unfed_consumer", detail, f"add a data edge from {source}")


def _no_output(graph: FlowGraph, slot_id: str, selection: SelectionNode) -> Problem:
    """The problem of a selection whose refs reach no consumer: an edge has the wrong end, or there is no edge."""
    node = selection.node
    for edge in graph.out_of(node.id):
        target = graph.nodes.get(edge.target)
        if target is not None and target.kind != END:
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
        ends = {name for name, one in inside.nodes.items() if one.kind == END}
        if {one.target for one in used} <= ends:
            detail = f"slot `{slot_id}`: the flow behind `{node.id[:64]}` receives `{title[:64]}` and does not use it"
            yield Problem(pointer(inner.at), "unused_bindings", detail, "connect it to the node that needs it")
        waiting += [(inside.nodes[one.target], one.input) for one in used if one.target in inside.nodes]


def _children(graph: FlowGraph, slot_id: str, edges: Sequence[ValueEdge]) -> Iterator[Problem]:
    """Check that no child agent with its own slots is fed, and at most one child agent."""
    fed: dict[DocumentPath, tuple[ValueEdge, Component, bool]] = {}
    for edge, agent, own in _agents_and_ends_fed(graph, edges):
        if agent.kind != END:
            fed.setdefault(agent.at, (edge, agent, own))
    for index, (edge, agent, own) in enumerate(fed.values()):
        if own or index:
            detail = f"slot `{slot_id}`: the selection is passed to the child agent `{agent.id[:64]}`" + (
                ", which has its own slots" if own else " as well"
            )
            yield Problem(pointer(edge.at), "fan_out", detail, "let each child agent make its own selection")


def _agents_and_ends_fed(root: FlowGraph, edges: Sequence[ValueEdge]) -> Iterator[tuple[ValueEdge, Component, bool]]:
    """Yield each child agent that a value reaches: the edge into it, its node or flow, and whether it has own slots;
    and each end node of the flow itself.

    The value is followed under every name: into the agent's own flows, through parallel ones, and out at their ends.
    """
    waiting: list[tuple[ValueEdge, tuple[FlowGraph, ...], tuple[str, ...]]] = [(edge, (root,), ()) for edge in edges]
    seen: set[tuple[DocumentPath, str]] = set()
    while waiting:
        edge, graphs, nodes = waiting.pop(0)
        node = graphs[-1].nodes.get(edge.target)
        if node is None or (node.at, edge.input) in seen:
            continue
        seen.add((node.at, edge.input))
        if node.kind == END and not nodes:
            yield edge, node, False
        elif node.kind == END:
            waiting += [
                (one, graphs[:-1], nodes[:-1]) for one in graphs[-2].out_of(nodes[-1]) if one.output == edge.input
            ]
        if node.kind == END:
            continue
        if node.kind in ("AgentNode", "RemoteAgentNode") or _is_foreign(root, node):
            inner = node.inner()
            yield edge, node, inner is not None and names_slots(inner.value)
            continue
        for inner in node.inner_components():
            if names_slots(inner.value) or _is_foreign(root, inner):
                yield edge, inner if node.kind == "ParallelFlowNode" else node, names_slots(inner.value)
                continue
            inside = graph_of(inner)
            into = [one for one in inside.out_of(inside.start) if one.output == edge.input]
            waiting += [(one, (*graphs, inside), (*nodes, node.id)) for one in into]


def _is_foreign(root: FlowGraph, component: Component) -> bool:
    return component.package not in ("", root.flow.package)
