"""ContextOS: a governed decision runtime for AI agents.

Five planes (Intelligence, Context, Decision, Action, Trust) and one function, `invoke_agent`:

    invoke -> compile -> [plan -> verify -> execute -> score -> consolidate] -> DecisionRecord -> replay

Embed it with `open_app`; read it from `contextos.runtime.loop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextos.app import App, open_app
    from contextos.errors import ContextOSError
    from contextos.operations.deployment import Deployment
    from contextos.operations.ports import Ports
    from contextos.queries.run_view import RunView
    from contextos.runtime.loop import invoke_agent
    from contextos.settings import Settings

__version__ = "0.1.0"

_HOME = {
    "App": "contextos.app",
    "ContextOSError": "contextos.errors",
    "Deployment": "contextos.operations.deployment",
    "Ports": "contextos.operations.deployment",
    "RunView": "contextos.queries.run_view",
    "Settings": "contextos.app",
    "invoke_agent": "contextos.runtime.loop",
    "open_app": "contextos.app",
}

__all__ = [
    "App",
    "ContextOSError",
    "Deployment",
    "Ports",
    "RunView",
    "Settings",
    "__version__",
    "invoke_agent",
    "open_app",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used, so that `import contextos` stays light."""
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module `contextos` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOME[name]), name)
