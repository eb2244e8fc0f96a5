"""Three `contextos serve` processes over one PostgreSQL: it is restarted under them, and they are restarted in turn.

Every request that was accepted is found again, and none is paid twice.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_face import begin_refunds
from tests.postgres import Server, own_server
from tests.served import Served, serving, three_servers
from tests.world import run

REQUESTS = 36
CLIENTS = 6
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


def refunds(workspace: Path, count: int = REQUESTS) -> list[dict[str, Any]]:
    """Refunds of different amounts, each of which needs nobody; half of them are driven by the workers."""
    body = json.loads((workspace / "requests" / "small.json").read_text("utf-8"))
    made = []
    for number in range(count):
        context = {**body["input"]["context"], "refund_amount": 100 + number}
        mode = "long_running" if number % 2 else "batch"
        stated = {"request_id": f"req_load_{number}", "mode": mode, "input": {**body["input"], "context": context}}
        made.append({**body, **stated})
    return made


def paid(workspace: Path) -> list[int]:
    with sqlite3.connect(workspace / "shop.db") as shop:
        return [amount for (amount,) in shop.execute("SELECT amount_inr FROM refunds ORDER BY amount_inr")]


class Load:
    """Clients of three servers, and what they were answered."""

    def __init__(self, servers: list[Served], bodies: list[dict[str, Any]]) -> None:
        self.servers, self.bodies = servers, bodies
        self.token = servers[0].login()
        self.accepted: dict[str, str] = {}
        self.refused: Counter[int | str] = Counter()
        self.changed = asyncio.Condition()

    async def send_all(self) -> None:
        """Send every request until it was accepted, from `CLIENTS` clients at once."""
        left = list(enumerate(self.bodies))

        async def send() -> None:
            async with self.client() as client:
                while left:
                    await self.send(client, *left.pop(0))

        await asyncio.gather(*(send() for _ in range(CLIENTS)))

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=120)

    async def send(self, client: httpx.AsyncClient, number: int, body: dict[str, Any]) -> None:
        """Send one request, at another server after each refusal."""
        while True:
            number += 1
            url = self.servers[number % 3].url
            try:
                answer = await client.post(f"{url}/v1/runs", json=body)
            except httpx.TransportError as error:
                self.refused[type(error).__name__] += 1
                # A connection that ends without an answer carried no request that was accepted.
                await self.check_unknown(client, number + 1, body["request_id"])
                continue
            if answer.status_code not in (201, 202):
                self.refused[answer.status_code] += 1
                check_refusal(answer)
                await asyncio.sleep(int(answer.headers["retry-after"]) / 10)
                continue
            found = self.accepted.setdefault(body["request_id"], answer.json()["run_id"])
            assert found == answer.json()["run_id"]
            async with self.changed:
                self.changed.notify_all()
            return

    async def check_unknown(self, client: httpx.AsyncClient, number: int, request_id: str) -> None:
        while True:
            try:
                answer = await client.get(f"{self.servers[number % 3].url}/v1/runs/{request_id}")
            except httpx.TransportError:
                number += 1
                continue
            assert answer.status_code == 404, answer.text
            return

    async def ended(self) -> dict[str, dict[str, Any]]:
        """Each run once it has ended, as another server than the first one tells it."""
        async with self.client() as client:

            async def follow(number: int, run_id: str) -> dict[str, Any]:
                url = f"{self.servers[number % 3].url}/v1/runs/{run_id}"
                async with client.stream("GET", f"{url}/events") as stream:
                    assert [line async for line in stream.aiter_lines()]
                return (await client.get(url)).json()  # type: ignore[no-any-return]

            found = await asyncio.gather(*(follow(*one) for one in enumerate(self.accepted.values())))
        return dict(zip(self.accepted, found, strict=True))

    async def until_accepted(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.accepted) >= count)


def check_refusal(answer: httpx.Response) -> None:
    """A refusal is a problem document that says when to come again."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["status"] == 503


async def until_status(client: httpx.AsyncClient, url: str, status: int) -> httpx.Response:
    while True:
        answer = await client.get(url)
        if answer.status_code == status:
            return answer
        await asyncio.sleep(0.05)


def test_postgresql_restarts_under_three_servers_and_no_request_is_lost(postgresql: Server, workspace: Path) -> None:
    bodies = refunds(workspace)

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


def test_a_rolling_restart_of_three_servers_drops_no_request(workspace: Path) -> None:
    bodies = refunds(workspace)

    async def roll(load: Load, stack: ExitStack) -> None:
        sending = asyncio.ensure_future(load.send_all())
        for number, old in enumerate(load.servers):
            await load.until_accepted(REQUESTS * (number + 1) // 5)
            log = await asyncio.to_thread(old.stop)
            assert "Traceback" not in log
            load.servers[number] = stack.enter_context(serving(workspace, old.port))
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
