"""A row of the idempotency table counts for what the signed journal of its run shows, and for nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.operations import OperationDocument, args_fingerprint, operation_key
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.journal import Batch, Draft, Entry, genesis, link
from contextos.trust.journal.signed_heads import head_payload
from contextos.trust.rows.operations import operation_fault
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores

KEYS = KeyRing.from_seed(b"k" * 32)
ARGS = {"amount": 9}
PLACE = operation_key("adp.pay", "key_1")
OUTPUT = {"id": "txn_1"}
DISPATCH = (
    "tool.dispatching",
    "0/s1/1",
    {
        "envelope": {
            "capability_id": "adp.pay",
            "idempotency_key": "key_1",
            "tool_call_id": "tc_1",
            "args": {**ARGS, "idempotency_key": "key_1"},
        }
    },
)
LOOKED_UP = ("act.looked_up", "before/0/s1", {"state": "free", "version": 4})
AGAIN = ("act.looked_up", "again/0/s1", {"state": "claimed", "version": 0})
RETRY = ("tool.retry_scheduled", "0/s1/1", {"tool_call_id": "tc_1"})
SCORED = ("run.scored", "0", {})
REFUSED = ("tool.refused", "0/s1/1", {"envelope": {"tool_call_id": "tc_1"}})


def returned(outcome: str = "returned", status: str = "completed", *, happened: bool = True) -> Any:
    envelope = {"tool_call_id": "tc_1", "status": status, "output": OUTPUT, "mutations": ["m"]}
    return ("tool.returned", "0/s1/1", {"outcome": outcome, "happened": happened, "envelope": envelope})


def settled(*, happened: bool, key: str = "0/s1") -> Any:
    said = {"output": OUTPUT, "mutations": ["m"]} if happened else {}
    return ("effect.settled", key, {"happened": happened, "by": "usr_op", "evidence_ref": "artifact:a#rev_1", **said})


def asked_again(key: str = "0/s1") -> Any:
    return ("record.revised", f"uncertain/{key}", {})


def row(state: Any, **change: Any) -> OperationDocument:
    fields = {"run_id": "run_a", "tool_call_id": "tc_1", "fingerprint": args_fingerprint(ARGS), "state": state}
    done = {"output": OUTPUT, "mutations": ("m",)} if state in ("completed", "unusable") else {}
    return OperationDocument(**(fields | done | change))


def fault(said: list[Any], known: OperationDocument, *, signed: int | None = None, version: int = 6) -> str | None:
    """Why the row is not believed, where the run holds these entries and a head is signed behind `signed` of them. It
    found the operation free in the version 4 of its row.
    """
    said = [LOOKED_UP, *said]
    signed = signed and signed + 1
    entries: list[Entry] = []
    for kind, key, body in said:
        stored = {"request_digest": "d", "answer": body} if KINDS[kind].recorded else body
        head = entries[-1].hash if entries else genesis("acme", "run_a")
        draft = Draft(kind, key, 1, "runtime", canonical(stored), bytes(16))
        entries.append(link("acme", "run_a", len(entries) + 1, head, draft))
    reached = len(entries) if signed is None else signed

    async def act() -> str | None:
        store = MemoryStores().tenant("acme")
        kid, signature = KEYS.sign("head", head_payload("acme", "run_a", reached, entries[reached - 1].hash))
        await store.commit(Batch("run_a", tuple(entries[:reached]), signature=(kid, signature.hex())))
        if entries[reached:]:
            await store.commit(Batch("run_a", tuple(entries[reached:])))
        return await operation_fault(store, "acme", KEYS, PLACE, StoredDocument(PLACE, version, known))

    return asyncio.run(act())


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ([DISPATCH], "claimed"),
        ([DISPATCH, returned("unknown", "paused", happened=False)], "claimed"),
        ([DISPATCH, returned("not_sent", "failed", happened=False), RETRY], "claimed"),
        ([DISPATCH, returned("not_sent", "failed", happened=False), RETRY, REFUSED], "released"),
        ([DISPATCH, returned("unknown", "paused", happened=False), RETRY, REFUSED], "claimed"),
        ([DISPATCH, returned("not_sent", "failed", happened=False)], "released"),
        ([DISPATCH, returned()], "completed"),
        ([DISPATCH, returned(status="failed")], "unusable"),
        ([DISPATCH, returned("unknown", "paused", happened=False), settled(happened=True), SCORED], "completed"),
        ([DISPATCH, returned("unknown", "paused", happened=False), settled(happened=False), SCORED], "released"),
        ([DISPATCH, returned("unknown", "paused", happened=False), settled(happened=False), asked_again()], "claimed"),
    ],
)
def test_a_row_is_believed_in_exactly_the_state_that_its_run_shows(said: list[Any], state: str) -> None:
    assert fault(said, row(state)) is None
    for other in {"claimed", "released", "completed", "unusable"} - {state}:
        assert fault(said, row(other)) == f"it states `{other}`, and `run_a` shows `{state}`"


@pytest.mark.parametrize("again", [[], [RETRY, AGAIN]])
def test_a_released_row_is_believed_in_the_version_alone_that_its_run_left(again: list[Any]) -> None:
    said = [DISPATCH, *again, returned("not_sent", "failed", happened=False)]
    assert fault(said, row("released")) is None
    for version in (1, 5, 7, 8):
        assert "the operation was taken up since" in (fault(said, row("released"), version=version) or "")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run_id": "run_b"}, "which has no signed entry"),
        ({"tool_call_id": "tc_2"}, "no signed entry of `run_a` dispatches"),
        ({"fingerprint": "sha256:0"}, "no signed entry of `run_a` dispatches"),
        ({"output": {"id": "txn_2"}}, "its output is not the one"),
        ({"mutations": ()}, "its output is not the one"),
    ],
)
def test_a_row_that_differs_in_anything_is_not_believed(change: dict[str, Any], told: str) -> None:
    assert told in (fault([DISPATCH, returned()], row("completed", **change)) or "")


def test_a_settlement_that_no_head_covers_and_one_of_another_step_prove_nothing() -> None:
    unknown = returned("unknown", "paused", happened=False)
    forged = [DISPATCH, unknown, settled(happened=False)]
    assert fault(forged, row("released"), signed=2) == "it states `released`, and `run_a` shows `claimed`"
    other = [DISPATCH, unknown, settled(happened=False, key="0/s2")]
    assert fault(other, row("released")) == "it states `released`, and `run_a` shows `claimed`"


def test_a_settlement_that_its_run_has_not_taken_yet_leaves_the_operation_claimed() -> None:
    said = [DISPATCH, returned("unknown", "paused", happened=False), settled(happened=False)]
    assert fault(said, row("claimed")) is None
    assert fault(said, row("released")) is None
    assert fault([*said, SCORED], row("claimed")) == "it states `claimed`, and `run_a` shows `released`"


def test_a_run_that_does_not_verify_proves_nothing() -> None:
    told = fault([DISPATCH, returned()], row("completed"), signed=1)
    assert told is not None
    assert told.startswith("the run that it names does not verify: ")
