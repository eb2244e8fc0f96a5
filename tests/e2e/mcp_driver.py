"""`python -m tests.e2e.mcp_driver WORKSPACE [URL]`: a client of the SDK that asks for the refund, and hangs when it
waits. It is killed there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from tests.mcp_face import CHECK, EVAL, LOOKUP, ORDER, PAY, REFUND, TOKEN, http, stdio, with_client


async def play(client: Client) -> None:
    for name, args in ((LOOKUP, ORDER), (EVAL, CHECK), (REFUND, PAY)):
        result = await client.call_tool(name, args)
    assert result.structured_content is not None
    print(result.structured_content["status"], flush=True)
    await anyio.sleep_forever()


def server(words: list[str]) -> Any:
    return http(words[1], TOKEN) if len(words) > 1 else stdio(Path(words[0]))


if __name__ == "__main__":
    with_client(server(sys.argv[1:]), play)
