"""The foreign servers of tests in processes of their own, and the connections to them.

A tool of a test is bound to the imports of its module, so what starts a process stands apart from `adapters`.
"""

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
from tests.servers.adapters import FOLDER, agent_adapter, agent_at, drafted_agent
from tests.servers.hostile_agent import HostileAgent, hostile_agent


@contextmanager
def serving(script: str, *arguments: str, **environment: str) -> Iterator[int]:
    """The port of a server of this folder, in a process of its own that is killed at the end."""
    command = [sys.executable, str(FOLDER / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


@contextmanager
def mcp_connection(script: str, transport: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The connection to an MCP server of this folder, over `stdio` or `http`."""
    if transport == "stdio":
        yield {"kind": "mcp", "command": [sys.executable, str(FOLDER / script), str(folder)]}
        return
    with serving(script, str(folder), "http") as port:
        yield {"kind": "mcp", "url": f"http://127.0.0.1:{port}/mcp", "internal": True}


@contextmanager
def agent_connection(script: str, folder: Path, *, work_s: int = 0, asks: str = "") -> Iterator[dict[str, Any]]:
    """The connection to an A2A agent of this folder, which works `work_s` seconds on a write that it has done, and
    asks for input when it has done the skill `asks`.
    """
    with serving(script, str(folder), str(work_s), *([asks] if asks else [])) as port:
        yield agent_at(f"http://127.0.0.1:{port}")


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
