"""A caller who gets `Unavailable`, or who gives up, at any boundary, and asks again: one refund, one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.errors import ApprovalRefused, ContextOSError, Unavailable
from tests.e2e.crash_driver import WatchedAdapter, WatchedStores
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

ENOUGH = 64
"""More boundaries than the run has; the tests stop at the first that it does not reach."""
LATER_US = 7_000_000


class Faults:
    """Raises at the boundary `at`, once. Whatever was durable by then stays so, as when only the reply is lost."""

    def __init__(self, at: int, fault: Callable[[], BaseException]) -> None:
        self._at, self._fault, self.passed = at, fault, 0
        self.caller: asyncio.Task[Any] | None = None
        self.raised: str | None = None

    def passes(self, side: str, what: str, **_details: Any) -> None:
        self.passed += 1
        # An adapter answers in its own terms; here the store fails, and the caller is cancelled anywhere.
        if self.passed - 1 == self._at and (what == "commit" or self._fault is asyncio.CancelledError):
            self.raised = f"{side} {what}"
            if self._fault is asyncio.CancelledError and self.caller is not asyncio.current_task():
                # An adapter has a task of its own; a caller that gives up cancels the task that waits for it.
                assert self.caller is not None
                self.caller.cancel()
            raise self._fault()

    def refused(self, error: ContextOSError) -> None:
        """A run that was given up releases its lease, and the store refuses that where its commit was durable."""


def unavailable() -> Unavailable:
    return Unavailable("store", "the disk is slow", retry_after_ms=1)


async def watched(path: Path, faults: Faults) -> TestWorld:
    world, faults.caller = await open_world(path), asyncio.current_task()
    world.adapters["adp_payments"] = DownAtFirst(world.adapters["adp_payments"])  # type: ignore[assignment]
    boundaries: Any = faults
    for name, adapter in world.adapters.items():
        world.adapters[name] = WatchedAdapter(adapter, boundaries)
    ports = world.deployment.ports
    world.deployment.ports = replace(ports, stores=WatchedStores(ports.stores, boundaries))
    return world


async def patiently(world: TestWorld, act: Callable[[], Awaitable[Any]]) -> Any:
    """Do it, and once more after the fault: as a caller who got a retry time, or one who lost patience."""
    try:
        return await act()
    except (Unavailable, asyncio.CancelledError):
        world.clock.at_us += LATER_US
        return await act()


class DownAtFirst:
    """Payments that are down when they are asked first, so that between two attempts there is a boundary too."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._down = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        if self._down:
            self._down = False
            raise Unavailable("adp_payments", "it is down")
        return await self._inner.call(capability, args, context)


async def refunded(world: TestWorld, amount: int) -> None:
    body = request(amount, "req_again")

    async def approve() -> Any:
        return await world.approve(view.run_id)

    view = await patiently(world, lambda: world.invoke(body))
    if view.waiting:
        try:
            view = await patiently(world, approve)
        except ApprovalRefused as refused:
            # The answer was durable although nobody was informed; the next caller drives the run on.
            assert refused.reason == "already_answered"
            view = await world.invoke(body)
    # The payments were down at first, and the run waits before it asks them again.
    view = view if view.ended else await patiently(world, lambda: world.invoke(body))
    again = await world.invoke(body)
    assert view.state == "completed"
    assert (again.run_id, again.record) == (view.run_id, view.record)
    assert [paid["transaction_id"] for paid in world.refunds()] == [view.record["outputs"]["transaction_id"]]
    streams = await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    assert [(one.stream, one.ended) for one in streams if one.stream.startswith("run_")] == [(view.run_id, True)]
    replayed = await replay(world.deployment, TENANT, view.run_id)
    assert replayed.record_hash == view.record["record_hash"]
    world.close()


@pytest.mark.parametrize("fault", [unavailable, asyncio.CancelledError], ids=["unavailable", "cancelled"])
@pytest.mark.parametrize("amount", [900, 4200])
def test_asking_again_after_a_fault_at_any_boundary_refunds_once(
    amount: int, fault: Callable[[], BaseException], tmp_path: Path
) -> None:
    met = set()
    for at in range(ENOUGH):
        faults = Faults(at, fault)

        path = tmp_path / str(at)
        path.mkdir()

        async def whole(faults: Faults = faults, path: Path = path) -> None:
            await refunded(await watched(path, faults), amount)

        run(whole())
        if faults.passed <= at:
            break
        met.add(faults.raised)
    else:
        pytest.fail("the run has more boundaries than are tried")
    assert met >= {"before commit", "after commit"}
