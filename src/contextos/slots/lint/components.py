"""An Open Agent Spec flow as a graph: nodes and edges by id, each with its place in the document.

The reader takes what it understands and passes over the rest; it never raises on a foreign document. A component is
written in place or named by `$component_ref`, which is looked for in the `$referenced_components` of the components
around it, the nearest first. However many name it, a component, its lists and its graph are read once.
Source: shared/spec/context-slots-facts.md, sections 7 and 10; Open Agent Spec 25.4 to 26.3, serialisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contextos.contracts.encoding.codec import JsonValue

DocumentPath: TypeAlias = tuple[str | int, ...]
COMPONENT_REF: Final = "$component_ref"
DEFINED: Final = "$referenced_components"
BELOW: Final = ("subflow", "tool", "agent", "flow")
"""Where a node keeps the component whose inputs and outputs are its own when it does not list them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The components that a component defines by name, and the scope that it stands in itself."""

    names: Mapping[str, JsonValue]
    at: DocumentPath
    outer: Scope | None

    def named(self, name: str) -> tuple[DocumentPath, Scope] | None:
        """Where the component of that name stands, and the scope that it stands in."""
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.names.get(name), dict):
                return (*scope.at, name), scope
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True)
class Book:
    """What was read of a document, by place, and what was `done` to it, so that many who share it cost it once."""

    components: dict[DocumentPath, Component] = field(default_factory=dict)
    properties: dict[tuple[DocumentPath, str], dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]] = field(
        default_factory=dict
    )
    graphs: dict[DocumentPath, FlowGraph] = field(default_factory=dict)
    steps: dict[tuple[DocumentPath, str], frozenset[str]] = field(default_factory=dict)
    done: set[tuple[DocumentPath, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Component:
    """A JSON object of the document, its place, and the components that can be named from inside it."""

    value: Mapping[str, JsonValue]
    at: DocumentPath
    scope: Scope | None
    book: Book

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
        """The agent package that the component says it belongs to; empty if it says nothing."""
        return text_of(cinatra(self.value).get("packageName"))

    def child(self, value: JsonValue, *path: str | int) -> Component | None:
        """The component written at `path`, or the one that it names; None if there is none."""
        named = value.get(COMPONENT_REF) if isinstance(value, dict) else None
        if not isinstance(named, str):
            return _component(value, (*self.at, *path), self.scope, self.book)
        found = self.scope.named(named) if self.scope is not None else None
        return _component(found[1].names[named], *found, self.book) if found is not None else None

    def below(self) -> Component | None:
        """The flow, tool or agent that a node runs."""
        return next((found for key in BELOW if (found := self.child(self.value.get(key), key))), None)

    def once(self, what: str) -> bool:
        """Whether this was not done to the component before, whoever names it; from now on it was."""
        before = len(self.book.done)
        self.book.done.add((self.at, what))
        return len(self.book.done) > before

    def inside(self) -> Iterator[Component]:
        """All that a node runs: one flow, tool or agent, or several flows beside each other."""
        if (one := self.below()) is not None:
            yield one
        for index, value in enumerate(items(self.value.get("subflows"))):
            if (one := self.child(value, "subflows", index)) is not None:
                yield one

    def properties(self, side: str) -> dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]:
        """`inputs` or `outputs` by title, each with its place: the node's own list, or that of what it runs."""
        inner = None if isinstance(self.value.get(side), list) else self.below()
        holder = inner or self
        if (holder.at, side) not in self.book.properties:
            self.book.properties[holder.at, side] = _listed(holder, side)
        return self.book.properties[holder.at, side]


def _listed(holder: Component, side: str) -> dict[str, tuple[Mapping[str, JsonValue], DocumentPath]]:
    found: dict[str, tuple[Mapping[str, JsonValue], DocumentPath]] = {}
    for index, one in enumerate(items(holder.value.get(side))):
        schema = one.get("json_schema", one) if isinstance(one, dict) else None
        if isinstance(schema, dict) and (title := text_of(one.get("title", schema.get("title")))):
            found.setdefault(title, ({**schema, **one}, (*holder.at, side, index)))
    return found


@dataclass(frozen=True, slots=True)
class Control:
    """A control edge between two nodes, by id. `branch` is empty for the only way on."""

    source: str
    branch: str
    target: str
    at: DocumentPath


@dataclass(frozen=True, slots=True)
class Wire:
    """A data edge, by id and title."""

    source: str
    output: str
    target: str
    input: str
    at: DocumentPath


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """One flow: nodes by id, edges in the order of the document. `start` is empty where the flow names none."""

    flow: Component
    start: str
    nodes: Mapping[str, Component]
    control: tuple[Control, ...]
    data: tuple[Wire, ...]
    _into: dict[tuple[str, str], list[Wire]] = field(init=False, default_factory=dict)
    _all_into: dict[str, list[Wire]] = field(init=False, default_factory=dict)
    _out_of: dict[str, list[Wire]] = field(init=False, default_factory=dict)
    _ways_to: dict[str, list[Control]] = field(init=False, default_factory=dict)
    _ways_from: dict[str, list[Control]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for edge in self.control:
            self._ways_to.setdefault(edge.target, []).append(edge)
            self._ways_from.setdefault(edge.source, []).append(edge)
        for wire in self.data:
            self._into.setdefault((wire.target, wire.input), []).append(wire)
            self._all_into.setdefault(wire.target, []).append(wire)
            self._out_of.setdefault(wire.source, []).append(wire)

    def into(self, node: str, title: str) -> Sequence[Wire]:
        """The data edges into one input of a node."""
        return self._into.get((node, title), ())

    def all_into(self, node: str) -> Sequence[Wire]:
        """The data edges into a node."""
        return self._all_into.get(node, ())

    def out_of(self, node: str) -> Sequence[Wire]:
        """The data edges that leave a node."""
        return self._out_of.get(node, ())

    def ways_to(self, node: str) -> Sequence[Control]:
        """The control edges that lead to a node."""
        return self._ways_to.get(node, ())

    def ways_from(self, node: str) -> Sequence[Control]:
        """The control edges that leave a node."""
        return self._ways_from.get(node, ())

    def reached(self, source: str, *, without: frozenset[str] = frozenset()) -> frozenset[str]:
        """The nodes that control can come to from `source`, itself included, never passing `without`."""
        return _closed({source} - without, lambda node: {one.target for one in self.ways_from(node)} - without)

    def leading(self, to: frozenset[str], *, without: frozenset[str]) -> frozenset[str]:
        """The nodes that control can come from to one of `to`, these included, never passing `without`."""
        return _closed(to - without, lambda node: {one.source for one in self.ways_to(node)} - without)


def _closed(first: Iterable[str], further: Callable[[str], set[str]]) -> frozenset[str]:
    seen, waiting = set(first), [*first]
    while waiting:
        new = further(waiting.pop()) - seen
        seen |= new
        waiting += new
    return frozenset(seen)


def root_of(document: JsonValue) -> Component | None:
    """The document as a component; None if it is no object."""
    return _component(document, (), None, Book())


def _component(value: JsonValue, at: DocumentPath, scope: Scope | None, book: Book) -> Component | None:
    if not isinstance(value, dict):
        return None
    if at not in book.components:
        own = value.get(DEFINED)
        if isinstance(own, dict) and own:
            scope = Scope(own, (*at, DEFINED), scope)
        book.components[at] = Component(value, at, scope, book)
    return book.components[at]


def written_out(root: Component) -> Iterator[Component]:
    """Every component of the document, outer ones first: what is written in place, and what can be named."""
    waiting: list[tuple[JsonValue, DocumentPath, Scope | None]] = [(root.value, root.at, root.scope)]
    while waiting:
        value, at, scope = waiting.pop()
        inside: Iterable[tuple[str | int, JsonValue]] = enumerate(value) if isinstance(value, list) else ()
        if isinstance(value, dict):
            inside = value.items()
            if text_of(value.get("component_type")) and (found := _component(value, at, scope, root.book)) is not None:
                scope = found.scope
                yield found
        waiting += [(one, (*at, key), scope) for key, one in reversed([*inside]) if isinstance(one, dict | list)]


def graph_of(flow: Component) -> FlowGraph:
    """The graph of a flow; empty where it is none."""
    if flow.at not in flow.book.graphs:
        flow.book.graphs[flow.at] = _graph(flow)
    return flow.book.graphs[flow.at]


def _graph(flow: Component) -> FlowGraph:
    nodes: dict[str, Component] = {}
    for index, one in enumerate(items(flow.value.get("nodes"))):
        node = flow.child(one, "nodes", index)
        if node is not None and node.id:
            nodes.setdefault(node.id, node)
    start = _named(flow.value.get("start_node"))
    return FlowGraph(flow, start if start in nodes else "", nodes, tuple(_control(flow)), tuple(_data(flow)))


def dangling(graph: FlowGraph) -> Iterator[tuple[str, DocumentPath]]:
    """Names of nodes, and of what nodes run, that stand for nothing."""
    flow = graph.flow
    edges: list[Control | Wire] = [*graph.control, *graph.data]
    for edge in edges:
        for name in (edge.source, edge.target):
            if name not in graph.nodes:
                yield name, edge.at
    for index, one in enumerate(items(flow.value.get("nodes"))):
        node = flow.child(one, "nodes", index)
        if node is None:
            yield _named(one), (*flow.at, "nodes", index)
            continue
        for key in BELOW:
            if isinstance(below := node.value.get(key), dict) and COMPONENT_REF in below and node.child(below) is None:
                yield _named(below), (*node.at, key)


def _control(flow: Component) -> Iterator[Control]:
    key = "control_flow_connections"
    for index, edge in enumerate(items(flow.value.get(key))):
        if isinstance(edge, dict):
            source, target = _named(edge.get("from_node")), _named(edge.get("to_node"))
            yield Control(source, text_of(edge.get("from_branch")), target, (*flow.at, key, index))


def _data(flow: Component) -> Iterator[Wire]:
    key = "data_flow_connections"
    for index, edge in enumerate(items(flow.value.get(key))):
        if isinstance(edge, dict):
            source, target = _named(edge.get("source_node")), _named(edge.get("destination_node"))
            output, input_ = text_of(edge.get("source_output")), text_of(edge.get("destination_input"))
            yield Wire(source, output, target, input_, (*flow.at, key, index))


def _named(value: JsonValue) -> str:
    """The id of a node that an edge names, or writes out in place."""
    return text_of(value.get(COMPONENT_REF, value.get("id"))) if isinstance(value, dict) else ""


def cinatra(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """`metadata.cinatra` of a component or of a package; empty where there is none."""
    metadata = value.get("metadata")
    inner = metadata.get("cinatra") if isinstance(metadata, dict) else None
    return inner if isinstance(inner, dict) else {}


def items(value: JsonValue) -> Sequence[JsonValue]:
    """The items of a list; nothing for anything else."""
    return value if isinstance(value, list) else ()


def text_of(value: JsonValue) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""
