"""A thousand open streams of events: `python -m benchmarks.streams`.

Each stream is a connection to one server, and follows a run of its own that waits for an approval. The finance lead
then answers some of the questions, one after the other; the server drives those runs to their end. Measured are the
resident memory that the server has more than before the streams were opened, and how long after its time each event
arrives. The time of an event is that of its journal entry, so the commit is in it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import refund_pack
from benchmarks.bars import folder, is_quick, note, report_bar
from benchmarks.http_api import AT_ONCE, Client, exchanged, process

STREAMS = 1_000
AMOUNT = 4_200
PAUSE_S = 0.2
LIMIT_S = 120


class Stream:
    """One open stream: the names of its events, and how late each was, in milliseconds."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.late_ms: list[float] = []
        self.ended = asyncio.Event()

    async def follow(self, port: int, run_id: str, token: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        with closing(writer):
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    self.names.append(line[7:].strip().decode())
                elif line.startswith(b"data: "):
                    self.late_ms.append(time.time() * 1_000 - json.loads(line[6:])["timestamp"])
                    assert self.names[-1] != "RUN_ERROR", line
                    if self.names[-1] == "RUN_FINISHED":
                        break
        self.ended.set()


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def answer(connection: HTTPConnection, run_id: str, token: str) -> None:
    """Approve as the finance lead, with their key."""
    headers = {"Authorization": f"Bearer {token}"}
    said = exchanged(connection, f"/v1/approvals/{run_id}/statement", {"verdict": "approved"}, headers)
    [signed] = said["statements"][0]["signing_inputs"].values()
    signature = Ed25519PrivateKey.from_private_bytes(refund_pack.APPROVER_SEED).sign(signed.encode())
    proof = f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    exchanged(connection, f"/v1/approvals/{run_id}/answer", {"verdict": "approved", "tokens": [proof]}, headers)


def waiting_runs(port: int, token: str, count: int) -> list[str]:
    runs: list[str] = []

    def send(connection: HTTPConnection, body: dict[str, Any]) -> None:
        body["input"]["context"]["refund_amount"] = AMOUNT
        runs.append(
            exchanged(connection, "/v1/runs", body, {"Authorization": f"Bearer {token}", "Accept": "application/json"})[
                "run_id"
            ]
        )

    Client(port, send).measure(count, AT_ONCE)
    return runs


async def measure(served: dict[str, Any], count: int, answered: int) -> None:
    port, token = served["port"], served["token"]
    runs = await asyncio.to_thread(waiting_runs, port, token, count)
    before_mb = memory_mb(served["pid"])
    streams = {run_id: Stream() for run_id in runs}
    room = asyncio.Semaphore(AT_ONCE)
    tasks = []
    for run_id, stream in streams.items():
        async with room:
            tasks.append(asyncio.ensure_future(stream.follow(port, run_id, token)))
            async with asyncio.timeout(LIMIT_S):
                while not stream.late_ms:  # noqa: ASYNC110 - another task reads it
                    await asyncio.sleep(0.001)
    await asyncio.sleep(2)
    open_mb = memory_mb(served["pid"]) - before_mb
    for stream in streams.values():
        stream.late_ms.clear()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    chosen = runs[:: count // answered][:answered]
    for run_id in chosen:
        await asyncio.to_thread(answer, connection, run_id, served["approver"])
        await asyncio.sleep(PAUSE_S)
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(streams[run_id].ended.wait() for run_id in chosen))
    late_ms = [one for run_id in chosen for one in streams[run_id].late_ms]
    report_bar(f"memory of {count:,} open streams", open_mb, 200, " MB")
    p50 = median(late_ms)
    report_bar(
        f"event delivered to one of {count:,} open streams, p99", quantiles(late_ms, n=100)[-1], 100, " ms", best=p50
    )
    note(
        "its best is the p50",
        f"{len(late_ms)} events of {answered} runs; the load of the machine is {os.getloadavg()[0]:.1f}",
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # The connections close in the next turns of the loop.
    await asyncio.sleep(0.1)
    connection.close()


def main() -> None:
    with folder() as name, process([sys.executable, "-m", "benchmarks.http_server", name]) as served:
        asyncio.run(measure(served, STREAMS, 20 if is_quick() else 100))


if __name__ == "__main__":
    main()
