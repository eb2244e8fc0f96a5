"""What every `Stores` does. A subclass gives the fixture `world`; `MemoryStores` is the model to agree with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.contracts import journal
from contextos.contracts.journal import (
    CONTROL,
    ENTRY_ERASED,
    INDEX,
    Batch,
    Document,
    Draft,
    Entry,
    Sought,
    TermChange,
    Write,
    erasure_key,
    genesis,
    link,
)
from contextos.errors import Conflict, InvalidInput, NotFound, Untimely
from contextos.store.shared.batch import MAX_BATCH_ENTRIES, MAX_ENTRY_BYTES, MAX_NAME_BYTES
from contextos_sim.memory.stores import MemoryStores

T = TypeVar("T")
NOW_US = 1_000_000
LARGE = bytes(MAX_ENTRY_BYTES + 1)
_tenants = count()


@dataclass
class SettableClock:
    us: int = NOW_US

    def now_us(self) -> int:
        return self.us


def at_once(coroutine: Awaitable[T]) -> T:
    """The result of a coroutine that never suspends; anything else fails the test."""
    steps = coroutine.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine suspended, so it needs an event loop")


@dataclass
class World:
    """An implementation under test, its clock, and how its coroutines are run."""

    stores: Any
    clock: SettableClock
    run: Callable[[Awaitable[Any]], Any]
    tenant: str = field(default_factory=lambda: f"tenant{next(_tenants)}")

    def store(self, tenant: str | None = None) -> Any:
        return self.stores.tenant(self.tenant if tenant is None else tenant)

    def commit(self, batch: Batch, tenant: str | None = None) -> None:
        self.run(self.store(tenant).commit(batch))

    def read(self, stream: str, **bounds: Any) -> list[Entry]:
        return list(self.run(self.store().read(stream, **bounds)))

    def scan(self, collection: str, **bounds: Any) -> list[tuple[str, int, bytes]]:
        return [(doc.key, doc.version, doc.body) for doc in self.run(self.store().scan(collection, **bounds))]

    def due(self, before_us: int, **bounds: Any) -> list[tuple[str, str]]:
        async def found() -> list[tuple[str, str]]:
            return [run async for run in self.stores.due(before_us, **bounds)]

        return self.run(found())

    def waiting(self, **bounds: Any) -> list[tuple[int, str]]:
        return list(self.run(self.store().waiting(**bounds)))

    def found(self, *terms: list[int], **bounds: Any) -> list[int]:
        limit = bounds.pop("limit", 1000)
        return list(self.run(self.store().found(Sought(terms, **bounds), limit=limit)))

    def terms(self, first: int, last: int) -> list[tuple[int, int, int]]:
        return list(self.run(self.store().terms(first, last)))

    def everything(self) -> dict[str, Any]:
        """All that can be seen of this tenant."""
        streams = (*RUNS, INDEX, CONTROL)
        return {
            "entries": {name: self.read(name) for name in streams},
            "runs": {name: self.run(self.store().read_run(name)) for name in streams},
            "documents": {name: self.scan(name) for name in COLLECTIONS},
            "waiting": self.waiting(),
            "terms": self.terms(0, 2**60),
            "due": [run for run in self.due(10**15) if run[0] == self.tenant],
        }


RUNS = ("run_a", "run_b")
COLLECTIONS = ("leases", "keys")


def draft(text: str = "x", kind: str = "run.context", key: str = "") -> Draft:
    return Draft(kind=kind, key=key, at_us=5, by="runtime", body=f'"{text}"'.encode(), salt=b"0123456789abcdef")


def entries_after(tenant: str, run: str, stream: list[Entry], count: int, text: str = "x") -> tuple[Entry, ...]:
    """`count` entries that continue `stream`."""
    seq, head = (stream[-1].seq, stream[-1].hash) if stream else (0, genesis(tenant, run))
    made = []
    for number in range(count):
        entry = link(tenant, run, seq + number + 1, head, draft(f"{text}{number}"))
        head = entry.hash
        made.append(entry)
    return tuple(made)


async def read_while_it_is_written(store: Any, tenant: str) -> None:
    """Read a run again and again while another task writes it, and check that each reading is of one moment."""
    # More commits than a store reads at a time.
    entries = entries_after(tenant, "run_a", [], 120)

    async def write() -> None:
        for number, entry in enumerate(entries):
            lease = Write("leases", "run_a", number, b"v")
            line = (INDEX, draft(key="run_a"))
            await store.commit(Batch("run_a", (entry,), (lease,), shared=(line,), signature=("k", "aa")))

    writing = asyncio.ensure_future(write())
    readings = 0
    reached = 0
    while reached < len(entries):
        await asyncio.sleep(0)
        stored = await store.read_run("run_a")
        reached = len(stored.entries)
        readings += 1
        assert stored.entries == entries[:reached]
        assert [head[0] for head in stored.heads] == [*range(1, reached + 1)]
        assert [line.key for line in stored.lines] == ["run_a"] * reached
        assert (stored.lease.version if stored.lease else 0) == reached
    await writing
    assert readings > 1, "it was never read while it was written"


def replace_salt(one: Draft, salt: bytes) -> Draft:
    return one._replace(salt=salt)


def erased(run: str, seq: int) -> Draft:
    """The control entry that records the erasure of an entry."""
    return draft(kind=ENTRY_ERASED, key=erasure_key(run, seq))


def verify(tenant: str, run: str, stream: list[Entry]) -> None:
    head = genesis(tenant, run)
    for seq, entry in enumerate(stream, 1):
        assert (entry.tenant, entry.run, entry.seq, entry.prev_hash) == (tenant, run, seq, head)
        assert entry.hash == journal.header_hash(entry)
        if entry.body is not None:
            assert entry.body_digest == journal.body_digest(entry.salt, entry.body)
        head = entry.hash


def outcome(world: World, batch: Batch) -> Any:
    try:
        world.commit(batch)
    except (Conflict, InvalidInput) as refusal:
        return str(refusal)
    return None


class StoreSuite:
    """Subclass it with a fixture `world`."""

    @pytest.fixture
    def world(self) -> Iterator[World]:
        raise NotImplementedError

    def test_entries_are_read_back_as_they_were_appended(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 3)
        world.commit(Batch("run_a", entries[:1]))
        world.commit(Batch("run_a", entries[1:]))
        assert world.read("run_a") == list(entries)
        assert world.read("run_a", after=1) == list(entries[1:])
        assert world.read("run_a", after=1, limit=1) == [entries[1]]
        assert world.read("run_a", limit=0) == []
        assert world.read("run_b") == []

    def test_the_length_of_a_stream_is_the_number_of_its_last_entry(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 5)
        world.commit(Batch("run_a", entries[:4], shared=((INDEX, draft()), (CONTROL, draft()), (INDEX, draft()))))
        world.commit(Batch("run_a", entries[4:]))
        lengths = {name: world.run(world.store().length(name)) for name in ("run_a", "run_b", INDEX, CONTROL, "a\x00b")}
        assert lengths == {"run_a": 5, "run_b": 0, INDEX: 2, CONTROL: 1, "a\x00b": 0}
        assert world.run(world.store("another").length(INDEX)) == 0

    def test_the_lengths_of_several_runs_are_read_at_once(self, world: World) -> None:
        world.commit(Batch("run_a", entries_after(world.tenant, "run_a", [], 5), shared=((INDEX, draft()),)))
        world.commit(Batch("run_b", entries_after(world.tenant, "run_b", [], 2)))
        asked = ("run_a", "run_b", "run_c", INDEX, "a\x00b")
        assert world.run(world.store().lengths(asked)) == {"run_a": 5, "run_b": 2}
        assert world.run(world.store("another").lengths(asked)) == {}
        assert world.run(world.store().lengths(())) == {}

    @pytest.mark.requirement("J-CHAIN")
    def test_an_entry_that_does_not_continue_the_sequence_is_a_conflict_on_the_stream(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 3)
        world.commit(Batch("run_a", entries[:1]))
        for wrong in (entries[:1], entries[2:], (entries[1], entries[1])):
            with pytest.raises(Conflict) as refused:
                world.commit(Batch("run_a", wrong))
            assert refused.value.what == "run_a"
        assert world.read("run_a") == [entries[0]]

    @pytest.mark.requirement("J-CHAIN")
    def test_an_entry_with_another_previous_hash_is_a_conflict_on_the_stream(self, world: World) -> None:
        ours = entries_after(world.tenant, "run_a", [], 2, "ours")
        theirs = entries_after(world.tenant, "run_a", [], 2, "theirs")
        with pytest.raises(Conflict):
            world.commit(Batch("run_a", (ours[0]._replace(prev_hash=genesis("another", "run_a")),)))
        world.commit(Batch("run_a", theirs[:1]))
        with pytest.raises(Conflict) as refused:
            world.commit(Batch("run_a", ours[1:]))
        assert refused.value.what == "run_a"
        with pytest.raises(Conflict):
            world.commit(Batch("run_a", (theirs[1], theirs[1]._replace(seq=3))))
        assert world.read("run_a") == [theirs[0]]

    def test_a_document_version_counts_its_writes(self, world: World) -> None:
        world.commit(Batch("run_a", writes=(Write("leases", "run_a", 0, b"one"),)))
        world.commit(Batch("run_a", writes=(Write("leases", "run_a", 1, b"two"),)))
        assert world.scan("leases") == [("run_a", 2, b"two")]
        both = (Write("leases", "run_a", 2, b"three"), Write("leases", "run_a", 3, b"four"))
        world.commit(Batch("run_a", writes=both))
        assert world.scan("leases") == [("run_a", 4, b"four")]

    @pytest.mark.requirement("J-COMPARE-AND-SET")
    @pytest.mark.parametrize("expect", [0, 1, 3])
    def test_a_document_that_is_not_as_expected_is_a_conflict_that_names_it(self, world: World, expect: int) -> None:
        for version in range(2):
            world.commit(Batch("run_a", writes=(Write("leases", "run_a", version, b"kept"),)))
        for body in (b"lost", None):
            with pytest.raises(Conflict) as refused:
                world.commit(Batch("run_a", writes=(Write("leases", "run_a", expect, body),)))
            assert refused.value.what == "leases/run_a"
        assert world.scan("leases") == [("run_a", 2, b"kept")]

    @pytest.mark.requirement("J-COMPARE-AND-SET")
    def test_a_write_without_body_only_checks(self, world: World) -> None:
        world.commit(Batch("run_a", writes=(Write("keys", "absent", 0, None),)))
        world.commit(Batch("run_a", writes=(Write("keys", "present", 0, b"kept"), Write("keys", "present", 1, None))))
        with pytest.raises(Conflict) as refused:
            world.commit(Batch("run_a", writes=(Write("keys", "absent", 1, None),)))
        assert refused.value.what == "keys/absent"
        assert world.scan("keys") == [("present", 1, b"kept")]

    @pytest.mark.requirement("J-DEADLINE")
    @pytest.mark.parametrize(("now_us", "in_time"), [(99, False), (100, True), (150, True), (200, True), (201, False)])
    def test_a_deadline_is_compared_with_the_stores_own_clock_and_includes_its_ends(
        self, world: World, now_us: int, in_time: bool
    ) -> None:
        world.clock.us = now_us
        write = Write("keys", "k", 0, b"v", not_after_us=200, not_before_us=100)
        batch = Batch("run_a", writes=(write,))
        check = Batch("run_a", writes=(replace(write, expect=int(in_time), body=None),))
        wanted = None if in_time else str(Conflict("keys/k"))
        assert [outcome(world, batch), outcome(world, check)] == [wanted, wanted]
        if not in_time:
            with pytest.raises(Untimely) as refused:
                world.commit(batch)
            assert (refused.value.what, refused.value.store_us) == ("keys/k", now_us)
        assert world.scan("keys") == ([("k", 1, b"v")] if in_time else [])

    @pytest.mark.requirement("J-ATOMIC")
    def test_a_batch_happens_whole_or_not_at_all(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 2)
        world.commit(Batch("run_a", entries[:1], writes=(Write("keys", "k", 0, b"v"),), wake_at_us=7))
        before = world.everything()
        full = Batch(
            "run_a",
            entries[1:],
            writes=(Write("keys", "k", 1, b"w"), Write("keys", "n", 0, b"new"), Write("leases", "run_a", 9, b"lost")),
            shared=((INDEX, draft()), (CONTROL, draft())),
            wake_at_us=0,
            signature=("kid", "00"),
            waiting=True,
        )
        with pytest.raises(Conflict) as refused:
            world.commit(full)
        assert refused.value.what == "leases/run_a"
        assert world.everything() == before
        with pytest.raises(Conflict) as refused:
            world.commit(replace(full, entries=entries[:1], writes=full.writes[:2]))
        assert refused.value.what == "run_a"
        assert world.everything() == before
        world.commit(replace(full, writes=full.writes[:2]))
        assert world.read("run_a") == list(entries)

    @pytest.mark.requirement("J-SHARED")
    def test_shared_drafts_are_linked_to_the_heads_of_the_tenants_own_streams(self, world: World) -> None:
        for text in "ab":
            shared = ((INDEX, draft(text)), (CONTROL, draft(text)), (INDEX, draft(text + text)))
            world.commit(Batch("run_a", shared=shared))
        index, control = world.read(INDEX), world.read(CONTROL)
        verify(world.tenant, INDEX, index)
        verify(world.tenant, CONTROL, control)
        assert [entry.body for entry in index] == [b'"a"', b'"aa"', b'"b"', b'"bb"']
        assert len(control) == 2
        assert world.read("run_a") == []

    def test_a_signature_covers_the_head_that_the_batch_leaves(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 3)
        world.commit(Batch("run_a", entries[:2], signature=("k1", "aa")))
        world.commit(Batch("run_a", signature=("k2", "bb")))
        world.commit(Batch("run_a", signature=("k1", "ad")))
        world.commit(Batch("run_a", entries[2:], shared=((INDEX, draft()),), signature=("k1", "cc")))
        assert list(world.run(world.store().read_run("run_a")).heads) == [
            (2, entries[1].hash, "k1", "aa"),
            (2, entries[1].hash, "k2", "bb"),
            (3, entries[2].hash, "k1", "cc"),
        ]
        with pytest.raises(InvalidInput, match="no entry to sign"):
            world.commit(Batch("run_b", signature=("k1", "aa"), writes=(Write("keys", "k", 0, b"v"),)))
        assert world.scan("keys") == []

    def test_a_run_is_read_with_its_heads_its_lines_and_its_lease(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 2)
        line = (INDEX, draft(key="run_a"))
        world.commit(
            Batch("run_a", entries, (Write("leases", "run_a", 0, b"v"),), shared=(line,), signature=("k", "aa"))
        )
        world.commit(Batch("run_b", entries_after(world.tenant, "run_b", [], 1), shared=((INDEX, draft(key="run_b")),)))
        stored = world.run(world.store().read_run("run_a"))
        assert stored.entries == entries
        assert list(stored.heads) == [(2, entries[1].hash, "k", "aa")]
        assert list(stored.lines) == world.read(INDEX)[:1]
        assert stored.lease == Document("leases", "run_a", 1, b"v")
        for unknown in ("run_c", INDEX, ""):
            assert [part for part in world.run(world.store().read_run(unknown)) if part] == []

    def test_due_names_runs_of_all_tenants_earliest_first_and_none_without_a_wake_time(self, world: World) -> None:
        other = f"{world.tenant}_other"
        for tenant, run, wake_at_us in (
            (world.tenant, "run_b", 30),
            (other, "run_a", 20),
            (world.tenant, "run_a", 10),
            (other, "run_b", 31),
            (other, "run_c", 5),
            (world.tenant, "run_c", 10),
        ):
            world.commit(Batch(run, wake_at_us=wake_at_us), tenant)
        world.commit(Batch("run_c", wake_at_us=0), other)
        world.commit(Batch("run_a", writes=(Write("keys", "k", 0, b"v"),)))
        ours = [(world.tenant, "run_a"), (world.tenant, "run_c"), (other, "run_a"), (world.tenant, "run_b")]
        assert world.due(30) == ours
        assert world.due(29, limit=2) == ours[:2]
        assert world.due(9) == []

    def test_waiting_names_the_runs_of_one_tenant_that_wait_newest_first_in_pages(self, world: World) -> None:
        other = f"{world.tenant}_other"
        for run in ("run_a", "run_b", "run_c", "run_d"):
            line = (INDEX, draft(kind="run.indexed", key=run))
            world.commit(Batch(run, shared=(line,), wake_at_us=0, waiting=run != "run_c"))
            world.commit(Batch(run, shared=(line,), waiting=True), other)
        assert world.waiting() == [(4, "run_d"), (2, "run_b"), (1, "run_a")]
        assert world.waiting(limit=1) == [(4, "run_d")]
        assert world.waiting(after=4) == world.waiting(after=3) == [(2, "run_b"), (1, "run_a")]
        assert world.waiting(after=1) == world.waiting(limit=0) == world.waiting(limit=-1) == []
        assert world.waiting(after=2**62) == world.waiting(after=2**80) == world.waiting()

    def test_a_run_waits_until_a_batch_says_otherwise(self, world: World) -> None:
        line = (INDEX, draft(kind="run.indexed", key="run_a"))
        world.commit(Batch("run_a", shared=(line,), wake_at_us=7))
        assert world.waiting() == []
        world.commit(Batch("run_a", waiting=True))
        assert (world.waiting(), world.due(7)) == ([(1, "run_a")], [(world.tenant, "run_a")])
        world.commit(Batch("run_a", entries_after(world.tenant, "run_a", [], 1), wake_at_us=9))
        world.commit(Batch("run_a", writes=(Write("keys", "k", 0, b"v"),)))
        assert world.waiting() == [(1, "run_a")]
        world.commit(Batch("run_a", shared=((INDEX, draft(kind="run.closed", key="run_a")),), waiting=False))
        assert world.waiting() == []
        world.commit(Batch("run_a", waiting=True))
        assert world.waiting() == [(1, "run_a")], "its number is that of its first line"

    def test_a_run_without_a_line_in_the_index_is_not_among_those_that_wait(self, world: World) -> None:
        world.commit(Batch("run_a", waiting=True))
        world.commit(Batch("run_b", shared=((INDEX, draft(key="run_a")), (CONTROL, draft(key="run_b"))), waiting=True))
        assert world.waiting() == []
        world.commit(Batch("run_a", shared=((INDEX, draft(key="run_a")),)))
        assert world.waiting() == [(2, "run_a")]

    def test_runs_are_found_by_terms_of_one_tenant_newest_first_in_pages(self, world: World) -> None:
        other = f"{world.tenant}_other"
        for number, added in enumerate(([1, 2], [1], [1, 2, 3], [2, 3]), start=1):
            terms = TermChange(added, (), 10 * number)
            line = (INDEX, draft(kind="run.indexed", key=f"run_{number}"))
            world.commit(Batch(f"run_{number}", shared=(line,), terms=terms))
            world.commit(Batch(f"run_{number}", shared=(line, line), terms=TermChange([1, 9], (), 5)), other)
        assert world.found([1]) == [3, 2, 1]
        assert world.found([1], [2]) == [3, 1]
        assert world.found([1], [2], [3]) == [3]
        assert world.found([1], [3, 2]) == [3, 1], "one of a group is enough"
        assert world.found([9]) == world.found([1], [9]) == world.found([4]) == world.found([1], []) == []
        assert world.found([1], limit=2) == [3, 2]
        assert world.found([1], after=3) == world.found([1], after=2 + 1, limit=2**70) == [2, 1]
        assert world.found([1], after=1) == world.found([1], limit=0) == world.found([1], limit=-1) == []
        assert world.found([1], after=2**80) == [3, 2, 1]
        assert world.found([1], from_us=20, before_us=30) == [2], "from and not up to"
        assert world.found([1], from_us=2**80) == world.found([1], before_us=-(2**80)) == []
        assert world.terms(2, 3) == [(2, 1, 20), (3, 1, 30), (3, 2, 30), (3, 3, 30)]
        assert world.terms(5, 2**80) == world.terms(-(2**80), 0) == []

    def test_terms_change_with_the_commit_that_states_them_or_not_at_all(self, world: World) -> None:
        line = (INDEX, draft(kind="run.indexed", key="run_a"))
        smallest, largest = -(2**63), 2**63 - 1
        with pytest.raises(Conflict):
            world.commit(Batch("run_a", terms=TermChange([1])))
        with pytest.raises(Conflict):
            world.commit(Batch("run_a", writes=(Write("keys", "k", 7, b"v"),), shared=(line,), terms=TermChange([1])))
        assert (world.found([1]), world.read(INDEX)) == ([], [])
        world.commit(Batch("run_a", shared=(line,), terms=TermChange([smallest, largest, 1, 1], (), 4)))
        world.commit(Batch("run_a", terms=TermChange([2, 1], (smallest, 5), 4)))
        world.commit(Batch("run_b", shared=(line,), wake_at_us=0))
        assert world.terms(0, 9) == [(1, 1, 4), (1, 2, 4), (1, largest, 4)]
        with pytest.raises(Conflict):
            world.commit(Batch("run_a", writes=(Write("keys", "k", 7, b"v"),), terms=TermChange((), (1,))))
        assert world.found([largest], [1]) == [1]

    @pytest.mark.requirement("J-ERASE")
    def test_the_terms_of_an_entry_go_with_its_body(self, world: World) -> None:
        line = (INDEX, draft(kind="run.indexed", key="run_a"))
        entries = entries_after(world.tenant, "run_a", [], 2)
        world.commit(Batch("run_a", entries, shared=(line,), terms=TermChange([1, 2], (), 4)))
        world.run(world.stores.erase(world.tenant, "run_a", 2, erased("run_a", 2), TermChange([3], [2], 4)))
        assert world.terms(0, 9) == [(1, 1, 4), (1, 3, 4)]
        with pytest.raises(NotFound):
            world.run(world.stores.erase(world.tenant, "run_a", 9, erased("run_a", 9), TermChange((), [1], 4)))
        assert world.found([1]) == [1]

    def test_scan_finds_by_key_and_by_prefix_in_key_order(self, world: World) -> None:
        keys = ["a", "a/1", "a/2", "a0", "b", "a\U0010ffff", "a\U0010ffffz", "a\ud7ff", "ä", "\U0010ffff", "\ue000"]
        world.commit(Batch("run_a", writes=tuple(Write("keys", key, 0, key.encode()) for key in keys)))
        world.commit(Batch("run_a", writes=(Write("leases", "a", 0, b"other collection"),)))

        def found(**bounds: Any) -> list[str]:
            return [key for key, _, _ in world.scan("keys", **bounds)]

        assert found() == sorted(keys)
        for prefix in ("a", "a/", "a\U0010ffff", "\U0010ffff", "a\ud7ff", "c", "ä", "a/1"):
            assert found(prefix=prefix) == sorted(key for key in keys if key.startswith(prefix))
            for after in ("a", "a/1", "b", "\U0010ffff"):
                wanted = sorted(key for key in keys if key.startswith(prefix) and key > after)
                assert found(prefix=prefix, after=after) == wanted
        assert found(prefix="a", limit=2) == ["a", "a/1"]
        assert found(limit=-1) == found(limit=0) == []
        assert found(key="a") == ["a"]
        assert found(key="a/") == []

    def test_a_look_gives_those_of_several_documents_that_are_there(self, world: World) -> None:
        world.commit(Batch("run_a", writes=(Write("keys", "a", 0, b"1"), Write("leases", "b", 0, b"2"))))
        world.commit(Batch("run_a", writes=(Write("keys", "a", 1, b"3"),)))
        many = [("keys", f"absent_{number}") for number in range(1000)]
        places = (("keys", "a"), ("leases", "a"), ("leases", "b"), ("keys", "b"), ("keys", "a"), ("keys", "a\0"), *many)
        there = {("keys", "a"): Document("keys", "a", 2, b"3"), ("leases", "b"): Document("leases", "b", 1, b"2")}
        assert world.run(world.store().look(places)) == (there, [])
        assert world.run(world.store().look(())) == ({}, [])
        assert world.run(world.stores.tenant(f"{world.tenant}_other").look(places)) == ({}, [])

    def test_a_look_gives_the_first_documents_below_prefixes_and_lines_of_control(self, world: World) -> None:
        keys = ("a", "a/1", "a/2", "b", "a􏿿")
        world.commit(Batch("run_a", writes=tuple(Write("keys", key, 0, key.encode()) for key in keys)))
        drafts = [draft(key=key) for key in ("x", "y", "x", "z")]
        world.commit(Batch(CONTROL, shared=tuple((CONTROL, one) for one in drafts)))
        world.commit(Batch("run_a", shared=((INDEX, draft(key="x")),)))
        x, y, again, _ = world.run(world.store().read(CONTROL))
        prefixes = [("keys", "a/", 1), ("keys", "a􏿿", 5), ("keys", "c", 5), ("keys", "b", 0), ("keys", "\0", 5)]
        documents, lines = world.run(
            world.store().look([("keys", "b")], prefixes=prefixes, lines=[("x", 0), ("y", 0), ("w", 0), ("x\0", 0)])
        )
        assert [key for _, key in documents] == ["b", "a/1", "a􏿿"]
        assert list(lines) == [x, y, again]
        assert list(world.run(world.store().look((), lines=[("x", x.seq), ("y", y.seq)])).lines) == [again]

    @pytest.mark.requirement("J-TENANT")
    def test_no_tenant_sees_or_hinders_another(self, world: World) -> None:
        other = f"{world.tenant}_other"
        batch = Batch(
            "run_a", entries_after(world.tenant, "run_a", [], 1), (Write("keys", "k", 0, b"v"),), ((INDEX, draft()),)
        )
        world.commit(batch)
        other_world = World(world.stores, world.clock, world.run, other)
        assert other_world.everything() == World(world.stores, world.clock, world.run).everything()
        other_world.commit(replace(batch, entries=entries_after(other, "run_a", [], 1)))
        assert len(other_world.read(INDEX)) == 1
        with pytest.raises(NotFound):
            world.run(world.stores.erase(f"{other}2", "run_a", 1, erased("run_a", 1)))

    @pytest.mark.requirement("J-TENANT")
    def test_a_batch_that_contradicts_itself_is_refused_and_nothing_is_stored(self, world: World) -> None:
        (entry,) = entries_after(world.tenant, "run_a", [], 1)
        wrong = [
            Batch("run_b", (entry,)),
            Batch("run_a", entries_after("another", "run_a", [], 1)),
            Batch("run_a", (entry._replace(body=None, salt=None),)),
            Batch("run_a", (entry._replace(salt=b"15 bytes, and no"[:15]),)),
            Batch("run_a", shared=((INDEX, replace_salt(draft(), b"x" * 17)),)),
            Batch("run_a", shared=(("run_b", draft()),)),
            Batch(INDEX, entries_after(world.tenant, INDEX, [], 1)),
            Batch(CONTROL, entries_after(world.tenant, CONTROL, [], 1)),
            Batch("run_a", (entry._replace(key="half a pair \ud800"),)),
            Batch("run_a", (entry._replace(at_us=2**70),)),
            Batch("run_a", writes=(Write("keys", "k", -1, b"v"),)),
            Batch("run_a", writes=(Write("keys", "", 0, b"v"),)),
            Batch("run_a", wake_at_us=-1),
            Batch("", writes=(Write("keys", "k", 0, b"v"),)),
            Batch("run_a", (entry,) * (MAX_BATCH_ENTRIES + 1)),
            Batch("run_a", (entry._replace(body=LARGE),)),
            Batch("run_a", writes=(Write("keys", "k", 0, LARGE),)),
        ]
        for batch in wrong:
            with pytest.raises(InvalidInput):
                world.commit(batch)
        assert not any(world.everything()["entries"].values())
        with pytest.raises(InvalidInput):
            world.stores.tenant("")

    def test_a_name_longer_than_an_index_holds_is_refused_and_the_longest_is_kept(self, world: World) -> None:
        longest = ("ä" + random.Random(7).randbytes(MAX_NAME_BYTES).hex())[: MAX_NAME_BYTES - 1]
        store = world.stores.tenant(longest)
        (entry,) = entries_after(longest, longest, [], 1)
        batch = Batch(longest, (entry,), (Write(longest, longest, 0, b"v"),), wake_at_us=5, signature=(longest, "aa"))
        for wrong, where in (
            (replace(batch, run=longest + "b", entries=()), "/run"),
            (replace(batch, writes=(Write(longest, longest + "b", 0, b"v"),)), "/writes/0"),
            (replace(batch, writes=(Write(longest + "b", longest, 0, None),)), "/writes/0"),
            (replace(batch, signature=(longest + "b", "aa")), "/signature"),
        ):
            with pytest.raises(InvalidInput, match=f"{where}.*at most {MAX_NAME_BYTES} bytes"):
                world.run(store.commit(wrong))
        with pytest.raises(InvalidInput, match=f"/tenant.*at most {MAX_NAME_BYTES} bytes"):
            world.run(world.stores.tenant(longest + "b").commit(Batch("run_a", wake_at_us=5)))
        world.run(store.commit(batch))
        assert list(world.run(store.read(longest))) == [entry]

    @pytest.mark.requirement("J-ERASE")
    def test_erasing_forgets_body_and_salt_and_the_chain_still_verifies(self, world: World) -> None:
        entries = entries_after(world.tenant, "run_a", [], 3)
        world.commit(Batch("run_a", entries))
        for _ in range(2):
            world.run(world.stores.erase(world.tenant, "run_a", 2, erased("run_a", 2)))
        assert world.read("run_a") == [entries[0], entries[1]._replace(body=None, salt=None), entries[2]]
        verify(world.tenant, "run_a", world.read("run_a"))
        (recorded,) = world.run(world.store().lines(CONTROL, "run_a/2"))
        assert (recorded.kind, recorded.seq) == (ENTRY_ERASED, 1), "an entry is erased once, and that is recorded"
        for stream, seq in (("run_a", 4), ("run_a", 0), ("run_b", 1), (CONTROL, 1), (INDEX, 1)):
            with pytest.raises(NotFound):
                world.run(world.stores.erase(world.tenant, stream, seq, erased(stream, seq)))

    @pytest.mark.requirement("J-ERASE")
    def test_nothing_is_erased_without_its_record_and_no_erasure_recorded_that_did_not_happen(
        self, world: World
    ) -> None:
        entries = entries_after(world.tenant, "run_a", [], 2)
        world.commit(Batch("run_a", entries))
        for record in (draft(), erased("run_a", 1), replace_salt(erased("run_a", 2), b"")):
            with pytest.raises(InvalidInput):
                world.run(world.stores.erase(world.tenant, "run_a", 2, record))
        with pytest.raises(InvalidInput):
            world.commit(Batch("run_a", shared=((CONTROL, erased("run_a", 2)),)))
        assert (world.read("run_a"), world.read(CONTROL)) == (list(entries), [])

    def test_the_lines_with_one_key_are_found_in_the_shared_streams_only(self, world: World) -> None:
        keys = ("run_a", "run_b", "run_a")
        world.commit(Batch("run_a", entries_after(world.tenant, "run_a", [], 1)))
        world.commit(Batch("run_a", shared=tuple((INDEX, draft(key=key)) for key in keys)))
        world.commit(Batch("run_a", shared=((CONTROL, draft(key="run_a")),)))

        def lines(stream: str, key: str) -> list[Entry]:
            return list(world.run(world.store().lines(stream, key)))

        assert lines(INDEX, "run_a") == [world.read(INDEX)[0], world.read(INDEX)[2]]
        assert lines(CONTROL, "run_a") == world.read(CONTROL)
        assert [lines(CONTROL, "run_b"), lines("run_a", ""), lines("absent", "run_a")] == [[], [], []]

    @pytest.mark.requirement("J-CHAIN", "J-COMPARE-AND-SET")
    def test_any_history_agrees_with_the_reference_model(self, world: World) -> None:
        @settings(max_examples=60)
        @given(data=st.data())
        def agrees(data: st.DataObject) -> None:
            # A tenant of its own for every example; both implementations use the same clock.
            real = World(world.stores, world.clock, world.run)
            model = World(MemoryStores(clock=world.clock), world.clock, at_once, real.tenant)
            for drawn in data.draw(histories(), label="history"):
                world.clock.us = data.draw(st.sampled_from([10, 20, 30]), label="now")
                batch = continued(real.tenant, drawn, model)
                assert outcome(real, batch) == outcome(model, batch)
            assert real.everything() == model.everything()
            for name in (*RUNS, INDEX, CONTROL):
                verify(real.tenant, name, real.read(name))

        agrees()


def histories() -> st.SearchStrategy[list[Any]]:
    run = st.sampled_from(RUNS)
    moment = st.one_of(st.none(), st.sampled_from([10, 20, 30]))
    write = st.builds(
        Write,
        st.sampled_from(COLLECTIONS),
        st.sampled_from(["k", "l"]),
        st.integers(0, 3),
        st.one_of(st.none(), st.binary(max_size=2)),
        moment,
        moment,
    )
    shared = st.tuples(
        st.sampled_from([INDEX, CONTROL]), st.builds(draft, st.sampled_from("ab"), key=st.sampled_from(["", *RUNS]))
    )
    batch = st.builds(
        Batch,
        run,
        st.lists(st.integers(0, 3), max_size=3).map(tuple),
        st.lists(write, max_size=3).map(tuple),
        st.lists(shared, max_size=2).map(tuple),
        st.one_of(st.none(), st.sampled_from([0, 10, 20])),
        st.one_of(st.none(), st.tuples(st.sampled_from(["k1", "k2"]), st.just("00"))),
        st.one_of(st.none(), st.booleans()),
    )
    return st.lists(batch, min_size=1, max_size=12)


def continued(tenant: str, batch: Batch, model: World) -> Batch:
    """The batch with real entries: most continue the stream, some are stale, ahead or on another head."""
    if not batch.entries:
        return batch
    stream = model.read(batch.run)
    made = list(entries_after(tenant, batch.run, stream, len(batch.entries)))
    if 3 in batch.entries and stream:
        made = list(entries_after(tenant, batch.run, stream[:-1], len(made)))
    if batch.entries == (2, 2):
        made = [made[0]._replace(prev_hash=made[0].hash), *made[1:]]
    return replace(batch, entries=tuple(made))
