"""A stand-in for `npx mcp-inspector --cli --config FILE … --method tools/call …`: one call by the SDK's client.

The result is printed as JSON; the exit code is 5 where it is an error, as it is of the inspector.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from mcp import Client, types
from mcp.client.stdio import StdioServerParameters


async def called(server: StdioServerParameters, name: str, arguments: dict[str, str]) -> types.CallToolResult:
    async with Client(server) as client:
        return await client.call_tool(name, arguments)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for option in ("--config", "--server", "--method", "--tool-name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--cli", action="store_true", required=True)
    parser.add_argument("--tool-arg", action="append", default=[])
    assert words[0] == "mcp-inspector"
    said = parser.parse_args(words[1:])
    assert said.method == "tools/call"
    entry = json.loads(Path(said.config).read_text("utf-8"))["mcpServers"][said.server]
    arguments = dict(one.split("=", 1) for one in said.tool_arg)
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))
    result = asyncio.run(called(server, said.tool_name, arguments))
    print(json.dumps(result.model_dump(by_alias=True, exclude_none=True, mode="json"), indent=2))
    return 5 if result.is_error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
