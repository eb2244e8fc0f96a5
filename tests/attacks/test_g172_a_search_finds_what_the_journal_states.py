"""A search reads an index that nobody signs: it shows nothing false, follows each commit, and `verify` names a lie.

The attacker owns the database and holds no key, is another tenant, or chooses the values that are searched for.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.entries.terms import ANY_RUN, term
from contextos.contracts.journal import INDEX
from contextos.deployment import operator
from contextos.deployment.acts.ended_runs import close_decision
from contextos.deployment.queries.sessions import list_sessions
from contextos.errors import ChainBroken, InvalidInput, Unavailable
from contextos.service.run_search import RunSearch
from tests.world import TENANT, TestWorld, open_world, request, run

OTHER = "tenant_other_prod"
SUBJECT = "customer:cus_77"
RULE = "R_HIGH_VALUE_REQUIRES_APPROVAL"


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").eraser if request.param == "postgresql" else request.param)


async def found(world: TestWorld, tenant_id: str = TENANT, **criteria: Any) -> list[str]:
    """The request ids of the runs that a search finds."""
    page = await world.runs().list(tenant_id, search=RunSearch(**criteria))
    return [str(one.request_id) for one in page.items]


async def decided(path: Path, stores: str) -> TestWorld:
    world = await open_world(path, stores=stores)
    await world.invoke(request(900, "req_1"))
    await world.approve((await world.invoke(request(4200, "req_2"))).run_id)
    return world


def test_each_criterion_finds_what_the_entries_state_and_verify_agrees(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await decided(tmp_path, stores)
        waits = (await world.invoke(request(4300, "req_3"))).run_id
        denied = await world.approve((await world.invoke(request(4400, "req_4"))).run_id, "denied")
        assert await found(world, subject=SUBJECT) == ["req_4", "req_2", "req_1"]
        assert await found(world, subject=SUBJECT, rule=RULE) == ["req_4", "req_2"]
        assert await found(world, approver="user_finance_lead_77") == ["req_4", "req_2"]
        assert await found(world, decision="support.refund.execute", status="DECIDED") == ["req_2", "req_1"]
        assert await found(world, status="DEFERRED") == ["req_3"]
        assert await found(world, status="IN_FLIGHT") == []
        assert await found(world, decision=denied.record["record_id"]) == ["req_4"]  # type: ignore[index]
        began = (await world.runs().get(TENANT, "req_2")).began_at_us
        assert await found(world, began_from_us=began) == ["req_4", "req_3", "req_2"]
        assert await found(world, began_before_us=began) == ["req_1"]
        assert await found(world, rule=RULE, began_from_us=began, began_before_us=began + 1) == ["req_2"]
        await close_decision(world.deployment, TENANT, denied.run_id, by=world.actor(), reason="done")
        assert await found(world, status="CLOSED") == ["req_4"]
        assert await found(world, status="REJECTED") == []
        await operator.request_cancel(world.deployment, TENANT, waits, by=world.actor(), reason="stop")
        await world.deployment.advance(TENANT, waits)
        assert await found(world, status="REJECTED") == ["req_3"]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


def test_a_search_finds_no_run_of_another_tenant(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await decided(tmp_path, stores)
        assert await found(world, OTHER, subject=SUBJECT) == []
        [first, *_] = (await world.runs().list(TENANT, search=RunSearch(subject=SUBJECT), limit=1)).items
        cursor = (await world.runs().list(TENANT, search=RunSearch(subject=SUBJECT), limit=1)).cursor
        assert first.request_id == "req_2"
        assert cursor is not None
        with pytest.raises(InvalidInput, match="names nothing here"):
            await world.runs().list(OTHER, search=RunSearch(subject=SUBJECT), cursor=cursor)
        await world.aclose()

    run(go())


@pytest.mark.parametrize(
    "value", ["'; DROP TABLE run_terms; --", "\0", "\ud800", "%", "*", "x" * 100_000, "customer:cus_77\0", "\u202e"]
)
def test_a_hostile_value_finds_nothing_and_breaks_nothing(tmp_path: Path, stores: str, value: str) -> None:
    async def go() -> None:
        world = await decided(tmp_path, stores)
        for name in ("subject", "decision", "approver", "rule"):
            assert await found(world, **{name: value}) == []
        assert (await world.runs().list(TENANT, user_id=value, agent_ids=[value])).items == ()
        assert await found(world, subject=SUBJECT) == ["req_2", "req_1"]
        await world.aclose()

    run(go())


def test_a_cursor_goes_on_with_its_own_search_alone(tmp_path: Path) -> None:
    async def go() -> None:
        world = await decided(tmp_path, "memory")
        runs, search = world.runs(), RunSearch(subject=SUBJECT)
        page = await runs.list(TENANT, search=search, limit=1)
        rest = await runs.list(TENANT, search=search, cursor=str(page.cursor))
        assert [one.request_id for one in (*page.items, *rest.items)] == ["req_2", "req_1"]
        asked: list[dict[str, Any]] = [
            {},
            {"search": RunSearch(subject="customer:cus_78")},
            {"search": RunSearch(approver=SUBJECT)},
            {"search": search, "state": "completed"},
            {"search": search, "user_id": "usr_771"},
            {"search": search, "agent_ids": ["agt_1"]},
        ]
        for other in asked:
            with pytest.raises(InvalidInput, match="that of another search"):
                await runs.list(TENANT, cursor=str(page.cursor), **other)
        await world.aclose()

    run(go())


def test_a_run_that_stopped_between_two_commits_is_found_by_what_is_committed(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        store_type, commits = type(world.stores.tenant(TENANT)), 0
        real = store_type.commit

        async def broken(store: Any, batch: Any) -> None:
            nonlocal commits
            if batch.run.startswith("run_") and batch.entries:
                commits += 1
                if commits == 2:
                    raise Unavailable("store", "away")
            await real(store, batch)

        with patch.object(store_type, "commit", broken), pytest.raises(Unavailable):
            await world.invoke(request(900, "req_1"))
        assert await found(world, subject=SUBJECT) == await found(world, status="DECIDED") == []
        assert await found(world, status="IN_FLIGHT") == ["req_1"]
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        (unfinished,) = (await world.runs().list(TENANT)).items
        world.clock.at_us += 600_000_000
        await world.deployment.advance(TENANT, unfinished.run_id)
        assert await found(world, subject=SUBJECT, status="DECIDED") == ["req_1"]
        assert await found(world, status="IN_FLIGHT") == []
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


@pytest.mark.requirement("J-ERASE")
def test_what_was_erased_is_not_searched_for(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await decided(tmp_path, stores)
        run_id = (await world.runs().get(TENANT, "req_1")).run_id
        store = world.stores.tenant(TENANT)
        (record,) = [one.seq for one in await store.read(run_id) if one.kind == "record.revised"]
        await operator.erase_entry(world.deployment, TENANT, run_id, record, by=world.actor(), reason="law")
        assert await found(world, subject=SUBJECT) == ["req_2"]
        assert await found(world, status="DECIDED") == ["req_2"]
        personal = {term("subject", SUBJECT), term("subject", "order:ord_881")}
        assert not personal & {found_term for _, found_term, _ in await store.terms(1, 1)}
        assert {one.run_id for one in (await world.runs().list(TENANT)).items} >= {run_id}, "no list leaves it out"
        await operator.erase_entry(world.deployment, TENANT, run_id, 1, by=world.actor(), reason="law")
        user = str((await world.runs().get(TENANT, "req_2")).user_id)
        assert [one.request_id for one in (await world.runs().list(TENANT, user_id=user)).items] == ["req_2"]
        await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


@pytest.mark.requirement("J-ERASE")
def test_an_erasure_leaves_what_the_run_stated_after_it_was_proposed(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waits = (await world.invoke(request(4300, "req_1"))).run_id
        store = world.stores.tenant(TENANT)
        record = [one.seq for one in await store.read(waits) if one.kind == "record.revised"][-1]
        proposed = await operator.erase_entry.propose(
            world.deployment, TENANT, waits, record, by=world.actor(), reason="law"
        )
        await world.approve(waits)
        await proposed.signed()
        assert await found(world, status="DECIDED") == ["req_1"]
        assert await found(world, subject=SUBJECT) == ["req_1"]
        await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


def test_an_erasure_beside_a_commit_of_the_run_leaves_all_that_is_stated(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        waits = (await world.invoke(request(4300, "req_1"))).run_id
        stores, store = world.stores, world.stores.tenant(TENANT)
        record = [one.seq for one in await store.read(waits) if one.kind == "record.revised"][-1]
        erase, calls = stores.erase, 0

        async def late(*given: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                await world.approve(waits)
            await erase(*given)

        stores.erase = late  # type: ignore[method-assign]
        await operator.erase_entry(world.deployment, TENANT, waits, record, by=world.actor(), reason="law")
        assert await found(world, status="DECIDED") == ["req_1"]
        await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


def test_a_made_up_term_makes_no_run_a_session(tmp_path: Path) -> None:
    async def go() -> None:
        world = await decided(tmp_path, "memory")
        store: Any = world.stores.tenant(TENANT)
        store._stored.terms[term("mode", "long_running"), 1] = 1
        assert (await list_sessions(store, TENANT, world.keys, limit=5)).sessions == []
        await world.aclose()

    run(go())


def test_a_value_that_is_named_like_a_status_is_searched_for_as_a_value() -> None:
    assert RunSearch(decision="IN_FLIGHT").terms() == [(term("decision", "IN_FLIGHT"),)]
    assert RunSearch(approver="IN_FLIGHT").terms() == [(term("approver", "IN_FLIGHT"),)]


ALTERED = {
    "a term is deleted": ("DELETE FROM run_terms WHERE number = 1 AND term = :subject", "1 are missing"),
    "all are deleted": ("DELETE FROM run_terms", "are missing"),
    "a term is added": ("INSERT INTO run_terms SELECT tenant, 5, 1, began_us FROM run_terms LIMIT 1", "1 are surplus"),
    "a run began later": ("UPDATE run_terms SET began_us = began_us + 1 WHERE number = 1", "are surplus"),
    "a term is moved to a line of no run": (
        "UPDATE run_terms SET number = 2 WHERE term = :subject AND number = 1",
        "index",
    ),
    "a term is moved behind the index": (
        "UPDATE run_terms SET number = 99 WHERE term = :any AND number = 1",
        "1 are missing",
    ),
    "a term is added behind the index": (
        "INSERT INTO run_terms SELECT tenant, term, 99, 5 FROM run_terms LIMIT 1",
        "`index` entry 99",
    ),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_term_that_a_hand_altered_shows_nothing_false_and_is_named_by_verify(tmp_path: Path, how: str) -> None:
    async def go() -> None:
        world = await decided(tmp_path, "sqlite")
        statement, named = ALTERED[how]
        with closing(sqlite3.connect(world.stores.path)) as connection:  # type: ignore[union-attr]
            changed = connection.execute(statement, {"subject": term("subject", SUBJECT), "any": ANY_RUN}).rowcount
            connection.commit()
        assert changed
        assert {*await found(world, subject=SUBJECT)} <= {"req_1", "req_2"}
        assert await found(world) == ["req_2", "req_1"], "the list of the whole tenant reads no term"
        with pytest.raises(ChainBroken, match=named):
            await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())


def test_a_run_that_another_row_names_is_read_and_not_shown(tmp_path: Path) -> None:
    async def go() -> None:
        world = await decided(tmp_path, "memory")
        refused = request(900, "req_3") | {"context_pack_refs": ["ctxpack.none@1.0.0"]}
        await world.invoke(refused)
        store: Any = world.stores.tenant(TENANT)
        number = (await store.lines(INDEX, (await world.runs().get(TENANT, "req_3")).run_id))[0].seq
        for length in (number, 10**9):
            store._stored.terms[term("subject", SUBJECT), length] = 1
        assert await found(world, subject=SUBJECT) == ["req_2", "req_1"]
        await world.aclose()

    run(go())


def test_a_run_that_does_not_verify_is_found_by_the_terms_that_it_has(tmp_path: Path) -> None:
    async def go() -> None:
        world = await decided(tmp_path, "memory")
        store: Any = world.stores.tenant(TENANT)
        run_id = (await world.runs().get(TENANT, "req_1")).run_id
        entries = store._stored.streams[run_id]
        last = next(one for one in entries if one.kind == "record.revised")
        body = json.loads(last.body) | {"subject_ids": []}
        entries[last.seq - 1] = last._replace(body=json.dumps(body).encode())
        page = await world.runs().list(TENANT, search=RunSearch(subject=SUBJECT))
        assert [(one.run_id, one.fault is None) for one in page.items][1] == (run_id, False)
        await world.aclose()

    run(go())
