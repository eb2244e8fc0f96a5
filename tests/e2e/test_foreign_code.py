"""Whatever a function of an adapter answers or raises, its run ends or waits in a typed way, and the journal holds."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from tests.e2e.test_verdicts import audited
from tests.world import TENANT, TestWorld, open_world, request, run

LOST = {"a key that is not a text": {1: 2}, "no object": 7, "nothing": None, "a cost without bounds": (1e300,)}
TOLD = {
    "a long error": BusinessError("c" * 900, "m" * 400_000),
    "half a character": BusinessError("x", "\ud800"),
    "a code that is not a text": BusinessError(404, "gone"),
    "a key within": {"a": {1: 2}},  # type: ignore[arg-type]
    "an object within": {"a": object()},
    "no number": {"a": float("nan")},
}


def answering(world: TestWorld, adapter_id: str, answer: Any) -> None:
    """Put an adapter in its place that declares the same and always answers this."""
    definition = world.adapters[adapter_id].describe()

    def function(args: Mapping[str, Any], context: CallContext) -> Any:
        if isinstance(answer, BusinessError):
            raise answer
        return AdapterReply(output={}, cost_cents=answer[0]) if isinstance(answer, tuple) else answer

    world.adapters[adapter_id] = FunctionAdapter(definition, {one.name: function for one in definition.capabilities})


@pytest.mark.parametrize("name", LOST | TOLD)
@pytest.mark.parametrize("adapter_id", ["adp_orders", "adp_payments"])
def test_no_answer_of_foreign_code_escapes(adapter_id: str, name: str, tmp_path: Path) -> None:
    async def go() -> None:
        # Without a key nothing is sent again.
        world = await open_world(tmp_path, payments="none")
        answering(world, adapter_id, (LOST | TOLD)[name])
        view = await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        if adapter_id == "adp_payments" and name in LOST:
            assert view.waiting is not None
            assert view.waiting["for"] == "settlement", "it may have happened; only a person can tell"
        else:
            assert view.state == "escalated"
            await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("A-LATE-WRITE")
@pytest.mark.parametrize("payments", ["none", "keyed"])
def test_a_write_that_waited_for_a_thread_past_its_time_is_not_sent(tmp_path: Path, payments: str) -> None:
    """The clock goes past `not_after` while the adapter's only thread is taken."""
    free, calls = threading.Event(), list[str]()

    def pay(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        calls.append(context.run_id)
        free.wait(10)
        return {"transaction_id": "txn_1", "refund_amount_inr": 900, "currency": "INR"}

    async def go() -> None:
        world = await open_world(tmp_path, payments=payments)
        made = FunctionAdapter(world.adapters["adp_payments"].describe(), {"issue_refund": pay}, threads=1)
        world.adapters["adp_payments"] = made
        other = CallContext("tenant_other", "run_other", "tool_1", "ik_0123456789abcdef", 0, 60_000)
        taken = asyncio.ensure_future(made.call("issue_refund", {}, other))
        asked = asyncio.ensure_future(world.invoke(request(900, "req_1")))
        while not made._threads._running[TENANT]:  # noqa: ASYNC110 - the runtime puts it there
            await asyncio.sleep(0.001)
        world.clock.at_us += 20_000_000
        free.set()
        view, _ = await asyncio.gather(asked, taken)
        outcomes = [
            json.loads(one.body or b"")["answer"]["outcome"]
            for one in await world.stores.tenant(TENANT).read(view.run_id)
            if one.kind == "tool.returned"
        ]
        sent = [view.run_id] if payments == "keyed" else []
        assert calls == ["run_other", *sent], "only a keyed effect is sent again, with a time of its own"
        assert (view.state, outcomes[2]) == ("completed" if sent else "escalated", "not_sent")
        await audited(world, view)
        world.close()

    run(go())
