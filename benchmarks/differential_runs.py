"""The runs that `benchmarks.differential` compares, made with whichever tree is on the path of this process.

`python benchmarks/differential_runs.py FOLDER RUNS`, where FOLDER has the example as `example`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any, Final

CASES: Final = ("small", "approved", "denied", "expired", "stranger", "no_order", "no_customer", "too_much", "session")
AMOUNTS: Final = {"approved": 4200, "denied": 5100, "expired": 6300, "too_much": 200_000}


async def make(path: Path, count: int) -> None:
    """Write a line of JSON for each run to `path / "runs.jsonl"`, with the tree that this process imports."""
    from tests import world as worlds

    chance = random.Random(7)
    worlds.EXAMPLE = path / "example"  # type: ignore[misc]
    worlds.SystemEntropy.take = lambda _, count: chance.randbytes(count)  # type: ignore[assignment, method-assign]
    clock = worlds.ManualClock()
    worlds.ManualClock.now_us = lambda self: self.at_us  # type: ignore[method-assign]
    (path / "work").mkdir()
    world = await worlds.open_world(path / "work", clock=clock)
    await world.stock(*(f"ord_d{number}" for number in range(count)))
    with (path / "runs.jsonl").open("w", encoding="utf-8") as lines:
        for number in range(count):
            clock.at_us += 1_000_000
            case = CASES[number % len(CASES)]
            record, entries = await one(world, worlds, case, number)
            found = [{"kind": entry.kind, "key": entry.key, "body": json.loads(entry.body)} for entry in entries]
            lines.write(json.dumps({"case": case, "record": record, "entries": found}) + "\n")
    world.close()


async def one(world: Any, worlds: Any, case: str, number: int) -> tuple[Any, Any]:
    """Drive one run to its end. Returns its record and its entries."""
    body = worlds.request(AMOUNTS.get(case, 100 + number % 2000), f"req_{number}", order_id=f"ord_d{number}")
    if case == "stranger":
        body["user"]["user_id"] = "user_nobody"
    elif case == "no_order":
        body["input"]["context"]["order_id"] = "ord_none"
    elif case == "no_customer":
        body["input"]["context"].pop("order_id")
    elif case == "session":
        body |= {"mode": "long_running", "session_id": f"sess_{number}"}
    view = await world.invoke(body)
    if case in ("approved", "denied") and view.waiting:
        view = await world.approve(view.run_id, case)
    elif case == "expired":
        world.clock.at_us += 86_400_000_000
        await world.deployment.advance(worlds.TENANT, view.run_id)
    elif case == "session":
        await world.deployment.advance(worlds.TENANT, view.run_id)
    view = await world.deployment.view(worlds.TENANT, view.run_id)
    return view.record, await world.stores.tenant(worlds.TENANT).read(view.run_id)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]), int(sys.argv[2])))
