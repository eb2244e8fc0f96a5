"""`contextos.open`: starts completely or not at all, drives what is due, and closes what it opened."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.function.loading import source_digest
from contextos.adapters.models.scripted import ScriptedModels
from contextos.cli.demo.templates import copy_template
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.documents.subscriptions import SUBSCRIPTIONS
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.queries.run_events import RunEvent
from contextos.errors import InvalidInput, InvalidSettings
from contextos.trust.seal import seal
from contextos.workspace import read_seed
from contextos.workspace.settings import Settings
from contextos.workspace.settings.calls import AdapterSetting
from tests import modelled
from tests.world import TENANT, request


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """The demo's workspace, initialised. After the test its store has no owner and no thread is left."""
    path, before = tmp_path / "shop", {one.name for one in threading.enumerate()}
    made = make_workspace(path, witness="witness.jsonl")

    async def initialise() -> None:
        async with contextos.open(path) as app:
            await app.initialise(TENANT, by=example_operator(path))
            await seed_graph(app, Workspace(path, TENANT, {}))

    assert made.tenant_id == TENANT
    asyncio.run(initialise())
    yield path
    assert list((path / "contextos.db.owners").iterdir()) == []
    assert "contextos" not in {one.name for one in threading.enumerate()} - before


def test_a_refund_with_and_without_an_event_loop_is_the_same_run(workspace: Path) -> None:
    async def with_loop() -> Any:
        async with contextos.open(str(workspace)) as app:
            return await app.deployment.invoke(request(900, "req_1"))

    first = asyncio.run(with_loop())
    with contextos.open(Settings.read(workspace)) as app:
        again = app.deployment.invoke(request(900, "req_1"))
        other = app.deployment.invoke(request(901, "req_2"))
        assert app.tenants() == (TENANT,)
    assert (first.state, again.run_id, other.state) == ("completed", first.run_id, "completed")
    assert first.record["lineage"]["unsafe"] == ["unsafe_local_directory", "unsafe_local_keys"]


def test_the_engine_drives_what_is_due(workspace: Path) -> None:
    with contextos.open(workspace) as app:
        view = app.deployment.invoke({**request(900, "req_long"), "mode": "long_running"})
        until = time.monotonic() + 60
        while not (view := app.deployment.view(TENANT, view.run_id)).ended and time.monotonic() < until:
            time.sleep(0.02)
    assert view.state == "completed"


def test_the_heads_are_at_the_witness_when_the_context_is_left(workspace: Path) -> None:
    before = (workspace / "witness.jsonl").read_text().count("\n")
    with contextos.open(workspace) as app:
        app.deployment.invoke(request(900, "req_1"))
    assert (workspace / "witness.jsonl").read_text().count("\n") > before


def test_a_subscriber_hands_over_when_the_context_is_left(workspace: Path) -> None:
    async def inbox(app: Any) -> Any:
        found = await SUBSCRIPTIONS.one(app.stores.tenant(TENANT), "inbox")
        return found.body.owner

    async def handle(_event: RunEvent) -> None: ...

    async def go() -> list[str]:
        owners = []
        async with contextos.open(workspace) as app:
            await app.on("run.ended", handle, name="inbox", tenant_id=TENANT)
            while not owners or not owners[-1]:
                await asyncio.sleep(0.001)
                owners.append(await inbox(app))
            assert owners[-1] == app.deployment.ports.owner
        async with contextos.open(workspace) as app:
            return [await inbox(app)]

    assert asyncio.run(go()) == [""]


def test_a_witness_that_cannot_be_written_fails_nothing(workspace: Path) -> None:
    (workspace / "witness.jsonl").unlink()
    (workspace / "witness.jsonl").mkdir()
    with contextos.open(workspace) as app:
        view = app.deployment.invoke(request(900, "req_1"))
    assert view.state == "completed"


@pytest.mark.parametrize("blocking", [False, True], ids=["async with", "with"])
def test_an_error_inside_passes_and_everything_is_closed(workspace: Path, blocking: bool) -> None:
    opening, kept = contextos.open(workspace), []

    async def with_loop() -> None:
        async with opening as app:
            kept.append(app)
            raise LookupError("mine")

    def without() -> None:
        with opening as app:
            kept.append(app)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        without() if blocking else asyncio.run(with_loop())
    with pytest.raises(Exception) as refused:  # noqa: PT011 - the database, or the deployment, is closed
        kept[0].call(lambda: None) if blocking else asyncio.run(kept[0].deployment.invoke(request(900, "req_1")))
    assert not isinstance(refused.value, LookupError)


def test_it_can_be_opened_again_and_not_twice_at_once(workspace: Path) -> None:
    opening = contextos.open(workspace)
    with opening as app:
        assert app.tenants() == (TENANT,)
        with pytest.raises(InvalidInput, match="open already"), opening:
            pass
        assert app.tenants() == (TENANT,), "the refused one closed nothing"
    with opening as app:
        assert app.tenants() == (TENANT,)


@pytest.mark.parametrize(
    "change",
    [
        {"adapters": (AdapterSetting("shop.py:adapters", "sha256:00"),)},
        {"keys": "nowhere"},
        {"directory": "nowhere.json"},
        {"policies": (("tenant", "POLICY_X@1.0.0"),)},
        {"unsafe": ()},
        {"lease_ttl_s": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_cannot_start_leaves_nothing_open(workspace: Path, change: dict[str, Any]) -> None:
    # Without the shop, whose own database is its own affair.
    settings = replace(Settings.read(workspace), **{"adapters": (), **change})
    gc.collect()  # what earlier tests left open
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(InvalidSettings), contextos.open(settings):
            raise AssertionError("it is not open")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files


def test_a_provider_of_the_program_answers_all_calls_of_models(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    make_workspace(path, witness="witness.jsonl")
    models = ScriptedModels({"large": [{"text": modelled.plan()}]})
    with contextos.open(path, models=models, dev=True) as app:
        envelope = seal(PACK_TYPE, canonical(modelled.pack()), app.keys, "pack")
        (path / "packs" / "support.json").write_text(json.dumps(envelope), "utf-8")
        for name, document in (("model", modelled.profile()), ("routing", modelled.rules())):
            (path / "packs" / f"{name}.yaml").write_text(json.dumps(document), "utf-8")
        app.initialise(TENANT, by=example_operator(path))
        app.call(seed_graph, app, Workspace(path, TENANT, {}))
        assert app.deployment.invoke(request(900, "req_1")).state == "completed"
    assert len(models.asked) == 1
    with pytest.raises(InvalidSettings, match="this is a class"), contextos.open(path, models=ScriptedModels):  # type: ignore[arg-type]
        raise AssertionError("it is not open")


@pytest.mark.parametrize("settings", [None, 7, b"a", {"workspace": "a"}], ids=["none", "number", "bytes", "table"])
def test_what_names_no_deployment_is_refused(settings: Any) -> None:
    with pytest.raises(InvalidSettings, match="neither settings nor a directory"), contextos.open(settings):
        pass


def test_a_directory_that_is_no_workspace_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="is not a workspace"), contextos.open(tmp_path):
        pass


def test_an_engine_that_does_not_start_leaves_nothing_open(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextos.store.sqlite.stores import SqliteStores
    from contextos.workspace.engine.local import LocalEngine

    closed: list[str] = []

    async def aclose(_self: SqliteStores) -> None:
        closed.append("connections")

    async def broken(_self: LocalEngine) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(LocalEngine, "start", broken)
    # A store with connections of its event loop, as that of PostgreSQL is.
    monkeypatch.setattr(SqliteStores, "aclose", aclose, raising=False)
    with pytest.raises(OSError, match="no more threads"), contextos.open(workspace):
        pass
    assert closed == ["connections"]


TOOLSET = """
import contextos

@contextos.read(integrity="trusted", produces="there")
def ping() -> bool:
    "Whether it is there."
    return True

BOX = contextos.toolset("box", [ping])
"""


def test_deployments_of_one_process_share_a_toolset_and_none_closes_it_for_the_others(tmp_path: Path) -> None:
    copy_template("empty", tmp_path / "w")
    place = tmp_path / "w"
    (place / "box.py").write_text(TOOLSET, "utf-8")
    digest = source_digest("box.py:BOX", root=place)
    with (place / "contextos.toml").open("a") as settings:
        settings.write(f'[[adapters]]\npath = "box.py:BOX"\ndigest = "{digest}"\n')
    pack = "name: box\nversion: 1.0.0\ntenant: tenant_dev\nwho: [developer]\ntools: [box.ping]\n"
    (place / "packs" / "box.yaml").write_text(pack, "utf-8")
    dev = contextos.Actor.with_key("dev", read_seed(place / "keys" / "dev.key"))
    unwitnessed = replace(Settings.read(place), witness="off")

    def ping(app: Any, session: str) -> Any:
        gate = app.gate(session=session, user="dev", token="tok_dev", agent="agt_dev")
        return gate.call("box.ping", {}, call_id="1").output

    with contextos.open(unwitnessed) as app:
        assert app.initialise("tenant_dev", by=dev)[-1] == "pinned box@1.0.0 for box in dev"
        with contextos.open(replace(unwitnessed, store="other.db")) as other:
            other.initialise("tenant_dev", by=dev)
            assert ping(other, "s1") == {"result": True}
        assert ping(app, "s1") == {"result": True}
    with contextos.open(unwitnessed) as app:
        assert app.initialise("tenant_dev", by=dev) == [], "the expansion is the same bytes"
        assert ping(app, "s2") == {"result": True}
