"""Lint of the flow that a selection node (which fills a context slot) runs.

The flow must resolve the slot that the node was given, wait for a person if the slot is interactive and not need one if
it is autonomous, and return only what was pinned. A copy of the selection agent does so. An edited copy can have lost
an edge that has a default, or can answer in the person's place. So control must reach the step that checks an answer
directly from the pause that the answer comes from: then no other answer can come in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from contextos.context.slots.oas import DocumentPath
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos_agentspec.addresses import ADDRESS_REMEDY, address_fault
from contextos_agentspec.components import Component, FlowGraph
from contextos_agentspec.names import overwritten, start_faults
from contextos_agentspec.selection_node import ANSWER, END, INPUTS, SelectionNode, asks_person, steps_doing

KEY: Final = "actKey"
PAUSE: Final = "InputMessageNode"
COPY: Final = "copy the selection agent unchanged"
STEPS: Final = frozenset(
    {"StartNode", "EndNode", "ToolNode", "ApiNode", "BranchingNode", "InputMessageNode", "OutputMessageNode"}
)
TEMPLATES: Final = ("message", "url", "data", "headers", "sensitive_headers", "query_params")
_PLAIN: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MARKS: Final = re.compile(r"\{[{%#]|[}%#]\}")


def flow_faults(selection: SelectionNode, *, interactive: bool) -> Iterator[Problem]:
    """Yield the problems of the flow that a selection node runs. A flow that several nodes run is checked once.

    `interactive`: a person fills the slot, so the flow must pause for the person.
    """
    inside = selection.flow
    if not inside.flow.once(f"selects {interactive} {selection.output}"):
        return
    finalizing = steps_doing(inside, "finalize")
    yield from _returned_refs(selection, finalizing)
    yield from _passed_inputs(inside, steps_doing(inside, "resolve"), finalizing)
    if interactive and not any(asks_person(inside.nodes[step]) for step in finalizing):
        detail = f"the slot is interactive, and the flow behind `{selection.node.id[:64]}` takes no person's answer"
        yield Problem(pointer(inside.flow.at), "no_pause", detail, COPY)
    if not interactive and finalizing and all(asks_person(inside.nodes[step]) for step in finalizing):
        detail = f"the slot is autonomous, and the flow behind `{selection.node.id[:64]}` pins only what a person picks"
        yield Problem(pointer(inside.flow.at), "only_asks", detail, COPY)
    yield from start_faults(inside)
    yield from answer_faults(inside)
    yield from _refused_picks(inside, finalizing)
    yield from _steps(inside)


def _returned_refs(selection: SelectionNode, finalizing: frozenset[str]) -> Iterator[Problem]:
    inside, title = selection.flow, selection.output
    ends = {name for name, node in inside.nodes.items() if node.kind == END}
    feeds = [feed for end in sorted(ends) for feed in inside.into(end, title)]
    for feed in feeds:
        if feed.source not in finalizing:
            detail = f"`{title}` is fed from `{feed.source[:64]}`, which pins and records nothing"
            yield Problem(pointer(feed.at), "not_pinned", detail, "feed it from the finalize step")
    bypassing = inside.reached(inside.start, without=finalizing)
    for name in sorted((inside.exits() - ends - finalizing) & bypassing):
        detail = f"the flow ends at `{name[:64]}`, from which a branch leads nowhere, before anything is pinned"
        yield Problem(pointer(inside.nodes[name].at), "not_pinned", detail, "lead each branch on to a finalize step")
    for edge in (
        edge for end in sorted(ends & bypassing) for edge in inside.control_into(end) if edge.source in bypassing
    ):
        detail = f"control reaches the end from `{edge.source[:64]}` before anything is pinned or recorded"
        yield Problem(
            pointer(edge.at), "not_pinned", detail, "route every control path to the end through a finalize step"
        )
    if not feeds:
        detail = f"the flow behind `{selection.node.id[:64]}` returns no `{title}`"
        yield Problem(pointer(inside.flow.at), "not_pinned", detail, "return the output of the finalize step")


def _passed_inputs(inside: FlowGraph, resolving: frozenset[str], finalizing: frozenset[str]) -> Iterator[Problem]:
    """Check that each step receives the node's four inputs unchanged and sends them on; finalize steps also the key."""
    for step in sorted(resolving | finalizing):
        node = inside.nodes[step]
        for title in INPUTS:
            feeds = inside.into(step, title)
            if [(feed.source, feed.output) for feed in feeds] != [(inside.start, title)]:
                at = feeds[0].at if feeds else node.at
                detail = f"`{title}` of `{step[:64]}` is not the input of the selection node"
                yield Problem(pointer(at), "input_not_passed_on", detail, f"feed it from the start node's `{title}`")
        key = [(feed.source in resolving, feed.output) for feed in inside.into(step, KEY)]
        if KEY in node.properties("inputs") and step in finalizing and len(key) < 2 and key != [(True, KEY)]:
            detail = f"`{KEY}` of `{step[:64]}` is not the one that the resolve step returned"
            yield Problem(pointer(node.at), "input_not_passed_on", detail, f"feed it from the resolve step's `{KEY}`")
        for title in (*INPUTS, ANSWER) if asks_person(node) else INPUTS:
            if node.kind == "ApiNode" and not _sends(node, title):
                detail = f"the body of `{step[:64]}` does not send the step's input `{title}`"
                at = (*node.at, "data")
                yield Problem(pointer(at), "input_not_passed_on", detail, f'send `"{title}": "{{{{{title}}}}}"`')


def _sends(node: Component, title: str) -> bool:
    body = node.value.get("data")
    sent = body.get(title) if isinstance(body, dict) else None
    found = _PLAIN.fullmatch(sent) if isinstance(sent, str) else None
    return found is not None and found[1] == title


def answer_faults(inside: FlowGraph) -> Iterator[Problem]:
    """Yield a problem for each finalize step that does not take its answer from the pause directly before it."""
    for step in sorted(steps_doing(inside, "finalize")):
        if not asks_person(inside.nodes[step]):
            continue
        answers = inside.into(step, ANSWER)
        pauses = {feed.source for feed in answers if feed.source in inside.nodes}
        pauses = {name for name in pauses if inside.nodes[name].kind == PAUSE}
        if not answers:
            detail = f"no edge feeds `{ANSWER}` of `{step[:64]}`, so a default answers in the person's place"
            yield Problem(pointer(inside.nodes[step].at), "no_pause", detail, COPY)
        for feed in answers:
            if feed.source not in pauses:
                detail = f"`{feed.source[:64]}` answers `{step[:64]}` in the person's place"
                yield Problem(pointer(feed.at), "no_pause", detail, "feed the answer from an `InputMessageNode`")
        for edge in inside.control_into(step):
            if pauses and {edge.source} != pauses:
                detail = f"control reaches `{step[:64]}` from `{edge.source[:64]}` and not from the pause of its answer"
                yield Problem(pointer(edge.at), "no_pause", detail, "route control to it directly from the pause")


def _refused_picks(inside: FlowGraph, finalizing: frozenset[str]) -> Iterator[Problem]:
    """Check that only the verdict `accepted` leads to the end; every other verdict leads back to a pause.

    An API call that refuses ends the flow by itself.
    """
    pauses = frozenset(name for name, node in inside.nodes.items() if node.kind == PAUSE)
    exits = inside.exits()
    ending = inside.reaching(exits - pauses, without=pauses | finalizing)
    for step in sorted(finalizing):
        if not asks_person(inside.nodes[step]) or inside.nodes[step].kind != "ToolNode":
            continue
        if step in exits:
            detail = f"the flow ends at `{step[:64]}`, and nothing checks its verdict"
            yield Problem(pointer(inside.nodes[step].at), "not_asked_again", detail, COPY)
        for edge in inside.control_out_of(step):
            branching = inside.nodes[edge.target].value if edge.target in inside.nodes else {}
            mapping = branching.get("mapping")
            read = [(feed.source, feed.output) for feed in inside.all_into(edge.target)]
            if read != [(step, "verdict")] or not isinstance(mapping, dict) or [*mapping] != ["accepted"]:
                detail = f"`{step[:64]}` leads to `{edge.target[:64]}`, which does not check its verdict"
                yield Problem(pointer(edge.at), "not_asked_again", detail, COPY)
                continue
            if "default" not in {branch.branch for branch in inside.control_out_of(edge.target)}:
                detail = f"a refused pick leads nowhere from `{edge.target[:64]}`, which ends the flow"
                yield Problem(pointer(inside.nodes[edge.target].at), "not_asked_again", detail, "lead it to the pause")
            for branch in inside.control_out_of(edge.target):
                if branch.branch != mapping["accepted"] and branch.target in ending:
                    detail = f"a refused pick leads from `{branch.source[:64]}` to the end, and no one is asked again"
                    yield Problem(pointer(branch.at), "not_asked_again", detail, "route it back to the pause")


def _steps(inside: FlowGraph) -> Iterator[Problem]:
    """Check that the flow has only the step kinds of a selection. None of them computes anything itself."""
    if inside.flow.kind != "Flow":
        detail = f"the selection is a `{inside.flow.kind[:64]}` and not a `Flow`"
        yield Problem(pointer((*inside.flow.at, "component_type")), "foreign_step", detail, COPY)
    for name, node in inside.nodes.items():
        if node.kind != END:  # the outputs of several branches meet there
            yield from overwritten(inside, name)
        if node.kind not in STEPS:
            detail = f"`{name[:64]}` is a `{node.kind[:64]}`, which is not a step of a selection"
            yield Problem(pointer(node.at), "foreign_step", detail, COPY)
        if node.kind == "ApiNode" and (fault := address_fault(inside, name)):
            yield Problem(pointer((*node.at, "url")), "foreign_address", f"`{name[:64]}` {fault}", ADDRESS_REMEDY)
        tool = node.inner()
        if tool is not None and tool.value.get("requires_confirmation"):
            detail = f"the tool of `{name[:64]}` waits for a confirmation, which is not an answer"
            yield Problem(pointer(tool.at), "foreign_step", detail, "remove `requires_confirmation`")
        for text, at in _texts(node):
            if _MARKS.search(_PLAIN.sub("", text)):
                detail = f"a template of `{name[:64]}` is more than a plain value"
                yield Problem(pointer(at), "not_plain", detail, "write only `{{name}}` in braces")


def _texts(node: Component) -> Iterator[tuple[str, DocumentPath]]:
    """Yield every template string of a node with its path, including names of headers and fields."""
    waiting: list[tuple[JsonValue, DocumentPath]] = [(node.value.get(key), (*node.at, key)) for key in TEMPLATES]
    while waiting:
        value, at = waiting.pop()
        if isinstance(value, str):
            yield value, at
        elif isinstance(value, dict):
            waiting += [(one, (*at, key)) for key, one in value.items()]
            waiting += [(key, (*at, key)) for key in value]
        elif isinstance(value, list):
            waiting += [(one, (*at, index)) for index, one in enumerate(value)]
