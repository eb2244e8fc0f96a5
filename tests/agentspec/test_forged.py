"""No edit of the selection flow records a pick that no person made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("wayflowcore", reason="WayFlow has an environment of its own: `make agentspec`")

from contextos.errors import InvalidInput, LostReply
from contextos_agentspec.wayflow import MAX_STEPS, AgentFlow, FlowPaused, load_flow, selection_tools
from contextos_sim.memory.stores import MemoryStores
from examples.email_outreach.outreach import draft_email
from tests.agentspec.driver import INPUTS, session_of
from tests.agentspec.forged import FORGED, SAID, Edited, forged
from tests.agentspec.test_outreach import fill, recorded
from tests.slots import CuratedArtifacts


@pytest.fixture
def repository() -> CuratedArtifacts:
    made: CuratedArtifacts = MemoryStores().artifacts("tenant_acme")
    asyncio.run(fill(made))
    return made


def loaded(document: dict[str, Any], repository: CuratedArtifacts) -> AgentFlow:
    tools = {**selection_tools(session_of(document, repository)), "draft_email": draft_email, "made_up": lambda: SAID}
    return load_flow(json.dumps(document).encode(), tools)


HARMLESS = "node_written_into_an_edge"
"""WayFlow builds the right one of the two nodes with the same id."""


@pytest.mark.requirement("W-PERSON")
@pytest.mark.parametrize("name", sorted(FORGED.keys() - {HARMLESS}))
def test_a_flow_that_answers_for_a_person_is_not_loaded(repository: CuratedArtifacts, name: str) -> None:
    with pytest.raises(InvalidInput):
        loaded(forged(name), repository)


def test_a_node_written_into_an_edge_answers_nothing(repository: CuratedArtifacts) -> None:
    async def play() -> None:
        flow = loaded(forged(HARMLESS), repository)
        paused = await flow.begin(INPUTS)
        assert isinstance(paused, FlowPaused)
        assert isinstance(await flow.resume(paused.state, "yes please"), FlowPaused)
        assert await recorded(repository) == []

    asyncio.run(play())


def test_the_agent_as_it_is_published_is_loaded(repository: CuratedArtifacts) -> None:
    assert isinstance(asyncio.run(loaded(Edited().document, repository).begin(INPUTS)), FlowPaused)


def test_a_flow_that_loops_without_a_pause_ends(repository: CuratedArtifacts) -> None:
    made = Edited()
    made.around("resolve_context")
    with pytest.raises(LostReply, match=f"{MAX_STEPS} steps without waiting for a person"):
        asyncio.run(loaded(made.document, repository).begin(INPUTS))


def test_a_flow_that_is_reached_many_ways_is_checked_once(repository: CuratedArtifacts) -> None:
    """Thirty flows that each run the next one twice: about a thousand million paths."""
    made = Edited()
    parts = made.document["$referenced_components"]
    for level in range(30):
        inner = f"deep-{level + 1}" if level < 29 else "drafts-flow"
        parts[f"deep-{level}"] = doubled(f"deep-{level}", inner, parts["drafts-flow"])
    parts["drafts"]["subflow"] = {"$component_ref": "deep-0"}
    assert isinstance(asyncio.run(loaded(made.document, repository).begin(INPUTS)), FlowPaused)


def doubled(name: str, inner: str, like: dict[str, Any]) -> dict[str, Any]:
    """A flow with the signature of `like` that runs `inner` twice."""
    from tests.agentspec.planted import control, data

    ids = {one: f"{name}-{one}" for one in ("start", "one", "two", "end")}
    inputs, outputs = like["inputs"], like["outputs"]

    def node(kind: str, one: str, **more: Any) -> dict[str, Any]:
        return {"component_type": kind, "id": ids[one], "name": one, "metadata": {}, **more}

    run = {"subflow": {"$component_ref": inner}, "inputs": inputs, "outputs": outputs, "branches": ["next"]}
    parts = [
        node("StartNode", "start", inputs=inputs, outputs=inputs, branches=["next"]),
        node("FlowNode", "one", **run),
        node("FlowNode", "two", **run),
        node("EndNode", "end", inputs=outputs, outputs=outputs, branches=[]),
    ]
    wires = [(ids["start"], one["title"], ids[run], one["title"]) for run in ("one", "two") for one in inputs]
    wires += [(ids["two"], one["title"], ids["end"], one["title"]) for one in outputs]
    return {
        "component_type": "Flow",
        "id": name,
        "name": name,
        "metadata": {},
        "inputs": inputs,
        "outputs": outputs,
        "start_node": {"$component_ref": ids["start"]},
        "nodes": [{"$component_ref": one} for one in ids.values()],
        "control_flow_connections": [
            control(ids["start"], ids["one"]),
            control(ids["one"], ids["two"]),
            control(ids["two"], ids["end"]),
        ],
        "data_flow_connections": [data(*wire) for wire in wires],
        "$referenced_components": {one["id"]: one for one in parts},
    }
