"""Faults of configuration that were planted in the refund example: lint, `apply`, the start and readiness say each."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

import contextos
from contextos.adapters.directory import FileDirectory
from contextos.cli.demo.workspace import make_workspace
from contextos.cli.operations.worker import running_engine
from contextos.errors import InvalidInput
from contextos.packs.checking import KnownHere, artifact_problems, known_here, read_unsigned
from contextos.workspace.build import open_for_authors
from contextos.workspace.settings import Settings
from tests.attacks.faults import FAULTS, OF_SETTINGS, Plant, Workspace, each, nobody_holds, plant_in
from tests.attacks.shop import Shop
from tests.http_face import OPERATOR, OTHER_TENANT, begin_refunds, http_face
from tests.world import TENANT

ONE_STORE = pytest.mark.parametrize("stores", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KnownHere]:
    """A workspace, and what its deployment knows."""
    path = tmp_path_factory.mktemp("faults") / "shop"
    make_workspace(path)

    async def known() -> KnownHere:
        app = await open_for_authors(Settings.read(path))
        try:
            return await known_here(app.deployment, TENANT)
        finally:
            app.close()

    return path, asyncio.run(known())


@pytest.mark.parametrize("name", FAULTS)
def test_lint_says_it(name: str, example: tuple[Path, KnownHere], tmp_path: Path) -> None:
    (plant, code, place), (path, known) = FAULTS[name], example
    workspace = Workspace.read(path)
    plant(workspace)
    (tmp_path / "directory.json").write_text(json.dumps({TENANT: workspace.tenant}))
    held = asyncio.run(FileDirectory(tmp_path / "directory.json").held_roles(TENANT))
    try:
        pack, _ = read_unsigned(json.dumps(workspace.pack).encode(), lambda: ())
        problems = list(artifact_problems(pack, (), replace(known, roles={TENANT: held})))
    except InvalidInput as error:
        problems = list(error.problems)
    assert any(one.code == code and one.pointer.startswith(place) for one in problems), problems


def test_the_example_itself_is_fine(example: tuple[Path, KnownHere]) -> None:
    pack, _ = read_unsigned((example[0] / "pack.json").read_bytes(), lambda: ())
    assert list(artifact_problems(pack, (), example[1])) == []


@ONE_STORE
@pytest.mark.parametrize("name", ["agents that are retired", "fewer tool calls than the plan has"])
def test_lint_and_apply_refuse_it(name: str, fresh: Shop) -> None:
    plant, code, place = FAULTS[name]
    plant_in(fresh.path, plant)
    linted = fresh.say("pack", "lint", "--adapters", str(fresh.path / "pack.json"))
    applied = fresh.say("apply", *fresh.by)
    assert (linted.code, applied.code) == (2, 2)
    for problems in (linted.json["problems"], applied.json["error"]["problems"]):
        assert any(one["code"] == code and one["pointer"].startswith(place) for one in problems), problems
    assert fresh.say("pack", "list").json["packs"] == []


@ONE_STORE
@pytest.mark.parametrize("name", OF_SETTINGS)
def test_apply_refuses_what_the_settings_name_in_vain(name: str, fresh: Shop) -> None:
    plant, code, place = OF_SETTINGS[name]
    plant_in(fresh.path, plant)
    applied = fresh.say("apply", *fresh.by)
    assert applied.code == 2
    assert [(one["code"], one["pointer"]) for one in applied.json["error"]["problems"]] == [(code, place)]


LATER: dict[str, tuple[Plant, str]] = {
    "nobody answers the gate any more": (nobody_holds("finance_lead"), "holds the role `finance_lead`"),
    "no agent is active any more": (each("agents", lifecycle="retired"), "no active agent of the tenant"),
    "every delegation is over": (each("delegations", expires_at=1_000_000_000), "every delegation"),
    "the tenant allows less": (lambda one: one.tenant.update(limits={"max_cost_cents": 10}), "at most 10"),
}


def later(path: Path, plant: Plant) -> str:
    """What is in force stays as it is, and the directory changes under it. Returns the directory before."""
    workspace, file = Workspace.read(path), path / "directory.json"
    before, listed = file.read_text(), json.loads(file.read_text())
    plant(workspace)
    file.write_text(json.dumps({**listed, TENANT: workspace.tenant}))
    return before


@ONE_STORE
@pytest.mark.parametrize("name", LATER)
def test_what_came_later_is_said_by_apply_by_the_list_and_at_the_start(
    name: str, initialised: Shop, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, said = LATER[name]
    assert initialised.say("apply", *initialised.by).json == {"done": [], "unmatched": []}
    before = later(initialised.path, plant)
    for command in (("apply", *initialised.by), ("policies", "list")):
        [first, *_] = [one for one in initialised.say(*command).json["unmatched"] if said in one["detail"]]
        assert (first["ref"], first["pointer"][:1]) == ("ctxpack.support@5.2.0", "/")

    async def start() -> None:
        async with contextos.open(initialised.path) as app:
            await app.engine.stop()
            async with running_engine(app):
                pass

    asyncio.run(start())
    assert said in " ".join(getattr(one, "problem", "") for one in caplog.records)
    assert said in capsys.readouterr().err
    (initialised.path / "directory.json").write_text(before)
    assert initialised.say("policies", "list").json["unmatched"] == []


def test_readiness_and_the_list_over_http_say_it_until_it_can(tmp_path: Path) -> None:
    before: list[str] = []

    async def begin(path: Path) -> None:
        await begin_refunds(path)
        before.append(later(path, LATER["no agent is active any more"][0]))

    with http_face(tmp_path, begin) as face:
        assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready", "warnings": ["configuration"]}
        listed = face.send("GET", "/v1/policies", by=OPERATOR).json()["unmatched"]
        assert {one["code"] for one in listed} == {"no_agent", "no_delegation"}
        assert face.send("GET", "/v1/policies", by=OPERATOR, tenant=OTHER_TENANT).json()["unmatched"] == []
        (face.path / "directory.json").write_text(before[0])
        assert face.send("GET", "/v1/policies", by=OPERATOR).json()["unmatched"] == []
        face.call(face.app.configuration.check())
        assert face.anonymous("GET", "/v1/ready").json() == {"status": "ready"}
