"""The code that a run is pinned to: the runtime's own build, and the code of each adapter that its pack registers.

A run is bound to the code that this process loaded when the run was admitted. Another process, after a restart or an
upgrade, can run other code: then an approval is void, no write is sent, and no adapter whose code changed is called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from contextos.contracts.documents.operations import quarantine_key
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.scope import Capability
from contextos.control.catalog import ADAPTER, CODE, RUNTIME
from contextos.errors import Unavailable
from contextos.runtime.environment import RunEnvironment


def with_code(pin_set: dict[str, Any], environment: RunEnvironment) -> dict[str, Any]:
    """Return a set that `Catalog.pin` returned with the pins of the code added, or the failure."""
    if "failure" in pin_set:
        return pin_set
    adapters = [name.removeprefix(ADAPTER) for name in pin_set["pins"] if name.startswith(ADAPTER)]
    code = code_now([RUNTIME, *(CODE + adapter_id for adapter_id in adapters)], environment)
    unknown = [name for name, digest in code.items() if digest is None]
    if unknown:
        detail = f"`{unknown[0]}` cannot be pinned, because its source cannot be read; load the adapter from a file"
        return {"failure": {"code": "unknown_ref", "detail": detail}}
    return {**pin_set, "pins": {**pin_set["pins"], **code}}


def code_now(names: Collection[str], environment: RunEnvironment) -> dict[str, str | None]:
    """Return the current digest of each pin in `names` that is about code. Other names are left out."""
    code = environment.ports.code
    return {name: code.get(name) for name in names if name == RUNTIME or name.startswith(CODE)}


def pinned_quarantine_key(pins: Mapping[str, str], capability: Capability) -> str:
    """Return the key of the quarantine of the version of a capability that a run is pinned to."""
    code = pins.get(CODE + capability.adapter.adapter_id, "")
    return quarantine_key(capability.capability_id, capability.definition_digest, code)


def pinned_adapters(environment: RunEnvironment, pins: Mapping[str, str]) -> dict[str, Adapter]:
    """Return the adapters of this process by id. One that is not the pinned code, or has no pin, answers no call."""
    ports = environment.ports

    def unchanged(name: str) -> bool:
        pinned = pins.get(CODE + name)
        return pinned is not None and ports.code.get(CODE + name) == pinned

    return {
        name: adapter if unchanged(name) else ChangedAdapter(name, adapter) for name, adapter in ports.adapters.items()
    }


@dataclass(frozen=True, slots=True)
class ChangedAdapter:
    """An adapter whose code changed since the run was admitted. It is not called, so nothing happens."""

    adapter_id: str
    adapter: Adapter

    def describe(self) -> AdapterDefinition:
        return self.adapter.describe()

    async def call(self, *_: Any, **__: Any) -> AdapterReply:
        raise self._refused()

    async def lookup(self, *_: Any, **__: Any) -> AdapterReply | None:
        raise self._refused()

    def _refused(self) -> Unavailable:
        return Unavailable(self.adapter_id, "its code changed since the run was admitted; send a new request")
