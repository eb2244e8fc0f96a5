"""The lint's work grows with the document and no faster, however often its parts name one another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from contextos.slots.wiring import lint_wiring
from tests.unit.slots.planted import control, data, good

Json = dict[str, Any]


def steps(document: Json) -> int:
    """How many byte codes the lint runs: a count and no time, so that it is the same on every machine."""
    count = 0

    def look(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        lint_wiring(document)
    finally:
        sys.settrace(before)
    return count


def run_by(name: str, subflow: str, **more: Any) -> Json:
    ref = {"$component_ref": subflow}
    return {"component_type": "FlowNode", "id": name, "name": name, "metadata": {}, "subflow": ref, **more}


def wide(document: Json, number: int, subflow: str, **more: Any) -> None:
    """So many nodes that all run one flow."""
    for index in range(number):
        document["$referenced_components"][f"wide-{index}"] = run_by(f"wide-{index}", subflow, **more)
        document["nodes"].append({"$component_ref": f"wide-{index}"})


def idle(name: str) -> Json:
    return {"component_type": "OutputMessageNode", "id": name, "name": name, "message": "", "outputs": []}


def flow(name: str, **more: Any) -> Json:
    return {"component_type": "Flow", "id": name, "name": name, "metadata": {}, "inputs": [], "nodes": [], **more}


def one_large_flow_that_many_run(number: int) -> Json:
    document, _ = good()
    document["$referenced_components"]["large"] = flow("large", nodes=[idle(f"idle-{n}") for n in range(number)])
    wide(document, number, "large", inputs=[])
    return document


def one_long_list_that_many_have(number: int) -> Json:
    """Nodes without a list of their own, whose flow has as many inputs."""
    document, _ = good()
    listed = [{"title": f"more-{index}", "type": "string"} for index in range(number)]
    document["$referenced_components"]["long"] = flow("long", inputs=listed)
    wide(document, number, "long")
    return document


def one_large_scope_that_many_look_into(number: int) -> Json:
    """A flow that defines as many components as there are nodes that run it."""
    document, _ = good()
    defined = {f"idle-{index}": idle(f"idle-{index}") for index in range(number)}
    document["$referenced_components"]["large"] = flow("large") | {"$referenced_components": defined}
    wide(document, number, "large", inputs=[])
    return document


def many_that_judge_behind_one_pause(number: int) -> Json:
    """As many steps that finalise as edges that lead to them."""
    document, _ = good()
    selection = document["$referenced_components"]["ctx-offeringContext-context-selection-flow"]
    like = selection["$referenced_components"]["ctx-offeringContext-finalize_interactive"]
    fed = [
        edge for edge in selection["data_flow_connections"] if edge["destination_node"]["$component_ref"] == like["id"]
    ]
    for index in range(number):
        name = f"again-{index}"
        selection["$referenced_components"][name] = like | {"id": name, "name": name}
        selection["nodes"].append({"$component_ref": name})
        selection["control_flow_connections"].append(control("ctx-offeringContext-context_select_gate", name))
        selection["data_flow_connections"] += [
            data(edge["source_node"]["$component_ref"], edge["source_output"], name, edge["destination_input"])
            for edge in fed
        ]
    return document


@pytest.mark.parametrize(
    "shape",
    [
        one_large_flow_that_many_run, one_long_list_that_many_have, one_large_scope_that_many_look_into,
        many_that_judge_behind_one_pause,
    ],
)  # fmt: skip
def test_twice_the_document_is_at_most_twice_the_work(shape: Callable[[int], Json]) -> None:
    assert lint_wiring(shape(200)) == ()
    assert steps(shape(200)) < 2.2 * steps(shape(100))


def test_a_document_that_doubles_at_every_level_is_read_once() -> None:
    """Forty flows that each run the next one twice: a million million ways down."""
    document, _ = good()
    parts = document["$referenced_components"]
    for level in range(40):
        inner = f"deep-{level + 1}" if level < 39 else "drafts-flow"
        runs = [run_by(f"{level}-{side}", inner, inputs=[], outputs=[]) for side in ("left", "right")]
        parts[f"deep-{level}"] = {
            "component_type": "Flow", "id": f"deep-{level}", "name": "deep", "metadata": {}, "inputs": [],
            "outputs": [], "nodes": runs, "control_flow_connections": [], "data_flow_connections": [],
        }  # fmt: skip
    wide(document, 1, "deep-0", inputs=[], outputs=[])
    assert lint_wiring(document) == ()
