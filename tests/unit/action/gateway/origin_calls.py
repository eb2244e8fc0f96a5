"""Calls whose arguments come from somewhere, for the tests of the gateway."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contextos.action.gateway.guarded_call import GuardedCall
from contextos.contracts.entries.derived import TracedArgument


def traced(integrity: str) -> TracedArgument:
    return TracedArgument.model_validate(
        {"origins": ["tool:mail.read"], "integrity": integrity, "classification": "PUBLIC"}
    )


TRACED = {"to": traced("untrusted"), "text": traced("untrusted"), "cents": traced("trusted"), "note": traced("unknown")}


def call(kind: str = "write", destinations: Any = None, gates: tuple[str, ...] = (), found: Any = None) -> GuardedCall:
    definition = SimpleNamespace(kind=kind, destinations=destinations)
    told = (tuple(TRACED) if kind == "write" else ()) if destinations is None else destinations
    adapter = SimpleNamespace(destinations=lambda _definition: told)
    capability: Any = SimpleNamespace(definition=definition, adapter=adapter)
    decision: Any = SimpleNamespace(gates=gates)
    step_call: Any = None
    origins = TRACED if found is None else found
    return GuardedCall(step_call, capability, "tool_1", "1/a", {}, decision=decision, traced=origins)


def context(**roles: str) -> Any:
    gates = {name: SimpleNamespace(required_approver_role=role) for name, role in roles.items()}
    return SimpleNamespace(scope=SimpleNamespace(pinned=SimpleNamespace(gates=gates)))
