"""The tool that the agents of `benchmarks.models` call. It costs nothing, and its module imports no package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def lookup(args: Mapping[str, Any], _context: Any) -> dict[str, Any]:
    """Return an order."""
    known = {"customer_id": "cus_77", "total_inr": 9900, "currency": "INR", "status": "delivered"}
    return {"order_id": args["order_id"], **known}
