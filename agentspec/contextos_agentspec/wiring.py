"""Lint of the wiring: whether every context slot that an agent declares is connected to the nodes that use it.

Slots are not wired automatically. For each slot the flow needs one selection node that receives the slot's constants,
that control cannot bypass, and whose result reaches the nodes that use it. A runtime silently accepts many of these
faults, because the inputs have defaults; the agent then runs without its context and nobody notices.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from contextos.context.slots.oas import DeclaredSlots, DocumentPath, cinatra, declared_slots
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.errors import Problem
from contextos_agentspec.components import (
    Component,
    FlowGraph,
    all_components,
    exceeded_size_limit,
    graph_of,
    items,
    names_slots,
    root_of,
)
from contextos_agentspec.consumers import bypasses, consumer_faults, inner_bypasses, pass_throughs
from contextos_agentspec.names import name_faults, overwritten, start_faults
from contextos_agentspec.selection_flow import answer_faults, flow_faults
from contextos_agentspec.selection_node import INPUTS, SELECTION_AGENT, SelectionNode, constant, selection_nodes

MAX_WIRING_PROBLEMS: Final = 100


def lint_wiring(document: JsonValue) -> tuple[Problem, ...]:
    """Return the problems of an agent's context slots and of how they are wired; empty if there are none. Never
    raises.

    An agent without slots and without a selection node has no problems.
    """
    if (refused := exceeded_size_limit(document)) is not None:
        return (refused,)
    root = root_of(document)
    if root is None or not root.kind:
        detail = "the document is not a component of the Open Agent Spec"
        return (Problem("", "not_an_agent", detail, "use the agent's document"),)
    agents = chain((root,), _children(root))
    found = chain(name_faults(root), _pass_throughs(root), chain.from_iterable(map(_agent, agents)))
    return tuple(islice(found, MAX_WIRING_PROBLEMS))


def _pass_throughs(root: Component) -> Iterator[Problem]:
    for one in all_components(root):
        if items(one.value.get("nodes")):
            yield from pass_throughs(graph_of(one), root=one.at == root.at)


def _children(root: Component) -> Iterator[Component]:
    """Yield the child agents in the document that declare slots. Each is checked by itself."""
    waiting = [root]
    while waiting:
        nodes = [node for node in graph_of(waiting.pop()).nodes.values() if node.once("children")]
        for inner in chain.from_iterable(node.inner_components() for node in nodes):
            if inner.at != root.at and inner.once("child"):
                waiting.append(inner)
                if declared_slots(inner.value) != DeclaredSlots():
                    yield inner


def _agent(agent: Component) -> Iterator[Problem]:
    declared = declared_slots(agent.value, agent.at)
    yield from declared.problems
    if declared.problems and not declared.names:
        return
    if "agentDependencies" in cinatra(agent.value):
        detail = "`agentDependencies` is in the document and not in `package.json`"
        where = pointer((*agent.at, "metadata", "cinatra", "agentDependencies"))
        remedy = "move it to `cinatra.agentDependencies` of the package"
        yield Problem(where, "dependency_in_document", detail, remedy)
    if agent.kind != "Flow":
        if declared.slots:
            detail = f"the agent is a `{agent.kind[:64]}`, which has no flow to wire a slot in"
            yield Problem(pointer((*agent.at, "component_type")), "not_a_flow", detail, "declare slots on a flow")
        return
    yield from _flow(graph_of(agent), declared)


def _flow(graph: FlowGraph, declared: DeclaredSlots) -> Iterator[Problem]:
    selections = tuple(selection_nodes(graph))
    assigned = _assigned(declared, selections)
    for slot, at in declared.slots:
        yield from _slot(graph, slot, at, assigned[slot.slot_id])
    claimed = {one.node.id for nodes in assigned.values() for one in nodes}
    for one in selections:
        if one.node.id not in claimed and one.slot_id not in declared.names:
            yield _serves_nothing(one)
    if declared.names:
        # An agent without slots can take bindings: it is the child that a consumer runs.
        yield from bypasses(graph, selections)
        yield from start_faults(graph)
    yield from answer_faults(graph)
    for inner in _own_flows(graph, selections, "with slots" if declared.names else "without slots"):
        if inner.flow.once("answers"):
            yield from answer_faults(inner)
            yield from map(_serves_nothing, selection_nodes(inner))
        if declared.names:
            yield from inner_bypasses(inner)


def _serves_nothing(selection: SelectionNode) -> Problem:
    detail = f"selection node `{selection.node.id[:64]}` serves no slot of its own flow"
    return Problem(
        pointer(selection.node.at), "selection_without_slot", detail, "declare the slot here, or remove the node"
    )


def _own_flows(graph: FlowGraph, selections: Sequence[SelectionNode], check: str) -> Iterator[FlowGraph]:
    """Yield the inner flows of a flow, except selections and child agents with their own slots.

    A flow that several agents share is yielded once for each `check`.
    """
    skipped = {graph.flow.at, *(one.flow.flow.at for one in selections)}
    waiting = [graph]
    while waiting:
        nodes = [node for node in waiting.pop().nodes.values() if node.once(check)]
        for inner in chain.from_iterable(node.inner_components() for node in nodes):
            if inner.at in skipped or not items(inner.value.get("nodes")) or names_slots(inner.value):
                continue
            if inner.once(check):
                waiting.append(graph_of(inner))
                yield waiting[-1]


def _assigned(declared: DeclaredSlots, selections: Sequence[SelectionNode]) -> Mapping[str, tuple[SelectionNode, ...]]:
    """Assign selection nodes to slots: by their constant, else by the conventional name, else the only one left."""
    assigned = {
        slot.slot_id: tuple(one for one in selections if one.slot_id == slot.slot_id) for slot, _ in declared.slots
    }
    free = [one for one in selections if one.slot_id not in declared.names]
    for slot_id in [name for name, nodes in assigned.items() if not nodes]:
        named = [one for one in selections if f"context_{slot_id}" in (one.node.id, one.node.name)]
        left = free if len(free) == 1 and len(declared.names) == 1 else []
        assigned[slot_id] = tuple(named[:1] or left)
    return assigned


def _slot(
    graph: FlowGraph, slot: AgentContextSlot, at: DocumentPath, selections: Sequence[SelectionNode]
) -> Iterator[Problem]:
    name = slot.slot_id
    if not selections:
        detail = f"slot `{name}` has no selection node: no flow node resolves it and pins a selection"
        yield Problem(
            pointer(at), "no_selection_node", detail, f"add a flow node `context_{name}` that runs `{SELECTION_AGENT}`"
        )
        return
    for other in selections[1:]:
        detail = f"slot `{name}` already has the selection node `{selections[0].node.id[:64]}`"
        yield Problem(pointer(other.node.at), "several_selection_nodes", detail, "keep one selection node per slot")
    selection = selections[0]
    yield from _constants(graph, name, selection)
    yield from flow_faults(selection, interactive=slot.selection_mode == "interactive")
    yield from consumer_faults(graph, name, selection)


def _constants(graph: FlowGraph, name: str, selection: SelectionNode) -> Iterator[Problem]:
    """Check the four inputs: each needs an edge, and the two constants must be those of this slot and this agent."""
    node = selection.node
    missing = [title for title in INPUTS if not graph.into(node.id, title)]
    for title in missing:
        detail = f"slot `{name}`: no edge feeds `{title}` of `{node.id[:64]}`, so it runs with its default"
        yield Problem(pointer(node.at), "missing_input_edge", detail, f"add a data edge into `{title}`")
    yield from overwritten(graph, node.id)
    fed: set[tuple[str, str]] = set()
    for edge in chain.from_iterable(graph.into(node.id, title) for title in INPUTS):
        if (edge.source, edge.output) in fed:
            detail = f"slot `{name}`: `{edge.output[:64]}` already feeds another input of `{node.id[:64]}`"
            yield Problem(pointer(edge.at), "crossed_inputs", detail, f"feed `{edge.input}` from its own start input")
        fed.add((edge.source, edge.output))
    if selection.slot_id is None and "slotId" not in missing:
        detail = f"slot `{name}`: the `slotId` of `{node.id[:64]}` is not a constant"
        yield Problem(
            pointer(selection.slot_id_at), "slot_id_not_constant", detail, "feed it from one start input with a default"
        )
    elif selection.slot_id is not None and selection.slot_id != name:
        detail = f"slot `{name}`: `{node.id[:64]}` resolves the slot `{selection.slot_id[:64]}`"
        yield Problem(pointer(selection.slot_id_at), "wrong_slot_id", detail, f"set the constant to `{name}`")
    package, at = constant(graph, node.id, "parentPackageName")
    own = graph.flow.package
    if package is not None and own and package != own:
        detail = f"slot `{name}`: `{node.id[:64]}` selects for `{package[:64]}`, and the agent is `{own[:64]}`"
        yield Problem(pointer(at), "other_package", detail, "set the constant to the agent's own package")
