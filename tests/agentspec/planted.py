"""Wiring faults, each planted alone into the good example: what is done to it, and the code it is found under.

An operation is written as data, so that a reader sees what was broken: `cut` removes the edge of that id, `put` writes
a value at a pointer, `add` appends to the list at a pointer, `drop` removes the value at a pointer. A pointer that
begins with `package:` is into the agent's `package.json`.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "email_outreach"
AGENT = "@cinatra-ai/context-selection-agent"

SLOTS = "/metadata/cinatra/contextSlots"
PARTS = "/$referenced_components"
SUBFLOW = f"{PARTS}/ctx-offeringContext-context-selection-flow"
DRAFTS = f"{PARTS}/drafts-flow"
CONTEXT = f"{PARTS}/context_offeringContext"
INNER_START = f"{SUBFLOW}/$referenced_components/ctx-offeringContext-start"
RESOLVE = f"{SUBFLOW}/$referenced_components/ctx-offeringContext-resolve_context"
GATE = f"{SUBFLOW}/$referenced_components/ctx-offeringContext-context_select_gate"
FINALIZE = f"{SUBFLOW}/$referenced_components/ctx-offeringContext-finalize_interactive"
SHOW = f"{SUBFLOW}/$referenced_components/ctx-offeringContext-show_candidates"
CONTROL, DATA = "/control_flow_connections", "/data_flow_connections"
DEPENDENCIES = "package:/cinatra/agentDependencies"
DEPENDENCY = f"{DEPENDENCIES}/@cinatra-ai~1context-selection-agent"
BINDING = "context_offeringContext.contextRefs-to-drafts.contextSlotBindings"

Operation = tuple[Any, ...]


@dataclass(frozen=True)
class Planted:
    """One fault: its name, the code it is found under, the place it is found at, and how it is planted.

    `also` are the codes of what follows from it.
    """

    name: str
    code: str
    at: str
    done: tuple[Operation, ...]
    also: frozenset[str] = frozenset()


def good() -> tuple[dict[str, Any], dict[str, Any]]:
    """The example's document and its package."""
    document = json.loads((EXAMPLE / "cinatra" / "oas.json").read_text("utf-8"))
    return document, json.loads((EXAMPLE / "package.json").read_text("utf-8"))


def control(source: str, target: str) -> dict[str, Any]:
    return {
        "component_type": "ControlFlowEdge",
        "id": f"{source}-to-{target}",
        "name": f"{source}_to_{target}",
        "from_node": {"$component_ref": source},
        "from_branch": None,
        "to_node": {"$component_ref": target},
    }


def data(source: str, output: str, target: str, input_: str) -> dict[str, Any]:
    return {
        "component_type": "DataFlowEdge",
        "id": f"{source}.{output}-to-{target}.{input_}",
        "name": "planted",
        "source_node": {"$component_ref": source},
        "source_output": output,
        "destination_node": {"$component_ref": target},
        "destination_input": input_,
    }


def node(like: str, name: str, **change: Any) -> dict[str, Any]:
    """A node of the example under another name."""
    return good()[0]["$referenced_components"][like] | {"id": name, "name": name} | change


def another(like: str, name: str, **change: Any) -> tuple[Operation, ...]:
    """One more node of the flow."""
    return (("put", f"{PARTS}/{name}", node(like, name, **change)), ("add", "/nodes", {"$component_ref": name}))


def start_input(index: int, default: str | None) -> tuple[Operation, ...]:
    """Another default of a start input, or none, in all three places that say it."""
    places = [f"{place}/{index}/default" for place in ("/inputs", f"{PARTS}/start/inputs", f"{PARTS}/start/outputs")]
    return tuple(("drop", place) if default is None else ("put", place, default) for place in places)


def then_summary(*, fed: bool, **change: Any) -> tuple[Operation, ...]:
    """One more consumer after the first; whether the refs are led to it."""
    edges = [data("context_offeringContext", "contextRefs", "summary", "contextSlotBindings")] if fed else []
    return (
        *another("drafts", "summary", **change),
        ("put", f"{CONTROL}/2", control("drafts", "summary")),
        ("add", CONTROL, control("summary", "end")),
        *(("add", DATA, edge) for edge in [*edges, data("start", "recipient", "summary", "recipient")]),
    )


def second_selection(name: str) -> tuple[Operation, ...]:
    """One more selection node after the first, with the same inputs."""
    fed = (
        ("runId", "parentRunId"),
        ("contextParentPackageName", "parentPackageName"),
        ("offeringContextSlotId", "slotId"),
        ("contextProjectId", "projectId"),
    )
    return (
        *another("context_offeringContext", name),
        *(("add", DATA, data("start", output, name, title)) for output, title in fed),
        ("put", f"{CONTROL}/1", control("context_offeringContext", name)),
        ("add", CONTROL, control(name, "drafts")),
    )


OBJECT = {"type": "object", "additionalProperties": {}}
BINDINGS = {"title": "contextSlotBindings", "type": "array", "items": OBJECT, "default": []}
REFS = BINDINGS | {"title": "contextRefs"}
HANDS_ON = {
    "component_type": "Flow",
    "id": "hands-on",
    "name": "hands-on",
    "metadata": {},
    "start_node": {"$component_ref": "on-start"},
    "nodes": [
        {"component_type": "StartNode", "id": "on-start", "name": "on-start", "inputs": [REFS | {"title": "given"}]},
        {"component_type": "EndNode", "id": "on-end", "name": "on-end", "outputs": [REFS | {"title": "kept"}]},
    ],
    "control_flow_connections": [control("on-start", "on-end")],
    "data_flow_connections": [data("on-start", "given", "on-end", "kept")],
}
AROUND = {
    "component_type": "BranchingNode",
    "id": "choose",
    "name": "choose",
    "metadata": {},
    "inputs": [{"title": "recipient", "type": "string"}],
    "outputs": [],
    "branches": ["known", "default"],
    "mapping": {"ann@acme.example": "known"},
}


def child(package: str, **metadata: Any) -> dict[str, Any]:
    """Metadata of a node that runs another agent."""
    return {"cinatra": {"packageName": package, **metadata}}


VOICE = {
    "slotId": "voiceContext",
    "acceptedArtifactExtensions": ["@cinatra-ai/brand-voice-artifact"],
    "selectionMode": "autonomous",
    "resolutionMode": "override",
}

PLANTED = (
    Planted("slots are no list", "not_a_list", SLOTS, (("put", SLOTS, {"offeringContext": {}}),)),
    Planted(
        "a slot has no resolution mode",
        "missing",
        f"{SLOTS}/0/resolutionMode",
        (("drop", f"{SLOTS}/0/resolutionMode"),),
    ),
    Planted(
        "a slot has a mode that does not exist",
        "literal_error",
        f"{SLOTS}/0/selectionMode",
        (("put", f"{SLOTS}/0/selectionMode", "automatic"),),
    ),
    Planted(
        "a slot has a field that does not exist",
        "extra_forbidden",
        f"{SLOTS}/0/optional",
        (("put", f"{SLOTS}/0/optional", True),),
    ),
    Planted(
        "a slot wants more than it may take", "sealing", f"{SLOTS}/0/minItems", (("put", f"{SLOTS}/0/minItems", 9),)
    ),
    Planted(
        "a slot id stands twice",
        "duplicate_slot",
        f"{SLOTS}/1/slotId",
        (("add", SLOTS, good()[0]["metadata"]["cinatra"]["contextSlots"][0]),),
    ),
    Planted(
        "the package does not depend on the selection agent",
        "missing_dependency",
        DEPENDENCY,
        (("put", DEPENDENCIES, {}),),
    ),
    Planted(
        "the version of the selection agent is no range",
        "not_a_range",
        DEPENDENCY,
        (("put", DEPENDENCY, "latest-ish!"),),
    ),
    Planted("the version of the selection agent is a tag", "not_a_range", DEPENDENCY, (("put", DEPENDENCY, "latest"),)),
    Planted("the version of the selection agent is not a text", "not_a_range", DEPENDENCY, (("put", DEPENDENCY, 1),)),
    Planted(
        "a slot has no number as its limit", "int_type", f"{SLOTS}/0/maxItems", (("put", f"{SLOTS}/0/maxItems", None),)
    ),
    Planted(
        "the refs of the start are returned as a selection",
        "pass_through",
        f"{DATA}/7",
        (("add", DATA, data("start", "contextRefs", "end", "contextRefs")),),
    ),
    Planted(
        "another input of the start is returned as a selection",
        "pass_through",
        f"{DATA}/7",
        (("add", DATA, data("start", "recipient", "end", "contextRefs")),),
    ),
    Planted(
        "the refs of the start are returned through a flow of the agent",
        "pass_through",
        f"{DATA}/8",
        (
            *another("drafts", "hands_on", subflow=HANDS_ON, inputs=[REFS | {"title": "given"}], outputs=[REFS]),
            ("put", f"{CONTROL}/2", control("drafts", "hands_on")),
            ("add", CONTROL, control("hands_on", "end")),
            ("add", DATA, data("start", "contextRefs", "hands_on", "given")),
            ("add", DATA, data("hands_on", "kept", "end", "contextRefs")),
        ),
    ),
    Planted(
        "package and document have different names",
        "package_name_differs",
        "package:/name",
        (("put", "package:/name", "@contextos-examples/another-agent"),),
    ),
    Planted("dependencies are no object", "not_an_object", DEPENDENCIES, (("put", DEPENDENCIES, [AGENT]),)),
    Planted(
        "the dependency stands in the document",
        "dependency_in_document",
        "/metadata/cinatra/agentDependencies",
        (("put", "/metadata/cinatra/agentDependencies", {AGENT: "^1.0.0"}),),
    ),
    Planted(
        "an orchestrator depends on the selection agent for the sake of a child",
        "transitive_dependency",
        DEPENDENCY,
        (
            ("put", SLOTS, []),
            ("put", f"{CONTEXT}/subflow", {"$component_ref": "drafts-flow"}),
            ("cut", BINDING),
            ("drop", f"{PARTS}/drafts/inputs/1"),
            ("drop", f"{DRAFTS}/inputs/1"),
        ),
    ),
    Planted("a declared slot has no selection node", "no_selection_node", f"{SLOTS}/1", (("add", SLOTS, VOICE),)),
    Planted(
        "a node that is only called a selection node resolves nothing",
        "no_selection_node",
        f"{SLOTS}/0",
        (("put", f"{RESOLVE}/tool/name", "context_resolver"),),
        frozenset({"bypass"}),
    ),
    Planted(
        "a slot has two selection nodes",
        "several_selection_nodes",
        f"{PARTS}/context_again",
        second_selection("context_again"),
    ),
    Planted(
        "a selection node serves a slot that is not declared",
        "selection_without_slot",
        CONTEXT,
        (("put", SLOTS, []),),
        frozenset({"transitive_dependency"}),
    ),
    Planted(
        "the slot id constant names another slot",
        "wrong_slot_id",
        f"{PARTS}/start/inputs/3/default",
        start_input(3, "voiceContext"),
    ),
    Planted(
        "the slot id comes from no constant", "slot_id_not_constant", f"{PARTS}/start/inputs/3", start_input(3, None)
    ),
    Planted(
        "the selection acts for another package",
        "other_package",
        f"{PARTS}/start/inputs/2/default",
        start_input(2, "@contextos-examples/another-agent"),
    ),
    *(
        Planted(
            f"no edge feeds {title}",
            "missing_input_edge",
            CONTEXT,
            (("cut", f"start.{output}-to-context_offeringContext.{title}"),),
        )
        for output, title in (
            ("runId", "parentRunId"),
            ("contextParentPackageName", "parentPackageName"),
            ("offeringContextSlotId", "slotId"),
            ("contextProjectId", "projectId"),
        )
    ),
    Planted(
        "the refs reach no consumer, whose input has a default",
        "missing_output_edge",
        CONTEXT,
        (("cut", BINDING),),
        frozenset({"unfed_consumer"}),
    ),
    Planted(
        "a second consumer with a default is left without its edge",
        "unfed_consumer",
        f"{PARTS}/summary/inputs/1",
        then_summary(fed=False),
    ),
    Planted(
        "the refs go to another input",
        "wrong_output_edge",
        f"{DATA}/4",
        (("put", f"{DATA}/4/destination_input", "recipient"),),
        frozenset({"unfed_consumer"}),
    ),
    Planted(
        "the consumer's input is fed from the start",
        "bypass",
        f"{DATA}/4",
        (
            *(("add", place, BINDINGS) for place in ("/inputs", f"{PARTS}/start/inputs", f"{PARTS}/start/outputs")),
            ("put", f"{DATA}/4/source_node", {"$component_ref": "start"}),
            ("put", f"{DATA}/4/source_output", "contextSlotBindings"),
        ),
        frozenset({"missing_output_edge"}),
    ),
    Planted(
        "the slots of two selections are led into one input",
        "overwritten_bindings",
        f"{DATA}/11",
        (
            *second_selection("context_again"),
            ("add", DATA, data("context_again", "contextRefs", "drafts", "contextSlotBindings")),
        ),
        frozenset({"several_selection_nodes"}),
    ),
    Planted(
        "control does not go from the selection to the consumer",
        "missing_control_edge",
        f"{DATA}/4",
        (("cut", "context_offeringContext-to-drafts"), ("add", CONTROL, control("start", "drafts"))),
    ),
    Planted(
        "control never comes to the selection",
        "missing_control_edge",
        CONTEXT,
        (("cut", "start-to-context_offeringContext"),),
    ),
    Planted(
        "the flow has no start",
        "missing_control_edge",
        CONTEXT,
        (("put", "/start_node", None),),
        frozenset({"slot_id_not_constant"}),
    ),
    Planted(
        "the consumer runs before the selection",
        "missing_control_edge",
        f"{DATA}/4",
        (
            ("put", f"{CONTROL}/0/to_node", {"$component_ref": "drafts"}),
            ("put", f"{CONTROL}/1", control("drafts", "context_offeringContext")),
            ("put", f"{CONTROL}/2", control("context_offeringContext", "end")),
        ),
    ),
    Planted(
        "the consumer can be reached around the selection",
        "reachable_around",
        f"{CONTROL}/4",
        (
            ("put", f"{PARTS}/choose", AROUND),
            ("add", "/nodes", {"$component_ref": "choose"}),
            ("put", f"{CONTROL}/0", control("start", "choose")),
            ("add", CONTROL, control("choose", "context_offeringContext") | {"from_branch": "default"}),
            ("add", CONTROL, control("choose", "drafts") | {"from_branch": "known"}),
            ("add", DATA, data("start", "recipient", "choose", "recipient")),
        ),
    ),
    Planted(
        "the consumer takes text",
        "wrong_type",
        f"{PARTS}/drafts/inputs/1",
        (("put", f"{PARTS}/drafts/inputs/1", {"title": "contextSlotBindings", "type": "string", "default": ""}),),
    ),
    Planted(
        "the flow behind the consumer drops the refs",
        "unused_bindings",
        DRAFTS,
        (("cut", "drafts-start.contextSlotBindings-to-draft.contextSlotBindings"),),
        frozenset({"unfed_consumer"}),
    ),
    Planted(
        "inside the consumer the refs come from elsewhere",
        "bypass",
        f"{DRAFTS}/data_flow_connections/1",
        (
            ("put", f"{DRAFTS}/data_flow_connections/1/source_node", {"$component_ref": "drafts-draft"}),
            ("put", f"{DRAFTS}/data_flow_connections/1/source_output", "draft"),
        ),
        frozenset({"unused_bindings"}),
    ),
    Planted(
        "a selection is hidden in a flow inside",
        "selection_without_slot",
        f"{DRAFTS}/$referenced_components/hidden",
        (
            ("put", f"{DRAFTS}/$referenced_components/hidden", node("context_offeringContext", "hidden")),
            ("add", f"{DRAFTS}/nodes", {"$component_ref": "hidden"}),
        ),
    ),
    Planted(
        "an edge in a flow inside leads nowhere",
        "dangling_reference",
        f"{DRAFTS}/data_flow_connections/0",
        (("put", f"{DRAFTS}/data_flow_connections/0/destination_node", {"$component_ref": "nowhere"}),),
    ),
    Planted(
        "two edges have one id",
        "duplicate_id",
        f"{DATA}/1/id",
        (("put", f"{DATA}/1/id", "start.runId-to-context_offeringContext.parentRunId"),),
    ),
    Planted(
        "a flow is named otherwise than by its id",
        "wrong_name",
        f"{DRAFTS}/id",
        (("put", f"{DRAFTS}/id", "drafts_flow"),),
    ),
    Planted(
        "the same edge stands twice",
        "duplicate_edge",
        f"{DATA}/7",
        (("add", DATA, data("start", "recipient", "drafts", "recipient") | {"id": "again"}),),
    ),
    Planted(
        "two edges feed one input of the selection",
        "overwritten_input",
        f"{DATA}/7",
        (("add", DATA, data("start", "recipient", "context_offeringContext", "parentRunId")),),
    ),
    Planted(
        "two edges feed one input inside the selection",
        "overwritten_input",
        f"{SUBFLOW}/data_flow_connections/21",
        (
            (
                "add",
                f"{SUBFLOW}/data_flow_connections",
                data("ctx-offeringContext-start", "slotId", "ctx-offeringContext-finalize_interactive", "actKey"),
            ),
        ),
    ),
    Planted(
        "one selection is handed to two child agents",
        "fan_out",
        f"{DATA}/7",
        (
            ("put", f"{PARTS}/drafts/metadata", child("@contextos-examples/drafting-agent")),
            *then_summary(fed=True, metadata=child("@contextos-examples/summary-agent")),
        ),
    ),
    Planted(
        "a child that has slots of its own is fed by its parent",
        "fan_out",
        f"{DATA}/4",
        (("put", f"{DRAFTS}/metadata", child("@contextos-examples/drafting-agent", contextSlots=[VOICE])),),
        frozenset({"no_selection_node", "bypass"}),
    ),
    Planted(
        "the selection hands out what it did not pin",
        "not_pinned",
        f"{SUBFLOW}/data_flow_connections/19",
        (
            *(
                ("add", f"{place}/{side}", REFS)
                for place, side in (
                    (SUBFLOW, "inputs"),
                    (INNER_START, "inputs"),
                    (INNER_START, "outputs"),
                    (CONTEXT, "inputs"),
                )
            ),
            ("put", f"{SUBFLOW}/data_flow_connections/19/source_node", {"$component_ref": "ctx-offeringContext-start"}),
            ("put", f"{SUBFLOW}/data_flow_connections/19/source_output", "contextRefs"),
        ),
    ),
    Planted(
        "the selection hands out nothing",
        "not_pinned",
        SUBFLOW,
        (
            ("cut", "ctx-offeringContext-finalize_interactive.contextRefs-to-end.contextRefs"),
            ("cut", "ctx-offeringContext-take_autonomously.contextRefs-to-end.contextRefs"),
        ),
    ),
    Planted(
        "the slot id comes from another node than the start",
        "slot_id_not_constant",
        f"{DATA}/2",
        (("put", f"{DATA}/2/source_node", {"$component_ref": "drafts"}), ("put", f"{DATA}/2/source_output", "draft")),
    ),
    Planted(
        "an interactive slot never waits for the person",
        "no_pause",
        f"{SUBFLOW}/data_flow_connections/16",
        (("put", f"{GATE}/component_type", "OutputMessageNode"),),
    ),
    Planted(
        "no step of an interactive slot takes an answer",
        "no_pause",
        SUBFLOW,
        (
            ("put", f"{FINALIZE}/tool/name", "context_take"),
            *(("drop", f"{place}/inputs/5") for place in (FINALIZE, f"{FINALIZE}/tool")),
            ("cut", "ctx-offeringContext-context_select_gate.userResponse-to-finalize_interactive.userResponse"),
        ),
    ),
    Planted(
        "every step of an autonomous slot takes an answer",
        "only_asks",
        SUBFLOW,
        (
            ("put", f"{SLOTS}/0/selectionMode", "autonomous"),
            ("drop", f"{SUBFLOW}/nodes/8"),
            ("put", f"{SUBFLOW}/control_flow_connections/2/to_node", {"$component_ref": SHOW.rpartition("/")[2]}),
            ("cut", "ctx-offeringContext-take_autonomously-to-end"),
            ("cut", "ctx-offeringContext-take_autonomously.contextRefs-to-end.contextRefs"),
            ("cut", "ctx-offeringContext-resolve_context.actKey-to-take_autonomously.actKey"),
            *(
                ("cut", f"ctx-offeringContext-start.{title}-to-take_autonomously.{title}")
                for title in ("parentRunId", "parentPackageName", "slotId", "projectId")
            ),
        ),
    ),
    Planted(
        "a default answers for the person",
        "no_pause",
        FINALIZE,
        (
            *(("put", f"{place}/inputs/5/default", "{}") for place in (FINALIZE, f"{FINALIZE}/tool")),
            ("cut", "ctx-offeringContext-context_select_gate.userResponse-to-finalize_interactive.userResponse"),
        ),
    ),
    Planted(
        "control comes to the judging step past the pause",
        "no_pause",
        f"{SUBFLOW}/control_flow_connections/4",
        (
            (
                "put",
                f"{SUBFLOW}/control_flow_connections/4/to_node",
                {"$component_ref": "ctx-offeringContext-finalize_interactive"},
            ),
        ),
    ),
    Planted(
        "a branch of the selection ends before anything is pinned",
        "not_pinned",
        f"{SUBFLOW}/control_flow_connections/3",
        (("put", f"{SUBFLOW}/control_flow_connections/3/to_node", {"$component_ref": "ctx-offeringContext-end"}),),
        frozenset({"not_asked_again"}),
    ),
    Planted(
        "the key of the act is a constant",
        "input_not_passed_on",
        FINALIZE,
        (
            ("cut", "ctx-offeringContext-resolve_context.actKey-to-finalize_interactive.actKey"),
            (
                "add",
                f"{SUBFLOW}/data_flow_connections",
                data("ctx-offeringContext-start", "slotId", "ctx-offeringContext-finalize_interactive", "actKey"),
            ),
        ),
    ),
    Planted(
        "a refused pick counts as accepted",
        "not_asked_again",
        f"{SUBFLOW}/control_flow_connections/6",
        (("put", f"{SUBFLOW}/$referenced_components/ctx-offeringContext-accept_pick/mapping/refused", "accepted"),),
    ),
    Planted(
        "a refused pick goes on to the end",
        "not_asked_again",
        f"{SUBFLOW}/control_flow_connections/8",
        (("put", f"{SUBFLOW}/control_flow_connections/9/to_node", {"$component_ref": "ctx-offeringContext-end"}),),
    ),
    Planted(
        "nobody looks whether a pick was accepted",
        "not_asked_again",
        f"{SUBFLOW}/control_flow_connections/6",
        (("put", f"{SUBFLOW}/control_flow_connections/6/to_node", {"$component_ref": "ctx-offeringContext-end"}),),
    ),
    Planted(
        "a step of the selection asks a model", "foreign_step", SHOW, (("put", f"{SHOW}/component_type", "LlmNode"),)
    ),
    Planted(
        "a tool of the selection waits for a confirmation",
        "foreign_step",
        f"{FINALIZE}/tool",
        (("put", f"{FINALIZE}/tool/requires_confirmation", True),),
    ),
    Planted(
        "a message of the selection computes",
        "not_plain",
        f"{SHOW}/message",
        (("put", f"{SHOW}/message", "{{payload}}{{payload | upper}}"),),
    ),
    Planted(
        "the selection does not pass on which project it is for",
        "input_not_passed_on",
        RESOLVE,
        (("cut", "ctx-offeringContext-start.projectId-to-resolve_context.projectId"),),
    ),
    Planted(
        "nobody judges what the person answered",
        "no_pause",
        f"{SUBFLOW}/data_flow_connections/20",
        (
            ("cut", "ctx-offeringContext-context_select_gate.userResponse-to-finalize_interactive.userResponse"),
            (
                "add",
                f"{SUBFLOW}/data_flow_connections",
                data("ctx-offeringContext-start", "slotId", "ctx-offeringContext-finalize_interactive", "userResponse"),
            ),
        ),
    ),
    Planted(
        "one value is fed into two inputs",
        "crossed_inputs",
        f"{DATA}/3",
        (("put", f"{DATA}/3/source_output", "runId"),),
    ),
    Planted(
        "an edge comes from a node that is not there",
        "dangling_reference",
        f"{DATA}/5",
        (("put", f"{DATA}/5/source_node", {"$component_ref": "begin"}),),
    ),
    Planted(
        "a child agent that is written out declares a slot and selects nothing",
        "no_selection_node",
        f"{DRAFTS}/metadata/cinatra/contextSlots/0",
        (
            ("put", f"{DRAFTS}/metadata", child("@contextos-examples/drafting-agent", contextSlots=[VOICE])),
            ("cut", BINDING),
            ("put", SLOTS, []),
            ("put", DEPENDENCIES, {}),
            ("put", f"{PARTS}/context_offeringContext/subflow", {"$component_ref": "drafts-flow"}),
        ),
        frozenset({"bypass"}),
    ),
    Planted(
        "a node runs a flow that is not there", "dangling_reference", f"{PARTS}/drafts/subflow", (("drop", DRAFTS),)
    ),
    Planted(
        "slots are declared on an agent that is no flow",
        "not_a_flow",
        "/component_type",
        (("put", "/component_type", "Agent"),),
    ),
    Planted("the document is no agent", "not_an_agent", "", (("drop", "/component_type"),)),
)


def plant(fault: Planted) -> tuple[dict[str, Any], dict[str, Any]]:
    """The example's document and package with one fault in them."""
    document, package = (copy.deepcopy(one) for one in good())
    for operation in fault.done:
        _do(document, package, *operation)
    return document, package


def _do(document: Any, package: Any, what: str, where: str, value: Any = None) -> None:
    if what == "cut":
        edges = [edges for edges in _edge_lists(document) if any(edge["id"] == where for edge in edges)]
        assert len(edges) == 1, f"there is no edge `{where}` to cut"
        edges[0][:] = [edge for edge in edges[0] if edge["id"] != where]
        return
    inside, where = (package, where.removeprefix("package:")) if where.startswith("package:") else (document, where)
    *path, last = [step.replace("~1", "/").replace("~0", "~") for step in where.split("/")[1:]]
    for step in path:
        inside = inside[int(step) if isinstance(inside, list) else step]
    key: Any = int(last) if isinstance(inside, list) else last
    if what == "put":
        inside[key] = copy.deepcopy(value)
    elif what == "add":
        inside[key].append(copy.deepcopy(value))
    else:
        assert what == "drop"
        del inside[key]


def _edge_lists(flow: dict[str, Any]) -> list[list[dict[str, Any]]]:
    below = [one for one in flow["$referenced_components"].values() if one["component_type"] == "Flow"]
    own = [flow["control_flow_connections"], flow["data_flow_connections"]]
    return own + [edges for one in below for edges in _edge_lists(one)]
