"""How a selection node is told from any other: by what the flow behind it does, never by its name.

It resolves a slot and finalises a pick in its own steps: tools named `context_resolve` and `context_finalize` (or
`context_take`, where nobody picks), or API calls to `/api/context-resolve` and `/api/context-finalize`. A child agent
that has a selection node inside is none.
Source: shared/design/contracts.md, "Context slots"; context-slots-facts.md, section 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contextos.contracts.encoding.codec import JsonValue
from contextos.slots.lint.components import Component, DocumentPath, FlowGraph, graph_of, text_of

SELECTION_AGENT: Final = "@cinatra-ai/context-selection-agent"
INPUTS: Final = ("parentRunId", "parentPackageName", "slotId", "projectId")
OUTPUTS: Final = ("contextRefs", "contextSlotBindings")
"""The guide's name of the output first, then the one of later versions of the original."""
BINDINGS: Final = "contextSlotBindings"
"""The input of a consumer."""
ANSWER: Final = "userResponse"
"""The input of the step that judges what a person said."""

# The whole path: what merely begins or ends like it is another address.
_ADDRESS: Final = re.compile(r"(?:https?://[^/?#{}]+|\{\{[^{}/?#]+\}\})?/api/context-(resolve|finalize)/?")
_TOOLS: Final = {"context_resolve": "resolve", "context_finalize": "finalize", "context_take": "finalize"}


@dataclass(frozen=True, slots=True)
class SelectionNode:
    """A selection node of a flow, the constant that its `slotId` gets, and where that constant stands.

    `slot_id` is None where no constant arrives.
    """

    node: Component
    inside: FlowGraph
    slot_id: str | None
    slot_id_at: DocumentPath

    @property
    def output(self) -> str:
        """The output that carries the refs; the guide's name where there is none."""
        titles = self.node.properties("outputs")
        return next((title for title in OUTPUTS if title in titles), OUTPUTS[0])


def selection_nodes(graph: FlowGraph) -> Iterator[SelectionNode]:
    """Every selection node of a flow, in the order of its nodes."""
    for node in graph.nodes.values():
        inner = node.below() if node.kind == "FlowNode" else None
        if inner is None:
            continue
        inside = graph_of(inner)
        if acts(inside, "resolve"):
            value, at = constant(graph, node.id, "slotId")
            yield SelectionNode(node, inside, value, at or node.at)


def constant(graph: FlowGraph, node: str, title: str) -> tuple[str | None, DocumentPath]:
    """The text that an input always gets where nobody sets it: the default of the start input that feeds it."""
    wires = graph.into(node, title)
    if len(wires) != 1:
        return None, ()
    if wires[0].source != graph.start or not graph.start:
        return None, wires[0].at
    given = graph.nodes[graph.start].properties("inputs") or graph.flow.properties("inputs")
    schema, at = given.get(wires[0].output, ({}, wires[0].at))
    default = schema.get("default")
    return (default, (*at, "default")) if isinstance(default, str) else (None, at)


def acts(inside: FlowGraph, act: str) -> frozenset[str]:
    """The steps of a flow that do `act` themselves."""
    known, at = inside.flow.book.steps, (inside.flow.at, act)
    if at not in known:
        known[at] = frozenset(name for name, node in inside.nodes.items() if _act(node) == act)
    return known[at]


def asks_person(node: Component) -> bool:
    """Whether a step that finalises takes a person's answer; where nobody picks there is none."""
    tool = node.below() if node.kind == "ToolNode" else None
    named = tool is not None and text_of(tool.value.get("name")) == "context_finalize"
    return named or ANSWER in node.properties("inputs") or ANSWER in _body(node)


def _body(node: Component) -> Mapping[str, JsonValue]:
    body = node.value.get("data")
    return body if isinstance(body, dict) else {}


def _act(node: Component) -> str:
    if node.kind == "ToolNode":
        tool = node.below()
        return _TOOLS.get(text_of(tool.value.get("name")), "") if tool is not None else ""
    found = _ADDRESS.fullmatch(text_of(node.value.get("url"))) if node.kind == "ApiNode" else None
    return found[1] if found else ""
