"""Adapters over the foreign servers of tests, and the calls that tests make through them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contextos.adapters.a2a.adapter import A2aAdapter
from contextos.adapters.a2a.connection import AgentConnection
from contextos.adapters.a2a.definitions import A2aConnection
from contextos.adapters.a2a.drafting import card_url, draft_agent
from contextos.adapters.foreign.adapter_file import AdapterFile, read_adapter_file
from contextos.adapters.mcp.adapter import McpAdapter, listed_tools
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.app.foreign_adapters import make_adapter
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext
from tests.servers.hostile_agent import HostileAgent, hostile_agent

FOLDER = Path(__file__).resolve().parent
HOSTILE = FOLDER / "hostile.py"


def hostile(mode: str, folder: Path) -> dict[str, Any]:
    """The connection to the hostile server in a mode; it writes its calls to `calls` in `folder`."""
    return {"kind": "mcp", "command": [sys.executable, str(HOSTILE), mode, str(folder / "calls")]}


def calls(folder: Path) -> list[str]:
    """What reached the hostile server, one line a call."""
    path = folder / "calls"
    return path.read_text("utf-8").splitlines() if path.exists() else []


async def drafted(connection: dict[str, Any], folder: Path, **stated: Any) -> dict[str, Any]:
    """The adapter file of a server, as it is drafted now."""
    named = McpConnection.model_validate(connection)
    return draft_adapter("lab", named, await listed_tools(named, folder), Stated(local=True, **stated))[0]


def adapter_of(file: dict[str, Any], folder: Path) -> McpAdapter:
    read: AdapterFile = read_adapter_file(canonical(file))
    adapter = make_adapter(read, folder)
    assert isinstance(adapter, McpAdapter)
    return adapter


def agent_at(url: str, **stated: Any) -> dict[str, Any]:
    """The connection to the A2A agent that is served at a URL of the loopback."""
    return {"kind": "a2a", "url": f"{url}/a2a", "card_url": card_url(url), "internal": True, **stated}


async def drafted_agent(connection: dict[str, Any], *reads: str) -> dict[str, Any]:
    """The adapter file of an A2A agent, as it is drafted now."""
    named = A2aConnection.model_validate(connection)
    return draft_agent("lab", named, await AgentConnection(named, os.environ, {}).card(), reads)[0]


def agent_adapter(file: dict[str, Any]) -> A2aAdapter:
    """The adapter of the file of an A2A agent. It needs no folder, and has nothing to close."""
    adapter = make_adapter(read_adapter_file(canonical(file)), FOLDER)
    assert isinstance(adapter, A2aAdapter)
    return adapter


@contextmanager
def opened(file: dict[str, Any], folder: Path) -> Iterator[McpAdapter]:
    """The adapter of a file, closed afterwards."""
    adapter = adapter_of(file, folder)
    try:
        yield adapter
    finally:
        adapter.close()


@contextmanager
def against(mode: str, folder: Path, *, read: bool = False, draft: str = "plain") -> Iterator[McpAdapter]:
    """An adapter that was drafted from the hostile server in one mode (`draft`), and meets it in another."""
    stated = {"reads": ["say"]} if read else {}
    file = asyncio.run(drafted(hostile(draft, folder), folder, **stated))
    file["connection"] = hostile(mode, folder)
    with opened(file, folder) as adapter:
        yield adapter


def call_context(timeout_ms: int = 20_000, *, key: str | None = None) -> CallContext:
    return CallContext("tenant_acme_prod", "run_1", "tool_1", key, 0, timeout_ms)


@contextmanager
def shop_connection(transport: str, folder: Path, *, work_s: int = 0) -> Iterator[dict[str, Any]]:
    """The connection to a running server with the tools of the refund example: an MCP server over `stdio` or `http`,
    or an A2A agent (`a2a`) that works `work_s` seconds on a refund that it has already paid.
    """
    command = [sys.executable, str(FOLDER / "shop_server.py"), str(folder), "http"]
    if transport == "stdio":
        yield {"kind": "mcp", "command": command[:-1]}
        return
    if transport == "a2a":
        command = [sys.executable, str(FOLDER / "shop_agent.py"), str(folder), str(work_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            yield agent_at(url) if transport == "a2a" else {"kind": "mcp", "url": f"{url}/mcp", "internal": True}
        finally:
            server.kill()


def same_tools(definition: AdapterDefinition, connection: dict[str, Any], folder: Path) -> McpAdapter | A2aAdapter:
    """An adapter of the server whose definition is that of a function adapter, as a reviewer can write it."""
    if connection["kind"] == "a2a":
        return same_skills(definition, connection)
    stated = {one.name for one in definition.capabilities if one.kind == "read"}
    file = asyncio.run(drafted(connection, folder, reads=sorted(stated)))
    wanted = [one.name for one in definition.capabilities]
    file["definition"] = definition.to_json() | {"type": "mcp"}
    file["operations"] = {name: file["operations"][name] | {"output": "structured"} for name in wanted}
    if "issue_refund" in wanted:
        file["operations"]["issue_refund"]["key_argument"] = "key"
    return adapter_of(file, folder)


def same_skills(definition: AdapterDefinition, connection: dict[str, Any]) -> A2aAdapter:
    """An adapter of the agent whose definition is that of a function adapter."""
    stated = [one.name for one in definition.capabilities if one.kind == "read"]
    file = asyncio.run(drafted_agent(connection, *stated))
    file["definition"] = definition.to_json() | {"type": "a2a"}
    file["operations"] = {
        one.name: file["operations"][one.name]
        | {"output": "structured", "stated_idempotent": one.idempotency.strategy == "keyed"}
        for one in definition.capabilities
    }
    return agent_adapter(file)


@contextmanager
def hostile_skill(
    mode: str = "plain", *, read: bool = False, strategy: str = "none", **stated: Any
) -> Iterator[tuple[HostileAgent, A2aAdapter]]:
    """A hostile agent in a mode, and an adapter of its skill `say` that was drafted when it was `plain`."""
    with hostile_agent() as agent:
        file = asyncio.run(drafted_agent(agent_at(agent.url, **stated), *(["say"] if read else [])))
        file["definition"]["capabilities"][0]["idempotency"] = {"strategy": strategy}
        file["operations"]["say"]["stated_idempotent"] = strategy == "keyed"
        agent.mode = mode
        yield agent, agent_adapter(file)
