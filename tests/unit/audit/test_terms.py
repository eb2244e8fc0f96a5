"""Terms that are not those of the entries of a run are named, whichever way they differ."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.terms import refuse_later_terms, refuse_other_terms, verify_terms
from contextos.contracts.entries.terms import ANY_RUN, term
from contextos.contracts.journal import INDEX
from contextos.deployment.queries.run_terms import run_terms
from contextos.errors import ChainBroken
from tests.world import TENANT, TestWorld, open_world, request, run


async def decided(path: Path) -> tuple[TestWorld, str]:
    world = await open_world(path)
    return world, (await world.invoke(request(900, "req_1"))).run_id


def test_a_term_that_is_missing_surplus_or_of_another_time_is_named(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await decided(tmp_path)
        store: Any = world.stores.tenant(TENANT)
        entries, kept = await store.read(run_id), store._stored.terms
        await verify_terms(store, run_id, 1, entries, world.keys)
        whole, subject = dict(kept), (term("subject", "customer:cus_77"), 1)
        assert subject in whole
        for other, counted in (
            ({place: at for place, at in whole.items() if place != subject}, "1 are missing, 0 are surplus"),
            (whole | {(term("subject", "customer:cus_0"), 1): entries[0].at_us}, "0 are missing, 1 are surplus"),
            (whole | {subject: 7}, "1 are missing, 1 are surplus"),
            ({}, f"{len(whole)} are missing, 0 are surplus"),
        ):
            store._stored.terms = other
            with pytest.raises(ChainBroken, match=f"`{run_id}` entry {len(entries)}: .*{counted}"):
                await verify_terms(store, run_id, 1, entries, world.keys)
        world.close()

    run(go())


def test_a_run_that_goes_on_meanwhile_is_compared_as_it_is_then(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await decided(tmp_path)
        store = world.stores.tenant(TENANT)
        await verify_terms(store, run_id, 1, (await store.read(run_id))[:4], world.keys)
        world.close()

    run(go())


def test_terms_of_a_line_that_begins_no_run_are_named(tmp_path: Path) -> None:
    async def go() -> None:
        world, _ = await decided(tmp_path)
        store: Any = world.stores.tenant(TENANT)
        length = await store.length(INDEX)
        await refuse_other_terms(store, 1, length, {1})
        await refuse_later_terms(store)
        store._stored.terms[ANY_RUN, 2] = 5
        with pytest.raises(ChainBroken, match="`index` entry 2: begins no run"):
            await refuse_other_terms(store, 1, length, {1})
        store._stored.terms[ANY_RUN, length + 1] = 5
        with pytest.raises(ChainBroken, match=f"`index` entry {length + 1}: is missing"):
            await refuse_later_terms(store)
        world.close()

    run(go())


def test_the_terms_of_a_run_are_those_that_its_commits_wrote(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await decided(tmp_path)
        waits = (await world.invoke(request(4200, "req_2"))).run_id
        store = world.stores.tenant(TENANT)
        for one in (run_id, waits):
            (line, *_) = await store.lines(INDEX, one)
            stored = {term for _, term, _ in await store.terms(line.seq, line.seq)}
            assert stored == await run_terms(store, await store.read(one), world.keys)
        world.close()

    asyncio.run(go())
