"""`contextos serve --no-worker`: it answers who waits, and workers elsewhere drive the rest."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.http_face import begin_refunds
from tests.postgres import Database
from tests.served import Load, Served, paid, refunds, serving, three_servers, working
from tests.world import run

pytestmark = pytest.mark.slow

REQUESTS = 24


def begin(folder: Path, monkeypatch: pytest.MonkeyPatch, store: str = "") -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    run(begin_refunds(folder / "w", store=store))
    return folder / "w"


def test_a_request_that_is_stored_waits_for_a_worker_and_one_that_is_waited_for_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = begin(tmp_path, monkeypatch)
    stored, *waited = refunds(workspace, 6)
    with serving(workspace, None, "--no-worker") as server:
        headers = {"Authorization": f"Bearer {server.login()}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=120) as client:
            accepted = client.post("/v1/runs", json={**stored, "mode": "long_running"})
            assert accepted.status_code == 202
            for body in waited:
                answer = client.post("/v1/runs", json={**body, "mode": "batch"})
                assert (answer.status_code, answer.json()["state"]) == (201, "completed"), answer.text
            path = f"/v1/runs/{accepted.json()['run_id']}"
            assert client.get(path).json()["ended"] is False
            with working(workspace), client.stream("GET", f"{path}/events") as events:
                assert "event: RUN_FINISHED" in list(events.iter_lines())
            assert client.get(path).json()["status"] == "DECIDED"
        assert "`contextos worker` does" in server.stop()


async def kill_under_load(load: Load, victim: Served) -> None:
    sending = asyncio.ensure_future(load.send_all())
    await load.until_accepted(REQUESTS // 3)
    victim.process.send_signal(signal.SIGKILL)
    load.servers.remove(victim)
    await sending


def test_one_of_three_servers_is_killed_under_load_and_no_request_is_lost(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = begin(tmp_path, monkeypatch, database.app)
    bodies = refunds(workspace, REQUESTS)
    with ExitStack() as stack:
        servers = stack.enter_context(three_servers(workspace, "--no-worker"))
        stack.enter_context(working(workspace))
        load = Load(list(servers), bodies, killed=True)
        run(kill_under_load(load, servers[0]))
        found = run(load.ended())
        logs = [one.stop() for one in load.servers]
    assert len(found) == REQUESTS
    assert {one["status"] for one in found.values()} == {"DECIDED"}
    assert paid(workspace) == [100 + number for number in range(REQUESTS)]
    assert not [log for log in logs if "Traceback" in log]
