"""The MCP adapter as a client of one scenario of the conformance suite, which starts it with the URL of its server.

It drafts the adapter from what the server lists, calls every tool of the draft once, and prints what came of each. The
last line is `finished` if the server could be used.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from contextos.adapters.mcp.adapter import listed_tools
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.errors import ContextOSError, InvalidInput
from tests.servers.adapters import adapter_of, call_context

CALL_MS = 10_000
SAMPLES = {"number": 5, "integer": 5, "string": "text", "boolean": True, "array": [], "object": {}}


def arguments(schema: Any, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """A value for each required argument. A tool that asks for a schema gets the first tool's, as it is listed."""
    given = {name: SAMPLES[schema["properties"][name].get("type", "string")] for name in schema.get("required", ())}
    return given | ({"schema": listed[0]["inputSchema"]} if "schema" in given else {})


async def play(url: str, folder: Path) -> None:
    named = McpConnection.model_validate({"kind": "mcp", "url": url, "internal": True})
    listed = await listed_tools(named, folder)
    print("listed", [tool["name"] for tool in listed])
    try:
        file, rows = draft_adapter("suite", named, listed, Stated(local=True))
    except InvalidInput as error:
        print("nothing to call:", error)
        return
    for row in rows:
        print("drafted", row.tool, row.capability or row.why)
    adapter = adapter_of(file, folder)
    stated = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls", [])
    wanted = {one["name"]: one["arguments"] for one in stated}
    for one in adapter.describe().capabilities:
        args = wanted.get(one.name) or arguments(one.input_schema, listed)
        try:
            reply = await adapter.call(one.name, args, call_context(CALL_MS))
            print("called", one.name, reply.error.code if reply.error else "done")
        except ContextOSError as error:
            print("called", one.name, error)
    adapter.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        try:
            asyncio.run(play(sys.argv[1], Path(made)))
        except ContextOSError as error:
            sys.exit(f"{type(error).__name__}: {error}")
    print("finished")
