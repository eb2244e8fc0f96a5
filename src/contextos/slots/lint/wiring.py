"""The wiring lint: whether every slot that an agent declares reaches its consumers, exactly and only as it should.

Nothing is wired by itself. For each slot the flow has one selection node that gets the slot's own constants, that
control cannot go around, and whose refs arrive at the consumers. Much of this a runtime accepts silently, because the
inputs have defaults; then the agent runs without its context and nobody notices.
Source: shared/spec/seeds/003, "Explicit context-selection-agent invocation"; shared/design/contracts.md, "Context
slots"; what a runtime rejects by itself: context-slots-facts.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.errors import Problem
from contextos.slots.lint.components import Component, DocumentPath, FlowGraph, cinatra, graph_of, items, root_of
from contextos.slots.lint.consumers import bypasses, consumer_faults, inner_bypasses
from contextos.slots.lint.documents import exceeded_size_limit
from contextos.slots.lint.names import name_faults, overwritten
from contextos.slots.lint.oas import Declared, declared_slots, names_slots
from contextos.slots.lint.selection_flow import answer_faults, flow_faults
from contextos.slots.lint.selection_node import INPUTS, SELECTION_AGENT, SelectionNode, constant, selection_nodes

MAX_WIRING_PROBLEMS: Final = 100


def lint_wiring(document: JsonValue) -> tuple[Problem, ...]:
    """What is wrong with the slots of an agent and their wiring; empty if nothing is. Never raises.

    An agent that declares no slot and has no selection node is fine.
    """
    if (refused := exceeded_size_limit(document)) is not None:
        return (refused,)
    root = root_of(document)
    if root is None or not root.kind:
        detail = "the document is no component of the Open Agent Spec"
        return (Problem("", "not_an_agent", detail, "name the agent's document"),)
    agents = chain((root,), _children(root))
    return tuple(islice(chain(name_faults(root), chain.from_iterable(map(_agent, agents))), MAX_WIRING_PROBLEMS))


def _children(root: Component) -> Iterator[Component]:
    """The child agents that are written out in the document and declare slots: each is wired within itself."""
    waiting = [root]
    while waiting:
        nodes = [node for node in graph_of(waiting.pop()).nodes.values() if node.once("looked for children in")]
        for inner in chain.from_iterable(node.inside() for node in nodes):
            if inner.at != root.at and inner.once("found"):
                waiting.append(inner)
                if declared_slots(inner.value) != Declared():
                    yield inner


def _agent(agent: Component) -> Iterator[Problem]:
    declared = declared_slots(agent.value, agent.at)
    yield from declared.problems
    if declared.problems and not declared.names:
        return
    if "agentDependencies" in cinatra(agent.value):
        detail = "dependencies stand in `package.json` and not in the document"
        where = pointer((*agent.at, "metadata", "cinatra", "agentDependencies"))
        mend = "move them to `cinatra.agentDependencies` of the package"
        yield Problem(where, "dependency_in_document", detail, mend)
    if agent.kind != "Flow":
        if declared.slots:
            detail = f"a `{agent.kind[:64]}` has no flow to wire a slot in"
            yield Problem(pointer((*agent.at, "component_type")), "not_a_flow", detail, "declare slots on a flow")
        return
    yield from _flow(graph_of(agent), declared)


def _flow(graph: FlowGraph, declared: Declared) -> Iterator[Problem]:
    selections = tuple(selection_nodes(graph))
    taken = _assigned(declared, selections)
    for slot, at in declared.slots:
        yield from _slot(graph, slot, at, taken[slot.slot_id])
    claimed = {one.node.id for nodes in taken.values() for one in nodes}
    for one in selections:
        if one.node.id not in claimed and one.slot_id not in declared.names:
            yield _serves_nothing(one)
    if declared.names:
        # Without slots an agent may well take bindings: it is the child that a consumer runs.
        yield from bypasses(graph, selections)
    yield from answer_faults(graph)
    for inner in _own_flows(graph, selections, "with slots" if declared.names else "without slots"):
        if inner.flow.once("judged"):
            yield from answer_faults(inner)
            yield from map(_serves_nothing, selection_nodes(inner))
        if declared.names:
            yield from inner_bypasses(inner)


def _serves_nothing(selection: SelectionNode) -> Problem:
    detail = f"selection node `{selection.node.id[:64]}` serves no slot of the flow that it stands in"
    return Problem(
        pointer(selection.node.at), "selection_without_slot", detail, "declare the slot there, or remove the node"
    )


def _own_flows(graph: FlowGraph, selections: Sequence[SelectionNode], how: str) -> Iterator[FlowGraph]:
    """The flows inside a flow, but for what selects, and for child agents that have slots of their own.

    Without those that another agent was judged by in the same way: what several share is looked into once.
    """
    passed = {graph.flow.at, *(one.inside.flow.at for one in selections)}
    waiting = [graph]
    while waiting:
        nodes = [node for node in waiting.pop().nodes.values() if node.once(how)]
        for inner in chain.from_iterable(node.inside() for node in nodes):
            if inner.at in passed or not items(inner.value.get("nodes")) or names_slots(inner.value):
                continue
            if inner.once(how):
                waiting.append(graph_of(inner))
                yield waiting[-1]


def _assigned(declared: Declared, selections: Sequence[SelectionNode]) -> Mapping[str, tuple[SelectionNode, ...]]:
    """The selection nodes of each slot: by their constant, else by the conventional name, else the one left over."""
    taken = {
        slot.slot_id: tuple(one for one in selections if one.slot_id == slot.slot_id) for slot, _ in declared.slots
    }
    free = [one for one in selections if one.slot_id not in declared.names]
    for slot_id in [name for name, nodes in taken.items() if not nodes]:
        named = [one for one in selections if f"context_{slot_id}" in (one.node.id, one.node.name)]
        left = free if len(free) == 1 and len(declared.names) == 1 else []
        taken[slot_id] = tuple(named[:1] or left)
    return taken


def _slot(
    graph: FlowGraph, slot: AgentContextSlot, at: DocumentPath, selections: Sequence[SelectionNode]
) -> Iterator[Problem]:
    name = slot.slot_id
    if not selections:
        detail = f"slot `{name}` has no selection node: no flow node resolves it and pins the pick"
        yield Problem(
            pointer(at), "no_selection_node", detail, f"add a flow node `context_{name}` that runs `{SELECTION_AGENT}`"
        )
        return
    for other in selections[1:]:
        detail = f"slot `{name}` is selected by `{selections[0].node.id[:64]}` already"
        yield Problem(pointer(other.node.at), "several_selection_nodes", detail, "keep one selection node for a slot")
    selection = selections[0]
    yield from _constants(graph, name, selection)
    yield from flow_faults(selection, interactive=slot.selection_mode == "interactive")
    yield from consumer_faults(graph, name, selection)


def _constants(graph: FlowGraph, name: str, selection: SelectionNode) -> Iterator[Problem]:
    """The four inputs: each has its edge, and the two that are constants are this slot's and this agent's."""
    node = selection.node
    missing = [title for title in INPUTS if not graph.into(node.id, title)]
    for title in missing:
        detail = f"slot `{name}`: nothing feeds `{title}` of `{node.id[:64]}`, which then runs on its default"
        yield Problem(pointer(node.at), "missing_input_edge", detail, f"add a data edge into `{title}`")
    yield from overwritten(graph, node.id)
    fed: set[tuple[str, str]] = set()
    for wire in chain.from_iterable(graph.into(node.id, title) for title in INPUTS):
        if (wire.source, wire.output) in fed:
            detail = f"slot `{name}`: `{wire.output[:64]}` feeds another input of `{node.id[:64]}` already"
            yield Problem(pointer(wire.at), "crossed_inputs", detail, f"feed `{wire.input}` from what is meant for it")
        fed.add((wire.source, wire.output))
    if selection.slot_id is None and "slotId" not in missing:
        detail = f"slot `{name}`: the `slotId` of `{node.id[:64]}` is no constant"
        yield Problem(
            pointer(selection.slot_id_at), "slot_id_not_constant", detail, "feed it from one start input with a default"
        )
    elif selection.slot_id is not None and selection.slot_id != name:
        detail = f"slot `{name}`: `{node.id[:64]}` is told to resolve `{selection.slot_id[:64]}`"
        yield Problem(pointer(selection.slot_id_at), "wrong_slot_id", detail, f"make the constant `{name}`")
    package, at = constant(graph, node.id, "parentPackageName")
    own = graph.flow.package
    if package is not None and own and package != own:
        detail = f"slot `{name}`: `{node.id[:64]}` acts for `{package[:64]}`, and the agent is `{own[:64]}`"
        yield Problem(pointer(at), "other_package", detail, "make the constant the agent's own package")
