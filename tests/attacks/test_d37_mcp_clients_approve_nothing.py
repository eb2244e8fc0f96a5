"""D37: an MCP client that accepts every question, answers for others, or repeats itself moves no money."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, types

from tests.mcp_face import (
    CHECK,
    EVAL,
    LOOKUP,
    ORDER,
    PAY,
    REFUND,
    answer,
    cli,
    refund_workspace,
    refunds,
    stdio,
    with_client,
)

METHODS = ["tasks/update", "tasks/result", "approvals/approve", "elicitation/create", "sampling/createMessage"]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_a_client_that_accepts_everything_is_asked_nothing_and_moves_no_money(tmp_path: Path, mode: str) -> None:
    workspace, asked = refund_workspace(tmp_path / "shop"), []

    async def accept(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"approved": True})

    async def play(client: Client) -> None:
        for name, args in ((LOOKUP, ORDER), (EVAL, CHECK)):
            assert not (await client.call_tool(name, args)).is_error
        for more in ({}, {"approved": True}, {"approval": "yes"}, {"idempotency_key": "ik_0000000000000000"}):
            result = await client.call_tool(REFUND, {**PAY, **more})
            assert result.is_error
        answers = {"approval": {"action": "accept", "content": {"approved": True}}}
        if mode != "legacy":
            result = await client.session.call_tool(REFUND, PAY, input_responses=answers, request_state="approved")
            assert result.is_error
        for method in METHODS:
            params = {"taskId": "mcp_3", "inputResponses": answers}
            request: Any = types.Request[dict[str, Any], str](method=method, params=params)
            with pytest.raises((MCPError, TypeError, ValueError)):
                await client.session.send_request(request, types.Result)

    with_client(stdio(workspace), play, mode=mode, elicitation_callback=accept)
    assert (asked, refunds(workspace)) == ([], [])
    assert answer(workspace) == 5, "the question still waits for the finance lead: the test can fail"

    async def pay(client: Client) -> None:
        assert not (await client.call_tool(REFUND, PAY)).is_error

    with_client(stdio(workspace), pay)
    assert refunds(workspace) == [4200]


def test_an_approved_call_that_is_repeated_a_hundred_times_pays_once(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")

    async def begin(client: Client) -> None:
        for name, args in ((LOOKUP, ORDER), (EVAL, CHECK), (REFUND, PAY)):
            await client.call_tool(name, args)

    async def repeat(client: Client) -> None:
        async def pay() -> None:
            assert not (await client.call_tool(REFUND, dict(reversed(PAY.items())))).is_error

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(pay)

    with_client(stdio(workspace), begin)
    assert answer(workspace) == 5
    with_client(stdio(workspace), repeat)
    assert refunds(workspace) == [4200]


def test_an_approval_of_one_amount_pays_no_other(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")

    async def begin(client: Client) -> None:
        for name, args in ((LOOKUP, ORDER), (EVAL, CHECK), (REFUND, PAY)):
            await client.call_tool(name, args)

    async def pay_more(client: Client) -> None:
        assert (await client.call_tool(REFUND, {**PAY, "amount_inr": 9000})).is_error

    with_client(stdio(workspace), begin)
    assert answer(workspace) == 5
    with_client(stdio(workspace), pay_more)
    assert refunds(workspace) == [4200], "what was approved, and nothing else"


def test_a_client_that_sends_junk_gets_errors_and_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    workspace = refund_workspace(tmp_path / "shop")

    async def play(client: Client) -> None:
        for name in ("", "x" * 500, "adp_orders.lookup\n", "../finish_session", "finish_session "):
            result = await client.call_tool(name, {})
            assert result.is_error
            assert "Traceback" not in json.dumps(result.structured_content)
        nested: Any = {}
        for _ in range(60):
            nested = {"x": nested}
        for args in ({"order_id": nested}, {"order_id": "y" * 400_000}, {"order_id": None}):
            assert (await client.call_tool(LOOKUP, args)).is_error
        assert not (await client.call_tool(LOOKUP, ORDER)).is_error

    with_client(stdio(workspace), play)
    assert "all verify" in cli(workspace, "verify").stdout
