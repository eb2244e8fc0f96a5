"""Find the selection nodes of an agent document (which fill context slots), by what their flow does, never by name.

The flow itself resolves a slot and finalises a selection: by tools named `context_resolve` and `context_finalize` (or
`context_take` for an autonomous slot), or by API calls to `/api/context-resolve` and `/api/context-finalize`. A child
agent that contains a selection node is not one itself.
Source: docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contextos.context.slots.oas import DocumentPath
from contextos.contracts.encoding.codec import JsonValue
from contextos_agentspec.components import Component, FlowGraph, graph_of, text_of

SELECTION_AGENT: Final = "@cinatra-ai/context-selection-agent"
INPUTS: Final = ("parentRunId", "parentPackageName", "slotId", "projectId")
OUTPUTS: Final = ("contextRefs", "contextSlotBindings")
"""Names of the output: the guide's name first, then that of later versions of the original agent."""
BINDINGS: Final = "contextSlotBindings"
"""The input of a consumer that receives the refs."""
ANSWER: Final = "userResponse"
"""The input of the step that checks a person's answer."""
END: Final = "EndNode"

# The whole path must match: a path that only begins or ends like it is a different address.
_ADDRESS: Final = re.compile(r"(?:https?://[^/?#{}]+|\{\{[^{}/?#]+\}\})?/api/context-(resolve|finalize)/?")
_TOOLS: Final = {"context_resolve": "resolve", "context_finalize": "finalize", "context_take": "finalize"}


@dataclass(frozen=True, slots=True)
class SelectionNode:
    """A selection node: a node whose flow fills a context slot. `slot_id` is the constant of its input `slotId`.

    `slot_id` is None if the input is not fed by a constant.
    """

    node: Component
    flow: FlowGraph
    slot_id: str | None
    slot_id_at: DocumentPath

    @property
    def output(self) -> str:
        """Return the title of the output that holds the selected references; the standard title if there is none."""
        titles = self.node.properties("outputs")
        return next((title for title in OUTPUTS if title in titles), OUTPUTS[0])


def selection_nodes(graph: FlowGraph) -> Iterator[SelectionNode]:
    """Yield every selection node of a flow (a node whose own flow fills a context slot), in the order of the nodes."""
    for node in graph.nodes.values():
        inner = node.inner() if node.kind == "FlowNode" else None
        if inner is None:
            continue
        flow = graph_of(inner)
        if steps_doing(flow, "resolve"):
            value, at = constant(graph, node.id, "slotId")
            yield SelectionNode(node, flow, value, at or node.at)


def constant(graph: FlowGraph, node: str, title: str) -> tuple[str | None, DocumentPath]:
    """Return the constant string that feeds an input (or None), and the constant's path in the document."""
    edges = graph.into(node, title)
    if len(edges) != 1:
        return None, ()
    if edges[0].source != graph.start or not graph.start:
        return None, edges[0].at
    start_inputs = graph.nodes[graph.start].properties("inputs") or graph.flow.properties("inputs")
    schema, at = start_inputs.get(edges[0].output, ({}, edges[0].at))
    default = schema.get("default")
    return (default, (*at, "default")) if isinstance(default, str) else (None, at)


def steps_doing(graph: FlowGraph, operation: str) -> frozenset[str]:
    """Return the ids of the steps of a flow that themselves do `operation` (`resolve` or `finalize`)."""
    cached, key = graph.flow.cache.steps, (graph.flow.at, operation)
    if key not in cached:
        cached[key] = frozenset(name for name, node in graph.nodes.items() if _operation(node) == operation)
    return cached[key]


def asks_person(node: Component) -> bool:
    """Return whether a finalize step takes a person's answer. A step of an autonomous slot takes none."""
    tool = node.inner() if node.kind == "ToolNode" else None
    named = tool is not None and text_of(tool.value.get("name")) == "context_finalize"
    return named or ANSWER in node.properties("inputs") or ANSWER in _body(node)


def _body(node: Component) -> Mapping[str, JsonValue]:
    body = node.value.get("data")
    return body if isinstance(body, dict) else {}


def _operation(node: Component) -> str:
    if node.kind == "ToolNode":
        tool = node.inner()
        return _TOOLS.get(text_of(tool.value.get("name")), "") if tool is not None else ""
    found = _ADDRESS.fullmatch(text_of(node.value.get("url"))) if node.kind == "ApiNode" else None
    return found[1] if found else ""
