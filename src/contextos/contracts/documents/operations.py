"""Documents about operations: the idempotency table, approvals and denials, circuit breakers and quarantines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

import orjson

from contextos.contracts.documents.collection import stored
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.model import final_fields

OperationState = Literal["claimed", "released", "completed", "unusable"]
ApprovalState = Literal["open", "approved", "denied", "expired", "cancelled", "consumed"]
_WITH_OUTPUT: Final = ("completed", "unusable")


@final_fields
class OperationDocument:
    """The state of one operation, identified by its idempotency key: claimed by one call, released (no effect
    happened), completed, or unusable (done, but its answer is withheld or an error).

    `output` and `mutations` (the side effects) are set in the states `completed` and `unusable`.
    """

    run_id: str
    tool_call_id: str
    fingerprint: str
    state: OperationState
    output: Any = None
    mutations: tuple[str, ...] = ()


@final_fields
class ApprovalDocument:
    """The state of one approval request. The question and the answer are in the journal, where they can be erased.
    `deadline_us` is Unix time in microseconds.
    """

    approval_id: str
    gate_id: str
    required_role: str
    deadline_us: int
    binding_digest: str
    run_id: str
    state: ApprovalState
    approver: str | None = None


@final_fields
class Denial:
    """A person's final denial of one operation: the run that asked and the approver who denied."""

    run_id: str
    approver: str


@final_fields
class PasskeyCount:
    """The number of signatures that a passkey itself had counted when it proved the last answer."""

    count: int


@final_fields
class CircuitDocument:
    """The state of one circuit breaker in the process `process`. It is written at each change of state, for operators
    to read. Times are Unix microseconds.
    """

    adapter_id: str
    capability: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    since_us: int
    retry_at_us: int
    process: str


@final_fields
class DriftIncident:
    """A call found that the definition of a foreign tool is not the published one: the run, the call, and when (Unix
    microseconds).
    """

    run_id: str
    tool_call_id: str
    at_us: int


@final_fields
class BucketEnd:
    """The end of the chain of a history bucket: the number of effects that it counts, and the time (Unix microseconds)
    and digest of the last effect; 0 and "" for an empty bucket.
    """

    number: int = 0
    at_us: int = 0
    digest: str = ""


@final_fields
class HistoryBucket:
    """The fence of one history bucket. Each effect that is counted in it replaces this document, whose version is
    `end.number`. The key `kid` of the runtime signed the end (`signature`, hex).
    """

    end: BucketEnd
    kid: str
    signature: str


@final_fields
class CountedEffect:
    """One effect in a history bucket: the operation (`operation_key`), when it was dispatched (Unix microseconds), and
    its numeric arguments. It counts while its operation is not released.

    `number` is its place in the bucket, from 1, and `before` is the end of the bucket before this effect.
    """

    operation: str
    at_us: int
    numbers: dict[str, int | float]
    number: int
    before: BucketEnd

    def end(self) -> BucketEnd:
        """Return the end of the bucket after this effect."""
        return BucketEnd(self.number, self.at_us, content_address(asdict(self)))


@final_fields
class OpenPlace:
    """A place in a limited number of places, and the id of the question, or of the session's run, that took it. The
    question or session can be closed since.
    """

    held: str


@final_fields
class UnvouchedWrite:
    """The values in a write that no trusted source had, as digests by which they are recognised when they are read
    again. None: there were too many to keep, or they were erased. The key `kid` of the runtime signed the document
    (`signature`, hex) at `at_us` (Unix microseconds).
    """

    digests: tuple[str, ...] | None
    at_us: int
    kid: str
    signature: str


def args_fingerprint(args: Mapping[str, Any]) -> str:
    """Return a digest of a call's arguments. Two calls with the same idempotency key and different digests are in
    conflict.
    """
    return content_address({name: value for name, value in args.items() if name != "idempotency_key"})


def operation_key(capability_id: str, idempotency_key: str) -> str:
    """Return the document key of an operation: `<capability>/<idempotency key>`."""
    return f"{capability_id}/{idempotency_key}"


def tool_of_operation(operation: str) -> str:
    """Return the id of the tool of an operation, from its document key."""
    return operation.partition("/")[0]


def denial_key(capability_id: str, definition_digest: str, idempotency_key: str | None) -> str:
    """Return the document key of a denial of one operation.
    The key contains the digest of the capability's definition, so a changed capability is asked about again.
    """
    return f"{capability_id}/{definition_digest}/{idempotency_key}"


def bound_denial(binding: Mapping[str, Any]) -> str:
    """Return the document key of a denial of the operation in the binding of a question (`denial_key`)."""
    return denial_key(binding["capability_id"], binding["definition_digest"], binding["idempotency_key"])


def denial_place(key: str, number: int) -> str:
    """Return the document key of the denial that follows `number` denials which do not count; `key` is `denial_key`."""
    return f"{key}#{number}" if number else key


def kept_digest(digests: tuple[str, ...] | None) -> str:
    """Return the digest of the digests of an `UnvouchedWrite`; the call's entry `arguments.traced` has it as `kept`."""
    return content_address({"digests": None if digests is None else list(digests)})


def unvouched_key(adapter_id: str, run_id: str, call: str) -> str:
    """Return the document key of the `UnvouchedWrite` of a call: `<adapter>/<run id>/<call>`. `call` is the key of the
    call in its run, `<plan revision>/<step id>`.
    """
    return f"{adapter_id}/{run_id}/{call}"


def counted_key(bucket: str, effect: CountedEffect) -> str:
    """Return the document key of an effect in a history bucket, by which the effects of a bucket are in their order."""
    return f"{bucket}/{effect.at_us:020d}/{effect.number:012d}"


def counted_numbers(args: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the numeric arguments of a call, which a history fact can add up."""
    return {
        name: value for name, value in args.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def circuit_key(adapter_id: str, capability: str) -> str:
    """Return the key of a circuit breaker: `<adapter>.<capability>`."""
    return f"{adapter_id}.{capability}"


def quarantine_key(capability_id: str, definition_digest: str, code_digest: str) -> str:
    """Return the prefix of the keys of all incidents of one published version of a capability. The version is the
    definition and the code of its adapter; the code of a foreign adapter is its published file.
    """
    version = content_address({"definition": definition_digest, "code": code_digest})
    return f"{capability_id}/{version}/"


def _encode_operation(operation: OperationDocument) -> bytes:
    if operation.state in _WITH_OUTPUT:
        return orjson.dumps(operation)
    return _encode_without(operation, "output", "mutations")


def _encode_approval(approval: ApprovalDocument) -> bytes:
    return orjson.dumps(approval) if approval.approver is not None else _encode_without(approval, "approver")


def _encode_without(document: OperationDocument | ApprovalDocument, *names: str) -> bytes:
    body = orjson.loads(orjson.dumps(document))
    for name in names:
        del body[name]
    return orjson.dumps(body)


OPERATIONS: Final = stored("keys", OperationDocument, _encode_operation)
"""By `operation_key`."""

APPROVALS: Final = stored("approvals", ApprovalDocument, _encode_approval)
"""By approval id."""

DENIALS: Final = stored("denials", Denial)
"""By `denial_place`."""

PASSKEY_COUNTS: Final = stored("passkey_counts", PasskeyCount)
"""By the digest of approver and credential id, of passkeys that count."""

HISTORY_BUCKETS: Final = stored("history_buckets", HistoryBucket)
"""By bucket: `<capability>/<over>/<digest of the value>`."""

COUNTED_EFFECTS: Final = stored("counted_effects", CountedEffect)
"""By `counted_key`."""

BREAKERS: Final = stored("breakers", CircuitDocument)
"""By `circuit_key`."""

DRIFT_INCIDENTS: Final = stored("drift_incidents", DriftIncident)
"""By `<quarantine key><tool call id>`."""

UNVOUCHED_WRITES: Final = stored("unvouched_writes", UnvouchedWrite)
"""By `unvouched_key`."""

OPEN_QUESTIONS: Final = stored("open_questions", OpenPlace)
"""By `<role>/<number of the place>`."""

OPEN_SESSIONS: Final = stored("open_sessions", OpenPlace)
"""By `<agent id>/<number of the place>`."""
