"""The CPU cost of a replay beside the run that it replays: `python -m benchmarks.replay`.

Each run is replayed as soon as it has ended, so that both meet the same machine. The adapters cost nothing, and the
approver's own work is in neither side. Also counts what a replay reads: its journal, and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, ratio, report_bar
from contextos.audit.replay import replay
from contextos.deployment.deployment import Deployment

CASES = {"no gate": 900, "approval": 4200}
OUTSIDE = ("open", "sqlite3.connect", "socket.", "subprocess.", "os.listdir", "os.scandir")


async def live(deployment: Deployment, number: int, amount: int) -> tuple[str, int]:
    """Run a refund to its end. Returns its id and the CPU time of driving it in ns."""
    start_ns = outside.cpu_ns()
    view = await deployment.invoke(outside.request(number, amount))
    spent = outside.cpu_ns() - start_ns
    if view.waiting:
        await refund_pack.approve(deployment, view.run_id)
        start_ns = outside.cpu_ns()
        await deployment.advance(refund_pack.TENANT, view.run_id)
        spent += outside.cpu_ns() - start_ns
    assert (await deployment.view(refund_pack.TENANT, view.run_id)).state == "completed"
    return view.run_id, spent


async def rounds(deployment: Deployment, first: int, count: int, amount: int) -> tuple[list[float], list[float], str]:
    """Return the milliseconds of each replay and of each live run, and the last run id."""
    replay_ms, live_ms, run_id = [], [], ""
    for number in range(first, first + count):
        run_id, spent = await live(deployment, number, amount)
        start_ns = outside.cpu_ns()
        await replay(deployment, refund_pack.TENANT, run_id)
        replay_ms.append((outside.cpu_ns() - start_ns) / 1e6)
        live_ms.append(spent / 1e6)
    warm = count // 10
    return replay_ms[warm:], live_ms[warm:], run_id


async def replay_access(deployment: Deployment, run_id: str) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Return the store calls of a warm replay, the files and sockets it opens, and the store calls of a cold one."""
    seen: list[str] = []
    watching = False

    def audit_hook(event: str, given: tuple[Any, ...]) -> None:
        if watching and event.startswith(OUTSIDE):
            seen.append(f"{event} {given[:1]}")

    sys.addaudithook(audit_hook)
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
        replay_ms, live_ms, run_id = await rounds(deployment, index * count, count, amount)
        middle, best = ratio(replay_ms, live_ms)
        report_bar(f"replay / live run, CPU, {case}", middle, 0.4, best=best)
        note(f"replay, live run ({case}), p50", f"{median(replay_ms):9.2f} ms, {median(live_ms):.2f} ms CPU")
    calls, opened, cold = await replay_access(deployment, run_id)
    reads = calls.pop("read_run", 0) + calls.pop("lines", 0)
    report_bar("reads of the journal by a replay: the run, and its erasures", reads, 2)
    report_bar("other calls of a replay to external systems", sum(calls.values()) + len(opened), 0)
    note("a replay by a process that just started also loads what is pinned", ", ".join(sorted(cold)))
    outside.close(deployment)


def main() -> None:
    count = 30 if is_quick() else 150
    with folder() as name:
        asyncio.run(measure(Path(name), count))


if __name__ == "__main__":
    main()
