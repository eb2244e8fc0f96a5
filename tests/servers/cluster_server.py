"""The tools of the deploy example behind an MCP server made with the SDK: `cluster_server.py FOLDER` speaks stdio, and
`cluster_server.py FOLDER http` prints the port on which it serves streamable HTTP. `FOLDER` holds the cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from listening import load_module, serve_mcp
from mcp.server import MCPServer


def main(folder: str, transport: str = "stdio") -> None:
    cluster: Any = load_module(Path(folder) / "deploy.py")
    server = MCPServer("cluster")

    @server.tool()
    def ci_status(service: str) -> dict[str, Any]:
        """The state of a service in continuous integration."""
        found: dict[str, Any] = cluster.ci_status(service).model_dump()
        return found

    @server.tool()
    def impact(service: str, env: str) -> dict[str, Any]:
        """Who notices a change of a service."""
        found: dict[str, Any] = cluster.impact(service, env).model_dump()
        return found

    @server.tool()
    def scale(service: str, env: str, replicas: int, key: str) -> int:
        """Set the number of replicas of a service."""
        return int(cluster.scale(service, env, replicas, key))

    @server.tool()
    def rollback(service: str, env: str, key: str) -> str:
        """Put the build before the newest one back into service."""
        return str(cluster.rollback(service, env, key))

    serve_mcp(server, transport)


if __name__ == "__main__":
    main(*sys.argv[1:])
