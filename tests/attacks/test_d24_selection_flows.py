"""D24: edits of an agent that a runtime accepts silently, so that no person is asked, or another server is called.

The documents are read by the lint and by `slots`; no store takes part before the lint is content.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.yaml_text import read_document
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.contracts.schemas import published
from contextos.errors import InvalidInput
from contextos.store.shared.clock import SystemClock
from contextos_agentspec.wiring import lint_wiring
from tests.agentspec.planted import (
    BINDINGS,
    CONTROL,
    DATA,
    DRAFTS,
    PARTS,
    SUBFLOW,
    VOICE,
    Operation,
    Planted,
    child,
    control,
    data,
    node,
    plant,
)
from tests.attacks.test_d25_one_query import close, opened
from tests.postgres import awaited
from tests.slots import actor, complete, install, origin, slot

PREFIX = "ctx-offeringContext-"
GOOD = Path(__file__).parents[1] / "agentspec" / "good" / "voice_writer" / "cinatra" / "oas.yaml"


def codes(*done: Operation) -> set[str]:
    document, _ = plant(Planted("", "", "", done))
    return {one.code for one in lint_wiring(document)}


@pytest.mark.parametrize(
    ("cut", "code"),
    [
        ("accept_pick-default-to-say_why_not", "not_asked_again"),
        ("say_why_not-to-resolve_context", "not_asked_again"),
        ("finalize_interactive-to-accept_pick", "not_asked_again"),
        ("select_mode-default-to-show_candidates", "not_pinned"),
        ("show_candidates-to-context_select_gate", "not_pinned"),
        ("context_select_gate-to-finalize_interactive", "not_pinned"),
        ("resolve_context-to-select_mode", "not_pinned"),
    ],
)
def test_a_flow_ends_at_every_node_without_a_way_on(cut: str, code: str) -> None:
    assert code in codes(("cut", PREFIX + cut))


def test_a_branch_that_nobody_leads_on_is_a_way_out() -> None:
    more = ("put", f"{SUBFLOW}/$referenced_components/{PREFIX}select_mode/mapping/interactive", "asked")
    assert "not_pinned" in codes(more)


def called(resolve: str, **others: str) -> set[str]:
    """The codes of the agent whose selection calls these addresses."""
    document = read_document(GOOD.read_bytes())
    inner = document["$referenced_components"]["ctx-context-selection-flow"]["$referenced_components"]
    inner["ctx-resolve"]["url"] = f"{resolve}/api/context-resolve"
    for name in ("finalize_interactive", "finalize_autonomous"):
        inner[f"ctx-{name}"]["url"] = f"{others.get(name, resolve)}/api/context-finalize"
    return {one.code for one in lint_wiring(document)}


@pytest.mark.parametrize("base", ["https://contextos.example", "http://localhost:8080", "{{CINATRA_BASE_URL}}", ""])
def test_one_server_is_called(base: str) -> None:
    assert called(base) == set()


@pytest.mark.parametrize(
    "base",
    [
        "https://contextos.example@evil.example",
        "https://user:secret@contextos.example",
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://[::ffff:169.254.169.254]",
        "http://0.0.0.0",
        "http://2852039166",
        "http://0xA9FEA9FE",
        "http://0251.0376.0251.0376",
        "https://evil\\.example",
        "https://evil.example%2e",
        "{{slotId}}",
        "{{ CINATRA_BASE_URL }}",
        "https://{{slotId}}.example",
    ],
)
def test_an_address_that_hides_its_server_is_refused(base: str) -> None:
    assert called(base) & {"foreign_address", "no_selection_node"}


def test_a_step_of_another_server_is_refused() -> None:
    home = "https://contextos.example"
    assert called(home, finalize_interactive="https://evil.example") == {"foreign_address"}
    assert called(home, finalize_autonomous="http://contextos.example") == {"foreign_address"}
    assert called("{{CINATRA_BASE_URL}}", finalize_interactive=home) == {"foreign_address"}


def test_a_call_beside_the_selection_is_refused() -> None:
    document = read_document(GOOD.read_bytes())
    flow = document["$referenced_components"]["ctx-context-selection-flow"]
    inner = flow["$referenced_components"]
    inner["ctx-tell"] = copy.deepcopy(inner["ctx-resolve"]) | {"id": "ctx-tell", "name": "ctx-tell"}
    inner["ctx-tell"] |= {"url": "https://contextos.example/api/log", "inputs": [], "outputs": [], "data": {}}
    flow["nodes"].append({"$component_ref": "ctx-tell"})
    assert "foreign_address" in {one.code for one in lint_wiring(document)}


def test_an_input_that_feeds_the_base_address_is_refused() -> None:
    document = read_document(GOOD.read_bytes())
    flow = document["$referenced_components"]["ctx-context-selection-flow"]
    for one in flow["$referenced_components"].values():
        if "url" in one:
            one["url"] = one["url"].replace("https://contextos.example", "{{CINATRA_BASE_URL}}")
    assert lint_wiring(document) == ()
    flow["data_flow_connections"].append(data("ctx-start", "slotId", "ctx-resolve", "CINATRA_BASE_URL"))
    assert "foreign_address" in {one.code for one in lint_wiring(document)}


@pytest.mark.parametrize(
    "place", [f"{PARTS}/start/inputs/3", "/inputs/3", f"{SUBFLOW}/$referenced_components/{PREFIX}start/inputs/2"]
)
def test_a_default_that_one_reader_sees_is_found(place: str) -> None:
    assert "start_default_differs" in codes(("put", f"{place}/default", "voiceContext"))


def summary(**change: Any) -> tuple[Operation, ...]:
    """A second agent that is fed through the flow of the first consumer, which is the agent's own."""
    inside = f"{DRAFTS}/$referenced_components"
    made = node("drafts", "nested", **change)
    return (
        ("put", f"{inside}/nested", made),
        ("add", f"{DRAFTS}/nodes", {"$component_ref": "nested"}),
        (
            "add",
            f"{DRAFTS}/data_flow_connections",
            data("drafts-start", "contextSlotBindings", "nested", "contextSlotBindings"),
        ),
    )


OTHER = {"component_type": "Flow", "id": "other-flow", "name": "other-flow", "nodes": [], "inputs": [BINDINGS]}


def agent(name: str, **metadata: Any) -> dict[str, Any]:
    return OTHER | {"id": f"{name}-flow", "name": f"{name}-flow", "metadata": child(f"@other/{name}", **metadata)}


def test_a_child_with_its_own_slots_behind_an_own_flow_is_found() -> None:
    assert "fan_out" in codes(*summary(subflow=agent("summary", contextSlots=[VOICE])))


def test_parallel_children_are_found() -> None:
    parallel = {
        "component_type": "ParallelFlowNode",
        "id": "beside",
        "name": "beside",
        "subflows": [agent("one"), agent("two")],
        "inputs": [BINDINGS],
        "outputs": [],
    }
    found = codes(
        ("put", f"{PARTS}/beside", parallel),
        ("add", "/nodes", {"$component_ref": "beside"}),
        ("add", DATA, data("context_offeringContext", "contextRefs", "beside", "contextSlotBindings")),
        ("put", f"{CONTROL}/2", control("drafts", "beside")),
        ("add", CONTROL, control("beside", "end")),
    )
    assert "fan_out" in found


def renamed(name: str) -> tuple[Operation, ...]:
    """A child agent whose input for the refs has another name."""
    made = node("drafts", name, subflow=agent(name) | {"inputs": [BINDINGS | {"title": "material"}]})
    made["inputs"] = [BINDINGS | {"title": "material"}]
    return (
        ("put", f"{PARTS}/{name}", made),
        ("add", "/nodes", {"$component_ref": name}),
        ("add", DATA, data("context_offeringContext", "contextRefs", name, "material")),
    )


def test_renamed_inputs_of_children_are_found() -> None:
    assert "fan_out" not in codes(*renamed("one"))
    assert "fan_out" in codes(*renamed("one"), *renamed("two"))


def test_a_stub_that_passes_the_refs_through_is_found() -> None:
    through = f"{DRAFTS}/data_flow_connections/1"
    stub = (
        ("put", f"{through}/destination_node", {"$component_ref": "drafts-end"}),
        ("put", f"{through}/destination_input", "draft"),
    )
    assert "unused_bindings" in codes(*stub)
    onward = [
        *stub,
        *(
            operation
            for name in ("one", "two")
            for operation in (*renamed(name)[:2], ("add", DATA, data("drafts", "draft", name, "material")))
        ),
    ]
    assert "fan_out" in codes(*onward)


SCHEMA = Draft202012Validator(published()["context-slot.v1"])


@pytest.mark.parametrize(
    "value", ["1.0", "1", "0.5", "1e0", "true", '"1"', "1e400", "-1.0", "null", "257.0", "1000.0", "1001.0"]
)
@pytest.mark.parametrize("name", ["minItems", "maxItems"])
def test_schema_and_reader_judge_a_number_alike(name: str, value: str) -> None:
    fields = {"slotId": "a", "acceptedArtifactExtensions": ["@a/b"], "selectionMode": "autonomous"}
    raw = json.dumps(fields | {"resolutionMode": "override"})[:-1] + f', "{name}": {value}}}'
    try:
        read = parse(AgentContextSlot, raw)
    except InvalidInput as refused:
        read = None
        if value == "1e400":
            assert refused.problems[0].code == "number_out_of_range"
            return
    assert (read is not None) == SCHEMA.is_valid(json.loads(raw))
    if value == "1.0" and read is not None:
        assert type(getattr(read, "min_items" if name == "minItems" else "max_items")) is int


def test_blanks_are_no_project_and_that_is_said(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        there = await opened(stores, tmp_path)
        repository = there.artifacts("tenant_acme_prod")
        await install(repository)
        await complete(repository, "art_a")
        steps = ArtifactSlots(repository, repository, SystemClock())
        for project in ("   ", "\t", "a b", "x" * 200, ""):
            with pytest.raises(InvalidInput) as refused:
                await steps.take(slot(), actor(), project, origin())
            assert refused.value.problems[0].code == "not_a_project", project
        assert await repository.selections("acme", "run_1") == []
        await close(there)

    awaited(go())
