"""Let an adapter begin what it checks before a call, while the run still records and judges that call."""

from __future__ import annotations

from contextlib import suppress

from contextos.action.breaker_adapter import expect_call
from contextos.action.gateway.guards import beyond_egress
from contextos.action.gateway.tool_gateway import tool_call_id
from contextos.contracts.scope import Capability, RunScope
from contextos.errors import Unavailable
from contextos.runtime.code_pins import pinned_adapters, pinned_quarantine_key
from contextos.runtime.environment import RunEnvironment
from contextos.trust.approvals.quarantines import open_incidents


async def expect_read(environment: RunEnvironment, scope: RunScope, capability: Capability, key: str) -> None:
    """Announce to the adapter of a foreign read that a call will probably follow. The guards still decide about it.

    Nothing is announced in a replay, to code that is not pinned, about a capability in quarantine, or about a read of a
    place that the pack or the tenant does not list.
    """
    adapter = pinned_adapters(environment, scope.pinned.pins).get(capability.adapter.adapter_id)
    if environment.journal.on_tape or adapter is None or capability.adapter.type == "function":
        return
    quarantine = pinned_quarantine_key(scope.pinned.pins, capability)
    # The guard that looks again says it if the store is away.
    with suppress(Unavailable):
        if beyond_egress(scope, capability) is None and not await open_incidents(
            environment.ports.store, environment.ports.keys, quarantine
        ):
            expect_call(adapter, capability.definition.name, tool_call_id(scope, key))
