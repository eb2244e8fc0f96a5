"""Long work leaves the event loop free, is bounded for each tenant, and stops when its time is over."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from contextos.errors import NotFound, Overloaded
from contextos.server.operate.work import MAX_JOBS, Work, WorkTime
from contextos.server.problems import HttpProblem
from contextos_sim.memory.stores import MemoryStores


async def held(work: Work, tenant: str, go: threading.Event) -> str:
    async def job(_time: WorkTime) -> str:
        # As work that never gives the event loop a turn.
        assert go.wait(60)
        return tenant

    return await work.do(tenant, job)


def test_the_loop_goes_on_while_a_job_computes() -> None:
    async def scenario() -> str:
        go = threading.Event()
        task = asyncio.ensure_future(held(Work(asyncio.Event(), MemoryStores()), "a", go))
        await asyncio.sleep(0)
        go.set()
        return await task

    assert asyncio.run(scenario()) == "a"


def test_a_tenant_has_one_job_and_the_server_a_few() -> None:
    async def scenario() -> None:
        work, go = Work(asyncio.Event(), MemoryStores()), threading.Event()
        tasks = [asyncio.ensure_future(held(work, f"tenant_{number}", go)) for number in range(MAX_JOBS)]
        await asyncio.sleep(0)
        for tenant in ("tenant_0", "tenant_of_nobody"):
            with pytest.raises(Overloaded) as refused:
                await held(work, tenant, go)
            assert refused.value.retry_after_ms > 0
        go.set()
        await asyncio.gather(*tasks)
        assert await held(work, "tenant_0", go) == "tenant_0"

    asyncio.run(scenario())


def test_a_job_whose_caller_went_away_keeps_its_place_until_it_ends() -> None:
    async def scenario() -> None:
        work, go = Work(asyncio.Event(), MemoryStores()), threading.Event()
        task = asyncio.ensure_future(held(work, "a", go))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(Overloaded):
            await held(work, "a", go)
        go.set()
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0)
                with suppress(Overloaded):
                    assert await held(work, "a", go) == "a"
                    return

    asyncio.run(scenario())


def test_what_a_job_raises_is_raised_and_frees_its_place() -> None:
    async def scenario() -> None:
        work = Work(asyncio.Event(), MemoryStores())

        async def job(_time: WorkTime) -> None:
            raise NotFound("nothing")

        for _ in range(3):
            with pytest.raises(NotFound):
                await work.do("a", job)

    asyncio.run(scenario())


def test_connections_of_the_loop_of_a_job_are_closed_when_it_ends() -> None:
    left: list[int] = []

    class Connected(MemoryStores):
        async def leave_loop(self) -> None:
            left.append(threading.get_ident())

    async def scenario() -> int:
        async def job(_time: WorkTime) -> int:
            return threading.get_ident()

        return await Work(asyncio.Event(), Connected()).do("a", job)

    thread = asyncio.run(scenario())
    assert (left, thread != threading.get_ident()) == ([thread], True)


def test_work_stops_when_its_time_is_over_or_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = asyncio.Event()
    WorkTime(stopping).check()
    with monkeypatch.context() as patched:
        patched.setattr("contextos.server.operate.work.MAX_WORK_S", -1)
        late = WorkTime(stopping)
    with pytest.raises(HttpProblem) as over:
        late.check()
    assert (over.value.status_code, over.value.code) == (422, "too_much_work")
    stopping.set()
    with pytest.raises(HttpProblem) as stopped:
        WorkTime(stopping).check()
    assert (stopped.value.status_code, stopped.value.code) == (503, "stopping")
