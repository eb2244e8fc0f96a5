"""What a call costs to check against 1,000 registered capabilities: `python -m benchmarks.definitions`.

All are tools of one MCP server, which is the most that one lists. A call is looked up in the registry, the definition
that the server lists is compared with the published digest, and arguments and result are checked with the published
schemas. Only this is measured, with the CPU time of the thread; how long the server takes to send its list is printed
beside it, for a server in memory.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

from mcp import Client
from mcp.server.lowlevel import Server
from mcp.types import ListToolsResult, Tool

from benchmarks.bars import is_quick, note, report_bar
from contextos.action.registry import Registry
from contextos.adapters.mcp.connection import MAX_TOOLS
from contextos.adapters.mcp.definitions import ToolOperation, is_as_published, tool_digest
from contextos.contracts.envelopes.tool import AdapterDefinition

CALLS = 200
BAR_US = 50.0
LABEL = f"definition and schemas of a call, {MAX_TOOLS:,} capabilities, p50"
ARGS = {"order_id": "ord_881", "amount_inr": 4200, "note": "a late parcel", "tags": ["one", "two"]}
OUTPUT = {"transaction_id": "txn_1", "refund_amount_inr": 4200, "currency": "INR", "lines": [{"sku": "a", "count": 1}]}
TEXT = {"type": "string", "maxLength": 200}
INPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["order_id", "amount_inr"],
    "properties": {
        "order_id": {"type": "string", "pattern": "^ord_[0-9]+$", "description": "The id of the order."},
        "amount_inr": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "note": TEXT,
        "tags": {"type": "array", "items": TEXT, "maxItems": 8},
    },
}
LINE = {"type": "object", "additionalProperties": False, "properties": {"sku": TEXT, "count": {"type": "integer"}}}
OUTPUT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["transaction_id"],
    "properties": {
        "transaction_id": TEXT,
        "refund_amount_inr": {"type": "integer"},
        "currency": {"enum": ["INR", "EUR"]},
        "lines": {"type": "array", "items": LINE, "maxItems": 100},
    },
}


def listed_tools() -> list[dict[str, Any]]:
    """Return what a server lists: tools of one shape, each with a description of its own."""
    return [
        {
            "name": f"refund_{number}",
            "title": f"Refund {number}",
            "description": f"Pays an order of shop {number} back. The amount is at most what was paid, in rupees.",
            "inputSchema": INPUT_SCHEMA,
            "outputSchema": OUTPUT_SCHEMA,
            "annotations": {"readOnlyHint": False, "destructiveHint": True},
        }
        for number in range(MAX_TOOLS)
    ]


def definition(listed: list[dict[str, Any]]) -> AdapterDefinition:
    capabilities = [
        {
            "name": tool["name"],
            "kind": "write",
            "risk_level": "write_irreversible",
            "approval_mode": "destructive",
            "input_schema": tool["inputSchema"],
            "output_schema": tool["outputSchema"],
            "idempotency": {"strategy": "none"},
            "description": tool["description"],
        }
        for tool in listed
    ]
    body = {"adapter_id": "shops", "type": "mcp", "version": "1", "capabilities": capabilities}
    return AdapterDefinition.model_validate(body)


def checked_us(rounds: int) -> list[float]:
    """Return the µs of a call, the mean of `CALLS`, for each round."""
    listed, registry, taken = listed_tools(), Registry(), []
    registered = registry.register((definition(listed),))
    operations = {
        f"shops.{tool['name']}": ToolOperation(tool=tool["name"], digest=tool_digest(tool), output="structured")
        for tool in listed
    }
    for turn in range(rounds):
        began = time.thread_time_ns()
        for number in range(CALLS):
            name = f"shops.refund_{(turn * CALLS + number) * 7 % MAX_TOOLS}"
            capability = registered[name]
            fits = is_as_published(operations[name], listed)
            faults = registry.check(capability, "input", ARGS), registry.check(capability, "output", OUTPUT)
            assert (fits, *faults) == (True, None, None), name
        taken.append((time.thread_time_ns() - began) / 1e3 / CALLS)
    return taken


async def listing_ms(rounds: int) -> list[float]:
    """Return the ms in which the SDK's client lists all tools of a server in memory."""
    tools = [Tool.model_validate(tool) for tool in listed_tools()]

    async def on_list(_context: Any, _request: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    taken = []
    async with Client(Server("shops", on_list_tools=on_list), cache=None) as client:
        for _ in range(rounds):
            began = time.perf_counter_ns()
            assert len((await client.list_tools()).tools) == MAX_TOOLS
            taken.append((time.perf_counter_ns() - began) / 1e6)
    return taken


def report(rounds: int) -> None:
    taken = checked_us(rounds)
    report_bar(LABEL, median(taken), BAR_US, " us", best=min(taken))
    listing = asyncio.run(listing_ms(max(3, rounds // 10)))
    note(f"the SDK lists {MAX_TOOLS:,} tools of a server in memory, p50", f"{median(listing):9.2f} ms")


def main() -> None:
    report(20 if is_quick() else 100)


if __name__ == "__main__":
    main()
