"""What every collection does: its bytes, its keys, and the refusal of a body that does not fit."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import orjson
import pytest

from contextos.contracts.documents import catalog, epochs, memories, operations, runs
from contextos.contracts.documents.collection import Collection, find_documents
from contextos.contracts.journal import Batch, Document
from contextos.errors import Integrity
from contextos.store.memory.stores import MemoryStores

CLAIM = {"run_id": "run_1", "tool_call_id": "call_1", "fingerprint": "sha256:aa", "state": "claimed"}
QUESTION = {
    "approval_id": "appr_1",
    "gate_id": "GATE",
    "required_role": "finance",
    "deadline_us": 7,
    "binding_digest": "sha256:bb",
    "run_id": "run_1",
    "state": "open",
}
BODIES: list[tuple[Collection[Any], dict[str, Any]]] = [
    (runs.LEASES, {"owner": "host", "until_us": 1}),
    (runs.LEASES, {"owner": "host", "until_us": 1, "at_us": 2, "silent_until_us": 3}),
    (runs.LEASES, {"owner": "host", "until_us": 1, "silent_until_us": 3}),
    (runs.HEARTBEATS, {"owner": "host", "at_us": 1, "until_us": 2}),
    (runs.REQUESTS, {"run_id": "run_1", "fingerprint": "sha256:aa"}),
    (runs.CANCELS, {"by": "operator", "reason": "wrong order"}),
    (
        runs.DEAD_LETTERS,
        {"code": "integrity", "detail": "", "failed_at_us": 1, "rests": True, "entries": 3, "failures": 2},
    ),
    (operations.OPERATIONS, CLAIM),
    (operations.OPERATIONS, CLAIM | {"state": "released"}),
    (operations.OPERATIONS, CLAIM | {"state": "completed", "output": {"id": 1.5}, "mutations": ["refund"]}),
    (operations.OPERATIONS, CLAIM | {"state": "unusable", "output": None, "mutations": []}),
    (operations.APPROVALS, QUESTION),
    (operations.APPROVALS, QUESTION | {"state": "denied", "approver": "mira"}),
    (operations.DENIALS, {"run_id": "run_1", "approver": "mira"}),
    (
        operations.BREAKERS,
        {
            "adapter_id": "pay",
            "capability": "refund",
            "state": "open",
            "failures": 5,
            "since_us": 1,
            "retry_at_us": 2,
            "process": "host",
        },
    ),
    (catalog.PINS, {"digest": "sha256:aa", "kind": "context_pack"}),
    (catalog.ACTIVE_SETS, {"payload": "e30=", "payloadType": "a", "signatures": []}),
    (catalog.ARTIFACTS, {"payload": "", "payloadType": "t", "signatures": []}),
    (epochs.EPOCHS, {"id": "ab", "at_us": 1, "by": "operator"}),
    (epochs.DATABASE_PLACES, {"place": "7409/16385/00000002", "epoch": 1}),
]
COLLECTIONS = [
    value
    for module in (catalog, epochs, memories, operations, runs)
    for value in vars(module).values()
    if isinstance(value, Collection)
]


@pytest.mark.parametrize(("collection", "body"), BODIES, ids=lambda one: getattr(one, "name", ""))
def test_a_document_is_written_as_the_bytes_that_it_was_read_from(collection: Collection[Any], body: Any) -> None:
    raw = orjson.dumps(body)
    read = collection.decoded("key", raw)
    assert collection.encode(read) == raw
    assert dataclasses.is_dataclass(read) or isinstance(read, dict)


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
def test_a_malformed_document_is_refused_by_collection_and_key(collection: Collection[Any], raw: bytes) -> None:
    with pytest.raises(Integrity, match=f"`{collection.name}/some key` is malformed"):
        collection.read(Document(collection.name, "some key", 1, raw))


@pytest.mark.parametrize(("collection", "body"), BODIES, ids=lambda one: getattr(one, "name", ""))
def test_no_field_is_unknown_missing_or_coerced(collection: Collection[Any], body: dict[str, Any]) -> None:
    if collection in (catalog.ARTIFACTS, catalog.ACTIVE_SETS):
        return
    optional = {"at_us", "approver", "output", "mutations"}
    for changed in (
        {**body, "more": 1},
        *({name: value for name, value in body.items() if name != gone} for gone in body.keys() - optional),
        *({**body, name: str(value)} for name, value in body.items() if type(value) is int),
    ):
        if collection is runs.LEASES and changed == {"owner": "host", "until_us": 1, "at_us": 2}:
            continue
        if collection is runs.LEASES and changed == {"owner": "host", "until_us": 1}:
            continue
        with pytest.raises(Integrity):
            collection.decoded("key", orjson.dumps(changed))


def test_a_collection_writes_checks_and_reads_its_documents() -> None:
    store = MemoryStores().tenant("tenant_a")

    async def go() -> None:
        for at in ("run_1", "run_2"):
            writes = (runs.LEASES.check(at, 0), runs.LEASES.write(at, 0, runs.Lease("host", 5)))
            await store.commit(Batch(at, writes=writes))
            assert list(runs.LEASES.written(writes)) == [(at, runs.Lease("host", 5))]
            assert list(runs.HEARTBEATS.written(writes)) == []
        one = await runs.LEASES.one(store, "run_1")
        assert one is not None
        assert (one.key, one.version, one.body) == ("run_1", 1, runs.Lease("host", 5))
        assert await runs.LEASES.one(store, "run_3") is None
        assert [document.key for document in await runs.LEASES.page(store, after="run_1")] == ["run_2"]
        assert [key async for key in runs.LEASES.keys(store)] == ["run_1", "run_2"]
        found = await find_documents(store, runs.LEASES.place("run_1"), runs.CANCELS.place("run_1"))
        assert found.one(runs.LEASES, "run_1") == one
        assert found.one(runs.CANCELS, "run_1") is None
        assert (found.has(runs.LEASES, "run_1"), found.has(runs.CANCELS, "run_1")) == (True, False)

    asyncio.run(go())


def test_lines_that_are_asked_for_twice_are_found_once() -> None:
    store = MemoryStores().tenant("tenant_a")
    asked: list[Any] = []

    class Watched:
        async def look(self, *places: Any, **sought: Any) -> Any:
            asked.append(sought["lines"])
            return await store.look(*places, **sought)

    watched: Any = Watched()
    asyncio.run(find_documents(watched, lines=[("a", 4), ("b", 0), ("a", 0), ("a", 7)]))
    assert sorted(asked[0]) == [("a", 0), ("b", 0)]


def test_only_a_write_with_a_body_begins_an_epoch() -> None:
    epoch = epochs.Epoch("ab", 1, "operator")
    assert epochs.is_epoch_write(epochs.EPOCHS.write(epochs.EPOCH_KEY, 0, epoch))
    assert not epochs.is_epoch_write(epochs.EPOCHS.check(epochs.EPOCH_KEY, 0))
    place = epochs.DATABASE_PLACES.write(epochs.DATABASE_PLACE_KEY, 0, epochs.DatabasePlace("a/b/c", 0))
    assert not epochs.is_epoch_write(place)


def test_keys_of_several_parts() -> None:
    assert operations.operation_key("pay.refund", "idem_1") == "pay.refund/idem_1"
    assert operations.denial_key("pay.refund", "sha256:aa", "idem_1") == "pay.refund/sha256:aa/idem_1"
    assert operations.circuit_key("pay", "refund") == "pay.refund"
    key = memories.promoted_key("customer:cus_77", "prefers_channel")
    assert key.startswith(memories.subject_prefix("customer:cus_77"))
    assert len(key) == len("customer:cus_77|") + 32
