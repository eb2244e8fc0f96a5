"""Four independent reads of 50 ms in one plan beside one such read: `python -m benchmarks.parallel_reads`.

Whole runs are timed, from the request to the record. A planner of the benchmark makes the plans, through the `Planner`
port. For comparison the four reads also run one after the other, as without a `Concurrency` port.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, ratio, report_bar
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.audit.replay import replay
from contextos.contracts.ports.concurrency import Sequential
from contextos.contracts.ports.planning import PlanRequest
from contextos.deployment.deployment import Deployment
from contextos.workspace.engine.concurrency import AsyncioConcurrency

READ_S = 0.05
READS = 4
BAR = 1.5


class ReadPlanner:
    """Proposes a plan of `reads` independent lookups."""

    name = "bench.reads@1"

    def __init__(self, reads: int) -> None:
        self.reads = reads

    async def propose(self, request: PlanRequest) -> Mapping[str, Any]:
        steps = [
            {
                "id": f"read{number}",
                "tool": "adp_orders.lookup",
                "params": {"order_id": f"ord_{number}"},
                "approval_mode": "read_only",
            }
            for number in range(self.reads)
        ]
        return {"template_id": request.templates[0], "steps": steps}


async def lookup(args: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    """Return an order after 50 ms."""
    await asyncio.sleep(READ_S)
    order = {"order_id": args["order_id"], "customer_id": "cus_77"}
    return {**order, "total_inr": 9900, "currency": "INR", "status": "delivered"}


async def timed(deployment: Deployment, number: int, reads: int, concurrency: Any) -> float:
    """Return the milliseconds of a run with this many reads, and check that the run replays."""
    deployment.ports = replace(deployment.ports, planner=ReadPlanner(reads), concurrency=concurrency)
    began = time.perf_counter_ns()
    view = await deployment.invoke(outside.request(number, 900))
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert view.ended, view
    assert view.record["budget_usage"]["tool_calls"] == reads, view
    await replay(deployment, refund_pack.TENANT, view.run_id)
    return took_ms


async def measure(path: Path, rounds: int) -> None:
    deployment = await refund_pack.open_deployment(path, outside.Stubs(), 0)
    adapters = dict(deployment.ports.adapters(refund_pack.TENANT))
    adapters["adp_orders"] = FunctionAdapter(adapters["adp_orders"].describe(), {"lookup": lookup})
    deployment.ports = replace(deployment.ports, adapters=lambda _tenant: adapters)
    one, together, in_turn = [], [], []
    for number in range(0, 3 * rounds, 3):
        one.append(await timed(deployment, number, 1, AsyncioConcurrency()))
        together.append(await timed(deployment, number + 1, READS, AsyncioConcurrency()))
        in_turn.append(await timed(deployment, number + 2, READS, Sequential()))
    middle, best = ratio(together, one)
    report_bar("run with four reads of 50 ms at once / run with one", middle, BAR, "x", best=best, against=one)
    note("the same four reads one after the other / run with one", f"{ratio(in_turn, one)[0]:9.2f}x")
    note("run with one read, four at once, p50", f"{median(one):9.2f} ms, {median(together):.2f} ms")
    outside.close(deployment)


def main() -> None:
    with folder() as name:
        asyncio.run(measure(Path(name), 5 if is_quick() else 20))


if __name__ == "__main__":
    main()
