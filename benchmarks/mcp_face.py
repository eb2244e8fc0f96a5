"""`contextos mcp serve` beside a plain proxy made with the SDK, both in front of the same MCP server:
`python -m benchmarks.mcp_face`.

Client, proxy and server are the SDK's, over stdio, each a process of its own. The proxy forwards `tools/list` and
`tools/call` and nothing else. The server has one read that costs nothing. Four clients take turns in one run: two call
through ContextOS, with policy, record and two durable commits, one through the proxy, one the server itself. For one of
the two the server is asked for its tools before each call; the adapter of the other has a `definition_max_age_s`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.bars import folder, is_quick, note, ratio, report_bar

BAR = 2.0
CALLS = 40
WARM = 4
LABEL = "tools/call through `contextos mcp serve` / through a plain proxy, p50"
AGED_LABEL = "the same with `definition_max_age_s`"
AGE_S = 300
ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

SERVER = '''\
from mcp.server import MCPServer
from pydantic import BaseModel


class Ticket(BaseModel):
    number: int
    title: str


server = MCPServer("desk")


@server.tool()
def look_up(number: int) -> Ticket:
    """One ticket of the help desk."""
    return Ticket(number=number, title="A late parcel")


server.run()
'''

PROXY = """\
import asyncio
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def main():
    async with Client(StdioServerParameters(command=sys.executable, args=sys.argv[1:]), cache=None) as behind:

        async def list_tools(context, request):
            return await behind.list_tools()

        async def call_tool(context, request):
            return await behind.call_tool(request.name, request.arguments)

        server = Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
"""

PACK = f"""\
name: acme.desk
version: 0.1.0
tenant: tenant_dev
who: [developer]
approver: approver
tools: [desk.look_up]
budget:
  max_tool_calls: {CALLS + WARM}
"""


def contextos(*words: str) -> list[str]:
    return [sys.executable, "-m", "contextos.cli", *words]


def made_workspace(path: Path, name: str, age_s: int | None) -> Path:
    """Make a workspace whose only tool is that of the server, with its pack in force. The tool may be called on a list
    of `age_s` seconds.
    """
    workspace, server = path / name, path / "desk.py"
    file = workspace / "adapters" / "desk.json"
    server.write_text(SERVER)
    (path / "proxy.py").write_text(PROXY)
    at = ["-w", str(workspace)]
    draft = ["desk", "--local", "--read", "look_up", *at, "--", sys.executable, str(server)]
    for words in (["init", str(workspace), "--from", "empty"], ["adapters", "add", "mcp", *draft]):
        subprocess.run(contextos(*words), check=True, capture_output=True, env=ENVIRONMENT)
    said = json.loads(file.read_text("utf-8"))
    said["operations"]["look_up"]["definition_max_age_s"] = age_s
    file.write_text(json.dumps(said), "utf-8")
    publish = ["adapters", "publish", str(file), *at]
    subprocess.run(contextos(*publish), check=True, capture_output=True, env=ENVIRONMENT)
    (workspace / "packs" / "acme.desk.yaml").write_text(PACK)
    apply = ["apply", "--by", "dev", "--key", str(workspace / "keys" / "dev.key"), *at]
    subprocess.run(contextos(*apply), check=True, capture_output=True, env=ENVIRONMENT)
    return workspace


def started(words: list[str]) -> StdioServerParameters:
    return StdioServerParameters(command=words[0], args=words[1:], env=ENVIRONMENT)


async def called_ms(client: Client, tool: str, number: int) -> float:
    """Return the milliseconds of one `tools/call`."""
    began = time.perf_counter_ns()
    answer: Any = await client.call_tool(tool, {"number": number})
    took_ms = (time.perf_counter_ns() - began) / 1e6
    assert not answer.is_error, answer
    return took_ms


async def measure_session(path: Path, spaces: Sequence[Path], session: str, calls: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call of one session, and of the same calls without ContextOS."""
    who = ["--agent", "agt_dev", "--user", "dev", "--delegation", "tok_dev", "--session", session]
    server = [sys.executable, str(path / "desk.py")]
    sides = {
        **{one.name: (contextos("mcp", "serve", "-w", str(one), *who), "desk__look_up") for one in spaces},
        "proxy": ([sys.executable, str(path / "proxy.py"), server[1]], "look_up"),
        "server": (server, "look_up"),
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    with (path / "stderr").open("a") as stderr:
        async with AsyncExitStack() as stack:
            clients = {}
            for name, (words, tool) in sides.items():
                transport = stdio_client(started(words), errlog=stderr)
                clients[name] = (await stack.enter_async_context(Client(transport, cache=None)), tool)
            for number in range(calls + WARM):
                for name, (client, tool) in clients.items():
                    taken[name].append(await called_ms(client, tool, number))
    return {name: times[WARM:] for name, times in taken.items()}


async def measure(path: Path, sessions: int, calls: int = CALLS) -> None:
    spaces = [made_workspace(path, "strict", None), made_workspace(path, "aged", AGE_S)]
    taken: dict[str, list[float]] = {"strict": [], "aged": [], "proxy": [], "server": []}
    for number in range(sessions):
        for name, times in (await measure_session(path, spaces, f"s{number}", calls)).items():
            taken[name] += times
    p50 = {name: median(times) for name, times in taken.items()}
    for name, label in (("strict", LABEL), ("aged", AGED_LABEL)):
        best = min(taken[name]) / min(taken["proxy"])
        report_bar(label, p50[name] / p50["proxy"], BAR, "x", best=best, against=taken["proxy"])
        note("median of the ratios of each call", f"{ratio(taken[name], taken['proxy'])[0]:9.2f}x")
    text = f"{p50['strict']:9.2f} ms, {p50['aged']:.2f} ms, {p50['proxy']:.2f} ms, {p50['server']:.2f} ms"
    note("through ContextOS (both), through the proxy, the server itself, p50", text)


def main() -> None:
    with folder() as name:
        asyncio.run(measure(Path(name), 2 if is_quick() else 6))


if __name__ == "__main__":
    main()
