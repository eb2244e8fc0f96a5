"""The idempotency table: which act a call is, what is known of it, and who may do it. One statement arbitrates.

An act's document is `keys/<capability>/<key>`; a denial's is `denials/<capability>/<definition>/<key>`; a request to
cancel the run is `cancels/<run>`; the store's epoch is `epoch/store`. All are read in one recorded answer before
anybody is asked or anything is sent.
Source: shared/design/contracts.md, "idempotency key", "A denial is final".
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
"""How long a run sleeps, at first and at most, before it looks again at an act that another run is doing."""


def key_for_call(scope: RunScope, rule: Idempotency, capability_id: str, call: StepCall) -> str:
    """The key of the act. Planners never choose it, and a retry or replan of the same act keeps it."""
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
    """What makes two calls with one key the same call."""
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
    """What is known of the act now, as one recorded answer.

    `state` is `free`, `completed` (with the stored output), `other_body` or, at redemption and when the session is
    over, `claimed`; before that an act that another run is doing parks this one.
    """
    mine = call_fingerprint(args)
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
            if known.body.fingerprint != mine:
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
                # What was rechecked a moment ago would be old by the time the other run is done.
                return {**answer, "state": "claimed"}
            # The longer it has waited, the later it looks again: the other run may be waiting for a person.
            waited_us = max(0, now_us - journal.now_us)
            again_us = now_us + min(max(RETRY_CLAIMED_US, waited_us // 2), MAX_RETRY_CLAIMED_US)
            raise Parked(again_us if deadline_us is None else min(again_us, deadline_us))
        return answer

    request = {"capability_id": capability.capability_id, "key": key, "fingerprint": mine}
    found: dict[str, Any] = await journal.record("act.looked_up", f"{when}/{step_key}", request, call)
    return found


def claim_key(run_id: str, capability_id: str, key: str, args: Any, version: int, tool_call_id: str) -> Write:
    """Take the act: it was free (or given back) at `version`, and it is nobody else's from this commit on."""
    claim = OperationDocument(run_id, tool_call_id, call_fingerprint(args), "claimed")
    return OPERATIONS.write(operation_key(capability_id, key), version, claim)


def unchanged_since_lookup(run_id: str, capability: Capability, key: str, act: Mapping[str, Any]) -> tuple[Write, ...]:
    """Checks that ride with the claim: no cancel, denial or restore came between the look-up and this commit."""
    checks = (CANCELS.check(run_id, 0), DENIALS.check(_denial_key(capability, key), 0))
    return (*checks, *same_epoch_check(act))


def same_epoch_check(act: Mapping[str, Any]) -> tuple[Write, ...]:
    """The check that the store was not restored since the look-up."""
    return (EPOCHS.check(EPOCH_KEY, act["epoch"]["version"]),) if "epoch" in act else ()


async def still_in_epoch(run_id: str, store: Store, act: Mapping[str, Any]) -> None:
    """Refuses another attempt of a call after a restore that lies between the two.

    The backup knows of the first one alone, and an approval from before the restore pays nothing.

    Raises: `Integrity`; the run rests until somebody looked at the other side's books.
    """
    if (
        "epoch" in act
        and _epoch((await find_documents(store, EPOCHS.place(EPOCH_KEY))).one(EPOCHS, EPOCH_KEY))["id"]
        != act["epoch"]["id"]
    ):
        raise Integrity(
            f"`{run_id}` stands between two attempts of a call, and the store was restored since; nothing more is sent:"
            " compare with the other side's books, then send a new request"
        )


def _epoch(found: StoredDocument[Epoch] | None) -> dict[str, Any]:
    """The epoch of the store as a look-up records it; old journals hold none."""
    if found is None:
        return {"id": "", "version": 0, "since_us": 0}
    return {"id": found.body.id, "version": found.version, "since_us": found.body.at_us}


def in_one_epoch(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two look-ups saw the store in the same epoch. One of before there were epochs saw the first."""
    return bool(_id_of(before) == _id_of(now))


def _id_of(act: Mapping[str, Any]) -> str:
    return str(act["epoch"]["id"]) if "epoch" in act else ""


def began_before(act: Mapping[str, Any], first_us: int) -> bool:
    """Whether what began at `first_us` is older than the store's epoch: what it did after the backup is not known."""
    return "epoch" in act and first_us <= int(act["epoch"]["since_us"])


def complete_key(claimed: Write, result: ToolResultEnvelope, *, happened: bool) -> Write:
    """After the outcome: keep the output for every later caller, or give the act back because nothing happened."""
    ((_, claim),) = OPERATIONS.written((claimed,))
    if happened:
        state: Literal["completed", "unusable"] = "completed" if result.status == "completed" else "unusable"
        done = replace(claim, state=state, output=result.output, mutations=result.mutations)
    else:
        done = replace(claim, state="released")
    return OPERATIONS.write(claimed.key, claimed.expect + 1, done)
