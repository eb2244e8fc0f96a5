"""What a replay costs beside the run it replays, in CPU time: `python -m benchmarks.replay`.

Each run is replayed as soon as it ended, so both meet the same machine. The adapters cost nothing, and the approver's
own act is in neither. Also counts what a replay asks of the outside: its journal, and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, judge, note, ratio
from contextos.audit.replay import replay
from contextos.operations.deployment import Deployment

CASES = {"no gate": 900, "approval": 4200}
OUTSIDE = ("open", "sqlite3.connect", "socket.", "subprocess.", "os.listdir", "os.scandir")


async def live(deployment: Deployment, number: int, amount: int) -> tuple[str, int]:
    """A run to its end: its id, and the CPU nanoseconds of driving it."""
    begun = outside.cpu_ns()
    view = await deployment.invoke(outside.request(number, amount))
    spent = outside.cpu_ns() - begun
    if view.waiting:
        await refund_pack.approve(deployment, view.run_id)
        begun = outside.cpu_ns()
        await deployment.advance(refund_pack.TENANT, view.run_id)
        spent += outside.cpu_ns() - begun
    assert (await deployment.view(refund_pack.TENANT, view.run_id)).state == "completed"
    return view.run_id, spent


async def rounds(deployment: Deployment, first: int, count: int, amount: int) -> tuple[list[float], list[float], str]:
    """(milliseconds of each replay, of each live run, the last run)."""
    replayed, lived, run_id = [], [], ""
    for number in range(first, first + count):
        run_id, spent = await live(deployment, number, amount)
        begun = outside.cpu_ns()
        await replay(deployment, refund_pack.TENANT, run_id)
        replayed.append((outside.cpu_ns() - begun) / 1e6)
        lived.append(spent / 1e6)
    warm = count // 10
    return replayed[warm:], lived[warm:], run_id


async def asked(deployment: Deployment, run_id: str) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """What a warm replay asks of the store, which files and sockets it opens, and what a cold one asks of the store."""
    seen: list[str] = []
    watching = False

    def look(event: str, given: tuple[Any, ...]) -> None:
        if watching and event.startswith(OUTSIDE):
            seen.append(f"{event} {given[:1]}")

    sys.addaudithook(look)
    warm, warm_store = outside.watch(deployment)
    await replay(warm, refund_pack.TENANT, run_id)
    cold = dict(warm_store.calls)
    warm_store.calls.clear()
    watching = True
    await replay(warm, refund_pack.TENANT, run_id)
    watching = False
    return dict(warm_store.calls), seen, cold


async def measure(path: Path, count: int) -> None:
    deployment = await refund_pack.open_deployment(path, outside.Stubs(), 0)
    for index, (case, amount) in enumerate(CASES.items()):
        replayed, lived, run_id = await rounds(deployment, index * count, count, amount)
        middle, best = ratio(replayed, lived)
        judge(f"replay / live run, CPU, {case}", middle, 1, best=best)
        note(f"replay, live run ({case}), p50", f"{median(replayed):9.2f} ms, {median(lived):.2f} ms CPU")
    calls, opened, cold = await asked(deployment, run_id)
    reads = calls.pop("read", 0)
    judge("reads of the journal by a replay", reads, 1)
    judge("anything else that a replay asks of the outside", sum(calls.values()) + len(opened), 0)
    note("a replay by a process that just started also loads what is pinned", ", ".join(sorted(cold)))
    outside.close(deployment)


def main() -> None:
    count = 30 if is_quick() else 150
    with folder() as name:
        asyncio.run(measure(Path(name), count))


if __name__ == "__main__":
    main()
