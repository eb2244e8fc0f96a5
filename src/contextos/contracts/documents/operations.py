"""Documents about operations: the idempotency table, approvals and denials, and the circuit breakers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from contextos.contracts.documents.collection import Collection, strict_decoder

OperationState = Literal["claimed", "released", "completed", "unusable"]
ApprovalState = Literal["open", "approved", "denied", "expired", "cancelled", "consumed"]
_WITH_OUTPUT: Final = ("completed", "unusable")


@dataclass(frozen=True, slots=True)
class OperationDocument:
    """The state of an operation: claimed by one call, released (no effect), completed, or with unusable output.

    `output` and `mutations` are stored after the effect: in the states `completed` and `unusable`.
    """

    run_id: str
    tool_call_id: str
    fingerprint: str
    state: OperationState
    output: Any = None
    mutations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalDocument:
    """The state of one approval request. Its content is in the journal, where it can be erased."""

    approval_id: str
    gate_id: str
    required_role: str
    deadline_us: int
    binding_digest: str
    run_id: str
    state: ApprovalState
    approver: str | None = None


@dataclass(frozen=True, slots=True)
class Denial:
    """The denial of an operation: the run and the approver. A denial is final."""

    run_id: str
    approver: str


@dataclass(frozen=True, slots=True)
class CircuitDocument:
    """The state of a circuit breaker in the process `process`, for operators; written at each change of state."""

    adapter_id: str
    capability: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    since_us: int
    retry_at_us: int
    process: str


def operation_key(capability_id: str, idempotency_key: str) -> str:
    """The key of an operation: `<capability>/<idempotency key>`."""
    return f"{capability_id}/{idempotency_key}"


def denial_key(capability_id: str, definition_digest: str, idempotency_key: str | None) -> str:
    """The key of a denial. It contains the digest of the capability's definition, so a changed one is asked anew."""
    return f"{capability_id}/{definition_digest}/{idempotency_key}"


def circuit_key(adapter_id: str, capability: str) -> str:
    """The key of a circuit breaker: `<adapter>.<capability>`."""
    return f"{adapter_id}.{capability}"


def _operation(operation: OperationDocument) -> bytes:
    body: dict[str, Any] = {
        "run_id": operation.run_id,
        "tool_call_id": operation.tool_call_id,
        "fingerprint": operation.fingerprint,
        "state": operation.state,
    }
    if operation.state in _WITH_OUTPUT:
        body |= {"output": operation.output, "mutations": operation.mutations}
    return orjson.dumps(body)


def _approval(approval: ApprovalDocument) -> bytes:
    body: dict[str, Any] = {
        "approval_id": approval.approval_id,
        "gate_id": approval.gate_id,
        "required_role": approval.required_role,
        "deadline_us": approval.deadline_us,
        "binding_digest": approval.binding_digest,
        "run_id": approval.run_id,
        "state": approval.state,
    }
    if approval.approver is not None:
        body["approver"] = approval.approver
    return orjson.dumps(body)


OPERATIONS: Final = Collection("keys", _operation, strict_decoder(OperationDocument))
"""By `operation_key`."""

APPROVALS: Final = Collection("approvals", _approval, strict_decoder(ApprovalDocument))
"""By approval id."""

DENIALS: Final[Collection[Denial]] = Collection("denials", orjson.dumps, strict_decoder(Denial))
"""By `denial_key`."""

BREAKERS: Final[Collection[CircuitDocument]] = Collection("breakers", orjson.dumps, strict_decoder(CircuitDocument))
"""By `circuit_key`."""
