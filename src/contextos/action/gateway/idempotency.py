"""Make calls idempotent: the same operation happens once, however many calls ask for it.

An idempotency key identifies the operation. The document `keys/<capability>/<key>` states which run claimed the
operation and its result; a compare-and-set on that document decides between runs. The denial of the operation, a cancel
request for the run and the store's epoch are read together with the document, in one recorded answer, before a person
is asked or a call is sent.
Source: docs/design/contracts.md, "Identifiers", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from contextos.action.gateway.delivery import DispatchPorts
from contextos.contracts.documents.collection import FoundDocuments, StoredDocument, find_documents
from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, Epoch
from contextos.contracts.documents.operations import (
    DENIALS,
    OPERATIONS,
    OperationDocument,
    args_fingerprint,
    denial_key,
    denial_place,
    operation_key,
)
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.envelopes.tool import Idempotency, ToolResultEnvelope
from contextos.contracts.ids import idempotency_key
from contextos.contracts.journal import CLOCK_MARGIN_US, Parked, Write
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.seams import Journal
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import RunScope, SessionWindow
from contextos.errors import Integrity

RETRY_CLAIMED_US = 50_000
MAX_RETRY_CLAIMED_US = 300_000_000
"""The shortest and the longest time, in microseconds, after which a run checks again an operation that another claimed.
"""


def key_for_call(scope: RunScope, rule: Idempotency, capability_id: str, call: ToolCall) -> str:
    """Derive the idempotency key of a call. A retry, or the same operation in a new plan, has the same key."""
    scope_id = {
        "run": scope.run.run_id,
        "session": scope.run.session_id or scope.run.run_id,
        "subject": scope.identity.principals.user.user_id,
        "tenant": scope.run.tenant_id,
    }[rule.scope]
    args = call.args if rule.identity_args is None else {name: call.args.get(name) for name in rule.identity_args}
    return idempotency_key(
        tenant_id=scope.run.tenant_id,
        scope=f"{rule.scope}:{scope_id}",
        capability_id=capability_id,
        args=dict(args),
        occurrence=call.occurrence if rule.scope == "run" else 0,
    )


def key_of(scope: RunScope, call: ToolCall) -> str:
    """Return the idempotency key of a call, which is derived once."""
    if not call.operation_key:
        capability = call.capability
        call.operation_key = key_for_call(scope, capability.definition.idempotency, capability.capability_id, call)
    return call.operation_key


def _denial_key(call: ToolCall) -> str:
    return denial_key(call.capability.capability_id, call.capability.definition_digest, call.operation_key)


def _operation_key(call: ToolCall) -> str:
    return operation_key(call.capability.capability_id, call.operation_key)


def operation_places(call: ToolCall) -> tuple[tuple[str, str], ...]:
    """Return the places of the documents on the operation of a call (its denial, its key) and on the store's epoch."""
    return DENIALS.place(_denial_key(call)), OPERATIONS.place(_operation_key(call)), EPOCHS.place(EPOCH_KEY)


async def look_up_operation(
    journal: Journal,
    ports: DispatchPorts,
    call: ToolCall,
    step_key: str,
    when: Literal["before", "redeem", "again"],
    session: SessionWindow | None,
) -> dict[str, Any]:
    """Read the state of the operation of a call (by its `operation_key`), and record it as one answer.

    `state` is `free`, `completed` (with the stored output, and in `made_by` the run and the call that did it),
    `unusable` (as `completed`, but its answer is withheld), `other_body` (the key belongs to other arguments) or
    `claimed` (by another run). `claimed` is returned only when an approval is used or after the session's end;
    otherwise the run is suspended and reads again later.

    Raises:
        Integrity: the signed journal of the run that the stored row names does not show what the row states.
    """
    fingerprint = _fingerprint(call)
    deadline_us = session.deadline_us if session else None

    async def look() -> dict[str, Any]:
        denial, place = _denial_key(call), _operation_key(call)
        # A loop: a function that calls itself is a reference cycle, which would keep the whole run in memory.
        while True:
            documents = await ports.barrier.found(places=operation_places(call))
            answer: dict[str, Any] = {
                **await _cancel_fields(ports, documents, journal.run_id),
                **await _denial_fields(ports, documents, denial),
                "state": "free",
                "version": 0,
                "mutations": [],
                "epoch": _epoch_fields(documents.one(EPOCHS, EPOCH_KEY)),
            }
            row = documents.one(OPERATIONS, place)
            # A run that is cancelled does not wait for the run that has the operation.
            if row is None or answer["cancelled"]:
                return answer
            if when == "again" or await is_proved(ports, place, row):
                break
            ports.barrier.forget()
        if row.body.fingerprint != fingerprint:
            return {**answer, "state": "other_body"}
        if row.body.state in ("completed", "unusable"):
            made_by = {"run_id": row.body.run_id, "tool_call_id": row.body.tool_call_id}
            output = row.body.output if row.body.state == "completed" else None
            result = {"output": output, "mutations": list(row.body.mutations), "made_by": made_by}
            return {**answer, "state": row.body.state, **result}
        if row.body.state == "released":
            return {**answer, "version": row.version}
        now_us = ports.clock.now_us()
        if when != "before" or (deadline_us is not None and now_us >= deadline_us):
            # Waiting for the other run would make everything that was just rechecked out of date.
            return {**answer, "state": "claimed"}
        # The longer it has waited, the later it reads again: the other run can be waiting for a person.
        waited_us = max(0, now_us - journal.now_us)
        retry_at_us = now_us + min(max(RETRY_CLAIMED_US, waited_us // 2), MAX_RETRY_CLAIMED_US)
        raise Parked(min(retry_at_us, deadline_us or retry_at_us), operation=(place, row.version))

    request = {"capability_id": call.capability.capability_id, "key": call.operation_key, "fingerprint": fingerprint}
    operation: dict[str, Any] = await journal.record("act.looked_up", f"{when}/{step_key}", request, look)
    return operation


async def _cancel_fields(ports: DispatchPorts, documents: FoundDocuments, run_id: str) -> dict[str, Any]:
    """Return whether a person asked to cancel the run. A stored request that no sealed act proves does not count: its
    version is returned as `unproved_cancel`.
    """
    version = documents.version(CANCELS, run_id)
    if not version or await ports.proved_cancels():
        return {"cancelled": bool(version)}
    return {"cancelled": False, "unproved_cancel": version}


async def _denial_fields(ports: DispatchPorts, documents: FoundDocuments, key: str) -> dict[str, Any]:
    """Return whether a person denied the operation; `unproved_denials` counts the stored denials without a proof."""
    if not documents.has(DENIALS, key):
        return {"denied": False}
    unproved = await ports.unproved_denials(key)
    return {"denied": True} if unproved is None else {"denied": False, "unproved_denials": unproved}


async def is_proved(ports: DispatchPorts, place: str, row: StoredDocument[OperationDocument]) -> bool:
    """Return whether a row of the idempotency table is proved by the run that it names. False means that the row has
    changed since it was read, and has to be read again.

    Raises:
        Integrity: the signed journal of that run does not show what the row states.
    """
    fault = await ports.operation_fault(place, row)
    if fault is None:
        return True
    current = await OPERATIONS.one(ports.store, place)
    if current is None or current.version != row.version:
        return False
    detail = f"the document `{OPERATIONS.name}/{place}` is not believed: {fault}; nothing is sent: compare with the"
    raise Integrity(f"{detail} other system's records, and restore the document from a backup")


def _fingerprint(call: ToolCall) -> str:
    return args_fingerprint(call.args) if "idempotency_key" in call.args else call.args_digest


def claim_key(run_id: str, call: ToolCall, now_us: int) -> Write:
    """Build the write that claims the operation of a call for this run, so that no other run makes the same call.

    The write fails unless the operation's document still has the version at which it was free. It also fails if the
    clock of this process (`now_us`) is more than `CLOCK_MARGIN_US` behind the store's, because other processes would
    then believe too early that the call is over.
    """
    claim = OperationDocument(run_id, call.tool_call_id, _fingerprint(call), "claimed")
    version, until_us = call.operation["version"], now_us + CLOCK_MARGIN_US
    return OPERATIONS.write(_operation_key(call), version, claim, not_after_us=until_us)


def lookup_preconditions(run_id: str, call: ToolCall, operation: Mapping[str, Any]) -> tuple[Write, ...]:
    """Build the writes that make the commit fail if the run was cancelled, the operation denied or the store restored
    since `operation` was looked up.
    """
    checks = (
        CANCELS.check(run_id, operation.get("unproved_cancel", 0)),
        DENIALS.check(denial_place(_denial_key(call), operation.get("unproved_denials", 0)), 0),
    )
    return (*checks, *epoch_precondition(operation))


def epoch_precondition(operation: Mapping[str, Any]) -> tuple[Write, ...]:
    """Build the write that makes the commit fail if the store was restored from a backup since `operation` was looked
    up.
    """
    return (EPOCHS.check(EPOCH_KEY, operation["epoch"]["version"]),) if operation else ()


async def require_same_epoch(run_id: str, store: Store, operation: Mapping[str, Any]) -> None:
    """Refuse another attempt of a call if the store was restored from a backup since the look-up.

    A restored store does not know what happened after its backup, so another attempt could pay twice.

    Raises:
        Integrity: the store was restored; the run stays suspended until an operator has compared the other system.
    """
    if not is_in_epoch(operation, (await find_documents(store, EPOCHS.place(EPOCH_KEY))).one(EPOCHS, EPOCH_KEY)):
        raise Integrity(
            f"`{run_id}` is between two attempts of a call, and the store was restored since; nothing more is sent:"
            " compare with the other system's records, then send a new request"
        )


def _epoch_fields(row: StoredDocument[Epoch] | None) -> dict[str, Any]:
    """Return the store's epoch (the period since the last restore) in the form that a look-up records."""
    if row is None:
        return {"id": "", "version": 0, "since_us": 0}
    return {"id": row.body.id, "version": row.version, "since_us": row.body.at_us}


def is_same_epoch(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether the store was not restored between two look-ups."""
    return bool(before["epoch"]["id"] == now["epoch"]["id"])


def is_in_epoch(before: Mapping[str, Any], now: StoredDocument[Epoch] | None) -> bool:
    """Return whether the store, whose epoch is `now`, was not restored since a look-up."""
    return is_same_epoch(before, {"epoch": _epoch_fields(now)})


def predates_epoch(operation: Mapping[str, Any], first_us: int) -> bool:
    """Return whether a run that began at `first_us` (Unix microseconds) began before the store's last restore.

    A restored store does not know what such a run sent after the backup.
    """
    return bool(operation) and first_us <= int(operation["epoch"]["since_us"])


def can_be_done_before(operation: Mapping[str, Any], rule: Idempotency) -> bool:
    """Return whether a run that the store lost in a restore can have done this operation: its key does not depend on
    the run, and the other system can be asked.
    """
    restored = operation and operation["epoch"]["since_us"]
    return bool(restored) and rule.scope != "run" and rule.strategy == "lookup"


def release_key(claimed: Write) -> Write:
    """Build the write that releases the key of an operation that was not sent."""
    ((_, claim),) = OPERATIONS.written((claimed,))
    return OPERATIONS.write(claimed.key, claimed.expect + 1, _released_document(claim))


def complete_key(
    claimed: Write, result: ToolResultEnvelope, *, happened: bool, not_before_us: int | None = None
) -> Write:
    """Build the write that ends a run's claim of an operation: store the output, or release the key if nothing
    happened.

    The write fails while the store's clock is before `not_before_us` (Unix microseconds); this process's clock does not
    count.
    """
    ((_, claim),) = OPERATIONS.written((claimed,))
    if happened:
        is_usable = result.status == "completed" and result.withheld is None
        state: Literal["completed", "unusable"] = "completed" if is_usable else "unusable"
        document = OperationDocument(
            claim.run_id, claim.tool_call_id, claim.fingerprint, state, result.output, result.mutations
        )
    else:
        document = _released_document(claim)
    return OPERATIONS.write(claimed.key, claimed.expect + 1, document, not_before_us=not_before_us)


def _released_document(claim: OperationDocument) -> OperationDocument:
    return OperationDocument(claim.run_id, claim.tool_call_id, claim.fingerprint, "released")
