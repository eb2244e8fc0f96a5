"""Adapters over the foreign servers of tests, and the calls that tests make through them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contextos.adapters.a2a.adapter import A2aAdapter
from contextos.adapters.a2a.connection import AgentConnection
from contextos.adapters.a2a.definitions import A2aConnection
from contextos.adapters.a2a.drafting import card_url, draft_agent
from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.mcp.adapter import McpAdapter, listed_tools
from contextos.adapters.mcp.definitions import McpConnection
from contextos.adapters.mcp.drafting import Stated, draft_adapter
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext
from contextos.workspace.foreign_adapters import make_adapter

FOLDER = Path(__file__).resolve().parent
KEY_HEADER = "Idempotency-Key"
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


def foreign_adapter(file: dict[str, Any], folder: Path) -> Any:
    """The adapter of a file of any kind, as a deployment in `folder` makes it."""
    return make_adapter(read_adapter_file(canonical(file)), folder)


def adapter_of(file: dict[str, Any], folder: Path) -> McpAdapter:
    adapter = foreign_adapter(file, folder)
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
    adapter = foreign_adapter(file, FOLDER)
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


def reviewed_mcp(definition: AdapterDefinition, connection: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The file of an MCP server whose tools are those of a function adapter, as a reviewer edits its draft."""
    stated = {one.name for one in definition.capabilities if one.kind == "read"}
    file = asyncio.run(drafted(connection, folder, reads=sorted(stated)))
    file["definition"] = definition.to_json() | {"type": "mcp"}
    operations = {}
    for capability in definition.capabilities:
        said = operations[capability.name] = file["operations"][capability.name] | {"output": "structured"}
        if capability.idempotency.strategy == "keyed":
            said["key_argument"] = "key"
    return file | {"operations": operations}


def reviewed_openapi(
    draft: Mapping[str, Any], definition: AdapterDefinition, operation_ids: Mapping[str, str]
) -> dict[str, Any]:
    """The file of an HTTP API whose operations are the tools of a function adapter, as a reviewer edits its draft.

    `operation_ids` names the operation of each capability.
    """
    outside = {"type": "openapi", "external": True, "egress": draft["definition"]["egress"]}
    operations = {}
    for capability in definition.capabilities:
        said = dict(draft["operations"][operation_ids[capability.name]])
        said |= {"output": "body", "stated_read": capability.kind == "read"}
        if said["body"] is not None:
            said["body"] = said["body"] | {"argument": None}
        if capability.idempotency.strategy == "keyed":
            said["parameters"] = [one for one in said["parameters"] if one["name"] != KEY_HEADER]
            said["idempotency_header"] = KEY_HEADER
        operations[capability.name] = said
    return {**draft, "definition": definition.to_json() | outside, "operations": operations}


def reviewed_agent(definition: AdapterDefinition, connection: dict[str, Any]) -> dict[str, Any]:
    """The file of an A2A agent whose skills are the tools of a function adapter, as a reviewer edits its draft."""
    stated = [one.name for one in definition.capabilities if one.kind == "read"]
    file = asyncio.run(drafted_agent(connection, *stated))
    operations = {
        one.name: file["operations"][one.name]
        | {"output": "structured", "stated_idempotent": one.idempotency.strategy == "keyed"}
        for one in definition.capabilities
    }
    return file | {"definition": definition.to_json() | {"type": "a2a"}, "operations": operations}
