"""The project gate on every road: for a project that is not the actor's the store is asked nothing, and nothing comes.

An act of selection still leaves its header: it is a write, and says that nothing was taken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line as cli
from contextos.cli.demo.workspace import make_workspace
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.envelopes.slots import PickRefused, Selected
from contextos.server.mcp.slots import context_resolve
from contextos.store.sqlite.artifacts import SqliteArtifacts
from contextos_agentspec.session import SelectionSession, SlotCall
from contextos_sim.memory.artifacts import MemoryArtifacts
from tests.slots import ICP, actor, complete, install, origin, slot
from tests.world import ManualClock, run

READS = ("candidates", "extensions", "selections", "pinned")
ASKED: dict[str, Any] = {"selectionMode": "interactive"}
NOTHING = json.dumps({"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": []})

Reads = Counter[str]


@pytest.fixture(params=[MemoryArtifacts, SqliteArtifacts])
def kind(request: pytest.FixtureRequest) -> Any:
    """A store, as a type."""
    return request.param


@pytest.fixture
def reads(kind: Any, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """How often the store was read, by what it was asked."""
    counted: Reads = Counter()

    def counting(name: str) -> Callable[..., Any]:
        asked = getattr(kind, name)

        async def ask(self: Any, *words: Any) -> Any:
            counted[name] += 1
            return await asked(self, *words)

        return ask

    for name in READS:
        monkeypatch.setattr(kind, name, counting(name))
    return counted


def filled() -> MemoryArtifacts:
    repository = MemoryArtifacts("t_1", {})

    async def fill() -> None:
        await install(repository)
        await complete(repository, "ours", visibility="project:launch")
        await complete(repository, "theirs", visibility="project:theirs")

    run(fill())
    return repository


def document(**changes: Any) -> dict[str, Any]:
    given = {
        "slotId": "icp",
        "acceptedArtifactExtensions": [ICP],
        "selectionMode": "autonomous",
        "resolutionMode": "accumulate",
    }
    return {
        "component_type": "Flow",
        "metadata": {"cinatra": {"packageName": "@acme/outreach", "contextSlots": [given | changes]}},
    }


async def by_mcp(repository: Any, project: str) -> int:
    given = {"parentAgentOas": document(), "slotId": "icp", "projectId": project}
    return len((await context_resolve(given, actor=actor(), artifacts=repository, curation=repository))["refs"])


def session(repository: Any, **changes: Any) -> SelectionSession:
    return SelectionSession(
        document(**changes), "run_1", "@acme/outreach", actor(), repository, repository, ManualClock()
    )


async def by_offer(repository: Any, project: str) -> int:
    return len((await session(repository).offer(SlotCall("run_1", "@acme/outreach", "icp", project))).resolution.refs)


async def by_take(repository: Any, project: str) -> int:
    return refs_of(await session(repository).take(SlotCall("run_1", "@acme/outreach", "icp", project), "act_1"))


async def by_finalize(repository: Any, project: str) -> int:
    call = SlotCall("run_1", "@acme/outreach", "icp", project)
    return refs_of(await session(repository, **ASKED).finalize(call, "act_1", NOTHING)) + (project == "launch")


def steps(repository: Any) -> ArtifactSlots:
    return ArtifactSlots(repository, repository, ManualClock())


async def by_a_run(repository: Any, project: str) -> int:
    made = await steps(repository).take(slot(), actor(), project, origin())
    assert isinstance(made, Selected)
    return len(await steps(repository).contents(made.act))


async def by_a_pick(repository: Any, project: str) -> int:
    offered = await steps(repository).offer(slot(**ASKED), actor(), project)
    said = {"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": [ref.to_json() for ref in offered.refs]}
    return refs_of(await steps(repository).answer(slot(**ASKED), actor(), project, origin(), json.dumps(said)))


def refs_of(made: Selected | PickRefused) -> int:
    assert isinstance(made, Selected)
    return len(made.act.refs)


@pytest.mark.requirement("SLOT-GATE")
@pytest.mark.parametrize("kind", [MemoryArtifacts], indirect=True)
@pytest.mark.parametrize("road", [by_mcp, by_offer, by_take, by_finalize, by_a_run, by_a_pick])
def test_a_foreign_project_gives_nothing_and_reads_nothing(road: Callable[[Any, str], Any], reads: Reads) -> None:
    repository = filled()
    assert run(road(repository, "theirs")) == 0
    assert not reads, "the gate comes before every query"
    assert run(road(filled(), "launch")) == 1
    assert reads["extensions"], "the project of one's own is looked for"
    assert reads["candidates"]


@pytest.mark.requirement("SLOT-GATE")
@pytest.mark.parametrize("kind", [SqliteArtifacts], indirect=True)
def test_a_foreign_project_gives_nothing_and_reads_nothing_at_the_command_line(
    reads: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_workspace(tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", ".")
    agent = ["email_outreach/cinatra/oas.json", "offeringContext", "--actor", "email_outreach/actor.json"]
    act = [
        *agent,
        "--run",
        "run_1",
        "--package",
        "@contextos-examples/email-outreach-agent",
        "--project",
        "theirs",
        "--json",
    ]
    # The first command makes the store; `resolve` only reads one.
    for words, code in ((["select", *act], 5), (["resolve", *agent, "--project", "theirs", "--json"], 0)):
        assert cli(["slots", *words]) == code
        given = json.loads(capsys.readouterr().out)
        assert given.get("offered", given)["refs"] == []
    Path("answer.json").write_text(NOTHING.replace("icp", "offeringContext"), encoding="utf-8")
    assert cli(["slots", "select", *act, "--answer", "answer.json"]) == 0
    assert not reads
    assert cli(["slots", "resolve", *agent]) == 0
    assert reads["extensions"] == reads["candidates"] == 1
