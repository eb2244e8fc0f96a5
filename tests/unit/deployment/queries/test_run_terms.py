"""The terms of a run follow its entries and the acts about its decision."""

from __future__ import annotations

from pathlib import Path

from contextos.contracts.entries.terms import ANY_RUN, LIVE, term
from contextos.deployment.acts.ended_runs import close_decision
from contextos.deployment.queries.run_terms import run_terms, terms_without
from tests.world import TENANT, open_world, request, run


def test_a_waiting_run_is_live_and_an_ended_one_has_its_status(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store, run_id = world.stores.tenant(TENANT), (await world.invoke(request(4200, "req_1"))).run_id
        found = await run_terms(store, await store.read(run_id), world.keys)
        assert {ANY_RUN, LIVE, term("rule", "R_HIGH_VALUE_REQUIRES_APPROVAL")} <= found
        await world.approve(run_id)
        found = await run_terms(store, await store.read(run_id), world.keys)
        assert {term("status", "DECIDED"), term("state", "completed")} <= found
        assert LIVE not in found
        await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason="done")
        found = await run_terms(store, await store.read(run_id), world.keys)
        assert term("status", "CLOSED") in found
        assert term("status", "DECIDED") not in found
        world.close()

    run(go())


def test_what_an_erasure_takes_is_what_no_other_entry_states(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store, run_id = world.stores.tenant(TENANT), (await world.invoke(request(4200, "req_1"))).run_id
        await world.approve(run_id)
        entries = await store.read(run_id)
        records = [one.seq for one in entries if one.kind == "record.revised"]
        rule, subject = term("rule", "R_HIGH_VALUE_REQUIRES_APPROVAL"), term("subject", "customer:cus_77")
        assert (await terms_without(store, entries, records[0], world.keys)).removed == ()
        change = await terms_without(store, entries, records[1], world.keys)
        assert {subject, term("status", "DECIDED")} <= {*change.removed}
        assert rule not in change.removed, "the record of the question states it, too"
        left = [one._replace(body=None, salt=None) if one.seq == records[0] else one for one in entries]
        assert rule in (await terms_without(store, left, records[1], world.keys)).removed
        assert len((await terms_without(store, entries, 1, world.keys)).removed) == 3
        world.close()

    run(go())
