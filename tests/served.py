"""`contextos serve` in processes of their own, started on stated ports, and clients that send them refunds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.http_face import REQUESTER, TENANT
from tests.processes import ended

CLIENTS = 6


@dataclass
class Served:
    """One server: its process, its port, and the file of its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def login(self, person: str = REQUESTER, tenant: str = TENANT) -> str:
        """The development login of a person, once the server has printed it."""
        while True:
            for line in self.log.read_text("utf-8").splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and words[:2] == [tenant, person]:
                    return words[2]
            assert self.process.poll() is None, self.log.read_text("utf-8")
            time.sleep(0.05)

    def stop(self) -> str:
        """Stop as a supervisor does, and return the log."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.log.read_text("utf-8")
        return self.log.read_text("utf-8")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(workspace: Path, port: int | None = None, *options: str) -> Iterator[Served]:
    """A server of a workspace, which may still be starting: clients that connect then wait."""
    port = free_port() if port is None else port
    with _started(workspace, "serve", "--port", str(port), *options) as (process, log):
        yield Served(process, port, log)


@contextmanager
def working(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a workspace, in a process of its own."""
    with _started(workspace, "worker") as (process, _):
        yield process


@contextmanager
def _started(workspace: Path, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = workspace.parent / f"{command[0]}-{time.monotonic_ns()}.log"
    line = [sys.executable, "-m", "contextos.cli", *command, "-w", str(workspace)]
    with log.open("wb") as said, ended(subprocess.Popen(line, stderr=said, env=dict(os.environ))) as process:
        yield process, log


@contextmanager
def three_servers(workspace: Path, *options: str) -> Iterator[list[Served]]:
    """Three servers of one workspace, which have begun to serve."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(workspace, None, *options)) for _ in range(3)]
        for one in servers:
            one.login()
        yield servers


def refunds(workspace: Path, count: int) -> list[dict[str, Any]]:
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
    """Clients of three servers, and what they were answered. With `killed` one of the servers is, so that a connection
    that failed tells nothing.
    """

    def __init__(self, servers: list[Served], bodies: list[dict[str, Any]], *, killed: bool = False) -> None:
        self.servers, self.bodies, self.killed = servers, bodies, killed
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
            url = self.servers[number % len(self.servers)].url
            try:
                answer = await client.post(f"{url}/v1/runs", json=body)
            except httpx.TransportError as error:
                self.refused[type(error).__name__] += 1
                if not self.killed:
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
                answer = await client.get(f"{self.servers[number % len(self.servers)].url}/v1/runs/{request_id}")
            except httpx.TransportError:
                number += 1
                continue
            assert answer.status_code == 404, answer.text
            return

    async def ended(self) -> dict[str, dict[str, Any]]:
        """Each run once it has ended, as one of the servers reports it."""
        async with self.client() as client:
            # All at once would be a load test of this process.
            few = asyncio.Semaphore(2 * CLIENTS)

            async def follow(number: int, run_id: str) -> dict[str, Any]:
                url = f"{self.servers[number % len(self.servers)].url}/v1/runs/{run_id}"
                async with few:
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
