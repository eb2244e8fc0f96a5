"""ContextOS: a governed decision runtime for AI agents.

Five planes (Intelligence, Context, Decision, Action, Trust) and one run:

    invoke -> compile -> [plan -> verify -> execute -> score -> consolidate] -> DecisionRecord -> replay

Embed it with `open`, a context that gives an `App`; `App.deployment` takes requests. To read the code, start at
`contextos.runtime.loop`.

Stable
------
Stable are the names in `contextos.__all__` and the public names of the modules below. Everything else can change in any
version. `tests/public_api.txt` is a snapshot of all of them; `tests/test_exports.py` compares it with the code.

- `contextos.errors`: every exception that ContextOS raises on purpose
- `contextos.workspace.settings`: the settings of `contextos.toml`
- `contextos.workspace.settings.calls`: the tables of adapters, credentials and files
- `contextos.workspace.settings.directory`: the tables of the directory
- `contextos.workspace.settings.keys`: the tables of the keys
- `contextos.workspace.settings.logins`: the tables of the logins of people
- `contextos.workspace.settings.callers`: the tables of workloads and partners that call over HTTP
- `contextos.workspace.settings.telemetry`: the tables of the telemetry
- `contextos.telemetry.exporter`: telemetry through exporters that a program brings (extra `telemetry`)
- `contextos.testing`: a deployment in memory for tests of packs and tools
- `contextos.adapters.encrypted_keys`: make keys in encrypted files
- `contextos.adapters.signed_directory`: sign a directory
- `contextos.contracts.envelopes.*`: the documents that cross a boundary; their JSON form is fixed by `schemas/`
- `contextos.contracts.ports.*`: the ports that an embedder can implement
- `contextos.service.*`: what `App` offers an application: runs, approvals, facts, subscriptions
- `contextos.deployment.acts.facts`: write facts into the graph
- `contextos.deployment.gate.gate`: the gate of an agent's session
- `contextos.deployment.operator`: what operators do: answer, settle, cancel, erase
- `contextos.adapters.function.loading`: adapters that the settings pin by digest
- `contextos.adapters.models.scripted`: models that answer from a script, for tests
- `contextos.packs.tools.declared`: tools from functions
- `contextos.client`: a client of the HTTP API of a server (extra `client`)
- `contextos.client.connection`: what a client does
- `contextos.client.event_stream`: the events of a run
- `contextos.client.sessions`: the gate of a session over HTTP
- `contextos.frameworks.wrapping`: a framework's own tool becomes a governed tool
- `contextos.frameworks.pydantic_ai`: agents of Pydantic AI (extra `pydantic-ai`)
- `contextos.frameworks.langgraph`: graphs of LangGraph (extra `langgraph`)
- `contextos.frameworks.openai_agents`: agents of the OpenAI Agents SDK (extra `openai-agents`)
- `contextos.frameworks.loops`: plain loops over the SDKs of OpenAI and Anthropic
- `contextos.frameworks.offers`: the tools of a session as a model sees them
- `contextos.packs.declaration`: the short form of a pack
- `contextos.packs.reading`: the short form as YAML
- `contextos.packs.facts`: conditions as Python objects
- `contextos.packs.printing`: conditions as text
- `contextos.packs.expansion`: the whole pack of a short form, with the origin of each field
- `contextos.context.slots.oas`: the slots that an agent's document declares
- `contextos.server.mcp.slots`: context-slot selection as an MCP server (extra `mcp`)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextos.adapters.function.adapter import BusinessError, FunctionAdapter, Running
    from contextos.audit.export import export_runs
    from contextos.audit.exported import read_export, replay_export
    from contextos.audit.replay import replay
    from contextos.audit.verify import verify_tenant
    from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
    from contextos.deployment.acts.act import Actor
    from contextos.deployment.deployment import Deployment
    from contextos.deployment.operator import answer_approval
    from contextos.deployment.ports import Ports
    from contextos.deployment.queries.run_view import RunView
    from contextos.deployment.signing import answer_signer
    from contextos.errors import ContextOSError
    from contextos.packs.building import pack, read_pack
    from contextos.packs.tools.declared import read, write
    from contextos.packs.tools.signatures import Key
    from contextos.packs.tools.toolset import tools_of, toolset
    from contextos.runtime.environment import RunLimits
    from contextos.trust.seal import KeyRing, seal
    from contextos.workspace.application import App
    from contextos.workspace.opening import open
    from contextos.workspace.settings import Settings

__version__ = "0.1.0"

# Silent unless the application configures logging; without it, warnings would be printed to stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "Actor": "contextos.deployment.acts.act",
    "AdapterDefinition": "contextos.contracts.envelopes.tool",
    "AdapterReply": "contextos.contracts.envelopes.tool",
    "App": "contextos.workspace.application",
    "BusinessError": "contextos.adapters.function.adapter",
    "CallContext": "contextos.contracts.envelopes.tool",
    "ContextOSError": "contextos.errors",
    "Deployment": "contextos.deployment.deployment",
    "FunctionAdapter": "contextos.adapters.function.adapter",
    "Key": "contextos.packs.tools.signatures",
    "KeyRing": "contextos.trust.seal",
    "Ports": "contextos.deployment.ports",
    "RunLimits": "contextos.runtime.environment",
    "RunView": "contextos.deployment.queries.run_view",
    "Running": "contextos.adapters.function.adapter",
    "Settings": "contextos.workspace.settings",
    "answer_approval": "contextos.deployment.operator",
    "answer_signer": "contextos.deployment.signing",
    "export_runs": "contextos.audit.export",
    "open": "contextos.workspace.opening",
    "pack": "contextos.packs.building",
    "read_pack": "contextos.packs.building",
    "read": "contextos.packs.tools.declared",
    "read_export": "contextos.audit.exported",
    "replay": "contextos.audit.replay",
    "replay_export": "contextos.audit.exported",
    "seal": "contextos.trust.seal",
    "tools_of": "contextos.packs.tools.toolset",
    "toolset": "contextos.packs.tools.toolset",
    "verify_tenant": "contextos.audit.verify",
    "write": "contextos.packs.tools.declared",
}

__all__ = [
    "Actor",
    "AdapterDefinition",
    "AdapterReply",
    "App",
    "BusinessError",
    "CallContext",
    "ContextOSError",
    "Deployment",
    "FunctionAdapter",
    "Key",
    "KeyRing",
    "Ports",
    "RunLimits",
    "RunView",
    "Running",
    "Settings",
    "__version__",
    "answer_approval",
    "answer_signer",
    "export_runs",
    "open",
    "pack",
    "read",
    "read_export",
    "read_pack",
    "replay",
    "replay_export",
    "seal",
    "tools_of",
    "toolset",
    "verify_tenant",
    "write",
]


def __dir__() -> list[str]:
    """Return exactly the public names, imported or not."""
    return list(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import contextos` stays light."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module `contextos` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES[name]), name)
