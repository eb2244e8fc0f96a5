"""The selection agent and the outreach agent run on WayFlow: they wait for a person and resume in another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wayflowcore", reason="WayFlow has an environment of its own: `make agentspec`")

from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.errors import InvalidInput, LostReply
from contextos.store.sqlite.stores import SqliteStores
from contextos_agentspec.wayflow import FlowFinished, FlowPaused, FlowRefused, load_flow, selection_tools
from contextos_sim.memory.stores import MemoryStores
from tests.agentspec.driver import INPUTS, PACKAGE, agent, session_of, step
from tests.agentspec.planted import PLANTED, Planted, plant
from tests.slots import CuratedArtifacts, complete, revise

ROOT = Path(__file__).resolve().parents[2]
SELECTION = ROOT / "agentspec" / "contextos_agentspec" / "selection_agent.json"
ICP = "@cinatra-ai/marketing-icp-artifact"


async def fill(repository: CuratedArtifacts) -> None:
    """Three candidates of different scope: Ann's own, her team's, her organisation's."""
    from contextos.contracts.envelopes.artifacts import ExtensionManifest

    await repository.register(ExtensionManifest(extension=ICP, satisfies=()))
    await complete(repository, "mine", ICP, owner_level="user", owner_id="ann", visibility="owner")
    await complete(repository, "team", ICP, visibility="team:sales")
    await complete(repository, "all", ICP)


@pytest.fixture
def repository() -> CuratedArtifacts:
    made: CuratedArtifacts = MemoryStores().artifacts("tenant_acme")
    asyncio.run(fill(made))
    return made


def candidates(shown: Sequence[str]) -> list[dict[str, Any]]:
    return list(json.loads(shown[-1])["candidates"])


def pick(refs: Sequence[dict[str, Any]], **changes: Any) -> str:
    envelope = {"slotId": "offeringContext", "resolutionMode": "accumulate", "selectedRefs": list(refs)}
    return json.dumps(envelope | changes)


async def recorded(repository: CuratedArtifacts) -> list[SelectionAct]:
    return list(await repository.selections("acme", "run_1"))


@pytest.mark.requirement("W-FLOW")
def test_a_person_picks_and_the_flow_resumes_in_another_process(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "slots.db")
    asyncio.run(fill(stores.artifacts("tenant_acme")))
    stores.close()

    def drive(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.agentspec.driver", str(tmp_path), *arguments]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    offered = candidates(drive("begin")["shown"])
    assert [one["artifactId"] for one in offered] == ["mine", "team", "all"]
    ended = drive("resume", pick([offered[2], offered[0]]))["outputs"]
    assert ended["draft"].splitlines()[-2:] == ["- mine (user)", "- all (organization)"]
    stores = SqliteStores(tmp_path / "slots.db")
    [selection] = asyncio.run(recorded(stores.artifacts("tenant_acme")))
    stores.close()
    assert (selection.selected_by, [ref.artifact_id for ref in selection.refs]) == ("user", ["mine", "all"])


@pytest.mark.requirement("W-FLOW")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("yes please", "bad_envelope"),
        ("", "bad_envelope"),
        (pick([], slotId="voiceContext"), "slot_mismatch"),
        (pick([{"artifactId": "x", "representationRevisionId": "y", "semanticAssertionId": "z"}]), "foreign_ref"),
    ],
)
def test_a_refused_answer_is_asked_for_again_and_the_run_continues(
    repository: CuratedArtifacts, answer: str, code: str
) -> None:
    async def play() -> None:
        first = await step(agent(), repository)
        assert isinstance(first, FlowPaused)
        again = await step(agent(), repository, first.state, answer)
        assert isinstance(again, FlowPaused)
        why, offer = again.shown
        assert json.loads(why)["code"] == code
        assert offer == first.shown[-1]
        assert await recorded(repository) == []
        done = await step(agent(), repository, again.state, pick(candidates(again.shown)[:1]))
        assert isinstance(done, FlowFinished)
        assert len(await recorded(repository)) == 1

    asyncio.run(play())


def test_a_candidate_that_changed_since_it_was_shown_is_shown_again(repository: CuratedArtifacts) -> None:
    async def play() -> None:
        first = await step(agent(), repository)
        assert isinstance(first, FlowPaused)
        stale = candidates(first.shown)
        await revise(repository, "mine", "newer")
        again = await step(agent(), repository, first.state, pick(stale[:1]))
        assert isinstance(again, FlowPaused)
        assert json.loads(again.shown[0])["code"] == "stale_ref"
        fresh = candidates(again.shown)
        assert fresh[0]["representationRevisionId"] != stale[0]["representationRevisionId"]

    asyncio.run(play())


def test_an_empty_pick_is_recorded_and_the_consumer_runs_without_refs(repository: CuratedArtifacts) -> None:
    async def play() -> None:
        first = await step(agent(), repository)
        assert isinstance(first, FlowPaused)
        done = await step(agent(), repository, first.state, pick([]))
        assert isinstance(done, FlowFinished)
        assert done.outputs["draft"].endswith("- nothing")
        assert [selection.refs for selection in await recorded(repository)] == [()]

    asyncio.run(play())


def test_a_state_that_is_resumed_twice_records_one_selection(repository: CuratedArtifacts) -> None:
    async def play() -> None:
        first = await step(agent(), repository)
        assert isinstance(first, FlowPaused)
        answer = pick(candidates(first.shown)[:1])
        one, two = [await step(agent(), repository, first.state, answer) for _ in range(2)]
        assert one == two
        assert len(await recorded(repository)) == 1

    asyncio.run(play())


def test_a_different_pick_under_a_used_act_key_is_refused_and_asked_for_again_under_a_new_key(
    repository: CuratedArtifacts,
) -> None:
    """Two conversations of one run wait for the same slot, and both were offered the act key `act_1`."""

    async def play() -> None:
        first, second = [await step(agent(), repository) for _ in range(2)]
        assert isinstance(first, FlowPaused)
        assert isinstance(second, FlowPaused)
        offered = candidates(first.shown)
        assert isinstance(await step(agent(), repository, first.state, pick(offered[:1])), FlowFinished)
        again = await step(agent(), repository, second.state, pick(offered[1:2]))
        assert isinstance(again, FlowPaused)
        assert json.loads(again.shown[0])["code"] == "repeated_act"
        assert len(await recorded(repository)) == 1
        assert isinstance(await step(agent(), repository, again.state, pick(offered[1:2])), FlowFinished)
        assert [[ref.artifact_id for ref in one.refs] for one in await recorded(repository)] == [["mine"], ["team"]]

    asyncio.run(play())


@pytest.mark.requirement("W-FLOW")
def test_an_autonomous_slot_asks_nobody(repository: CuratedArtifacts) -> None:
    async def play(mode: str) -> list[str]:
        done = await step(agent(selectionMode="autonomous", resolutionMode=mode), repository, runId="run_1")
        assert isinstance(done, FlowFinished)
        return str(done.outputs["draft"]).split("\n- ")[1:]

    assert asyncio.run(play("accumulate")) == ["mine (user)", "team (team)", "all (organization)"]
    assert asyncio.run(play("override")) == ["mine (user)"]
    assert {selection.selected_by for selection in asyncio.run(recorded(repository))} == {"autonomous"}


def test_an_autonomous_slot_with_too_few_ends_the_flow_before_its_consumer(repository: CuratedArtifacts) -> None:
    done = asyncio.run(step(agent(selectionMode="autonomous", minItems=4), repository))
    assert isinstance(done, FlowRefused)
    assert done.why.code == "below_min_items"
    assert asyncio.run(recorded(repository)) == []


@pytest.mark.requirement("W-FLOW")
def test_the_selection_agent_runs_by_itself(repository: CuratedArtifacts) -> None:
    document = loads(agent(selectionMode="autonomous"))
    flow = load_flow(SELECTION.read_bytes(), selection_tools(session_of(document, repository)))
    inputs = {"parentRunId": "run_1", "parentPackageName": PACKAGE, "slotId": "offeringContext"}
    done = asyncio.run(flow.begin(inputs))
    assert isinstance(done, FlowFinished)
    assert len(done.outputs["contextRefs"][0]["refs"]) == 3


@pytest.mark.parametrize(
    "inputs", [{"runId": "run_2"}, {"contextParentPackageName": "@other/agent"}, {"offeringContextSlotId": "voice"}]
)
def test_a_flow_cannot_select_for_another_run_package_or_slot(
    repository: CuratedArtifacts, inputs: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput):
        asyncio.run(step(agent(), repository, **inputs))


def test_a_foreign_project_offers_nothing(repository: CuratedArtifacts) -> None:
    paused = asyncio.run(step(agent(), repository, contextProjectId="theirs"))
    assert isinstance(paused, FlowPaused)
    assert candidates(paused.shown) == []


def test_a_state_resumes_only_with_the_document_that_it_was_made_from(repository: CuratedArtifacts) -> None:
    paused = asyncio.run(step(agent(), repository))
    assert isinstance(paused, FlowPaused)
    with pytest.raises(InvalidInput, match="made from another document"):
        asyncio.run(step(agent(maxItems=1), repository, paused.state, pick([])))
    with pytest.raises(InvalidInput, match="not the state of a paused flow"):
        asyncio.run(step(agent(), repository, "{}", pick([])))


def test_a_tool_that_fails_is_a_lost_reply(repository: CuratedArtifacts) -> None:
    def broken(recipient: str, contextSlotBindings: Any) -> str:
        raise ZeroDivisionError("secret")

    raw = agent(selectionMode="autonomous")
    flow = load_flow(raw, {**selection_tools(session_of(loads(raw), repository)), "draft_email": broken})
    with pytest.raises(LostReply, match="`ZeroDivisionError`"):
        asyncio.run(flow.begin(INPUTS))


@pytest.mark.parametrize("template", ["{{ payload.__class__ }}", "{{ ''.__class__.__mro__ }}{{payload}}"])
def test_a_message_reaches_nothing_but_its_values(repository: CuratedArtifacts, template: str) -> None:
    document = loads(agent())
    inner = document["$referenced_components"]["ctx-offeringContext-context-selection-flow"]["$referenced_components"]
    inner["ctx-offeringContext-show_candidates"]["message"] = template
    with pytest.raises((LostReply, InvalidInput)):
        asyncio.run(step(json.dumps(document).encode(), repository))


@pytest.mark.parametrize("inputs", [INPUTS | {"unknown": "x"}, {"runId": "run_1"}])
def test_wrong_inputs_are_refused(repository: CuratedArtifacts, inputs: dict[str, Any]) -> None:
    raw = agent()
    flow = load_flow(raw, {**selection_tools(session_of(loads(raw), repository)), "draft_email": str})
    with pytest.raises(InvalidInput, match="cannot start with them"):
        asyncio.run(flow.begin(inputs))


def test_a_state_that_was_cut_is_refused(repository: CuratedArtifacts) -> None:
    paused = asyncio.run(step(agent(), repository))
    assert isinstance(paused, FlowPaused)
    kept = json.loads(paused.state)
    with pytest.raises(InvalidInput, match="cannot resume from it"):
        asyncio.run(
            step(agent(), repository, json.dumps({**kept, "conversation": kept["conversation"][:500]}), pick([]))
        )


def test_a_node_that_uses_the_network_by_itself_is_not_loaded(repository: CuratedArtifacts) -> None:
    voice = ROOT / "tests" / "agentspec" / "good" / "voice_writer" / "cinatra" / "oas.yaml"
    with pytest.raises(InvalidInput, match="`ApiNode` is not in the allow list"):
        load_flow(voice.read_bytes(), {})


@pytest.mark.parametrize("raw", [b"[]", b"{}", b'{"component_type": "Agent", "agentspec_version": "26.1.0"}', b"a: b"])
def test_a_document_that_is_not_a_flow_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput):
        load_flow(raw, {})


REJECTED = {
    "an orchestrator depends on the selection agent for the sake of a child",
    "no edge feeds parentRunId",
    "no edge feeds parentPackageName",
    "no edge feeds slotId",
    "control does not go from the selection to the consumer",
    "control never comes to the selection",
    "the flow has no start",
    "the selection hands out nothing",
    "the slot id comes from another node than the start",
    "an interactive slot never waits for the person",
    "an edge comes from a node that is not there",
    "a child agent that is written out declares a slot and selects nothing",
    "a node runs a flow that is not there",
    "slots are declared on an agent that is no flow",
    "the document is no agent",
    "a step of the selection asks a model",
    "control comes to the judging step past the pause",
    "an edge in a flow inside leads nowhere",
    "inside the consumer the refs come from elsewhere",
    "a selection is hidden in a flow inside",
    "two edges have one id",
    "nobody looks whether a pick was accepted",
    "a branch of the selection ends before anything is pinned",
    "the refs of the start are returned as a selection",
    "another input of the start is returned as a selection",
    "the refs of the start are returned through a flow of the agent",
}
"""The planted faults that WayFlow refuses to load. It loads every other one without a warning."""


def loads_on_wayflow(fault: Planted) -> bool:
    """Whether WayFlow by itself loads the document. `test_forged` tests what `load_flow` refuses in addition."""
    from wayflowcore.agentspec import AgentSpecLoader

    async def context_tool(**arguments: Any) -> None: ...

    names = ("context_resolve", "context_finalize", "context_take", "context_resolver", "draft_email")
    try:
        AgentSpecLoader(tool_registry=dict.fromkeys(names, context_tool)).load_json(json.dumps(plant(fault)[0]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def test_wayflow_loads_most_planted_faults_without_a_warning() -> None:
    assert {fault.name for fault in PLANTED if not loads_on_wayflow(fault)} == REJECTED
    assert len(REJECTED) < len(PLANTED) / 2
