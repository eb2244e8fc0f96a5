"""The ids of an MCP client's calls: which calls are the same one, after a crash and in two processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.contracts.envelopes.tool import CallContext
from contextos.contracts.ports.gates import MAX_ARGS_BYTES, Done, Refused, Waiting
from contextos.errors import InvalidInput
from contextos.server.mcp.calls import SessionCalls
from tests.sessions import in_world, refund_args, refund_session
from tests.world import TestWorld

LOOKUP, EVAL, REFUND = "adp_orders__lookup", "adp_policy__eval", "adp_payments__issue_refund"
ORDER = {"order_id": "ord_881"}


async def opened(world: TestWorld) -> SessionCalls:
    return await SessionCalls.of(await refund_session(world, "s1"))


async def read_first(calls: SessionCalls) -> None:
    for name, args in ((LOOKUP, ORDER), (EVAL, {**ORDER, "amount_inr": 4200})):
        assert isinstance(await calls.call(name, args), Done)


def test_a_write_that_was_done_is_the_same_call_for_ever(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        calls = await opened(world)
        await read_first(calls)
        waits = await calls.call(REFUND, refund_args())
        assert isinstance(waits, Waiting)
        await world.approve(calls.gate.run_id)
        for process in (calls, await opened(world), await opened(world)):
            done = await process.call(REFUND, refund_args())
            assert isinstance(done, Done)
            assert done.call_id == waits.call_id
        assert [one["amount_inr"] for one in world.refunds()] == [4200]

    in_world(tmp_path, play)


def test_a_call_that_was_refused_for_missing_evidence_is_judged_again(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        calls = await opened(world)
        assert isinstance(await calls.call(REFUND, refund_args()), Refused)
        await read_first(calls)
        assert isinstance(await calls.call(REFUND, refund_args()), Waiting)

    in_world(tmp_path, play)


def test_a_new_process_gives_the_recorded_answer_of_the_newest_call_once(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        first = await (await opened(world)).call(LOOKUP, ORDER)
        after = await opened(world)
        again, fresh = await after.call(LOOKUP, ORDER), await after.call(LOOKUP, ORDER)
        assert isinstance(again, Done)
        assert (again.call_id, again.replayed) == (first.call_id, True)
        assert fresh.call_id != first.call_id

    in_world(tmp_path, play)


def test_a_read_after_another_call_of_a_new_process_reads_again(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        first = await (await opened(world)).call(LOOKUP, ORDER)
        after = await opened(world)
        await after.call(EVAL, {**ORDER, "amount_inr": 900})
        fresh = await after.call(LOOKUP, ORDER)
        assert isinstance(fresh, Done)
        assert (fresh.call_id != first.call_id, fresh.replayed) == (True, False)

    in_world(tmp_path, play)


def test_two_processes_of_one_session_never_use_one_id_for_two_calls(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        one, other = await opened(world), await opened(world)
        asked: list[Any] = []
        for amount in (100, 200, 300):
            for process in (one, other):
                asked.append(await process.call(EVAL, {**ORDER, "amount_inr": amount + len(asked)}))
        assert len({answer.call_id for answer in asked}) == len(asked)

    in_world(tmp_path, play)


def test_equal_calls_at_once_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        calls = await opened(world)
        answers = await asyncio.gather(*(calls.call(LOOKUP, ORDER) for _ in range(3)))
        assert len({answer.call_id for answer in answers}) == 3

    in_world(tmp_path, play)


def test_what_is_no_call_is_refused_and_not_on_record(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        calls = await opened(world)
        for args in ({"order_id": float("nan")}, {"order_id": "\ud800"}):
            assert isinstance(await calls.call(LOOKUP, args), Refused)
        for asks in (calls.again("mcp_1"), calls.times_of("mcp_1")):
            with pytest.raises(InvalidInput, match="the session has no call"):
                await asks

    in_world(tmp_path, play)


def test_arguments_that_the_gate_refuses_as_too_large_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(world: TestWorld) -> None:
        calls = await opened(world)
        searched: list[object] = []
        monkeypatch.setattr("contextos.server.mcp.calls.cleanse_text", lambda _, value: searched.append(value))
        assert isinstance(await calls.call(LOOKUP, {"order_id": "x" * MAX_ARGS_BYTES}), Refused)
        assert searched == []

    in_world(tmp_path, play)


def test_a_write_that_failed_is_made_anew_by_a_client_that_polled_its_task(tmp_path: Path) -> None:
    def fail(_args: Any, _context: CallContext) -> Any:
        raise BusinessError("closed", "the till is closed")

    async def play(world: TestWorld) -> None:
        payments = world.adapters["adp_payments"].describe()
        world.adapters["adp_payments"] = FunctionAdapter(payments, {"issue_refund": fail})
        calls = await opened(world)
        await read_first(calls)
        ids = []
        for _ in range(2):
            waits = await calls.call(REFUND, refund_args())
            assert isinstance(waits, Waiting), waits
            await world.approve(calls.gate.run_id)
            for _ in range(2):
                polled = await calls.again(waits.call_id)
                assert isinstance(polled, Done)
                assert polled.error is not None
            ids.append(waits.call_id)
        newest = await calls.call(REFUND, refund_args())
        assert isinstance(await calls.again(ids[0]), Done)
        assert (await calls.call(REFUND, refund_args())).call_id == newest.call_id, "an old task changes no newer call"
        assert len({*ids, newest.call_id}) == 3

    in_world(tmp_path, play)
