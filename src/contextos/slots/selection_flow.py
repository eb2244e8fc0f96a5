"""The part of the wiring lint that looks into a selection node: whether the flow behind it does all that it is for.

It asks for the slot that the node was told, waits for the person where the slot is interactive, and hands out what was
pinned and nothing else. A copy of the selection agent does; an edited copy may have lost an edge that has a default.
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.codec import pointer
from contextos.errors import Problem
from contextos.slots.components import Graph
from contextos.slots.selection_node import INPUTS, SelectionNode, acts

ANSWER = "userResponse"
COPY = "copy the selection agent as it is"


def flow_faults(selection: SelectionNode, *, interactive: bool) -> Iterator[Problem]:
    """What the flow behind a selection node fails to do."""
    finals = acts(selection.inside, "finalize")
    yield from _handed_out(selection, finals)
    yield from _told(selection.inside, acts(selection.inside, "resolve") | finals)
    if interactive and not _waits(selection.inside, finals):
        detail = f"the slot is interactive and the flow behind `{selection.node.id[:64]}` takes no person's answer"
        yield Problem(pointer(selection.inside.flow.at), "no_pause", detail, COPY)


def _handed_out(selection: SelectionNode, finals: frozenset[str]) -> Iterator[Problem]:
    inside, title = selection.inside, selection.output
    ends = {name for name, node in inside.nodes.items() if node.kind == "EndNode"}
    feeds = [wire for end in sorted(ends) for wire in inside.into(end, title)]
    for wire in feeds:
        if wire.source not in finals:
            detail = f"`{title}` comes from `{wire.source[:64]}`, which pins and records nothing"
            yield Problem(pointer(wire.at), "not_pinned", detail, "take it from the finalize step")
    if not feeds:
        detail = f"the flow behind `{selection.node.id[:64]}` hands out no `{title}`"
        yield Problem(pointer(inside.flow.at), "not_pinned", detail, "end it with what the finalize step returns")


def _told(inside: Graph, steps: frozenset[str]) -> Iterator[Problem]:
    """Each step gets the four inputs of the node, unchanged."""
    for step in sorted(steps):
        for title in INPUTS:
            given = inside.into(step, title)
            if [(wire.source, wire.output) for wire in given] != [(inside.start, title)]:
                at = given[0].at if given else inside.nodes[step].at
                detail = f"`{title}` of `{step[:64]}` is not what the selection node was given"
                yield Problem(pointer(at), "input_not_passed_on", detail, f"feed it from the start node's `{title}`")


def _waits(inside: Graph, finals: frozenset[str]) -> bool:
    """Whether what a person said is judged by a finalize step."""
    answers = [wire for step in finals for wire in inside.into(step, ANSWER)]
    return any(wire.source in inside.nodes and inside.nodes[wire.source].kind == "InputMessageNode" for wire in answers)
