"""Memories and proposals are believed as acts and runs state them; what changes during a read is read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.memories import CANDIDATES, PROMOTED, promoted_key
from contextos.contracts.envelopes.memory import MemoryProposal, PromotedMemory, ReviewedProposal
from contextos.contracts.journal import CONTROL, Batch, Entry
from contextos.deployment.acts.memories import review_memory
from contextos.errors import ChainBroken, Integrity
from contextos.intelligence.memory import list_candidates
from contextos.trust.rows.memories import Reviews, require_proposed, reviewed_memories, verify_memories
from tests.world import TENANT, TestWorld, open_world, request, run

PLACE = promoted_key("customer:cus_77", "was_refunded")


@asynccontextmanager
async def reviewed(path: Path) -> AsyncIterator[tuple[TestWorld, list[MemoryProposal]]]:
    """A world in which two runs proposed something about one customer, and the first proposal was promoted."""
    world = await open_world(path)
    for order in ("ord_881", "ord_882"):
        await world.invoke(request(900, f"req_{order}", order_id=order))
    waiting = await list_candidates(world.stores.tenant(TENANT))
    made = [one for one in waiting if one.candidate.predicate == "was_refunded"]
    await promote(world, made[0])
    yield world, made
    world.close()


async def promote(world: TestWorld, proposal: MemoryProposal) -> None:
    named = (world.deployment, TENANT, proposal.proposal_id)
    assert isinstance(await review_memory(*named, "promote", by=world.actor(), supersede=True), dict)


async def write(world: TestWorld, *writes: Any) -> None:
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=writes))


class Superseding:
    """A store on which a reviewer replaces the memory while its acts are being read."""

    def __init__(self, world: TestWorld, proposal: MemoryProposal) -> None:
        self._world, self._proposal, self._store = world, proposal, world.stores.tenant(TENANT)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def lines(self, *said: str) -> Sequence[Entry]:
        found = await self._store.scan("memory_promoted")
        if found[0].version == 1:
            await promote(self._world, self._proposal)
        return tuple(await self._store.lines(*said))


def test_a_memory_that_a_reviewer_replaces_meanwhile_is_read_again(tmp_path: Path) -> None:
    async def go() -> None:
        async with reviewed(tmp_path) as (world, [_, second]):
            before = await PROMOTED.page(world.stores.tenant(TENANT))
            store: Any = Superseding(world, second)
            after = await reviewed_memories(store, world.keys, before)
            assert [one.body.proposal.proposal_id for one in after] == [second.proposal_id]

    run(go())


def test_nothing_is_read_for_no_memory() -> None:
    nothing: Any = None
    assert run(reviewed_memories(nothing, nothing, ())) == ()


def test_a_memory_without_an_act_is_refused_and_found(tmp_path: Path) -> None:
    async def go() -> None:
        async with reviewed(tmp_path) as (world, [first, second]):
            store = world.stores.tenant(TENANT)
            control = await store.read(CONTROL)
            assert await verify_memories(store, len(control), world.keys) == 1
            [true] = await PROMOTED.page(store)
            made_up = PromotedMemory(proposal=second, review=true.body.review)
            await write(world, PROMOTED.write(PLACE, 1, made_up))
            with pytest.raises(Integrity, match=second.proposal_id):
                await reviewed_memories(store, world.keys, await PROMOTED.page(store))
            with pytest.raises(ChainBroken, match=second.proposal_id):
                await verify_memories(store, len(control), world.keys)
            await write(world, PROMOTED.write(PLACE, 2, true.body))
            assert await verify_memories(store, len(control), world.keys) == 1
            # What was promoted or replaced after `control` was read is no fault.
            await promote(world, second)
            assert await verify_memories(store, len(control), world.keys) == 1
            assert Reviews.read(await store.read(CONTROL), world.keys).promoted() == {
                first.proposal_id,
                second.proposal_id,
            }

    run(go())


def test_a_proposal_counts_as_its_run_made_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with reviewed(tmp_path) as (world, [_, second]):
            store = world.stores.tenant(TENANT)
            found = await CANDIDATES.one(store, second.proposal_id)
            assert found is not None
            entries = await require_proposed(store, TENANT, world.keys, found)
            assert entries[-1].kind == "run.ended"
            altered = second.model_copy(update={"ttl_s": 7})
            await write(world, CANDIDATES.write(second.proposal_id, 1, ReviewedProposal(proposal=altered, review=None)))
            found = await CANDIDATES.one(store, second.proposal_id)
            assert found is not None
            with pytest.raises(Integrity, match="is not what a signed entry"):
                await require_proposed(store, TENANT, world.keys, found)

    run(go())
