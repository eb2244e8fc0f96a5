"""A call on its way out: what it is, how far its delivery has come, and the ports that a delivery may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextos.action.budget import BudgetUsed
from contextos.action.gateway.result_validation import Cleanse
from contextos.contracts.envelopes.tool import ToolCallEnvelope
from contextos.contracts.journal import Write
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability, Redeemed

CheckSettlement = Callable[[str, str, Mapping[str, Any]], Awaitable[str | None]]
"""(key, tool call, recorded settlement) -> why it does not count, or None."""


@dataclass(frozen=True, slots=True)
class DispatchPorts:
    """What a delivery may touch. In a replay there are no adapters, and nothing asks for them.

    `deferred` gives the record of a run that waits, for the reason named.
    """

    store: Store
    clock: Clock
    adapters: Mapping[str, Adapter]
    headers: Callable[[str, bool], dict[str, str]]
    claim_token: Callable[[], str]
    cleanse: Cleanse
    deferred: Callable[[str], dict[str, Any]]
    spent: Callable[[], BudgetUsed]
    settled_by: CheckSettlement


@dataclass(frozen=True, slots=True)
class ClearedCall:
    """A call that every guard let pass. `act` is what is known of its operation.

    `still` are checks that must hold in the commit that claims the operation: what was looked up may have changed.
    """

    envelope: ToolCallEnvelope
    capability: Capability
    key: str
    provenance: Mapping[str, str]
    approval: Redeemed | None
    act: Mapping[str, Any]
    still: Sequence[Write]


@dataclass(slots=True)
class Delivery:
    """How far the delivery of one call has come. `grouped` holds while it is sent together with others."""

    call: ClearedCall
    mode: str
    first_us: int
    attempt: int = 0
    not_after_us: int = 0
    on_tape: bool = False
    recovered: bool = False
    claimed: Write | None = None
    grouped: bool = False

    @property
    def key(self) -> str:
        """The journal key of the current attempt."""
        return f"{self.call.key}/{self.attempt}"

    @property
    def writes(self) -> bool:
        return self.call.capability.definition.kind == "write"
