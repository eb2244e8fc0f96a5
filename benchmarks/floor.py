"""A whole refund beside the same refund written by hand: `python -m benchmarks.floor`.

The floor is one journal table with WAL and `synchronous=FULL`, six commits (eight with an approval), and the same two
SQLite files as external systems. It evaluates no policy and binds, signs, seals and replays nothing. Runs alternate in
one process. `peers.py` measures the same refund beside LangGraph and DBOS where the peers' folder is available.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note, report_bar
from contextos.deployment.deployment import Deployment

CASES = {"no gate": 900, "approval": 4200}


class Floor:
    """The hand-written refund: a run is rows of one table, and a step that has a row is not repeated."""

    def __init__(self, path: Path, shop: outside.Shop) -> None:
        self._shop, self._journal = shop, outside.connect(path / "floor.db")
        self._journal.execute("CREATE TABLE journal (run TEXT, kind TEXT, body TEXT, PRIMARY KEY (run, kind))")

    def _put(self, run: dict[str, Any], kind: str, body: Any) -> Any:
        run_id = run["asked"]["request_id"] if run else body["request_id"]
        self._journal.execute("INSERT INTO journal VALUES (?, ?, ?)", (run_id, kind, json.dumps(body)))
        run[kind] = body
        return body

    def start(self, request: dict[str, Any]) -> dict[str, Any] | None:
        run: dict[str, Any] = {}
        self._put(run, "asked", request)
        self._put(run, "planned", {"steps": ["lookup", "eval", "refund"]})
        self._put(run, "order", self._shop.orders_lookup(request["input"]["context"]["order_id"]))
        verdict = self._put(run, "verdict", self._shop.policy_eval(request["input"]))
        if not verdict["allowed"]:
            raise PermissionError(request["request_id"])
        if verdict["gates"]:
            self._put(run, "waiting", verdict["gates"])
            return None
        return self._finish(run)

    def approve(self, request_id: str) -> dict[str, Any]:
        rows = self._journal.execute("SELECT kind, body FROM journal WHERE run = ?", (request_id,))
        run = {kind: json.loads(body) for kind, body in rows}
        self._put(run, "approved", {"by": refund_pack.APPROVER})
        return self._finish(run)

    def _finish(self, run: dict[str, Any]) -> dict[str, Any]:
        asked, context = run["asked"], run["asked"]["input"]["context"]
        paid = self._put(
            run, "paid", self._shop.issue_refund(asked["request_id"], context["order_id"], context["refund_amount"])
        )
        gates = run["verdict"]["gates"]
        record = {"status": "DECIDED", "outputs": paid, "approvals": [{"gate": g, **run["approved"]} for g in gates]}
        done: dict[str, Any] = self._put(run, "decided", record)
        return done

    def close(self) -> None:
        self._journal.close()


class RunTime(NamedTuple):
    """Milliseconds of one run: wall time, and CPU time of all threads."""

    wall: float
    cpu: float


def by_hand(floor: Floor, request: dict[str, Any]) -> RunTime:
    """Measure one run of the floor."""
    start, cpu = time.perf_counter(), outside.cpu_ns()
    record = floor.start(request) or floor.approve(request["request_id"])
    time_taken = RunTime((time.perf_counter() - start) * 1e3, (outside.cpu_ns() - cpu) / 1e6)
    assert record["outputs"]["amount"] == request["input"]["context"]["refund_amount"]
    return time_taken


async def governed(deployment: Deployment, request: dict[str, Any]) -> RunTime:
    """Measure one run of ContextOS, including the approver's signature and the final read."""
    start, cpu = time.perf_counter(), outside.cpu_ns()
    view = await deployment.invoke(request)
    if view.waiting:
        await refund_pack.approve(deployment, view.run_id)
        await deployment.advance(refund_pack.TENANT, view.run_id)
        view = await deployment.view(refund_pack.TENANT, view.run_id)
    time_taken = RunTime((time.perf_counter() - start) * 1e3, (outside.cpu_ns() - cpu) / 1e6)
    assert view.state == "completed", view
    return time_taken


def report(case: str, ours: list[RunTime], theirs: list[RunTime]) -> None:
    mine, floor = [run.wall for run in ours], [run.wall for run in theirs]
    label, middle, best = f"refund run / own floor, {case}, p50", median(mine) / median(floor), min(mine) / min(floor)
    if case == "no gate":
        report_bar(label, middle, 3, best=best, against=floor)
    else:
        note(label, f"{middle:9.2f}    best {best:9.2f}")
    cpu, floor_cpu = median(run.cpu for run in ours), median(run.cpu for run in theirs)
    note(f"refund run, own floor ({case}), p50", f"{median(mine):9.2f} ms, {median(floor):.2f} ms")
    note(f"refund run, own floor ({case}), CPU p50", f"{cpu:9.2f} ms, {floor_cpu:.2f} ms: {cpu / floor_cpu:.1f} times")


async def measure(path: Path, count: int) -> None:
    (path / "floor").mkdir()
    shop, floor_shop = outside.Shop(path, keyed=True), outside.Shop(path / "floor", keyed=True)
    floor = Floor(path, floor_shop)
    deployment = await refund_pack.open_deployment(path, refund_pack.Tools(shop, "", keyed=True), 0)
    for index, (case, amount) in enumerate(CASES.items()):
        ours, theirs = [], []
        for number in range(index * count, (index + 1) * count):
            ours.append(await governed(deployment, outside.request(number, amount)))
            theirs.append(by_hand(floor, outside.request(number, amount)))
            assert shop.payments(f"req_bench{number:06d}") == 1
        report(case, ours[count // 10 :], theirs[count // 10 :])
    outside.close(deployment)
    floor.close()
    shop.close()
    floor_shop.close()


def main() -> None:
    count = 40 if is_quick() else 200
    with folder() as name:
        asyncio.run(measure(Path(name), count))


if __name__ == "__main__":
    main()
