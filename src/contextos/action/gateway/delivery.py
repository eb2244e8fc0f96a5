"""The data of a dispatch: the call that passed the guards, the progress of its delivery, and the ports it can use."""

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
"""(key, tool call id, recorded settlement) -> why the settlement is refused, or None."""


@dataclass(frozen=True, slots=True)
class DispatchPorts:
    """The ports and functions that a dispatch can use. A replay has no adapters and needs none.

    `headers` takes a tool call id and whether the adapter is external. `deferred` builds the decision record of a
    waiting run, for the reason named. `spent` returns what the run has used so far.
    """

    store: Store
    clock: Clock
    adapters: Mapping[str, Adapter]
    headers: Callable[[str, bool], dict[str, str]]
    claim_token: Callable[[], str]
    cleanse: Cleanse
    deferred: Callable[[str], dict[str, Any]]
    spent: Callable[[], BudgetUsed]
    check_settlement: CheckSettlement


@dataclass(frozen=True, slots=True)
class ClearedCall:
    """A call that passed every guard. `operation` is the recorded answer of `look_up_operation`.

    `preconditions` are checks that must still hold in the commit that claims the operation.
    """

    envelope: ToolCallEnvelope
    capability: Capability
    key: str
    provenance: Mapping[str, str]
    approval: Redeemed | None
    operation: Mapping[str, Any]
    preconditions: Sequence[Write]


@dataclass(slots=True)
class Delivery:
    """The progress of one call's delivery. `mode` is `send` or `reconcile` (find out what became of an earlier send).

    `first_us` is when it was first sent, `claimed` the staged claim of its operation. `recovered`: another driver
    recorded the current attempt. `grouped`: the current attempt is sent together with other calls.
    """

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
