"""The lint's work grows with the document and no faster, however often its parts name one another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from contextos_agentspec.wiring import lint_wiring
from tests.agentspec.planted import control, data, good

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
        judge(selection, name, f"accept-{index}")
    return document


def judge(selection: Json, step: str, name: str) -> None:
    """A branch of its own that checks the verdict of a step, as the first one is checked."""
    prefix = "ctx-offeringContext-"
    like = selection["$referenced_components"][f"{prefix}accept_pick"]
    selection["$referenced_components"][name] = like | {"id": name, "name": name}
    selection["nodes"].append({"$component_ref": name})
    selection["control_flow_connections"] += [
        control(step, name),
        control(name, f"{prefix}end") | {"from_branch": "accepted"},
        control(name, f"{prefix}say_why_not") | {"from_branch": "default", "id": f"{name}-to-say_why_not"},
    ]
    selection["data_flow_connections"].append(data(step, "verdict", name, "verdict"))


def children(document: Json, number: int) -> None:
    """So many child agents like the example, each with a slot and nodes of its own; what they run is written once."""
    own = ("start", "context_offeringContext", "drafts", "end")
    kept = {key: value for key, value in document.items() if key != "$referenced_components"}
    parts = {name: document["$referenced_components"][name] for name in own}
    like = json.dumps(kept | {"$referenced_components": parts})
    for index in range(number):
        one = like
        for name in own:
            one = one.replace(f'"{name}"', f'"{name}-{index}"')
        edges = json.loads(one)
        for key in ("control_flow_connections", "data_flow_connections"):
            for edge in edges[key]:
                edge["id"] += f"-{index}"
        document["$referenced_components"][f"child-{index}"] = edges | {"id": f"child-{index}"}
        document["$referenced_components"][f"runs-{index}"] = run_by(f"runs-{index}", f"child-{index}")
        document["nodes"].append({"$component_ref": f"runs-{index}"})


def many_agents_that_share(flow_id: str) -> Callable[[int], Json]:
    """Child agents that run one flow, which has as many steps as there are agents."""

    def shape(number: int) -> Json:
        document, _ = good()
        shared = document["$referenced_components"][flow_id]
        shared["nodes"] += [idle(f"idle-{index}") for index in range(number)]
        shared["data_flow_connections"] += [
            data(shared["start_node"]["$component_ref"], "more", f"idle-{index}", "more") for index in range(number)
        ]
        children(document, number)
        return document

    return shape


def many_agents_that_share_a_node(number: int) -> Json:
    """A node that runs as many flows beside each other as there are agents that have it."""
    document, _ = good()
    parts = document["$referenced_components"]
    children(document, number)
    beside = [{"$component_ref": f"beside-{index}"} for index in range(number)]
    parts["many"] = {"component_type": "ParallelFlowNode", "id": "many", "name": "many", "subflows": beside}
    for index in range(number):
        parts[f"beside-{index}"] = flow(f"beside-{index}", nodes=[idle(f"idle-{index}")])
        parts[f"child-{index}"]["nodes"].append({"$component_ref": "many"})
    return document


@pytest.mark.parametrize(
    ("shape", "number"),
    [
        (one_large_flow_that_many_run, 100),
        (one_long_list_that_many_have, 100),
        (one_large_scope_that_many_look_into, 100),
        (many_that_judge_behind_one_pause, 100),
        (many_agents_that_share("drafts-flow"), 30),
        (many_agents_that_share("ctx-offeringContext-context-selection-flow"), 30),
        (many_agents_that_share_a_node, 30),
    ],
)
def test_twice_the_document_is_at_most_twice_the_work(shape: Callable[[int], Json], number: int) -> None:
    assert lint_wiring(shape(2 * number)) == ()
    assert steps(shape(2 * number)) < 2.2 * steps(shape(number))


def test_a_document_that_doubles_at_every_level_is_read_once() -> None:
    """Forty flows that each run the next one twice: a million million ways down."""
    document, _ = good()
    parts = document["$referenced_components"]
    for level in range(40):
        inner = f"deep-{level + 1}" if level < 39 else "drafts-flow"
        runs = [run_by(f"{level}-{side}", inner, inputs=[], outputs=[]) for side in ("left", "right")]
        parts[f"deep-{level}"] = {
            "component_type": "Flow",
            "id": f"deep-{level}",
            "name": "deep",
            "metadata": {},
            "inputs": [],
            "outputs": [],
            "nodes": runs,
            "control_flow_connections": [],
            "data_flow_connections": [],
        }
    wide(document, 1, "deep-0", inputs=[], outputs=[])
    assert lint_wiring(document) == ()
