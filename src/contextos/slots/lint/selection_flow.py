"""The part of the wiring lint that looks into a selection node: whether the flow behind it does all that it is for.

It asks for the slot that the node was told, waits for the person where the slot is interactive and needs none where it
is autonomous, and hands out what was pinned and nothing else. A copy of the selection agent does; an edited copy may
have lost an edge that has a default, or answer in the person's place. So control comes to the step that judges an
answer straight from the pause that the answer comes from: then nothing else can have been said since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import Problem
from contextos.slots.lint.components import Component, DocumentPath, FlowGraph
from contextos.slots.lint.names import overwritten
from contextos.slots.lint.selection_node import ANSWER, INPUTS, SelectionNode, acts, asks_person

KEY: Final = "actKey"
PAUSE, END = "InputMessageNode", "EndNode"
COPY: Final = "copy the selection agent as it is"
STEPS: Final = frozenset(
    {"StartNode", "EndNode", "ToolNode", "ApiNode", "BranchingNode", "InputMessageNode", "OutputMessageNode"}
)
TEMPLATES: Final = ("message", "url", "data", "headers", "sensitive_headers", "query_params")
_PLAIN: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MARKS: Final = re.compile(r"\{[{%#]|[}%#]\}")


def flow_faults(selection: SelectionNode, *, interactive: bool) -> Iterator[Problem]:
    """What the flow behind a selection node fails to do; told of the first of several nodes that run it alike."""
    inside = selection.inside
    if not inside.flow.once(f"selects {interactive} {selection.output}"):
        return
    finals = acts(inside, "finalize")
    yield from _handed_out(selection, finals)
    yield from _told(inside, acts(inside, "resolve"), finals)
    if interactive and not any(asks_person(inside.nodes[step]) for step in finals):
        detail = f"the slot is interactive and the flow behind `{selection.node.id[:64]}` takes no person's answer"
        yield Problem(pointer(inside.flow.at), "no_pause", detail, COPY)
    if not interactive and finals and all(asks_person(inside.nodes[step]) for step in finals):
        detail = f"the slot is autonomous and the flow behind `{selection.node.id[:64]}` pins only what a person picks"
        yield Problem(pointer(inside.flow.at), "only_asks", detail, COPY)
    yield from answer_faults(inside)
    yield from _asked_again(inside, finals)
    yield from _steps(inside)


def _handed_out(selection: SelectionNode, finals: frozenset[str]) -> Iterator[Problem]:
    inside, title = selection.inside, selection.output
    ends = {name for name, node in inside.nodes.items() if node.kind == END}
    feeds = [wire for end in sorted(ends) for wire in inside.into(end, title)]
    for wire in feeds:
        if wire.source not in finals:
            detail = f"`{title}` comes from `{wire.source[:64]}`, which pins and records nothing"
            yield Problem(pointer(wire.at), "not_pinned", detail, "take it from the finalize step")
    past = inside.reached(inside.start, without=finals)
    for edge in (way for end in sorted(ends & past) for way in inside.ways_to(end) if way.source in past):
        detail = f"control comes from `{edge.source[:64]}` to the end, and nothing was pinned or recorded by then"
        yield Problem(pointer(edge.at), "not_pinned", detail, "lead every way to the end through a finalize step")
    if not feeds:
        detail = f"the flow behind `{selection.node.id[:64]}` hands out no `{title}`"
        yield Problem(pointer(inside.flow.at), "not_pinned", detail, "end it with what the finalize step returns")


def _told(inside: FlowGraph, resolves: frozenset[str], finals: frozenset[str]) -> Iterator[Problem]:
    """Each step gets the four inputs of the node, unchanged, and sends them on; the last ones get the key too."""
    for step in sorted(resolves | finals):
        node = inside.nodes[step]
        for title in INPUTS:
            given = inside.into(step, title)
            if [(wire.source, wire.output) for wire in given] != [(inside.start, title)]:
                at = given[0].at if given else node.at
                detail = f"`{title}` of `{step[:64]}` is not what the selection node was given"
                yield Problem(pointer(at), "input_not_passed_on", detail, f"feed it from the start node's `{title}`")
        key = [(wire.source in resolves, wire.output) for wire in inside.into(step, KEY)]
        if KEY in node.properties("inputs") and step in finals and len(key) < 2 and key != [(True, KEY)]:
            detail = f"`{KEY}` of `{step[:64]}` is not the one that resolving gave"
            yield Problem(pointer(node.at), "input_not_passed_on", detail, f"feed it from the resolve step's `{KEY}`")
        for title in (*INPUTS, ANSWER) if asks_person(node) else INPUTS:
            if node.kind == "ApiNode" and not _sends(node, title):
                detail = f"the body of `{step[:64]}` does not send the `{title}` that the step was given"
                at = (*node.at, "data")
                yield Problem(pointer(at), "input_not_passed_on", detail, f'send `"{title}": "{{{{{title}}}}}"`')


def _sends(node: Component, title: str) -> bool:
    body = node.value.get("data")
    sent = body.get(title) if isinstance(body, dict) else None
    found = _PLAIN.fullmatch(sent) if isinstance(sent, str) else None
    return found is not None and found[1] == title


def answer_faults(inside: FlowGraph) -> Iterator[Problem]:
    """What is judged as an answer is what a person said to the pause right before, in whatever flow it is judged."""
    for step in sorted(acts(inside, "finalize")):
        if not asks_person(inside.nodes[step]):
            continue
        said = inside.into(step, ANSWER)
        gates = {wire.source for wire in said if wire.source in inside.nodes}
        gates = {name for name in gates if inside.nodes[name].kind == PAUSE}
        if not said:
            detail = f"nothing feeds `{ANSWER}` of `{step[:64]}`, so that a default answers in a person's place"
            yield Problem(pointer(inside.nodes[step].at), "no_pause", detail, COPY)
        for wire in said:
            if wire.source not in gates:
                detail = f"`{wire.source[:64]}` answers `{step[:64]}` in a person's place"
                yield Problem(pointer(wire.at), "no_pause", detail, "take the answer from an `InputMessageNode`")
        for edge in inside.ways_to(step):
            if gates and {edge.source} != gates:
                detail = f"control comes to `{step[:64]}` from `{edge.source[:64]}` and not from the pause it judges"
                yield Problem(pointer(edge.at), "no_pause", detail, "lead every way to it straight from the pause")


def _asked_again(inside: FlowGraph, finals: frozenset[str]) -> Iterator[Problem]:
    """A pick that does not count is asked again: only the verdict `accepted` leads to the end, the others to a pause.

    An API call that refuses ends the flow by itself.
    """
    kinds = {kind: frozenset(name for name, node in inside.nodes.items() if node.kind == kind) for kind in (PAUSE, END)}
    ending = inside.leading(kinds[END], without=kinds[PAUSE] | finals)
    for step in sorted(finals):
        if not asks_person(inside.nodes[step]) or inside.nodes[step].kind != "ToolNode":
            continue
        for edge in inside.ways_from(step):
            branching = inside.nodes[edge.target].value if edge.target in inside.nodes else {}
            mapping = branching.get("mapping")
            judged = [(wire.source, wire.output) for wire in inside.all_into(edge.target)] == [(step, "verdict")]
            if not judged or not isinstance(mapping, dict) or [*mapping] != ["accepted"]:
                detail = f"`{step[:64]}` leads to `{edge.target[:64]}`, which does not look at its verdict"
                yield Problem(pointer(edge.at), "not_asked_again", detail, COPY)
                continue
            for way in inside.ways_from(edge.target):
                if way.branch != mapping["accepted"] and way.target in ending:
                    detail = f"a pick that was refused goes from `{way.source[:64]}` to the end, and nobody is asked"
                    yield Problem(pointer(way.at), "not_asked_again", detail, "lead it back to the pause")


def _steps(inside: FlowGraph) -> Iterator[Problem]:
    """Nothing but the kinds of step that a selection is made of, none of which computes anything of its own."""
    if inside.flow.kind != "Flow":
        detail = f"a selection is a `Flow`, and this is a `{inside.flow.kind[:64]}`"
        yield Problem(pointer((*inside.flow.at, "component_type")), "foreign_step", detail, COPY)
    for name, node in inside.nodes.items():
        if node.kind != END:  # what a branch hands out, and what the other one does, meet there
            yield from overwritten(inside, name)
        if node.kind not in STEPS:
            detail = f"`{name[:64]}` is a `{node.kind[:64]}`, which is no step of a selection"
            yield Problem(pointer(node.at), "foreign_step", detail, COPY)
        tool = node.below()
        if tool is not None and tool.value.get("requires_confirmation"):
            detail = f"the tool of `{name[:64]}` waits for a confirmation, which is no answer"
            yield Problem(pointer(tool.at), "foreign_step", detail, "leave `requires_confirmation` out")
        for text, at in _texts(node):
            if _MARKS.search(_PLAIN.sub("", text)):
                detail = f"a template of `{name[:64]}` does more than name a value"
                yield Problem(pointer(at), "not_plain", detail, "write `{{name}}` and nothing else in braces")


def _texts(node: Component) -> Iterator[tuple[str, DocumentPath]]:
    """Every text of a node that is a template, names of headers and fields included."""
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
