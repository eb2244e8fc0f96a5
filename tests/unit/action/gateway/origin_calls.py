"""Calls whose arguments come from somewhere, for the tests of the gateway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contextos.contracts.envelopes.evidence import TracedArgument
from contextos.contracts.ports.calls import ToolCall


def traced(integrity: str) -> TracedArgument:
    return TracedArgument.model_validate(
        {"origins": ["tool:mail.read"], "integrity": integrity, "classification": "PUBLIC"}
    )


TRACED = {"to": traced("untrusted"), "text": traced("untrusted"), "cents": traced("trusted"), "note": traced("unknown")}


def call(
    kind: str = "write", destinations: Any = None, gates: tuple[str, ...] = (), found: Any = None, **more: Any
) -> ToolCall:
    definition = SimpleNamespace(kind=kind, destinations=destinations)
    told = (tuple(TRACED) if kind == "write" else ()) if destinations is None else destinations
    adapter = SimpleNamespace(destinations=lambda _definition: told)
    capability: Any = SimpleNamespace(definition=definition, adapter=adapter)
    decision: Any = SimpleNamespace(gates=gates)
    step: Any = None
    origins = TRACED if found is None else found
    made = ToolCall("1/a", step, {}, {}, ())
    for name, value in {"capability": capability, "decision": decision, "traced": origins, **more}.items():
        setattr(made, name, value)
    return made


def context(**roles: str) -> Any:
    gates = {name: SimpleNamespace(required_approver_role=role) for name, role in roles.items()}
    return SimpleNamespace(scope=SimpleNamespace(pinned=SimpleNamespace(gates=gates)))
