"""Bytes that a finished run leaves in the store: `python -m benchmarks.size`.

The size of the SQLite file after a checkpoint, without what the deployment itself holds (pack, policies, graph),
divided by the number of runs. In the third case the texts of the requests and the ids of the payments differ, so what
runs share cannot help there.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, report_bar
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.deployment.deployment import Deployment

RUNS = 1000
MESSAGE_CHARACTERS = 400
CASES = (
    ("without approval", 900, False, 10),
    ("with approval", 4200, False, 14),
    ("with approval, each text of a request differs", 4200, True, 20),
)


class Payments(outside.Stub):
    """The stub, whose payments are numbered by the request."""

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        reply = await super().call(capability, args, context)
        if "request_id" not in args:
            return reply
        number = f"txn_{args['request_id']}"
        return AdapterReply(
            output={**reply.output, "transaction_id": number}, mutations=(f"refund:{number}",), cost_cents=0.31
        )


class Tools(refund_pack.Tools):
    def __init__(self) -> None:
        super().__init__(None, "", keyed=False)

    def adapters(self) -> tuple[Any, ...]:
        return tuple(Payments(adapter.describe()) for adapter in super().adapters())


def differing(number: int, amount: int, rng: random.Random) -> dict[str, Any]:
    """Return a refund request whose texts are random."""
    body = outside.request(number, amount)
    message = body["input"]["message"]
    while len(message) < MESSAGE_CHARACTERS:
        message += " " + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 12)))
    body |= {"request_id": f"req_{rng.getrandbits(64):016x}", "session_id": f"sess_{rng.getrandbits(64):016x}"}
    body["input"] |= {"message": message}
    body["trace"] |= {"trace_id": f"{rng.getrandbits(128):032x}", "span_id": f"{rng.getrandbits(64):016x}"}
    return body


async def drive(deployment: Deployment, body: dict[str, Any]) -> None:
    view = await deployment.invoke(body)
    if view.waiting:
        await refund_pack.approve(deployment, view.run_id)
        await deployment.advance(refund_pack.TENANT, view.run_id)
        view = await deployment.view(refund_pack.TENANT, view.run_id)
    assert view.state == "completed", (view.state, view.record)


def file_bytes(path: Path) -> int:
    """Return the size of the file once everything in its log has moved to it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


async def bytes_a_run(directory: Path, requests: list[dict[str, Any]]) -> float:
    deployment = await refund_pack.open_deployment(directory, Tools(), 0)
    path = directory / "contextos.db"
    before = file_bytes(path)
    for body in requests:
        await drive(deployment, body)
    size = (file_bytes(path) - before) / len(requests)
    outside.close(deployment)
    return size


def main() -> None:
    runs = min(RUNS, 200) if is_quick() else RUNS
    for label, amount, differs, bar in CASES:
        rng = random.Random(7)
        requests = [
            differing(number, amount, rng) if differs else outside.request(number, amount) for number in range(runs)
        ]
        with folder() as directory:
            size = asyncio.run(bytes_a_run(Path(directory), requests))
        report_bar(f"bytes of a run {label}", size / 1000, bar, " kB")


if __name__ == "__main__":
    main()
