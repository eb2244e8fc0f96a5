"""Runs one request to its end several times and prints what came of it, one JSON line a run.

`python -m tests.e2e.compile_driver FOLDER COUNT`: every run has a workspace of its own in FOLDER. Chance and time are
the same for all runs, so whatever differs between two lines comes from the process. The test beside it starts it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from contextos.contracts.encoding.jcs import content_address
from tests.world import TENANT, ManualClock, open_world, request, run


class CountedEntropy:
    """Bytes that are the same in every run."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, count: int) -> bytes:
        self._taken += 1
        return hashlib.sha256(self._taken.to_bytes(8, "big")).digest()[:count]


async def report(path: Path, amount: int) -> dict[str, Any]:
    world = await open_world(path, clock=ManualClock())
    world.deployment.ports = replace(world.deployment.ports, entropy=CountedEntropy())
    view = await world.invoke(request(amount, "req_same"))
    entries = await world.stores.tenant(TENANT).read(view.run_id)
    compiled = [orjson.loads(entry.body or b"") for entry in entries if entry.kind == "context.compiled"]
    world.close()
    return {
        "state": view.state,
        "entries": len(entries),
        "head": entries[-1].hash,
        "compiled": [content_address(one) for one in compiled],
        "ledger": [one["context_ledger"]["compiled_context_hash"] for one in compiled],
    }


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        made = Path(sys.argv[1]) / str(number)
        made.mkdir(parents=True)
        sys.stdout.write(json.dumps(run(report(made, 900))) + "\n")
