"""How a server of the tests serves an ASGI application, and how it loads the code of an example."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load_module(path: Path) -> ModuleType:
    """Load the module of an example, which then works on the files beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(app: Any) -> None:
    """Serve on a free port of the loopback, and print the port when callers can connect."""
    bound = socket.create_server(("127.0.0.1", 0))
    print(bound.getsockname()[1], flush=True)
    serve_on(bound, app)


def serve_on(bound: socket.socket, app: Any) -> None:
    import uvicorn

    uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run(sockets=[bound])


def serve_mcp(server: Any, transport: str) -> None:
    """Serve an MCP server over `stdio`, or over streamable HTTP."""
    if transport == "stdio":
        server.run()
    else:
        serve(server.streamable_http_app())
