"""Three `contextos serve` processes over one PostgreSQL: it is restarted under them, and they are restarted in turn.

Every request that was accepted is found again, and none is paid twice.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.http_face import LEAD, begin_refunds
from tests.postgres import Server, own_server
from tests.served import Load, Served, check_refusal, paid, refunds, serving, three_servers
from tests.world import run

pytestmark = pytest.mark.slow

REQUESTS = 36
SOAK_RESTARTS = 10
SOAK_REQUESTS = 600


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with own_server() as server:
        yield server


@pytest.fixture
def workspace(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run(begin_refunds(tmp_path / "w", store=postgresql.database().app))
    return tmp_path / "w"


async def until_status(client: httpx.AsyncClient, url: str, status: int) -> httpx.Response:
    while True:
        answer = await client.get(url)
        if answer.status_code == status:
            return answer
        await asyncio.sleep(0.05)


def test_postgresql_restarts_under_three_servers_and_no_request_is_lost(postgresql: Server, workspace: Path) -> None:
    bodies = refunds(workspace, REQUESTS)

    async def restart(load: Load) -> None:
        sending = asyncio.ensure_future(load.send_all())
        await load.until_accepted(REQUESTS // 3)
        await asyncio.to_thread(postgresql.crash)
        async with load.client() as client:
            for one in load.servers:
                check_refusal(await until_status(client, f"{one.url}/v1/ready", 503))
                assert (await client.get(f"{one.url}/v1/health")).status_code == 200
                for path in ("/v1/runs", "/v1/runs/req_load_0", "/v1/runs/req_load_0/events", "/v1/approvals"):
                    check_refusal(await client.get(f"{one.url}{path}"))
                check_refusal(await client.post(f"{one.url}/v1/runs", json=bodies[-1]))
            await asyncio.to_thread(postgresql.start)
            for one in load.servers:
                await until_status(client, f"{one.url}/v1/ready", 200)
        await sending

    with three_servers(workspace) as servers:
        load = Load(servers, bodies)
        run(restart(load))
        found = run(load.ended())
        logs = [one.stop() for one in servers]
    assert set(load.refused) <= {503}
    assert len(found) == REQUESTS
    assert {one["status"] for one in found.values()} == {"DECIDED"}
    assert paid(workspace) == [100 + number for number in range(REQUESTS)]
    assert not [log for log in logs if "Traceback" in log or "defect" in log]


async def answer_as_lead(server: Served, workspace: Path, run_id: str) -> None:
    """Approve what a run asks, signed with the key of the lead."""
    headers = {"Authorization": f"Bearer {server.login(LEAD)}"}
    async with httpx.AsyncClient(base_url=f"{server.url}/v1/approvals/{run_id}", headers=headers, timeout=120) as lead:
        said = (await lead.post("/statement", json={"verdict": "approved"})).json()
        [signed] = said["statements"][0]["signing_inputs"].values()
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex((workspace / "keys" / f"{LEAD}.key").read_text()))
        token = f"{signed}.{base64.urlsafe_b64encode(key.sign(signed.encode())).rstrip(b'=').decode()}"
        assert (await lead.post("/answer", json={"verdict": "approved", "tokens": [token]})).status_code == 200


def test_a_stream_of_events_has_no_gap_over_a_restart_of_postgresql(postgresql: Server, workspace: Path) -> None:
    waiting = json.loads((workspace / "requests" / "next.json").read_text("utf-8"))
    begun = asyncio.Event()

    async def ids_of(client: httpx.AsyncClient, path: str, after: str = "") -> list[str]:
        headers = {"Last-Event-ID": after} if after else {}
        found = []
        async with client.stream("GET", path, headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("id: "):
                    found.append(line.removeprefix("id: "))
                    begun.set()
        return found

    async def act(server: Served) -> None:
        headers = {"Authorization": f"Bearer {server.login()}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=120) as client:
            sent = (await client.post("/v1/runs", json=waiting)).json()
            assert sent["waits_for"] == "approval"
            path = f"/v1/runs/{sent['run_id']}/events"
            reading = asyncio.ensure_future(ids_of(client, path))
            await begun.wait()
            await asyncio.to_thread(postgresql.crash)
            check_refusal(await until_status(client, "/v1/ready", 503))
            check_refusal(await client.get(path))
            await asyncio.to_thread(postgresql.start)
            await until_status(client, "/v1/ready", 200)
            await answer_as_lead(server, workspace, sent["run_id"])
            # It went on, or it ended as a stream ends, so that its reader connects again.
            before = await reading
            behind = await ids_of(client, path, before[-1])
            assert before + behind == await ids_of(client, path)

    with serving(workspace) as server:
        run(act(server))
        log = server.stop()
    assert "Traceback" not in log, log


def test_a_rolling_restart_of_three_servers_drops_no_request(workspace: Path) -> None:
    bodies = refunds(workspace, REQUESTS)

    async def roll(load: Load, stack: ExitStack) -> None:
        sending = asyncio.ensure_future(load.send_all())
        for number, old in enumerate(load.servers):
            await load.until_accepted(REQUESTS * (number + 1) // 5)
            log = await asyncio.to_thread(old.stop)
            assert "Traceback" not in log
            load.servers[number] = stack.enter_context(serving(workspace, old.port))
            # The next one is replaced once this one serves.
            await asyncio.to_thread(load.servers[number].login)
        await sending

    with three_servers(workspace) as servers, ExitStack() as stack:
        load = Load(list(servers), bodies)
        run(roll(load, stack))
        found = run(load.ended())
        logs = [one.stop() for one in load.servers]
    assert not set(load.refused) - {"ConnectError", "ReadError", "RemoteProtocolError"}
    assert len(found) == REQUESTS
    assert {one["status"] for one in found.values()} == {"DECIDED"}
    assert paid(workspace) == [100 + number for number in range(REQUESTS)]
    assert not [log for log in logs if "Traceback" in log]


@pytest.mark.soak
def test_postgresql_restarts_again_and_again_under_three_servers(postgresql: Server, workspace: Path) -> None:
    bodies = refunds(workspace, SOAK_REQUESTS)

    async def restart(load: Load) -> None:
        sending = asyncio.ensure_future(load.send_all())
        for number in range(SOAK_RESTARTS):
            await load.until_accepted(SOAK_REQUESTS * (number + 1) // (SOAK_RESTARTS + 1))
            await asyncio.to_thread(postgresql.restart)
        await sending

    with three_servers(workspace) as servers:
        load = Load(servers, bodies)
        run(restart(load))
        found = run(load.ended())
        logs = [one.stop() for one in servers]
    assert set(load.refused) <= {503}
    # An order is only so much worth, so policy denies what comes late.
    assert all(one["ended"] for one in found.values())
    decided = [body for body in bodies if found[body["request_id"]]["status"] == "DECIDED"]
    assert paid(workspace) == [body["input"]["context"]["refund_amount"] for body in decided]
    assert not [log for log in logs if "Traceback" in log or "defect" in log]


def signal_postgresql(server: Server, number: signal.Signals) -> None:
    """Send a signal to every process of the server."""
    assert server.files is not None
    first = (server.files / "pg" / "postmaster.pid").read_text("utf-8").split()[0]
    children = Path(f"/proc/{first}/task/{first}/children").read_text("utf-8").split()
    for process in [first, *children]:
        os.kill(int(process), number)


@pytest.mark.soak
def test_postgresql_hangs_under_three_servers_and_no_request_is_lost(postgresql: Server, workspace: Path) -> None:
    bodies = refunds(workspace, REQUESTS)

    async def hang(load: Load) -> None:
        sending = asyncio.ensure_future(load.send_all())
        await load.until_accepted(REQUESTS // 3)
        await asyncio.to_thread(signal_postgresql, postgresql, signal.SIGSTOP)
        async with load.client() as client:
            for one in load.servers:
                check_refusal(await until_status(client, f"{one.url}/v1/ready", 503))
            for answer in await asyncio.gather(*(client.get(f"{one.url}/v1/runs") for one in load.servers)):
                check_refusal(answer)
            await asyncio.to_thread(signal_postgresql, postgresql, signal.SIGCONT)
            for one in load.servers:
                await until_status(client, f"{one.url}/v1/ready", 200)
        await sending

    with three_servers(workspace) as servers:
        load = Load(servers, bodies)
        run(hang(load))
        found = run(load.ended())
        logs = [one.stop() for one in servers]
    assert set(load.refused) <= {503}
    assert {one["status"] for one in found.values()} == {"DECIDED"}
    assert paid(workspace) == [100 + number for number in range(REQUESTS)]
    assert not [log for log in logs if "Traceback" in log or "defect" in log]
