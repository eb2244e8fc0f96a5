"""What the owner of the store cuts off shows against the witness, and the witness costs nobody their work."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextos.audit import verify
from contextos.contracts.documents.runs import REQUESTS
from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft, Entry, WitnessedHead, genesis, link
from contextos.deployment import witness
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import ChainBroken, Integrity, Unavailable
from contextos.store.witness.file import FileWitness
from contextos.trust.seal import KeyRing
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock
from tests.world import TENANT, TestWorld, forget_terms, open_world, request, run

T = TypeVar("T")
Cut = Callable[[dict[str, list[Entry]]], None]


def watching(world: TestWorld, path: Path) -> WitnessPublisher:
    return WitnessPublisher(world.stores, FileWitness(path), world.keys, world.clock)


async def verified(world: TestWorld, witness: FileWitness) -> list[verify.VerifiedStream]:
    heads = await witness.heads(TENANT)
    return await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys, heads)


def relinked(entries: list[Entry]) -> list[Entry]:
    """The same lines in a chain that fits, as the store's owner can make it."""
    head, made = genesis(TENANT, entries[0].run), list[Entry]()
    for seq, one in enumerate(entries, start=1):
        draft = Draft(one.kind, one.key, one.at_us, one.by, one.body or b"", one.salt or b"")
        made.append(link(TENANT, one.run, seq, head, draft))
        head = made[-1].hash
    return made


def a_whole_run(streams: dict[str, list[Entry]]) -> None:
    gone = streams[INDEX][0].key
    streams[INDEX] = relinked([line for line in streams[INDEX] if line.key != gone])
    del streams[gone]


def the_tail_of_the_index(streams: dict[str, list[Entry]]) -> None:
    gone = streams[INDEX][-1].key
    streams[INDEX] = [line for line in streams[INDEX] if line.key != gone]
    del streams[gone]


def a_line_of_control(streams: dict[str, list[Entry]]) -> None:
    streams[CONTROL] = relinked([streams[CONTROL][0]._replace(by="somebody else"), *streams[CONTROL][1:]])


def everything(streams: dict[str, list[Entry]]) -> None:
    streams.clear()


@pytest.mark.parametrize("cut", [a_whole_run, the_tail_of_the_index, a_line_of_control, everything])
def test_a_deletion_by_the_owner_of_the_store_is_named(tmp_path: Path, cut: Cut) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")
        publisher = watching(world, witness.path)
        for number in range(3):
            await world.invoke(request(900 + number, f"req_{number}"))
        assert await publisher.publish([TENANT]) == 2
        await verified(world, witness)
        kept = world.stores.tenant(TENANT)._stored
        cut(kept.streams)
        forget_terms(kept)
        for collection, key in [place for place in kept.documents if place[0] == "leases"]:
            if key not in kept.streams:
                del kept.documents[collection, key]
        for claim in await REQUESTS.page(world.stores.tenant(TENANT)):
            if claim.body.run_id not in kept.streams:
                del kept.documents["requests", claim.key]
        if cut in (a_whole_run, the_tail_of_the_index):
            # Without a witness all that is left fits. Of `control` each act is signed, and counts up to what is active.
            await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        with pytest.raises(ChainBroken, match="witnessed at"):
            await verified(world, witness)
        with pytest.raises(ChainBroken, match="witnessed at"):
            await publisher.publish([TENANT])
        with pytest.raises(ChainBroken, match="witnessed at"):
            await watching(world, witness.path).publish([TENANT])
        world.close()

    run(go())


def test_only_changed_streams_are_published_also_after_a_restart(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        path = tmp_path / "witness.jsonl"
        assert await watching(world, path).publish([TENANT]) == 1  # control alone; nothing ran yet
        publisher = watching(world, path)
        assert await publisher.publish([TENANT]) == 0
        await world.invoke(request(900, "req_1"))
        assert await publisher.publish([TENANT, "tenant_nobody"]) == 1
        heads = await FileWitness(path).heads(TENANT)
        assert [(one.stream, one.seq) for one in heads] == [(CONTROL, 5), (INDEX, 3)]
        assert await FileWitness(path).heads("tenant_nobody") == []
        world.close()

    run(go())


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 1},
        {"seq": 0},
        {"seq": -1},
        {"hash": "sha256:" + "0" * 64},
        {"signature": "ab"},
        {"kid": "kid_0000000000000000"},
        {"stream": "run_1"},
    ],
)
def test_a_line_that_the_runtime_never_signed_is_no_proof(tmp_path: Path, change: dict[str, Any]) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        witness = FileWitness(tmp_path / "witness.jsonl")
        await watching(world, witness.path).publish([TENANT])
        last = (await witness.heads(TENANT))[0]
        assert last.stream == INDEX
        await witness.put([last._replace(**change)])
        with pytest.raises(ChainBroken, match="witnessed"):
            await verified(world, witness)
        world.close()

    run(go())


@pytest.mark.parametrize(
    "line", [b"nonsense", b"[]", b"{}", b'{"tenant":1}', b"\xff", b'{"seq":"1"}', b"[" * 5000, b'{"tenant":null}']
)
def test_a_file_that_is_no_witness_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "witness.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(Integrity, match="line 1"):
        asyncio.run(FileWitness(path).heads(TENANT))


def test_heads_are_published_later_if_the_witness_was_unavailable(tmp_path: Path) -> None:
    stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
    folder = tmp_path / "gone"
    publisher = WitnessPublisher(stores, FileWitness(folder / "witness.jsonl"), keys, clock)

    asyncio.run(published(stores, TENANT))
    with pytest.raises(Unavailable):
        asyncio.run(publisher.publish([TENANT]))
    folder.mkdir()
    assert asyncio.run(publisher.publish([TENANT])) == 1


def test_lines_of_many_writers_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "witness.jsonl"
    heads = [WitnessedHead(TENANT, INDEX, seq, "h" * 200, "k", "s" * 128, 1) for seq in range(1, 41)]

    async def all_at_once() -> Awaitable[Any]:
        return await asyncio.gather(*(FileWitness(path).put(heads) for _ in range(8)))

    asyncio.run(all_at_once())
    found = asyncio.run(FileWitness(path).heads(TENANT))
    assert sorted(found) == sorted(heads * 8)
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_torn_line_is_skipped_and_the_next_head_begins_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "witness.jsonl"
    heads = [WitnessedHead(TENANT, INDEX, seq, "h" * 64, "k", "s" * 128, 1) for seq in range(1, 4)]
    asyncio.run(FileWitness(path).put(heads[:2]))
    path.write_bytes(path.read_bytes()[:-100])
    assert list(asyncio.run(FileWitness(path).heads(TENANT))) == heads[:1]
    asyncio.run(FileWitness(path).put(heads[2:]))
    assert list(asyncio.run(FileWitness(path).heads(TENANT))) == [heads[0], heads[2]]


@pytest.mark.parametrize("what", ["reads", "writes"])
def test_readers_and_writers_wait_for_the_writer(tmp_path: Path, what: str) -> None:
    witness = FileWitness(tmp_path / "witness.jsonl")
    head = WitnessedHead(TENANT, INDEX, 1, "h" * 64, "k", "s" * 128, 1)

    async def go() -> None:
        await witness.put([head])
        with witness.path.open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            other.write(b'{"at_us":1,')
            other.flush()
            waits = asyncio.ensure_future(witness.heads(TENANT) if what == "reads" else witness.put([head]))
            done, _ = await asyncio.wait([waits], timeout=0.2)
            assert not done
            other.truncate(other.tell() - len(b'{"at_us":1,'))
        await waits
        assert await witness.heads(TENANT) == [head] * (1 if what == "reads" else 2)

    asyncio.run(go())


async def published(stores: MemoryStores, tenant: str) -> None:
    draft = Draft("artifact.published", "x", 1, "me", b"{}", bytes(16))
    await stores.tenant(tenant).commit(Batch(run=CONTROL, shared=((CONTROL, draft),)))


def test_one_tenants_cut_keeps_no_other_from_being_witnessed(tmp_path: Path) -> None:
    async def go() -> None:
        stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
        witness = FileWitness(tmp_path / "witness.jsonl")
        publisher = WitnessPublisher(stores, witness, keys, clock)
        for tenant in ("a", "b"):
            await published(stores, tenant)
        await publisher.publish(["a", "b"])
        stores.tenant("a")._stored.streams.clear()
        await published(stores, "b")
        with pytest.raises(ChainBroken, match="of `a`"):
            await publisher.publish(["a", "b"])
        assert [one.seq for one in await witness.heads("b")] == [1, 2]

    asyncio.run(go())


def test_tenants_published_long_ago_leave_the_cache_and_their_cuts_are_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "MAX_KNOWN_TENANTS", 4)

    async def go() -> None:
        stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
        witness = FileWitness(tmp_path / "witness.jsonl")
        publisher = WitnessPublisher(stores, witness, keys, clock)
        tenants = [f"t{number}" for number in range(12)]
        for tenant in tenants:
            await published(stores, tenant)
        assert await publisher.publish(tenants) == 12
        assert len(publisher._known) == 4
        assert await publisher.publish(tenants) == 0, "what was forgotten is asked of the witness, not publisher twice"
        await published(stores, "t0")
        assert await publisher.publish(tenants) == 1
        stores.tenant("t1")._stored.streams.clear()
        with pytest.raises(ChainBroken, match="of `t1`"):
            await publisher.publish(tenants)

    asyncio.run(go())


def test_heads_that_were_put_out_of_order_hide_no_cut(tmp_path: Path) -> None:
    async def go() -> None:
        stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
        witness, early = FileWitness(tmp_path / "witness.jsonl"), FileWitness(tmp_path / "early.jsonl")
        await published(stores, "a")
        await WitnessPublisher(stores, early, keys, clock).publish(["a"])
        for _ in range(4):
            await published(stores, "a")
        await WitnessPublisher(stores, witness, keys, clock).publish(["a"])
        await witness.put(await early.heads("a"))
        kept = stores.tenant("a")._stored.streams
        kept[CONTROL] = kept[CONTROL][:1]
        await published(stores, "a")
        with pytest.raises(ChainBroken, match="witnessed at"):
            await WitnessPublisher(stores, witness, keys, clock).publish(["a"])
        assert len(await witness.heads("a")) == 2, "no fork was signed"

    asyncio.run(go())


class OneBad(FileWitness):
    """Gives of the tenant `a` what somebody else wrote, or nothing."""

    def __init__(self, path: Path, fault: Exception) -> None:
        super().__init__(path)
        self.fault = fault

    async def heads(self, tenant_id: str, *, since_us: int = 0) -> Any:
        if tenant_id == "a":
            raise self.fault
        return await super().heads(tenant_id, since_us=since_us)


@pytest.mark.parametrize("fault", [Integrity("object 1 is no witnessed head"), Unavailable("witness", "it is away")])
def test_a_wrong_answer_about_one_tenant_stops_no_other_from_being_witnessed(tmp_path: Path, fault: Exception) -> None:
    async def go() -> None:
        stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
        witness = OneBad(tmp_path / "witness.jsonl", fault)
        publisher = WitnessPublisher(stores, witness, keys, clock)
        await published(stores, "b")
        with pytest.raises(type(fault)):
            await publisher.publish(["a", "b"])
        assert [one.seq for one in await witness.heads("b")] == [1]
        stores.tenant("b")._stored.streams.clear()
        if isinstance(fault, Unavailable):
            with pytest.raises(ChainBroken, match="of `b`"):
                await publisher.publish(["a", "b"])

    asyncio.run(go())


def test_a_cut_is_named_also_while_the_witness_does_not_answer(tmp_path: Path) -> None:
    async def go() -> None:
        stores, clock, keys = MemoryStores(clock=SettableClock()), SettableClock(), KeyRing.from_seed(b"w" * 32)
        publisher = WitnessPublisher(stores, FileWitness(tmp_path / "witness.jsonl"), keys, clock)
        await published(stores, "a")
        await publisher.publish(["a"])
        publisher.witness = OneBad(tmp_path / "witness.jsonl", Unavailable("witness", "it is away"))
        stores.tenant("a")._stored.streams.clear()
        with pytest.raises(ChainBroken, match="of `a`"):
            await publisher.publish(["a"])

    asyncio.run(go())
