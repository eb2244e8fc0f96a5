"""An Open Agent Spec flow as a graph: nodes and edges by id, each with its path in the document.

The reader uses what it understands and skips the rest; it never raises on a foreign document. A component is either
written in place or referenced by `$component_ref`, which is looked up in the `$referenced_components` of the enclosing
components, nearest first. A component, its lists and its graph are read once, however often it is referenced.
Source: Open Agent Spec 25.4 to 26.3, serialisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.context.slots.oas import MAX_SLOTS, DocumentPath, cinatra
from contextos.contracts.encoding.codec import MAX_DEPTH, MAX_NODES, JsonValue
from contextos.errors import Problem

COMPONENT_REF: Final = "$component_ref"
DEFINED: Final = "$referenced_components"
INNER_KEYS: Final = ("subflow", "tool", "agent", "flow")
"""The keys under which a node holds the component that it runs. A node without its own lists has that one's."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The components that a component of an Open Agent Spec document defines by name, and the enclosing scope."""

    names: Mapping[str, JsonValue]
    at: DocumentPath
    outer: Scope | None

    def named(self, name: str) -> tuple[DocumentPath, Scope] | None:
        """Return the path of the component with that name, and the scope that defines it; None if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.names.get(name), dict):
                return (*scope.at, name), scope
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True)
class DocumentCache:
    """What was already read from an Open Agent Spec document, by path, and the checks already `done` on it.
    Components that several others reference are therefore read once.
    """

    components: dict[DocumentPath, Component] = field(default_factory=dict)
    properties: dict[tuple[DocumentPath, str], dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]] = field(
        default_factory=dict
    )
    graphs: dict[DocumentPath, FlowGraph] = field(default_factory=dict)
    steps: dict[tuple[DocumentPath, str], frozenset[str]] = field(default_factory=dict)
    done: set[tuple[DocumentPath, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Component:
    """A JSON object of the document, its path, and the scope in which its references to other components are looked
    up.
    """

    value: Mapping[str, JsonValue]
    at: DocumentPath
    scope: Scope | None
    cache: DocumentCache

    @property
    def id(self) -> str:
        return text_of(self.value.get("id"))

    @property
    def kind(self) -> str:
        return text_of(self.value.get("component_type"))

    @property
    def name(self) -> str:
        return text_of(self.value.get("name")) or self.id

    @property
    def package(self) -> str:
        """Return the agent package that the component names, or an empty string."""
        return text_of(cinatra(self.value).get("packageName"))

    def child(self, value: JsonValue, *path: str | int) -> Component | None:
        """Return the component that is written at `path` or referenced there; None if there is none."""
        named = value.get(COMPONENT_REF) if isinstance(value, dict) else None
        if not isinstance(named, str):
            return _component(value, (*self.at, *path), self.scope, self.cache)
        found = self.scope.named(named) if self.scope is not None else None
        return _component(found[1].names[named], *found, self.cache) if found is not None else None

    def inner(self) -> Component | None:
        """Return the flow, tool or agent that this node runs, or None."""
        return next((found for key in INNER_KEYS if (found := self.child(self.value.get(key), key))), None)

    def once(self, check: str) -> bool:
        """Return True the first time that it is called for this component and `check`, and False afterwards."""
        before = len(self.cache.done)
        self.cache.done.add((self.at, check))
        return len(self.cache.done) > before

    def inner_components(self) -> Iterator[Component]:
        """Yield every flow, tool or agent that this node runs; a node can run several flows in parallel."""
        if (one := self.inner()) is not None:
            yield one
        for index, value in enumerate(items(self.value.get("subflows"))):
            if (one := self.child(value, "subflows", index)) is not None:
                yield one

    def properties(self, side: str) -> dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]:
        """Return the `inputs` or `outputs` (`side`) by title, each with its path in the document.

        They are the node's own list, or that of the component that the node runs.
        """
        inner = None if isinstance(self.value.get(side), list) else self.inner()
        holder = inner or self
        if (holder.at, side) not in self.cache.properties:
            self.cache.properties[holder.at, side] = _listed(holder, side)
        return self.cache.properties[holder.at, side]


def _listed(holder: Component, side: str) -> dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]:
    found: dict[str, tuple[Mapping[str, JsonValue], DocumentPath]] = {}
    for index, one in enumerate(items(holder.value.get(side))):
        schema = one.get("json_schema", one) if isinstance(one, dict) else None
        if isinstance(schema, dict) and (title := text_of(one.get("title", schema.get("title")))):
            found.setdefault(title, ({**schema, **one}, (*holder.at, side, index)))
    return found


@dataclass(frozen=True, slots=True)
class ControlEdge:
    """An edge of a flow along which control passes from node to node, by id.
    `branch` is empty if the source node has only one branch.
    """

    source: str
    branch: str
    target: str
    at: DocumentPath


@dataclass(frozen=True, slots=True)
class ValueEdge:
    """An edge of a flow that passes a value from an output to an input: node ids and property titles."""

    source: str
    output: str
    target: str
    input: str
    at: DocumentPath


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """One flow of an Open Agent Spec document: nodes by id, edges in document order. `start` is empty without a start
    node.
    """

    flow: Component
    start: str
    nodes: Mapping[str, Component]
    control: tuple[ControlEdge, ...]
    data: tuple[ValueEdge, ...]
    _into: dict[tuple[str, str], list[ValueEdge]] = field(init=False, default_factory=dict)
    _all_into: dict[str, list[ValueEdge]] = field(init=False, default_factory=dict)
    _out_of: dict[str, list[ValueEdge]] = field(init=False, default_factory=dict)
    _control_into: dict[str, list[ControlEdge]] = field(init=False, default_factory=dict)
    _control_out_of: dict[str, list[ControlEdge]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for edge in self.control:
            self._control_into.setdefault(edge.target, []).append(edge)
            self._control_out_of.setdefault(edge.source, []).append(edge)
        for data_edge in self.data:
            self._into.setdefault((data_edge.target, data_edge.input), []).append(data_edge)
            self._all_into.setdefault(data_edge.target, []).append(data_edge)
            self._out_of.setdefault(data_edge.source, []).append(data_edge)

    def into(self, node: str, title: str) -> Sequence[ValueEdge]:
        """Return the data edges into one input of a node."""
        return self._into.get((node, title), ())

    def all_into(self, node: str) -> Sequence[ValueEdge]:
        """Return all data edges into a node."""
        return self._all_into.get(node, ())

    def out_of(self, node: str) -> Sequence[ValueEdge]:
        """Return the data edges that leave a node."""
        return self._out_of.get(node, ())

    def control_into(self, node: str) -> Sequence[ControlEdge]:
        """Return the control edges into a node."""
        return self._control_into.get(node, ())

    def control_out_of(self, node: str) -> Sequence[ControlEdge]:
        """Return the control edges that leave a node."""
        return self._control_out_of.get(node, ())

    def exits(self) -> frozenset[str]:
        """Return the ids of the nodes at which the flow can end: end nodes, and nodes with a branch that leads nowhere.

        WayFlow ends a flow, without an error, at every node that has no way on.
        """
        return frozenset(
            name
            for name, node in self.nodes.items()
            if node.kind == "EndNode"
            or not self.control_out_of(name)
            or _branches(node) - {edge.branch for edge in self.control_out_of(name)}
        )

    def reached(self, source: str, *, without: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the ids of nodes that run after `source` (included) on some path that avoids the nodes
        in `without`.
        """
        return _closure({source} - without, lambda node: {one.target for one in self.control_out_of(node)} - without)

    def reaching(self, to: frozenset[str], *, without: frozenset[str]) -> frozenset[str]:
        """Return the ids of nodes that run before a node of `to` (included) on some path that avoids the nodes in
        `without`.
        """
        return _closure(to - without, lambda node: {one.source for one in self.control_into(node)} - without)


def _branches(node: Component) -> set[str]:
    """The branches that control can take out of a branching node, as control edges name them; nothing for others."""
    if node.kind != "BranchingNode":
        return set()
    mapping = node.value.get("mapping")
    return {"default", *(text_of(one) for one in mapping.values())} if isinstance(mapping, dict) else {"default"}


def _closure(first: Iterable[str], neighbours: Callable[[str], set[str]]) -> frozenset[str]:
    seen, waiting = set(first), [*first]
    while waiting:
        new = neighbours(waiting.pop()) - seen
        seen |= new
        waiting += new
    return frozenset(seen)


def root_of(document: JsonValue) -> Component | None:
    """Return the document as a component; None if it is not a JSON object."""
    return _component(document, (), None, DocumentCache())


def _component(value: JsonValue, at: DocumentPath, scope: Scope | None, cache: DocumentCache) -> Component | None:
    if not isinstance(value, dict):
        return None
    if at not in cache.components:
        own = value.get(DEFINED)
        if isinstance(own, dict) and own:
            scope = Scope(own, (*at, DEFINED), scope)
        cache.components[at] = Component(value, at, scope, cache)
    return cache.components[at]


def all_components(root: Component) -> Iterator[Component]:
    """Yield every component of the document, outer ones before inner ones."""
    waiting: list[tuple[JsonValue, DocumentPath, Scope | None]] = [(root.value, root.at, root.scope)]
    while waiting:
        value, at, scope = waiting.pop()
        inside: Iterable[tuple[str | int, JsonValue]] = enumerate(value) if isinstance(value, list) else ()
        if isinstance(value, dict):
            inside = value.items()
            if text_of(value.get("component_type")) and (found := _component(value, at, scope, root.cache)) is not None:
                scope = found.scope
                yield found
        waiting += [(one, (*at, key), scope) for key, one in reversed([*inside]) if isinstance(one, dict | list)]


def graph_of(flow: Component) -> FlowGraph:
    """Return the graph of a flow; an empty graph if the component is not a flow."""
    if flow.at not in flow.cache.graphs:
        flow.cache.graphs[flow.at] = _graph(flow)
    return flow.cache.graphs[flow.at]


def _graph(flow: Component) -> FlowGraph:
    nodes: dict[str, Component] = {}
    for index, one in enumerate(items(flow.value.get("nodes"))):
        node = flow.child(one, "nodes", index)
        if node is not None and node.id:
            nodes.setdefault(node.id, node)
    start = _named(flow.value.get("start_node"))
    return FlowGraph(flow, start if start in nodes else "", nodes, tuple(_control(flow)), tuple(_data(flow)))


def dangling(graph: FlowGraph) -> Iterator[tuple[str, DocumentPath]]:
    """Yield each reference to a node or component that does not exist, with its path."""
    flow = graph.flow
    edges: list[ControlEdge | ValueEdge] = [*graph.control, *graph.data]
    for edge in edges:
        for name in (edge.source, edge.target):
            if name not in graph.nodes:
                yield name, edge.at
    for index, one in enumerate(items(flow.value.get("nodes"))):
        node = flow.child(one, "nodes", index)
        if node is None:
            yield _named(one), (*flow.at, "nodes", index)
            continue
        for key in INNER_KEYS:
            if isinstance(ref := node.value.get(key), dict) and COMPONENT_REF in ref and node.child(ref) is None:
                yield _named(ref), (*node.at, key)


def _control(flow: Component) -> Iterator[ControlEdge]:
    key = "control_flow_connections"
    for index, edge in enumerate(items(flow.value.get(key))):
        if isinstance(edge, dict):
            source, target = _named(edge.get("from_node")), _named(edge.get("to_node"))
            yield ControlEdge(source, text_of(edge.get("from_branch")), target, (*flow.at, key, index))


def _data(flow: Component) -> Iterator[ValueEdge]:
    key = "data_flow_connections"
    for index, edge in enumerate(items(flow.value.get(key))):
        if isinstance(edge, dict):
            source, target = _named(edge.get("source_node")), _named(edge.get("destination_node"))
            output, input_ = text_of(edge.get("source_output")), text_of(edge.get("destination_input"))
            yield ValueEdge(source, output, target, input_, (*flow.at, key, index))


def _named(value: JsonValue) -> str:
    """Return the id of a node that an edge references or contains in place."""
    return text_of(value.get(COMPONENT_REF, value.get("id"))) if isinstance(value, dict) else ""


def items(value: JsonValue) -> Sequence[JsonValue]:
    """Return the items of a list; nothing for any other value."""
    return value if isinstance(value, list) else ()


def text_of(value: JsonValue) -> str:
    """Return a string; an empty one for any other value."""
    return value if isinstance(value, str) else ""


def names_slots(document: JsonValue) -> bool:
    """Return whether a component declares a context slot that has an id, valid or not."""
    listed = cinatra(document).get("contextSlots") if isinstance(document, dict) else None
    return any(isinstance(one, dict) and text_of(one.get("slotId")) for one in items(listed)[: MAX_SLOTS + 1])


def exceeded_size_limit(value: Any) -> Problem | None:
    """Return a problem for the first size limit that `value` exceeds, or None. A value that contains itself exceeds
    one.
    """
    waiting, count = [(value, 1)], 0
    while waiting:
        one, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH + 1:
            return Problem("", "too_deep", f"the document is nested deeper than {MAX_DEPTH} levels", "flatten it")
        if count > MAX_NODES:
            return Problem("", "too_many_nodes", f"the document has more than {MAX_NODES} values", "send less")
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(below, depth + 1) for below in inside]
    return None
