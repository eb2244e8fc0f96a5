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


def serve(app: Any, port: int = 0) -> None:
    """Serve on the loopback, at a free port if `port` is 0, and print the port when callers can connect."""
    import uvicorn

    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.listen()
    print(bound.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[bound])
