"""Runs jobs over workspaces, each in a process of its own that kills itself with SIGKILL where the job says.

`python -m tests.e2e.crash_driver JOBS.json` forks a child per job: the imports are done once, and every child has its
own connections, threads and lease owner. A child writes each boundary that it passes to the job's `log` before it dies
there, so the list of boundaries is what a run without a kill wrote. The tests beside it start it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import CONTROL, PERSON_LISTED, Batch, Entry
from contextos.contracts.ports.gates import Done, Waiting
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.storage import Store
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, ContextOSError
from contextos.runtime import state_machine
from contextos.store.shared.clock import SystemClock
from contextos.trust.approvals.people import read_person
from contextos.workspace.engine.local import LocalEngine
from contextos.workspace.engine.resume import drive_due_runs
from tests.sessions import refund_calls, refund_session
from tests.world import TENANT, TestWorld, open_world, place_of, request

CHILDREN = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One process: what it does in which workspace, and the boundary at which it dies (None: it lives).

    `later_us` is how far its clock is ahead; `wait_s` is what it lets pass before it does anything.
    """

    act: str
    workspace: str
    log: str
    amount: int = 900
    payments: str = "keyed"
    kill_at: int | None = None
    by: str = "SIGKILL"
    later_us: int = 0
    lease_ttl_s: int = 180
    wait_s: float = 0


class ShiftedClock:
    """The machine's clock, `later_us` ahead: what a process sees that comes later."""

    def __init__(self, later_us: int) -> None:
        self._clock, self._later_us = SystemClock(), later_us

    def now_us(self) -> int:
        return self._clock.now_us() + self._later_us


class Boundaries:
    """Writes down every boundary that is passed, and dies at one. With `by` SIGSTOP it stops and may be continued."""

    def __init__(self, path: str, kill_at: int | None, by: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._kill_at, self._by, self._passed = kill_at, signal.Signals[by], 0

    def passes(self, side: str, what: str, **details: Any) -> None:
        os.write(self._file, json.dumps({"side": side, "what": what, **details}).encode() + b"\n")
        if self._passed == self._kill_at:
            os.kill(os.getpid(), self._by)
        self._passed += 1

    def refused(self, error: ContextOSError) -> None:
        """Write down what the store answered instead. It is no boundary."""
        os.write(self._file, json.dumps({"side": "refused", "what": "commit", "error": error.code}).encode() + b"\n")


class WatchedStore:
    """A store whose every commit has a boundary before it and one after it became durable."""

    def __init__(self, inner: Store, boundaries: Boundaries) -> None:
        self._inner, self._boundaries = inner, boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, batch: Batch) -> None:
        stated = {
            "run": batch.run,
            "entries": [[e.seq, e.kind, e.key] for e in batch.entries],
            "writes": sorted({write.collection for write in batch.writes}),
        }
        self._boundaries.passes("before", "commit", **stated)
        try:
            await self._inner.commit(batch)
        except ContextOSError as error:
            self._boundaries.refused(error)
            raise
        self._boundaries.passes("after", "commit", **stated)


class WatchedStores:
    def __init__(self, inner: Any, boundaries: Boundaries) -> None:
        self._inner, self._boundaries = inner, boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def tenant(self, tenant_id: str) -> Any:
        return WatchedStore(self._inner.tenant(tenant_id), self._boundaries)


class WatchedAdapter:
    """An adapter with a boundary before each call, and one after it happened and before its reply is returned."""

    def __init__(self, inner: Adapter, boundaries: Boundaries) -> None:
        self._inner, self._boundaries = inner, boundaries

    def describe(self) -> AdapterDefinition:
        return self._inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        asked = partial(self._inner.call, capability, args, context)
        reply: AdapterReply = await self._watched("call", capability, asked)
        return reply

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        asked = partial(self._inner.lookup, capability, idempotency_key, context)
        reply: AdapterReply | None = await self._watched("lookup", capability, asked)
        return reply

    async def _watched(self, what: str, capability: str, asked: Callable[[], Awaitable[Any]]) -> Any:
        name = f"{self._inner.describe().adapter_id}.{capability}"
        self._boundaries.passes("before", what, capability=name)
        try:
            return await asked()
        finally:
            self._boundaries.passes("after", what, capability=name)


async def opened(job: Job) -> TestWorld:
    """The workspace of a job, with its boundaries watched."""
    await asyncio.sleep(job.wait_s)
    boundaries = Boundaries(job.log, job.kill_at, job.by)
    path = Path(job.workspace)
    clock = ShiftedClock(job.later_us)
    world = await open_world(path, stores=place_of(path), clock=clock, payments=job.payments)
    for name, adapter in world.adapters.items():
        world.adapters[name] = WatchedAdapter(adapter, boundaries)
    world.deployment.config = replace(world.deployment.config, lease_ttl_us=job.lease_ttl_s * 1_000_000)
    ports = world.deployment.ports
    world.deployment.ports = replace(ports, stores=WatchedStores(ports.stores, boundaries))
    return world


async def found(world: TestWorld) -> RunView | None:
    """The one run of the workspace, if anything of one is durable."""
    index = await world.stores.tenant(TENANT).read("index")
    runs = sorted({entry.key for entry in index})
    assert len(runs) <= 1, f"one request left several runs: {runs}"
    return await world.deployment.view(TENANT, runs[0]) if runs else None


async def invoke(world: TestWorld, job: Job) -> dict[str, Any]:
    view = await world.invoke(request(job.amount, "req_crash"))
    return {"run_id": view.run_id, "state": view.state, "record": view.record}


async def approve(world: TestWorld, job: Job) -> dict[str, Any]:
    view = await found(world)
    assert view is not None, "there is a run to approve"
    try:
        view = await world.approve(view.run_id)
    except ApprovalRefused as error:
        return {"run_id": view.run_id, "state": error.reason}
    return {"run_id": view.run_id, "state": view.state}


async def finish(world: TestWorld, job: Job) -> dict[str, Any]:
    """The steps of a fresh process and a person after a crash; then the auditor's view."""
    durable = await found(world)
    await resume(world)
    resumed = await found(world)
    view = resumed or await world.invoke(request(job.amount, "req_crash"))
    steps = []
    for _ in range(3):
        if view.waiting is None:
            break
        steps.append(view.waiting["for"])
        if view.waiting["for"] == "approval":
            view = await world.approve(view.run_id)
        else:
            view = await settle(world, view.run_id)
    return {
        **(await audited(world, view, job.amount)),
        "waited_for": steps,
        "durable": durable and durable.state,
        "resumed": resumed and resumed.state,
    }


async def session(world: TestWorld, job: Job) -> dict[str, Any]:
    """A whole session of one refund by an agent, which says the same in every process; then the auditor's view."""
    gate = await refund_session(world, "ses_crash", job.amount)
    answers = []
    for tool, args, call_id in refund_calls(job.amount):
        answer = await gate.call(tool, args, call_id=call_id)
        if isinstance(answer, Waiting):
            with suppress(ApprovalRefused):
                await world.answer(gate.run_id)
            answer = await gate.call(tool, args, call_id=call_id)
        assert isinstance(answer, Done), f"{call_id}: {answer}"
        answers.append(answer.output)
    view = await gate.finish("approved", "the refund is paid")
    store = world.stores.tenant(TENANT)
    return {
        "run_id": view.run_id,
        "state": view.state,
        "record": view.record,
        "refunds": world.refunds(),
        "answers": answers,
        "verified": len(await verify.verify_tenant(store, TENANT, world.keys)),
        "replayed": (await replay(world.deployment, TENANT, view.run_id)).record_hash,
    }


async def resume(world: TestWorld) -> None:
    """As `contextos runs resume` does: the same function over this world's engine."""
    advance, stores = world.deployment.advance, world.deployment.ports.stores
    for driven in await drive_due_runs(world.deployment, LocalEngine(advance, stores, world.clock)):
        if driven.error is not None:
            raise driven.error


async def settle(world: TestWorld, run_id: str) -> RunView:
    """A person looks into the shop's books and says what they found."""
    return await world.settle(run_id, world.by_the_books())


async def audited(world: TestWorld, view: RunView, amount: int) -> dict[str, Any]:
    store = world.stores.tenant(TENANT)
    assert view.state in state_machine.ENDS, f"the run stands in `{view.state}`"
    entries = await store.read(view.run_id)
    replayed = await replay(world.deployment, TENANT, view.run_id)
    again = await world.invoke(request(amount, "req_crash"))
    return {
        "run_id": view.run_id,
        "state": view.state,
        "record": view.record,
        "refunds": world.refunds(),
        "entries": [[entry.seq, entry.kind, entry.key] for entry in entries],
        "signed": [head[0] for head in (await store.read_run(view.run_id)).heads],
        "verified": [asdict(one) for one in await verify.verify_tenant(store, TENANT, world.keys)],
        "control": [[one.kind, one.key, said_of_person(world, one)] for one in await store.read(CONTROL)],
        "replayed": asdict(replayed),
        "same_again": again.run_id == view.run_id and again.record == view.record,
    }


def said_of_person(world: TestWorld, line: Entry) -> Any:
    """What a line of `control` states of a person; None if it is about something else."""
    if line.kind != PERSON_LISTED:
        return None
    person = read_person(line, world.keys).person
    return person and person.to_json()


ACTS: dict[str, Callable[[TestWorld, Job], Awaitable[dict[str, Any]]]] = {
    "invoke": invoke,
    "approve": approve,
    "finish": finish,
    "session": session,
}


def child(job: Job, report: Path) -> None:
    """Do one job in this process and leave its report."""

    async def whole() -> dict[str, Any]:
        world = await opened(job)
        try:
            return await ACTS[job.act](world, job)
        finally:
            world.close()

    report.write_text(json.dumps(asyncio.run(whole())), "utf-8")


def run_all(jobs: list[Job], out: Path) -> list[dict[str, Any]]:
    """Fork a child per job, a few at a time; for each its report, or the signal that ended it.

    A child that stopped itself is left as it is until every other job is done, and then continued.
    """
    ended: dict[int, int] = {}
    running: dict[int, int] = {}
    stopped: dict[int, int] = {}
    for number, job in enumerate(jobs):
        if len(running) == CHILDREN:
            reap(running, ended, stopped)
        running[fork(job, out / f"{number}.json")] = number
    while running:
        reap(running, ended, stopped)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    while stopped:
        reap(stopped, ended, {})
    return [
        {"exit": ended[number]}
        | (json.loads((out / f"{number}.json").read_text("utf-8")) if ended[number] == 0 else {})
        for number in range(len(jobs))
    ]


def fork(job: Job, report: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        child(job, report)
        code = 0
    finally:
        # Whatever happened, a child may not go on as its parent.
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def reap(running: dict[int, int], ended: dict[int, int], stopped: dict[int, int]) -> None:
    """Wait until one child has ended or has stopped itself."""
    pid, status = os.waitpid(-1, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        stopped[pid] = running.pop(pid)
    else:
        ended[running.pop(pid)] = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    plan = Path(sys.argv[1])
    stated = [Job(**one) for one in json.loads(plan.read_text("utf-8"))]
    reports = plan.parent / "reports"
    reports.mkdir()
    (plan.parent / "answer.json").write_text(json.dumps(run_all(stated, reports)), "utf-8")
