"""The refund on PostgreSQL: the same loop and command line, and workers that know each other by leases alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit import export, exported, verify
from contextos.cli import run_command_line as command
from contextos.cli.demo.workspace import Workspace, example_operator, seed_graph
from contextos.contracts.journal import Batch, Write
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import ChainBroken
from contextos.store.shared.clock import SystemClock
from contextos.store.witness.file import FileWitness
from contextos.workspace import open_app, open_unchecked
from contextos.workspace.engine.local import EngineLimits, LocalEngine
from contextos.workspace.settings import Settings
from tests.e2e.test_heartbeats import TTL_US, two
from tests.postgres import Database, Server, own_server
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow


def test_a_refund_is_approved_paid_once_verified_exported_and_replayed(tmp_path: Path, database: Database) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=database.app)
        small = await world.invoke(request(900, "req_small"))
        waiting = await world.invoke(request(4200, "req_large"))
        view = await world.approve(waiting.run_id)
        assert (small.state, waiting.state, view.state) == ("completed", "waiting", "completed")
        assert [one["amount_inr"] for one in world.refunds()] == [900, 4200]
        verified = await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        assert {one.stream for one in verified} == {"index", "control", small.run_id, view.run_id}
        raw = await export.export_runs(world.deployment, TENANT, [small.run_id, view.run_id], by=world.actor())
        replayed = await exported.replay_export(exported.read_export(raw, world.keys))
        recorded = {one.run_id: one.record["record_hash"] for one in (small, view) if one.record}
        assert {one.run_id: one.record_hash for one in replayed} == recorded
        await world.stores.aclose()

    run(go())


@pytest.mark.requirement("R-HEARTBEAT")
def test_a_session_belongs_to_the_worker_that_beats_and_to_another_when_it_is_silent(
    tmp_path: Path, database: Database
) -> None:
    async def go() -> None:
        both = await two(tmp_path, stores=database.app)
        for _ in range(12):
            await both.later(TTL_US // 3, beating=True)
        assert not await both.taken_over(), "its lease ran out long ago"
        await both.later(TTL_US, beating=False)
        assert await both.taken_over()
        await both.later(TTL_US, beating=True)
        await both.finished()
        assert both.drive.result().state == "completed"
        assert len(both.world.refunds()) == 1
        await both.world.stores.aclose()

    run(go())


def test_a_hundred_callers_of_one_act_pay_it_once(tmp_path: Path, database: Database) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=database.app, clock=SystemClock())
        asked = [request(900, f"req_{number % 10}") for number in range(100)]
        views = await asyncio.gather(*(world.invoke(body) for body in asked))
        assert len({view.run_id for view in views}) == 10
        assert {view.state for view in views} == {"completed"}
        assert [one["amount_inr"] for one in world.refunds()] == [900]
        await world.stores.aclose()

    run(go())


@pytest.mark.parametrize("what", ["a run", "the tail of the index", "the whole tenant"])
def test_a_deletion_by_the_databases_owner_is_named_against_the_witness(
    tmp_path: Path, database: Database, what: str
) -> None:
    statements = {
        "a run": (
            "DELETE FROM contextos.segments WHERE run = (SELECT key FROM contextos.journal WHERE run = 'index' LIMIT 1)"
        ),
        "the tail of the index": "DELETE FROM contextos.journal WHERE run = 'index' AND seq > 2",
        "the whole tenant": "WITH gone AS (DELETE FROM contextos.segments) DELETE FROM contextos.journal",
    }

    async def go() -> None:
        world = await open_world(tmp_path, stores=database.app)
        witness = FileWitness(tmp_path / "witness.jsonl")
        for number in range(2):
            await world.invoke(request(900 + number, f"req_{number}"))
        await WitnessPublisher(world.stores, witness, world.keys, world.clock).publish([TENANT])
        await world.stores.aclose()

    run(go())
    for table in ("journal", "segments"):
        database.execute(f"ALTER TABLE contextos.{table} DISABLE TRIGGER ALL")
    database.execute(statements[what])
    for table in ("journal", "segments"):
        database.execute(f"ALTER TABLE contextos.{table} ENABLE TRIGGER ALL")

    async def look() -> None:
        world = await open_world(tmp_path, stores=database.app)
        heads = await FileWitness(tmp_path / "witness.jsonl").heads(TENANT)
        with pytest.raises(ChainBroken):
            await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys, heads)
        await world.stores.aclose()

    run(look())


def test_two_workers_drive_one_another_s_runs_only_when_the_lease_has_run_out(
    tmp_path: Path, database: Database
) -> None:
    async def go() -> None:
        first = await open_world(tmp_path, stores=database.app)
        waiting = await first.invoke(request(4200, "req_1"))
        await first.answer(waiting.run_id)
        store = first.stores.tenant(TENANT)
        lease = (await store.scan("leases", key=waiting.run_id))[0]
        until_us = first.clock.now_us() + 60_000_000
        held = orjson.dumps({"owner": "0" * 16, "until_us": until_us})
        await store.commit(Batch(waiting.run_id, writes=(Write("leases", waiting.run_id, lease.version, held),)))
        second = await open_world(tmp_path, stores=database.app, clock=first.clock)
        second.deployment.ports = first.deployment.ports.__class__(
            **{name: getattr(second.deployment.ports, name) for name in second.deployment.ports.__dataclass_fields__}
            | {"alive": lambda _owner: True}
        )
        assert await second.deployment._driver._drive_once(TENANT, waiting.run_id, None, None) is None
        assert second.refunds() == []
        first.clock.at_us = until_us + 1
        await second.deployment.advance(TENANT, waiting.run_id)
        assert [one["amount_inr"] for one in second.refunds()] == [4200]
        await first.stores.aclose()
        await second.stores.aclose()

    run(go())


def test_an_engine_drives_on_when_the_server_comes_back(tmp_path: Path) -> None:
    async def ended(world: TestWorld, run_id: str) -> str:
        for _ in range(600):
            try:
                view = await world.deployment.view(TENANT, run_id)
            except Exception as error:  # noqa: BLE001 - whatever it is while the server is away, it must be ours
                assert type(error).__name__ == "Unavailable", error
            else:
                if view.ended:
                    return view.state
            await asyncio.sleep(0.05)
        return "stuck"

    async def go(server: Server, database: Database) -> None:
        world = await open_world(tmp_path, stores=database.app)
        waiting = await world.invoke(request(4200, "req_1"))
        limits = EngineLimits(sweep_interval_ms=50, stop_grace_ms=1000)
        engine = LocalEngine(world.deployment.advance, world.stores, world.clock, limits=limits)
        await engine.start()
        await asyncio.to_thread(server.crash)
        engine.submit(TENANT, waiting.run_id)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start)
        await world.answer(waiting.run_id)
        engine.submit(TENANT, waiting.run_id)
        assert await ended(world, waiting.run_id) == "completed"
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await engine.stop()
        await world.stores.aclose()

    with own_server() as server:
        run(go(server, server.database()))


@pytest.fixture
def shop(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo's workspace, moved to PostgreSQL by one line of its settings."""
    path = tmp_path / "shop"
    assert command(["demo", "--yes", "--json", "--keep", str(path)]) == 0
    settings = path / "contextos.toml"
    settings.write_text(f'store = "{database.app}"\n' + settings.read_text().replace("store =", "# store ="))
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(path))
    run(seeded(path))
    return path


async def seeded(path: Path) -> None:
    app = await open_app(Settings.read(path))
    await app.initialise(TENANT, by=example_operator(path))
    await seed_graph(app, Workspace(path, TENANT, {}))
    app.close()


async def said_restored(shop: Path, copy: Database) -> None:
    app = await open_unchecked(replace(Settings.read(shop), store=copy.app))
    await record_restore(app.deployment, None, TENANT, by=example_operator(shop))
    app.close()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = command([*arguments, "--json"])
    return code, orjson.loads(capsys.readouterr().out or b"null")


def test_one_line_of_the_settings_moves_the_command_line_to_postgresql(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "runs", "list")[1]["runs"] == []
    assert said(capsys, "invoke", str(shop / "requests" / "small.json"))[0] == 0
    code, large = said(capsys, "invoke", str(shop / "requests" / "large.json"))
    assert code == 5
    key = ["--as", "user_finance_lead_77", "--key", str(shop / "keys" / "user_finance_lead_77.key")]
    binding = ["--binding", large["waiting"]["binding_digest"]]
    assert said(capsys, "approvals", "approve", large["run_id"], *binding, *key)[0] == 0
    assert said(capsys, "verify")[0] == 0
    assert said(capsys, "replay", "req_large")[0] == 0


def test_a_killed_process_leaves_a_run_that_another_finishes_once(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = shop / "contextos.toml"
    settings.write_text("lease_ttl_s = 5\n" + settings.read_text())
    source = (shop / "shop.py").read_text()
    body = (
        "import os, signal, sys; from contextos.adapters.function import adapter as f; call = f.FunctionAdapter.call\n"
        "async def dying(self, name, *rest):\n"
        "    reply = await call(self, name, *rest)\n"
        "    if name == 'issue_refund': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return reply\n"
        "f.FunctionAdapter.call = dying\n"
        "from contextos.cli import main; sys.argv[0] = 'contextos'; main()"
    )
    assert "issue_refund" in source
    asked = str(shop / "requests" / "small.json")
    line = [sys.executable, "-c", body, "invoke", asked]
    died = subprocess.run(line, env=os.environ, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    for _ in range(40):
        code, resumed = said(capsys, "runs", "resume")
        if code == 0 and said(capsys, "invoke", asked)[0] == 0:
            break
    else:
        raise AssertionError(resumed)
    assert said(capsys, "verify")[0] == 0
    assert said(capsys, "replay", "req_small")[0] == 0
