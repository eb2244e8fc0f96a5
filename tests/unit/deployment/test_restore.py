"""A backup that is brought back pays nothing twice and no approval from before it counts, whenever it was taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.contracts.documents.runs import REQUESTS
from contextos.contracts.journal import CONTROL, Batch, Entry
from contextos.deployment import operator
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher, restorations, witnessed_lengths
from contextos.errors import ApprovalRefused, ChainBroken, Integrity, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.store.witness.file import FileWitness
from contextos_sim.memory.stores import MemoryStore
from tests.e2e.test_verdicts import Wrapped
from tests.world import TENANT, ManualClock, TestWorld, forget_terms, open_world, request, run

BY = "user_operator_5"


@contextmanager
def backed_up(world: TestWorld) -> Iterator[list[Any]]:
    """A backup after each commit that is made inside."""
    backups: list[Any] = []
    commit = MemoryStore.commit

    async def kept(store: MemoryStore, batch: Batch) -> None:
        await commit(store, batch)
        backups.append(backup(world))

    with patch.object(MemoryStore, "commit", kept):
        yield backups


def backup(world: TestWorld) -> Any:
    kept = world.stores.tenant(TENANT)._stored
    return deepcopy((kept.streams, kept.documents, kept.signed, kept.wake, kept.numbers, kept.terms))


def restore(world: TestWorld, taken: Any) -> None:
    kept = world.stores.tenant(TENANT)._stored
    kept.streams, kept.documents, kept.signed, kept.wake, kept.numbers, kept.terms = deepcopy(taken)
    world.deployment.close()
    # Every process was stopped: one that comes after the restore knows nothing of what was stored.
    world.deployment._catalogs.clear()


async def driven(world: TestWorld) -> list[str]:
    """Drive every run there is as far as it goes; their states."""
    store, states = world.stores.tenant(TENANT), []
    world.clock.at_us += 3_600_000_000 * 24
    for line in await store.read("index"):
        if line.kind == "run.indexed":
            await world.deployment.advance(TENANT, line.key)
            states.append((await world.deployment.view(TENANT, line.key)).state)
    await verify.verify_tenant(store, TENANT, world.keys)
    return states


@pytest.mark.requirement("J-EPOCH")
@pytest.mark.parametrize("payments", ["keyed", "lookup", "none"])
@pytest.mark.parametrize("amount", [900, 4200])
def test_a_backup_of_any_moment_pays_nothing_twice(tmp_path: Path, payments: str, amount: int) -> None:
    async def go() -> None:
        # The shop refuses what comes after its `not_after`, by the clock of the machine.
        world = await open_world(
            tmp_path,
            payments=payments,
            clock=ManualClock(SystemClock().now_us()),
            pack=lambda body: body["tooling_layer"].update(egress=["orders.example"]),
            egress={TENANT: ("orders.example",)},
        )
        # A read that leaves the machine is on record before it is sent, so a backup may lie before the payment.
        orders = world.adapters["adp_orders"]
        outside = orders.describe().model_copy(update={"external": True, "egress": ("orders.example",)})
        world.adapters["adp_orders"] = Wrapped(orders, definition=outside)  # type: ignore[assignment]
        with backed_up(world) as backups:
            view = await world.invoke(request(amount, "req_1"))
            if view.waiting:
                view = await world.approve(view.run_id)
        assert view.state == "completed"
        assert len(world.refunds()) == 1
        began = [one for one in backups if view.run_id in one[0]]
        assert len(began) >= 3
        for taken in began:
            restore(world, taken)
            await record_restore(world.deployment, None, TENANT, by=world.actor())
            await driven(world)
            assert len(world.refunds()) == 1
        world.close()

    run(go())


@pytest.mark.requirement("J-EPOCH")
@pytest.mark.parametrize("payments", ["keyed", "lookup", "none"])
@pytest.mark.parametrize("amount", [900, 4200])
def test_what_a_failover_lost_behind_the_witness_is_paid_once(tmp_path: Path, payments: str, amount: int) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, payments=payments, clock=ManualClock(SystemClock().now_us()))
        with backed_up(world) as backups:
            view = await world.invoke(request(amount, "req_1"))
            if view.waiting:
                view = await world.approve(view.run_id)
        assert len(world.refunds()) == 1
        for number, taken in enumerate(one for one in backups if view.run_id in one[0]):
            restore(world, taken)
            witness = FileWitness(tmp_path / f"witness_{number}.jsonl")
            publisher = WitnessPublisher(world.stores, witness, world.keys, world.clock)
            await publisher.publish([TENANT])
            made = await record_restore(world.deployment, publisher, TENANT, by=world.actor())
            assert made.lost_nothing, "for all that the witness knows"
            await driven(world)
            assert len(world.refunds()) == 1
        world.close()

    run(go())


class Down:
    """An adapter that is down when it is asked first."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.down = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, capability: str, args: Any, context: Any) -> Any:
        if self.down:
            self.down = False
            raise Unavailable("adp_payments", "it is down")
        return await self._inner.call(capability, args, context)


@pytest.mark.requirement("J-EPOCH")
@pytest.mark.parametrize("amount", [900, 4200])
def test_between_two_attempts_of_a_call_a_restore_stops_the_run(tmp_path: Path, amount: int) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, clock=ManualClock(SystemClock().now_us()))
        world.adapters["adp_payments"] = Down(world.adapters["adp_payments"])  # type: ignore[assignment]
        with backed_up(world) as backups:
            view = await world.invoke(request(amount, "req_1"))
            if view.waiting:
                view = await world.approve(view.run_id)
            world.clock.at_us += 2_000_000  # the second attempt may wait for its moment
            await world.deployment.advance(TENANT, view.run_id)
            view = await world.deployment.view(TENANT, view.run_id)
        assert view.state == "completed"
        between = [one for one in backups if view.run_id in one[0] and _after_a_first_attempt(one[0][view.run_id])]
        assert between
        for taken in between:
            restore(world, taken)
            with sqlite3.connect(world.path / "shop.db") as books:
                books.execute("DELETE FROM refunds")  # the other side has long forgotten the key
            await record_restore(world.deployment, None, TENANT, by=world.actor())
            with pytest.raises(Integrity, match="between two attempts"):
                await world.deployment.advance(TENANT, view.run_id)
            assert world.refunds() == []
        world.close()

    run(go())


def _after_a_first_attempt(entries: Any) -> bool:
    sent = [one.key for one in entries if one.kind == "tool.dispatching" and b"issue_refund" in (one.body or b"")]
    last = entries[-1].kind
    return last in ("tool.returned", "tool.retry_scheduled") and [key.rpartition("/")[2] for key in sent] == ["1"]


async def holds(*_: Any) -> None:
    """A process that asks nobody whether a question still holds."""


@pytest.mark.requirement("J-EPOCH")
@pytest.mark.parametrize("answered", ["before the backup", "past the check after the restore"])
def test_an_approval_that_was_asked_before_the_restore_pays_nothing(tmp_path: Path, answered: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        if answered == "before the backup":
            await world.answer(waiting.run_id)
        restore(world, backup(world))
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        if answered == "past the check after the restore":
            with pytest.raises(ApprovalRefused, match="restored"):
                await world.answer(waiting.run_id)
            with patch.object(operator, "void_question", holds):
                await world.answer(waiting.run_id)
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.state == "escalated"
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "approval_void"
        assert world.refunds() == []
        replayed = await replay(world.deployment, TENANT, waiting.run_id)
        assert replayed.record_hash == view.record["record_hash"]
        with pytest.raises(ApprovalRefused):
            await world.answer(waiting.run_id)
        asked_again = await world.invoke(request(4200, "req_2"))
        assert (await world.approve(asked_again.run_id)).state == "completed"
        assert [one["amount_inr"] for one in world.refunds()] == [4200]
        world.close()

    run(go())


def test_a_restore_between_the_last_check_and_the_commit_that_pays_stops_it(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        commit, done = MemoryStore.commit, []

        async def late(store: MemoryStore, batch: Batch) -> None:
            if any(entry.kind == "tool.dispatching" for entry in batch.entries) and not done:
                done.append(1)
                await record_restore(world.deployment, None, TENANT, by=world.actor())
            await commit(store, batch)

        with patch.object(MemoryStore, "commit", late):
            await world.deployment.advance(TENANT, waiting.run_id)
        assert done
        assert (await world.deployment.view(TENANT, waiting.run_id)).state == "escalated"
        assert world.refunds() == []
        world.close()

    run(go())


def acted(line: Entry) -> Any:
    """The arguments of a recorded act."""
    return orjson.loads(line.body or b"")["act"]["arguments"]


def test_the_person_who_restored_is_recorded_in_the_chained_control_stream(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        first = await record_restore(world.deployment, None, TENANT, by=world.actor())
        second = await record_restore(world.deployment, None, TENANT, by=world.actor())
        assert first.epoch_id != second.epoch_id
        store = world.stores.tenant(TENANT)
        lines = [line for line in await store.read(CONTROL) if line.kind == "store.restored"]
        assert [(line.by, acted(line)["epoch"]) for line in lines] == [(BY, first.epoch_id), (BY, second.epoch_id)]
        assert acted(lines[0])["left"] == {"index": 3, "control": 5}
        await verify.verify_tenant(store, TENANT, world.keys)
        world.close()

    run(go())


async def verified(world: TestWorld, witness: FileWitness) -> Any:
    heads = await witness.heads(TENANT)
    return await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys, heads)


def test_the_witness_counts_lost_runs_and_names_every_later_cut(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")

        def watching() -> WitnessPublisher:
            return WitnessPublisher(world.stores, witness, world.keys, world.clock)

        await world.invoke(request(900, "req_0"))
        taken = backup(world)
        for number in range(1, 4):
            await world.invoke(request(900 + number, f"req_{number}"))
        await watching().publish([TENANT])
        restore(world, taken)
        for check in (verified(world, witness), watching().check(TENANT)):
            with pytest.raises(ChainBroken, match="witnessed at"):
                await check
        publisher = watching()
        made = await record_restore(world.deployment, publisher, TENANT, by=world.actor())
        assert [(one.stream, one.kept, one.gone) for one in made.restored] == [("control", 5, 0), ("index", 3, 9)]
        for number in range(5, 7):
            await world.invoke(request(900 + number, f"req_{number}"))
        assert await publisher.publish([TENANT]) == 2
        assert await watching().publish([TENANT]) == 0
        await verified(world, witness)
        heads = await witness.heads(TENANT)
        assert witnessed_lengths(heads) == {"index": 9, "control": 6}
        assert [(one.stream, one.kept, one.gone) for one in restorations(heads)] == [("control", 5, 0), ("index", 3, 9)]
        whole = backup(world)
        for cut in (slice(0, 6), slice(0, 3), slice(0, 0)):
            restore(world, whole)
            kept = world.stores.tenant(TENANT)._stored
            gone = {line.key for line in kept.streams["index"]} - {line.key for line in kept.streams["index"][cut]}
            kept.streams["index"] = kept.streams["index"][cut]
            forget_terms(kept)
            for run_id in gone:
                del kept.streams[run_id]
                kept.documents.pop(("leases", run_id))
            for claim in await REQUESTS.page(world.stores.tenant(TENANT)):
                if claim.body.run_id in gone:
                    kept.documents.pop(("requests", claim.key))
            await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
            for check in (verified(world, witness), watching().check(TENANT)):
                with pytest.raises(ChainBroken, match="witnessed at"):
                    await check
        world.close()

    run(go())


@pytest.mark.requirement("J-WITNESSED")
def test_a_cut_is_not_a_restore_because_the_stores_owner_claims_one(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")
        publisher = WitnessPublisher(world.stores, witness, world.keys, world.clock)
        taken = backup(world)
        await world.invoke(request(900, "req_1"))
        await publisher.publish([TENANT])
        restore(world, taken)
        # All that an owner of the store can write: the epoch, the line of control, a run after it.
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        await world.invoke(request(901, "req_2"))
        for one in (publisher, WitnessPublisher(world.stores, witness, world.keys, world.clock)):
            with pytest.raises(ChainBroken, match="witnessed at"):
                await one.publish([TENANT])
        with pytest.raises(ChainBroken, match="witnessed at"):
            await verified(world, witness)
        stolen = (await witness.heads(TENANT))[0]
        await witness.put([stolen._replace(stream=f"{stolen.stream}@1")])
        with pytest.raises(ChainBroken, match="invalid signature"):
            await verified(world, witness)
        world.close()

    run(go())


def test_a_restore_recorded_late_or_twice_counts_every_lost_run(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")
        publisher = WitnessPublisher(world.stores, witness, world.keys, world.clock)
        taken = backup(world)
        for number in range(2):
            await world.invoke(request(900 + number, f"req_{number}"))
            await publisher.publish([TENANT])
        restore(world, taken)
        for number in range(2, 6):
            await world.invoke(request(900 + number, f"req_{number}"))
        late = await record_restore(
            world.deployment, WitnessPublisher(world.stores, witness, world.keys, world.clock), TENANT, by=world.actor()
        )
        (index,) = [one for one in late.restored if one.stream == "index"]
        assert (index.kept, index.gone) == (2, 4), "the first witnessed line that is another is the third"
        again = await record_restore(world.deployment, publisher, TENANT, by=world.actor())
        assert {one.gone for one in again.restored} == {0}
        await verified(world, witness)
        world.close()

    run(go())


def test_a_run_of_a_clock_that_was_ahead_predates_the_restore_wherever_it_is_in_the_index(tmp_path: Path) -> None:
    async def go() -> None:
        right = SystemClock().now_us()
        world = await open_world(tmp_path, clock=ManualClock(right + 2 * 3_600_000_000))
        ahead = await world.invoke(request(900, "req_1"))
        world.clock.at_us = right
        await world.invoke(request(901, "req_2"))
        restore(world, backup(world))
        await record_restore(world.deployment, None, TENANT, by=world.actor())
        (epoch,) = await world.stores.tenant(TENANT).scan("epoch", key="store")
        begun = (await world.stores.tenant(TENANT).read(ahead.run_id))[0].at_us
        assert begun <= orjson.loads(epoch.body)["at_us"]
        world.close()

    run(go())


@pytest.mark.requirement("J-WITNESSED")
@pytest.mark.parametrize("said", ["before it tells", "while it tells"])
def test_a_worker_that_ran_over_a_restore_publishes_later_heads(tmp_path: Path, said: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")

        def watching() -> WitnessPublisher:
            return WitnessPublisher(world.stores, witness, world.keys, world.clock)

        await world.invoke(request(900, "req_0"))
        worker = watching()
        await worker.publish([TENANT])
        restore(world, backup(world))
        at_once, accept = watching(), WitnessPublisher.publish_restore

        async def late(one: WitnessPublisher, *args: Any) -> Any:
            await worker.publish([TENANT])
            return await accept(one, *args)

        with patch.object(WitnessPublisher, "publish_restore", late if said == "while it tells" else accept):
            await record_restore(world.deployment, at_once, TENANT, by=world.actor())
        await world.invoke(request(901, "req_1"))
        await worker.publish([TENANT])
        assert witnessed_lengths(await witness.heads(TENANT)) == {"index": 6, "control": 6}
        kept = world.stores.tenant(TENANT)._stored
        kept.documents.pop(("leases", kept.streams["index"][3].key))
        del kept.streams[kept.streams["index"][3].key]
        kept.streams["index"] = kept.streams["index"][:3]
        with pytest.raises(ChainBroken, match="witnessed at"):
            await verified(world, witness)
        world.close()

    run(go())


def test_a_worker_that_published_more_than_a_restore_left_goes_on_after_it(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        witness = FileWitness(tmp_path / "witness.jsonl")
        worker = WitnessPublisher(world.stores, witness, world.keys, world.clock)
        taken = backup(world)
        for again in range(2):  # the epoch of the second is as often written as that of the first
            await world.invoke(request(900, "req_1"))
            await worker.publish([TENANT])
            restore(world, taken)
            with pytest.raises(ChainBroken, match="witnessed at"):
                await worker.publish([TENANT])
            others = WitnessPublisher(world.stores, witness, world.keys, world.clock)
            await record_restore(world.deployment, others, TENANT, by=world.actor())
            assert await worker.publish([TENANT]) == 1, again
        world.close()

    run(go())
