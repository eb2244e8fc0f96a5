"""Every wiring fault is found, under its own code, at its place, with the remedy; correct wiring has no finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.encoding.yaml_text import read_document
from contextos_agentspec.package import lint_package
from contextos_agentspec.wiring import lint_wiring
from tests.agentspec.forged import FORGED, forged
from tests.agentspec.planted import AROUND, EXAMPLE, PLANTED, Planted, control, data, good, plant

ROOT = Path(__file__).resolve().parents[2]
VOICE = Path(__file__).parent / "good" / "voice_writer"
SELECTION = ROOT / "agentspec" / "contextos_agentspec" / "selection_agent.json"


def write(folder: Path, document: Any, package: Any) -> Path:
    (folder / "cinatra").mkdir()
    (folder / "cinatra" / "oas.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")
    return folder


@pytest.mark.requirement("W-LINT")
@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_under_its_own_code(
    fault: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, package = plant(fault)
    assert run_command_line(["slots", "lint", str(write(tmp_path, document, package)), "--json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    place = "package.json" if fault.at.startswith("package:") else "oas.json"
    found = [one for one in problems if one["code"] == fault.code]
    assert [(Path(one["file"]).name, one["pointer"]) for one in found] == [(place, fault.at.removeprefix("package:"))]
    assert found[0]["detail"]
    assert found[0]["remedy"]
    assert {one["code"] for one in problems} - {fault.code} == fault.also


@pytest.mark.requirement("W-LINT")
@pytest.mark.parametrize("agent", [EXAMPLE, VOICE, SELECTION], ids=lambda path: path.stem)
def test_a_good_example_passes(agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["slots", "lint", str(agent)]) == 0
    assert capsys.readouterr().out.endswith(": fine\n")


def as_packaged(flow: Any) -> Any:
    """A flow as in the selection agent: without the prefix of its ids and without metadata of its own."""
    flow = json.loads(json.dumps(flow).replace('"ctx-offeringContext-', '"'))
    return {key: value for key, value in flow.items() if key not in ("metadata", "agentspec_version")}


def test_the_example_carries_the_selection_agent_as_it_is_published() -> None:
    inlined = good()[0]["$referenced_components"]["ctx-offeringContext-context-selection-flow"]
    assert as_packaged(inlined) == as_packaged(json.loads(SELECTION.read_text("utf-8")))


@pytest.mark.parametrize("code", sorted({fault.code for fault in PLANTED}))
def test_every_code_of_the_lint_is_in_the_docs(code: str) -> None:
    _, _, listed = (ROOT / "docs" / "slots.md").read_text("utf-8").partition("## What the lint finds")
    assert f"`{code}`" in listed


def test_a_child_that_takes_bindings_and_declares_no_slot_is_fine() -> None:
    drafts = good()[0]["$referenced_components"]["drafts-flow"]
    assert lint_wiring(drafts) == ()
    assert lint_package(drafts, {"name": "@contextos-examples/drafting-agent"}) == ()


def test_a_start_without_a_list_of_its_own_has_the_inputs_of_its_flow() -> None:
    document, _ = good()
    del document["$referenced_components"]["start"]["inputs"]
    assert lint_wiring(document) == ()
    document["inputs"][3]["default"] = "voiceContext"
    assert [(one.code, one.pointer) for one in lint_wiring(document)] == [("wrong_slot_id", "/inputs/3/default")]


def test_a_node_without_its_own_list_has_the_inputs_of_its_component() -> None:
    document, _ = good()
    for name in ("drafts", "context_offeringContext"):
        del document["$referenced_components"][name]["inputs"], document["$referenced_components"][name]["outputs"]
    assert lint_wiring(document) == ()
    document["data_flow_connections"] = [
        one for one in document["data_flow_connections"] if one["destination_input"] != "contextSlotBindings"
    ]
    assert {one.code for one in lint_wiring(document)} == {"missing_output_edge", "unfed_consumer"}


def test_a_component_may_be_written_in_place() -> None:
    document, _ = good()
    parts = document["$referenced_components"]
    parts["drafts"]["subflow"] = parts.pop("drafts-flow")
    document["nodes"][2] = parts.pop("drafts")
    document["start_node"] = parts["start"]
    assert lint_wiring(document) == ()


@pytest.mark.parametrize(
    ("url", "codes"),
    [
        ("{{CINATRA_BASE_URL}}/api/context-resolve", set()),
        ("/api/context-resolve", set()),
        ("https://contextos.example/api/context-resolve-not", {"no_selection_node"}),
        ("https://contextos.example/api/context-resolver", {"no_selection_node"}),
        ("https://contextos.example/?x=/api/context-resolve", {"no_selection_node"}),
        ("https://contextos.example/decoy/api/context-resolve", {"no_selection_node"}),
    ],
)
def test_a_selection_node_is_known_by_the_whole_address_that_it_calls(url: str, codes: set[str]) -> None:
    document = read_document((VOICE / "cinatra" / "oas.yaml").read_bytes())
    inner = document["$referenced_components"]["ctx-context-selection-flow"]["$referenced_components"]
    for step in ("ctx-resolve", "ctx-finalize_interactive", "ctx-finalize_autonomous"):
        inner[step]["url"] = url.replace("resolve", inner[step]["url"].rpartition("-")[2])
    assert {one.code for one in lint_wiring(document)} - {"bypass"} == codes


def test_problems_are_bounded_and_so_is_the_work() -> None:
    document, package = good()
    slot = document["metadata"]["cinatra"]["contextSlots"][0]
    document["metadata"]["cinatra"]["contextSlots"] = [{**slot, "slotId": f"s{n}"} for n in range(64)]
    for number in range(1500):
        name = f"node_{number}"
        document["nodes"].append({"$component_ref": name})
        document["$referenced_components"][name] = {
            "component_type": "FlowNode",
            "id": name,
            "name": name,
            "metadata": {},
            "subflow": {"$component_ref": "ctx-offeringContext-context-selection-flow"},
        }
        document["data_flow_connections"].append(
            {
                "component_type": "DataFlowEdge",
                "source_node": {"$component_ref": "context_offeringContext"},
                "source_output": "contextRefs",
                "destination_node": {"$component_ref": name},
                "destination_input": "contextSlotBindings",
            }
        )
    assert len(lint_wiring(document)) == 100
    document["metadata"]["cinatra"]["contextSlots"].append(slot)
    assert [one.code for one in lint_wiring(document)] == ["too_many_slots"]
    assert lint_package(document, package) == ()


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_every_pointer_leads_to_a_place_or_to_where_something_is_missing(fault: Planted) -> None:
    document, package = plant(fault)
    for value, found in ((document, lint_wiring(document)), (package, lint_package(document, package))):
        for problem in found:
            assert resolve_pointer(value, problem.pointer.rpartition("/")[0]) is not MISSING, problem


def test_two_ways_that_both_lead_through_the_selection_are_fine() -> None:
    document, _ = good()
    document["$referenced_components"]["choose"] = AROUND
    document["nodes"].append({"$component_ref": "choose"})
    document["control_flow_connections"][0] = control("start", "choose")
    for branch in ("known", "default"):
        edge = control("choose", "context_offeringContext") | {"from_branch": branch, "id": branch}
        document["control_flow_connections"].append(edge)
    assert lint_wiring(document) == ()


def test_refs_that_only_leave_the_agent_reach_no_consumer() -> None:
    document, _ = good()
    document["data_flow_connections"][4] |= data("context_offeringContext", "contextRefs", "end", "contextRefs")
    assert {one.code for one in lint_wiring(document)} == {"missing_output_edge", "unfed_consumer"}


def test_an_entry_that_is_no_input_is_skipped() -> None:
    document, _ = good()
    document["$referenced_components"]["drafts"]["inputs"] += [1, {}, {"title": 1}, {"title": "a", "json_schema": 1}]
    assert lint_wiring(document) == ()


@pytest.mark.parametrize("package", [None, [], "x", {}, {"cinatra": 1}, {"name": 1, "cinatra": {}}])
def test_a_package_that_says_nothing_lacks_the_dependency_or_is_none(package: object) -> None:
    [found] = lint_package(good()[0], package)
    assert found.code == ("missing_dependency" if isinstance(package, dict) else "not_an_object")


def test_each_consumer_gets_the_refs_and_no_other_output() -> None:
    document, _ = good()
    document["data_flow_connections"][4]["source_output"] = "verdict"
    [found] = lint_wiring(document)
    assert (found.code, found.pointer) == ("wrong_output_edge", "/data_flow_connections/4")


BODY = "/$referenced_components/ctx-context-selection-flow/$referenced_components/ctx-finalize_interactive/data"


@pytest.mark.requirement("W-PERSON")
@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ({"userResponse": '{"selectedRefs": []}'}, {("input_not_passed_on", BODY)}),
        ({"userResponse": "{{slotId}}"}, {("input_not_passed_on", BODY)}),
        ({"slotId": "voiceContext"}, {("input_not_passed_on", BODY)}),
        (
            {"userResponse": "{{userResponse or '{}'}}"},
            {("input_not_passed_on", BODY), ("not_plain", f"{BODY}/userResponse")},
        ),
        ({"{% if x %}": ""}, {("not_plain", f"{BODY}/{{% if x %}}")}),
    ],
)
def test_an_api_call_of_a_selection_sends_the_inputs_of_the_step(
    sent: dict[str, str], found: set[tuple[str, str]]
) -> None:
    document = read_document((VOICE / "cinatra" / "oas.yaml").read_bytes())
    inner = document["$referenced_components"]["ctx-context-selection-flow"]["$referenced_components"]
    inner["ctx-finalize_interactive"]["data"].update(sent)
    assert {(one.code, one.pointer) for one in lint_wiring(document)} == found


@pytest.mark.requirement("W-PERSON")
@pytest.mark.parametrize("name", FORGED)
def test_an_edit_that_answers_in_a_persons_place_is_found(name: str) -> None:
    codes = {one.code for one in lint_wiring(forged(name))}
    assert codes & {"no_pause", "foreign_step", "duplicate_id", "wrong_name"}, codes


@pytest.mark.requirement("W-PERSON")
def test_a_pick_that_is_checked_outside_a_selection_is_found() -> None:
    """The outreach agent asks nobody in a flow beside others, which has no resolving step of its own."""
    document = forged("finalize_in_a_flow_of_its_own")
    selection = document["$referenced_components"]["ctx-offeringContext-context-selection-flow"]
    hidden = selection["$referenced_components"]["ctx-offeringContext-hide"]["subflow"]
    beside, _ = good()
    beside["nodes"].append(
        {
            "component_type": "ParallelFlowNode",
            "id": "beside",
            "name": "beside",
            "subflows": [hidden],
            "inputs": [],
            "outputs": [],
        }
    )
    assert [one.code for one in lint_wiring(beside)] == ["no_pause"]


@pytest.mark.requirement("W-LINT")
def test_refs_that_go_from_start_to_end_are_no_wiring_for_an_agent_without_slots_either() -> None:
    """Alone, in a child agent, and not where a step makes them."""
    refs = {"title": "contextRefs", "type": "array"}
    flow = {
        "component_type": "Flow",
        "id": "stub",
        "start_node": {"$component_ref": "in"},
        "nodes": [
            {"component_type": "StartNode", "id": "in", "inputs": [refs]},
            {"component_type": "EndNode", "id": "out", "outputs": [refs]},
        ],
        "control_flow_connections": [control("in", "out")],
        "data_flow_connections": [data("in", "contextRefs", "out", "contextRefs")],
    }
    assert [(one.code, one.pointer) for one in lint_wiring(flow)] == [("pass_through", "/data_flow_connections/0")]
    document, _ = good()
    document["$referenced_components"]["stub"] = flow
    document["nodes"].append({"component_type": "FlowNode", "id": "runs", "subflow": {"$component_ref": "stub"}})
    assert [one.code for one in lint_wiring(document)] == ["pass_through"]
    assert lint_wiring(json.loads(SELECTION.read_text("utf-8"))) == ()
