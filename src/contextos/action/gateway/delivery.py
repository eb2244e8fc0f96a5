"""Data classes for sending one call: the checked call, the progress of its delivery, and the ports that may be used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contextos.action.budget import BudgetUsed, CallTime
from contextos.action.gateway.result_validation import Cleanse
from contextos.action.quarantine import OpenIncidents, incident
from contextos.contracts.documents.operations import OperationDocument
from contextos.contracts.envelopes.tool import CallContext, ToolCallEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.outside import Adapter, Clock
from contextos.contracts.ports.seams import ProvedCancels
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability, Redeemed

OperationFault = Callable[[str, OperationDocument], Awaitable[str | None]]
"""(document key, row of the idempotency table) -> why the row is not believed, or None."""

CheckSettlement = Callable[[str, ToolCallEnvelope, Mapping[str, Any]], Awaitable[str | None]]
"""(key, tool call id, recorded settlement) -> why the settlement is refused, or None."""


@final_fields
class PreconditionResult:
    """The result of checking a run's identities and pinned artifacts again, right before a write.

    `failure` says what changed since the run was admitted, or is None. `policies_version` is the version of the list of
    active policies that was checked.
    """

    failure: Failure | None
    policies_version: int


@final_fields
class DispatchPorts:
    """The ports and functions that are needed to send calls. A replay has no adapters and needs none.

    `headers` takes a tool call id and whether the adapter is external. `deferred` builds the decision record of a
    waiting run, for the reason named. `spent` returns what the run has used so far. `recheck` takes the key of an
    attempt and checks identities and pinned artifacts again. `quarantine_key` is of the version of a capability that
    the run is pinned to.
    """

    store: Store
    clock: Clock
    adapters: Mapping[str, Adapter]
    headers: Callable[[str, bool], dict[str, str]]
    claim_token: Callable[[Capability, str], str]
    cleanse: Cleanse
    cleanse_text: Callable[[Any], Any]
    deferred: Callable[[str, str], dict[str, Any]]
    spent: Callable[[], BudgetUsed]
    check_settlement: CheckSettlement
    operation_fault: OperationFault
    proved_cancels: ProvedCancels
    recheck: Callable[[str], Awaitable[PreconditionResult]]
    quarantine_key: Callable[[Capability], str]
    open_incidents: OpenIncidents


@final_fields
class ClearedCall:
    """A call that passed every check of the gateway. `operation` is the recorded answer of `look_up_operation`.

    `preconditions` are checks that must still hold in the commit that claims the operation for this run.
    """

    envelope: ToolCallEnvelope
    capability: Capability
    key: str
    provenance: Mapping[str, str]
    approval: Redeemed | None
    operation: Mapping[str, Any]
    preconditions: Sequence[Write]

    @property
    def redemption(self) -> tuple[Write, ...]:
        """Return the write that consumes the approval. The commit that sends the call fails if it was consumed."""
        return (self.approval.consume,) if self.approval else ()


@dataclass(slots=True)
class Delivery:
    """The progress of sending one call. `mode` is `send`, or `reconcile`: find out what an earlier send did.

    `first_us` is when the call was first sent, and `first_clock_us` that time by the clock; `claimed` is the write that
    reserves its idempotency key. `recovered`: another process recorded the current attempt. `grouped`: the attempt is
    sent together with other calls. `time`: how long the current attempt can take.
    """

    call: ClearedCall
    mode: str
    first_us: int
    first_clock_us: int
    attempt: int = 0
    not_after_us: int = 0
    time: CallTime = field(default_factory=lambda: CallTime(0, 0))
    on_tape: bool = False
    recovered: bool = False
    claimed: Write | None = None
    grouped: bool = False
    checks: tuple[Write, ...] = ()

    @property
    def key(self) -> str:
        """Return the key under which the current attempt is in the journal."""
        return f"{self.call.key}/{self.attempt}"

    def incident(self, ports: DispatchPorts, at_us: int) -> Write:
        """Return the write that puts the capability of the call into quarantine."""
        return incident(ports.quarantine_key(self.call.capability), self.call.envelope, at_us)

    @property
    def writes(self) -> bool:
        return self.call.capability.definition.kind == "write"


def call_context(
    tenant_id: str,
    ports: DispatchPorts,
    envelope: ToolCallEnvelope,
    capability: Capability,
    not_after_us: int,
    timeout_ms: int,
    is_late: Callable[[], bool],
) -> CallContext:
    """Build what an adapter receives with the arguments of one attempt."""
    return CallContext(
        tenant_id=tenant_id,
        run_id=envelope.run_id,
        tool_call_id=envelope.tool_call_id,
        idempotency_key=envelope.idempotency_key,
        not_after_us=not_after_us,
        timeout_ms=timeout_ms,
        headers=partial(ports.headers, envelope.tool_call_id, capability.adapter.external),
        claim=partial(ports.claim_token, capability, envelope.tool_call_id),
        is_late=is_late,
        egress=capability.adapter.egress,
    )
