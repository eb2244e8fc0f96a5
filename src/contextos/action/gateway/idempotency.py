"""Idempotency: the same operation happens once, however many calls ask for it.

An idempotency key identifies the operation. Its document `keys/<capability>/<key>` says which run claimed it and what
came of it; a compare-and-set on that document decides between runs. The denial of the operation, a cancel request for
the run and the store's epoch are read together with it, in one recorded answer, before a person is asked or
a call is sent.
Source: docs/design/contracts.md, "Identifiers", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from contextos.contracts.documents.collection import StoredDocument, find_documents
from contextos.contracts.documents.epochs import EPOCH_KEY, EPOCHS, Epoch
from contextos.contracts.documents.operations import DENIALS, OPERATIONS, OperationDocument, denial_key, operation_key
from contextos.contracts.documents.runs import CANCELS
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import Idempotency, ToolResultEnvelope
from contextos.contracts.ids import idempotency_key
from contextos.contracts.journal import Parked, Write
from contextos.contracts.ports.outside import Clock
from contextos.contracts.ports.seams import Journal
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability, RunScope, SessionWindow, StepCall
from contextos.errors import Integrity

RETRY_CLAIMED_US = 50_000
MAX_RETRY_CLAIMED_US = 300_000_000
"""First and longest time that a run sleeps before it checks again an operation that another run has claimed."""


def key_for_call(scope: RunScope, rule: Idempotency, capability_id: str, call: StepCall) -> str:
    """Derive the idempotency key of a call. A retry or a new plan of the same operation derives the same key."""
    within = {
        "run": scope.run.run_id,
        "session": scope.run.session_id or scope.run.run_id,
        "subject": scope.principals.user.user_id,
        "tenant": scope.run.tenant_id,
    }[rule.scope]
    args = call.args if rule.identity_args is None else {name: call.args.get(name) for name in rule.identity_args}
    return idempotency_key(
        tenant_id=scope.run.tenant_id,
        scope=f"{rule.scope}:{within}",
        capability_id=capability_id,
        args=dict(args),
        occurrence=call.occurrence if rule.scope == "run" else 0,
    )


def call_fingerprint(args: Any) -> str:
    """Return a digest of the arguments. Two calls with one key and different fingerprints are in conflict."""
    return content_address({name: value for name, value in args.items() if name != "idempotency_key"})


def _denial_key(capability: Capability, key: str) -> str:
    return denial_key(capability.capability_id, capability.definition_digest, key)


async def look_up_operation(
    journal: Journal,
    store: Store,
    clock: Clock,
    capability: Capability,
    key: str,
    args: Mapping[str, Any],
    *,
    step_key: str,
    when: Literal["before", "redeem"],
    session: SessionWindow | None,
) -> dict[str, Any]:
    """Read the state of an operation, as one recorded answer.

    `state` is `free`, `completed` (with the stored output), `unusable` (done, but its output was refused), `other_body`
    (the key belongs to other arguments) or `claimed` (by another run). `claimed` is returned only at redemption or
    after the session's end; otherwise the run is suspended and reads again later.
    """
    fingerprint = call_fingerprint(args)
    deadline_us = session.deadline_us if session else None

    async def call() -> dict[str, Any]:
        denial, place = _denial_key(capability, key), operation_key(capability.capability_id, key)
        found = await find_documents(
            store,
            CANCELS.place(journal.run_id),
            DENIALS.place(denial),
            OPERATIONS.place(place),
            EPOCHS.place(EPOCH_KEY),
        )
        answer: dict[str, Any] = {
            "cancelled": found.has(CANCELS, journal.run_id),
            "denied": found.has(DENIALS, denial),
            "state": "free",
            "version": 0,
            "mutations": [],
            "epoch": _epoch(found.one(EPOCHS, EPOCH_KEY)),
        }
        known = found.one(OPERATIONS, place)
        if known:
            if known.body.fingerprint != fingerprint:
                return {**answer, "state": "other_body"}
            if known.body.state == "completed":
                output, mutations = known.body.output, list(known.body.mutations)
                return {**answer, "state": "completed", "output": output, "mutations": mutations}
            if known.body.state == "unusable":
                return {**answer, "state": "unusable"}
            if known.body.state == "released":
                return {**answer, "version": known.version}
            now_us = clock.now_us()
            if when == "redeem" or (deadline_us is not None and now_us >= deadline_us):
                # Waiting for the other run would make everything that was just rechecked out of date.
                return {**answer, "state": "claimed"}
            # The longer it has waited, the later it reads again: the other run can be waiting for a person.
            waited_us = max(0, now_us - journal.now_us)
            again_us = now_us + min(max(RETRY_CLAIMED_US, waited_us // 2), MAX_RETRY_CLAIMED_US)
            raise Parked(again_us if deadline_us is None else min(again_us, deadline_us))
        return answer

    request = {"capability_id": capability.capability_id, "key": key, "fingerprint": fingerprint}
    found: dict[str, Any] = await journal.record("act.looked_up", f"{when}/{step_key}", request, call)
    return found


def claim_key(run_id: str, capability_id: str, key: str, args: Any, version: int, tool_call_id: str) -> Write:
    """Build the write that claims an operation, which was free or released at `version`, for this run."""
    claim = OperationDocument(run_id, tool_call_id, call_fingerprint(args), "claimed")
    return OPERATIONS.write(operation_key(capability_id, key), version, claim)


def lookup_preconditions(
    run_id: str, capability: Capability, key: str, operation: Mapping[str, Any]
) -> tuple[Write, ...]:
    """Build the checks to commit with the claim: no cancel, denial or restore happened since the look-up."""
    checks = (CANCELS.check(run_id, 0), DENIALS.check(_denial_key(capability, key), 0))
    return (*checks, *epoch_precondition(operation))


def epoch_precondition(operation: Mapping[str, Any]) -> tuple[Write, ...]:
    """Build the check that the store was not restored since the look-up."""
    return (EPOCHS.check(EPOCH_KEY, operation["epoch"]["version"]),) if "epoch" in operation else ()


async def require_same_epoch(run_id: str, store: Store, operation: Mapping[str, Any]) -> None:
    """Refuse another attempt of a call if the store was restored since the look-up.

    The restored store does not know what happened after its backup, so another attempt could pay twice.

    Raises:
        Integrity: the store was restored; the run stays suspended until an operator compares with the other system.
    """
    if (
        "epoch" in operation
        and _epoch((await find_documents(store, EPOCHS.place(EPOCH_KEY))).one(EPOCHS, EPOCH_KEY))["id"]
        != operation["epoch"]["id"]
    ):
        raise Integrity(
            f"`{run_id}` is between two attempts of a call, and the store was restored since; nothing more is sent:"
            " compare with the other system's records, then send a new request"
        )


def _epoch(found: StoredDocument[Epoch] | None) -> dict[str, Any]:
    """Return the store's epoch in the form that a look-up records. Journals from before epochs have none."""
    if found is None:
        return {"id": "", "version": 0, "since_us": 0}
    return {"id": found.body.id, "version": found.version, "since_us": found.body.at_us}


def is_same_epoch(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two look-ups saw the same epoch of the store. A look-up without an epoch saw the first one."""
    return _epoch_id(before) == _epoch_id(now)


def _epoch_id(operation: Mapping[str, Any]) -> str:
    return str(operation["epoch"]["id"]) if "epoch" in operation else ""


def predates_epoch(operation: Mapping[str, Any], first_us: int) -> bool:
    """Return whether a run that began at `first_us` (Unix microseconds) is older than the store's last restore.

    The restored store does not know what such a run sent after the backup.
    """
    return "epoch" in operation and first_us <= int(operation["epoch"]["since_us"])


def complete_key(claimed: Write, result: ToolResultEnvelope, *, happened: bool) -> Write:
    """Build the write that ends a claim: keep the output for later callers, or release it if nothing happened."""
    ((_, claim),) = OPERATIONS.written((claimed,))
    if happened:
        state: Literal["completed", "unusable"] = "completed" if result.status == "completed" else "unusable"
        ended = replace(claim, state=state, output=result.output, mutations=result.mutations)
    else:
        ended = replace(claim, state="released")
    return OPERATIONS.write(claimed.key, claimed.expect + 1, ended)
