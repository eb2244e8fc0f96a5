"""The places where the tools of an example can be: behind an HTTP API, an MCP server or an A2A agent.

A place serves the tools of `ExampleTools` and gives their adapter files, as a reviewer publishes them. Another place is
another line in `PLACES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from contextos.adapters.foreign.adapter_file import ADAPTER_FILE_FORMAT
from contextos.adapters.openapi.draft import draft_openapi
from contextos.contracts.envelopes.tool import AdapterDefinition
from examples.deploy_rollback import deploy
from examples.support_refund import shop
from tests.servers.adapters import reviewed_agent, reviewed_mcp, reviewed_openapi
from tests.servers.processes import agent_connection, mcp_connection, serving


@dataclass(frozen=True)
class ExampleTools:
    """The function adapters of an example, and the servers of this folder that have the same tools.

    `api` names the HTTP API, and `operation_ids` the operation of each capability in its document. `mcp` and `agent`
    are the scripts of the MCP server and of the A2A agent.
    """

    definitions: Sequence[AdapterDefinition]
    api: str
    operation_ids: Mapping[str, str]
    mcp: str
    agent: str


REFUND: Final = ExampleTools(
    (shop.ORDERS_ADAPTER, shop.POLICY_ADAPTER, shop.payments_adapter("keyed")),
    "shop",
    {"lookup": "getOrder", "eval": "checkRefund", "issue_refund": "createRefund"},
    "shop_server.py",
    "shop_agent.py",
)
DEPLOY: Final = ExampleTools(
    (deploy.TOOLS.describe(),),
    "cluster",
    {"ci_status": "getBuild", "impact": "getImpact", "scale": "setReplicas", "rollback": "createRollback"},
    "cluster_server.py",
    "cluster_agent.py",
)

Files = list[dict[str, Any]]
Place = Callable[[ExampleTools, Path], AbstractContextManager[Files]]
"""(tools, folder with the books) -> the adapter files, while the tools are served."""


@contextmanager
def behind_openapi(tools: ExampleTools, folder: Path) -> Iterator[Files]:
    with serving("http_api.py", tools.api, str(folder)) as port:
        yield openapi_files(tools, port)


def openapi_files(tools: ExampleTools, port: int) -> Files:
    """The adapter files of the HTTP API that is served at a port."""
    server, files = f"http://127.0.0.1:{port}", []
    document = httpx.get(f"{server}/openapi.json", trust_env=False).content
    for one in tools.definitions:
        drafted = draft_openapi(one.adapter_id, document, server=server, internal=True).to_json()
        files.append(reviewed_openapi({"format": ADAPTER_FILE_FORMAT, **drafted}, one, tools.operation_ids))
    return files


@contextmanager
def behind_mcp(transport: str, tools: ExampleTools, folder: Path) -> Iterator[Files]:
    with mcp_connection(tools.mcp, transport, folder) as connection:
        yield [reviewed_mcp(one, connection, folder) for one in tools.definitions]


@contextmanager
def behind_a2a(tools: ExampleTools, folder: Path) -> Iterator[Files]:
    with agent_connection(tools.agent, folder) as connection:
        yield [reviewed_agent(one, connection) for one in tools.definitions]


PLACES: Final[Mapping[str, Place]] = {
    "openapi": behind_openapi,
    "mcp stdio": partial(behind_mcp, "stdio"),
    "mcp http": partial(behind_mcp, "http"),
    "a2a": behind_a2a,
}
