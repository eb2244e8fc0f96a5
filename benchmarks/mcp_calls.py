"""A governed call to an MCP server in memory beside the bare call of the SDK and the journal's commits:
`python -m benchmarks.mcp_calls`.

All sides have the SDK's server in the same process and its transport in memory. The bare side is `tools/call` of the
SDK's client, nothing else. The governed sides are `gate.call` of a read in a warm session through the MCP adapter. One
lists the tools before each call to compare the definition, the other has a `definition_max_age_s` and lists them once.
The time of the commits is that of the second. What the same bytes cost as plain rows of another file is printed beside
it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from anyio import create_memory_object_stream, create_task_group
from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server import MCPServer
from mcp.shared.message import SessionMessage
from pydantic import BaseModel

from benchmarks import outside, refund_pack, sessions
from benchmarks.bars import folder, is_quick, note, ratio, report_bar
from benchmarks.deployed import new_folder
from benchmarks.gateway import Raw, size
from contextos.adapters.code import SourceCode
from contextos.adapters.function.loading import LoadedAdapters
from contextos.adapters.loop_thread import LoopThread
from contextos.adapters.mcp.adapter import McpAdapter
from contextos.adapters.mcp.connection import THREAD_NAME, McpSessions
from contextos.adapters.mcp.definitions import McpConnection, ToolOperation, tool_digest
from contextos.adapters.mcp.messages import MessageReader
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.deployment.deployment import Deployment
from contextos.deployment.gate.gate import Gate

CALLS = sessions.CALLS
BAR = 1.5
LABEL = "gate.call to an MCP server in memory / SDK call + commits"
AGED_LABEL = "the same with `definition_max_age_s`"
AGE_S = 300
CONNECTION = McpConnection(kind="mcp", command=("in-memory",))


class Order(BaseModel):
    order_id: str
    customer_id: str
    total_inr: int
    currency: str
    status: str


def made_server() -> MCPServer:
    """Return a server whose one tool costs nothing."""
    server = MCPServer("orders")

    @server.tool()
    def lookup(order_id: str) -> Order:
        """One order by its id."""
        return Order.model_validate(sessions.order(order_id))

    return server


class MemoryTransport:
    """The SDK's transport in memory in the place of a process or a URL. What the server says is read as theirs is."""

    received_bytes, stderr_tail = 0, b""

    def __init__(self, server: MCPServer) -> None:
        self._server, self.reader = server, MessageReader()

    @asynccontextmanager
    async def open(self, _over: asyncio.Event) -> AsyncGenerator[Any, None]:
        said, incoming = create_memory_object_stream[SessionMessage](16)
        outgoing, asked = create_memory_object_stream[SessionMessage](16)
        async with (
            said,
            incoming,
            outgoing,
            asked,
            InMemoryTransport(self._server) as ends,
            create_task_group() as tasks,
        ):
            answers, requests = ends
            tasks.start_soon(self._read, answers, said)
            tasks.start_soon(self._write, asked, requests)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()

    async def _read(self, answers: Any, said: Any) -> None:
        async for answer in answers:
            raw = answer.message.model_dump_json(by_alias=True, exclude_none=True).encode()
            for message in self.reader.read(raw):
                await said.send(SessionMessage(message))

    async def _write(self, asked: Any, requests: Any) -> None:
        async for request in asked:
            self.reader.sent(request.message)
            await requests.send(request)

    def kill(self) -> None:
        """Do nothing: there is no process."""


class MemorySessions(McpSessions):
    """Sessions with a server in this process."""

    def __init__(self, server: MCPServer, path: Path) -> None:
        super().__init__(CONNECTION, path, keeps=True)
        self._server = server

    def _make_transport(self, _access_token: str) -> Any:
        return MemoryTransport(self._server)


async def adapted(server: MCPServer, published: AdapterDefinition, path: Path, age_s: int | None) -> McpAdapter:
    """Return an adapter of the server with the definition of the pack, connected on a thread of its own. Its tool may
    be called on a list of `age_s` seconds.
    """
    thread, opened = LoopThread(THREAD_NAME), MemorySessions(server, path)

    async def listed() -> list[dict[str, Any]]:
        return await (await opened.session()).list_tools()

    (tool,) = await asyncio.wrap_future(thread.submit(listed()))
    said = {"tool": "lookup", "digest": tool_digest(tool), "output": "structured", "stated_read": True}
    operation = ToolOperation.model_validate(said | {"definition_max_age_s": age_s})
    definition = AdapterDefinition.model_validate(published.to_json() | {"type": "mcp"})
    adapter = McpAdapter(definition, CONNECTION, {"lookup": operation}, path)
    adapter._thread, adapter._sessions = thread, opened
    return adapter


async def bare_ms(client: Client) -> float:
    """Return the milliseconds of a call of the SDK's client, the mean of `CALLS`."""
    began = time.perf_counter_ns()
    for number in range(CALLS):
        answer = await client.call_tool("lookup", {"order_id": f"ord_{number}"})
        assert not answer.is_error
    return (time.perf_counter_ns() - began) / 1e6 / CALLS


async def governed_ms(gate: Gate, store: outside.Watched) -> tuple[float, float, list[int]]:
    """Return the ms of a governed call and of its commits, the means of `CALLS`, and the bytes of each commit."""
    await sessions.read(gate, 0)
    store.batches.clear()
    store.commits_us.clear()
    began = time.perf_counter_ns()
    for number in range(1, CALLS + 1):
        await sessions.read(gate, number)
    took_ms = (time.perf_counter_ns() - began) / 1e6 / CALLS
    return took_ms, sum(store.commits_us) / 1e3 / CALLS, [size(batch) for batch in store.batches]


async def opened(path: Path, server: MCPServer, age_s: int | None) -> tuple[Deployment, outside.Watched, McpAdapter]:
    """Return a deployment whose orders are behind the MCP server, its watched store, and the adapter. As of every MCP
    adapter, the code of this one is that of a file.
    """
    deployment, store = outside.watch(await sessions.opened(path, of_agent=True))
    adapters = dict(deployment.ports.adapters(refund_pack.TENANT))
    adapter = await adapted(server, adapters["adp_orders"].describe(), path, age_s)
    adapters["adp_orders"] = adapter
    code = SourceCode(LoadedAdapters((adapter,), content_address(adapter.describe().to_json()), made=True))
    deployment.ports = replace(deployment.ports, adapters=lambda _tenant: adapters, code=code)
    return deployment, store, adapter


async def measure(path: Path, rounds: int) -> None:
    server, raw = made_server(), Raw(path / "raw.db")
    deployment, store, adapter = await opened(new_folder(path, "strict"), server, None)
    second, second_store, second_adapter = await opened(new_folder(path, "aged"), server, AGE_S)
    governed, aged, commits, bare, floor, plain = [], [], [], [], [], []
    async with Client(InMemoryTransport(server), cache=None) as client:
        await bare_ms(client)
        # As docs/operating.md says to programs that embed the runtime.
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            call_ms, _, _ = await governed_ms(await sessions.session(deployment, number), store)
            aged_ms, commit_ms, sizes = await governed_ms(await sessions.session(second, number), second_store)
            governed.append(call_ms)
            aged.append(aged_ms)
            commits.append(commit_ms)
            bare.append(await bare_ms(client))
            floor.append(bare[-1] + commit_ms)
            plain.append(raw.commit(sizes) / 1e3 / CALLS)
    for label, taken in ((LABEL, governed), (AGED_LABEL, aged)):
        middle, best = ratio(taken, floor)
        report_bar(label, middle, BAR, "x", best=best, against=floor)
    with_rows = [one + other for one, other in zip(bare, plain, strict=True)]
    note("the first beside the SDK call + plain rows of the same bytes", f"{ratio(governed, with_rows)[0]:9.2f}x")
    text = (
        f"{median(governed):9.2f} ms, {median(aged):.2f} ms; "
        f"{median(bare):.2f} ms, {median(commits):.2f} ms in {len(sizes) / CALLS:g} commits"
    )
    note("gate.call, both; SDK call, commits, p50", text)
    for one in (adapter, second_adapter):
        one.close()
    outside.close(deployment)
    outside.close(second)


def main() -> None:
    with folder() as name:
        asyncio.run(measure(Path(name), 5 if is_quick() else 40))


if __name__ == "__main__":
    main()
