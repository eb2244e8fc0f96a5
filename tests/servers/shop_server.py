"""The tools of the refund example behind an MCP server made with the SDK: `shop_server.py FOLDER` speaks stdio, and
`shop_server.py FOLDER http` prints the port on which it serves streamable HTTP.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from listening import load_module, serve_mcp
from mcp.server import MCPServer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support_refund" / "shop.py"


def main(folder: str, transport: str = "stdio") -> None:
    books = load_module(EXAMPLE).Shop(Path(folder) / "shop.db")
    server = MCPServer("shop")

    @server.tool()
    def lookup(order_id: str) -> dict[str, Any]:
        """One order by its id."""
        found: dict[str, Any] = books.order(order_id)
        return found

    @server.tool(name="eval")
    def evaluate(order_id: str, amount_inr: int) -> dict[str, Any]:
        """Whether this refund is allowed."""
        found: dict[str, Any] = books.eligibility(order_id, amount_inr)
        return found

    @server.tool()
    def issue_refund(order_id: str, amount_inr: int, currency: str, key: str) -> dict[str, Any]:
        """Pay money back."""
        paid: dict[str, Any] = books.refund(order_id, amount_inr, currency, key, "keyed")
        return paid

    @server.resource("memo://returns")
    def returns() -> str:
        """The returns policy."""
        return "Returns within 30 days."

    serve_mcp(server, transport)


if __name__ == "__main__":
    main(*sys.argv[1:])
