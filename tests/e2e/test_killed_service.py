"""`contextos serve` is killed under load and started again: every accepted request is found, and none is paid twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_face import REQUESTER, TENANT, begin_refunds
from tests.service_process import service
from tests.world import run

pytestmark = pytest.mark.slow

REQUESTS = 24


def requests(workspace: Path) -> list[dict[str, Any]]:
    """Refunds of different amounts, each of which needs nobody; half of them are driven by the workers."""
    body = json.loads((workspace / "requests" / "small.json").read_text("utf-8"))
    made = []
    for number in range(REQUESTS):
        context = {**body["input"]["context"], "refund_amount": 100 + number}
        mode = "long_running" if number % 2 else "batch"
        stated = {"request_id": f"req_load_{number}", "mode": mode, "input": {**body["input"], "context": context}}
        made.append({**body, **stated})
    return made


async def send_until_killed(
    process: subprocess.Popen[bytes], url: str, token: str, bodies: list[dict[str, Any]]
) -> dict[str, str]:
    """Send all at once and kill the server after a third was answered; return the runs that were accepted."""
    accepted: dict[str, str] = {}

    async def send(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
        try:
            answer = await client.post("/v1/runs", json=body)
        except httpx.TransportError:
            return
        assert answer.status_code in (201, 202), answer.text
        accepted[body["request_id"]] = answer.json()["run_id"]
        if len(accepted) == REQUESTS // 3:
            process.send_signal(signal.SIGKILL)

    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        await asyncio.gather(*(send(client, body) for body in bodies))
    return accepted


async def follow(url: str, token: str, bodies: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Send every request again and read its run once it has ended."""
    found = {}
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300) as client:
        for body in bodies:
            sent = (await client.post("/v1/runs", json=body)).json()
            # The stream ends with the run, however long its lease still belongs to the process that died.
            async with client.stream("GET", f"/v1/runs/{sent['run_id']}/events") as stream:
                assert [line async for line in stream.aiter_lines()]
            found[body["request_id"]] = (await client.get(f"/v1/runs/{sent['run_id']}")).json()
    return found


def test_a_server_that_is_killed_under_load_loses_and_repeats_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "w"
    run(begin_refunds(workspace))
    toml = workspace / "contextos.toml"
    toml.write_text("lease_ttl_s = 2\n" + toml.read_text("utf-8"), "utf-8")
    bodies = requests(workspace)
    with service(workspace, TENANT, REQUESTER) as server:
        accepted = run(send_until_killed(server.process, server.url, server.tokens[REQUESTER], bodies))
        assert server.process.wait(60) == -signal.SIGKILL
    assert len(accepted) >= REQUESTS // 3
    with service(workspace, TENANT, REQUESTER) as server:
        found = run(follow(server.url, server.tokens[REQUESTER], bodies))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert {name: found[name]["run_id"] for name in accepted} == accepted
    assert {one["status"] for one in found.values()} == {"DECIDED"}
    with sqlite3.connect(workspace / "shop.db") as shop:
        paid = [amount for (amount,) in shop.execute("SELECT amount_inr FROM refunds ORDER BY amount_inr")]
    assert paid == [100 + number for number in range(REQUESTS)]
