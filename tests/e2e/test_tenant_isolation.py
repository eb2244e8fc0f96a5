"""Another tenant's anything is not there: every id of every kind, by every road, answers as one that nobody has.

Source: docs/design/standards.md, "Tenant isolation".
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contextos.audit import export, verify
from contextos.audit.replay import replay
from contextos.contracts.journal import CONTROL, INDEX
from contextos.deployment import dead_letters, operator
from contextos.deployment.acts.governance import activate_policies, withdraw_artifact
from contextos.deployment.acts.memories import review_memory
from contextos.errors import ContextOSError
from contextos.intelligence.memory import list_candidates
from contextos.intelligence.retrieval import GraphKnowledge
from contextos.store.postgres.connections import connect_postgres
from tests.postgres import Database
from tests.suites.store_suite import erased
from tests.world import APPROVER, OPERATOR, TENANT, TestWorld, open_world, request, run

OTHER = "tenant_other_prod"
DIGITS = re.compile(r"[0-9a-f]{16,64}")
TABLES = ("segments", "journal", "heads", "documents", "runs", "graph_commits", "nodes", "edges")


@asynccontextmanager
async def two_tenants(path: Path, stores: str) -> AsyncIterator[tuple[TestWorld, dict[str, str]]]:
    """`TENANT` has one of everything; `OTHER` has the same people and nothing else. Also runs by name."""
    world = await open_world(path, stores=stores)
    directory = json.loads((path / "directory.json").read_text("utf-8"))
    (path / "directory.json").write_text(json.dumps({**directory, OTHER: directory[TENANT]}), "utf-8")
    runs = {
        name: (await world.invoke(request(amount, f"req_{name}"))).run_id
        for name, amount in {"paid": 900, "asked": 4200, "denied": 4300, "cancelled": 4400, "buried": 4500}.items()
    }
    await world.approve(runs["denied"], "denied")
    await operator.request_cancel(world.deployment, TENANT, runs["cancelled"], by=world.actor(), reason="a mistake")
    store = world.stores.tenant(TENANT)
    seen = len(await store.read(runs["buried"]))
    assert await dead_letters.add(store, runs["buried"], ("planted", "it failed for good"), 1, seen=seen)
    try:
        yield world, runs
    finally:
        await world.aclose()


async def said(ask: Callable[[], Awaitable[Any]], named: str) -> Any:
    """An answer, or its typed error, without the name that was asked for."""
    try:
        answer: Any = await ask()
    except ContextOSError as error:
        return type(error), str(error).replace(named, "?").replace(named[:64], "?")
    if isinstance(answer, tuple | list):
        answer = list(answer)
    return str(answer).replace(named, "?")


def absent(name: str) -> str:
    """A name of the same form that nobody has."""
    changed = DIGITS.sub(lambda found: "0" * len(found[0]), name)
    if changed != name:
        return changed
    named, at, version = name.partition("@")
    return f"{named}_absent" if not at else f"{named}x@{version}"


def roads(world: TestWorld, name: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every way in which `OTHER` can ask for something called `name`."""
    app, store, graph = world.deployment, world.stores.tenant(OTHER), world.stores.graph(OTHER)
    settled = operator.SettlementInput(happened=False, by=OPERATOR, evidence_ref="artifact:books#rev_1")
    return {
        "view": lambda: app.view(OTHER, name),
        "advance": lambda: app.advance(OTHER, name),
        "approve": lambda: operator.answer_approval(
            app, OTHER, name, approver_id=APPROVER, verdict="approved", reason="", binding_digest="", vouch=dict
        ),
        "settle": lambda: operator.settle_effect(app, OTHER, name, settled, vouch=dict),
        "cancel": lambda: operator.request_cancel(app, OTHER, name, by=world.actor(), reason=""),
        "erase": lambda: operator.erase_entry(app, OTHER, name, 1, by=world.actor(), reason=""),
        "erase past the desk": lambda: world.stores.erase(OTHER, name, 1, erased(name, 1)),
        "replay": lambda: replay(app, OTHER, name),
        "export": lambda: export.export_runs(app, OTHER, [name], by=world.actor()),
        "retry": lambda: operator.retry_run(app, OTHER, name, by=world.actor()),
        "read": lambda: store.read(name),
        "read_run": lambda: store.read_run(name),
        "withdraw": lambda: withdraw_artifact(app, OTHER, name, reason="", expected=0, by=world.actor()),
        "activate": lambda: activate_policies(app, OTHER, [("tenant", name)], expected=0, by=world.actor()),
        "pin": lambda: app.catalog(OTHER).pin([name], {}, intent="support.refund", environment="dev"),
        "promote": lambda: review_memory(app, OTHER, name, "promote", by=world.actor()),
        "neighbourhood": lambda: graph.neighbourhood([name], at=10**6, hops=3, fan_out=9, limit=9),
        "nodes": lambda: graph.nodes([name], at=10**6),
    }


async def names_of(world: TestWorld, runs: dict[str, str]) -> list[str]:
    """What `TENANT` calls its things: runs, requests, approvals, pins, artifacts, acts, nodes, proposals."""
    store = world.stores.tenant(TENANT)
    collections = ("requests", "approvals", "pins", "artifacts", "keys", "denials", "cancels", "dead_letters", "active")
    kept = [document.key for collection in collections for document in await store.scan(collection)]
    assert {key.partition("_")[0] for key in kept} >= {"req", "appr", "run"}
    proposals = [one.proposal_id for one in await list_candidates(store)]
    assert proposals
    return [*runs.values(), *kept, *proposals, "order:ord_881", "customer:cus_77"]


@pytest.mark.requirement("J-TENANT")
@pytest.mark.parametrize("place", ["sqlite", "postgresql"])
def test_an_id_of_another_tenant_answers_like_an_id_that_does_not_exist(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    async def go(stores: str) -> None:
        async with two_tenants(tmp_path, stores) as (world, runs):
            before = await everything(world)
            for name in await names_of(world, runs):
                nobody = absent(name)
                theirs, none = roads(world, name), roads(world, nobody)
                for road, ask in theirs.items():
                    assert await said(ask, name) == await said(none[road], nobody), (road, name)
            assert await everything(world) == before, "and nothing of it moved"

    run(go(request.getfixturevalue("database").app if place == "postgresql" else place))


async def everything(world: TestWorld) -> list[Any]:
    store = world.stores.tenant(TENANT)
    verified = await verify.verify_tenant(store, TENANT, world.keys)
    return [
        verified,
        await world.stores.graph(TENANT).head(),
        world.refunds(),
        await dead_letters.list_dead_letters(store),
    ]


@pytest.mark.requirement("J-TENANT")
@pytest.mark.parametrize("place", ["sqlite", "postgresql"])
def test_requests_pins_snapshots_and_streams_of_two_tenants_have_nothing_to_do_with_each_other(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    async def go(stores: str) -> None:
        async with two_tenants(tmp_path, stores) as (world, _runs):
            mine, theirs = world.stores.tenant(OTHER), world.stores.tenant(TENANT)
            for stream in (INDEX, CONTROL):
                assert await mine.read(stream) == []
                assert len(await theirs.read(stream)) > 0
            assert await GraphKnowledge(world.stores.graph(OTHER)).snapshot() != (
                await GraphKnowledge(world.stores.graph(TENANT)).snapshot()
            )
            # The same request id, with a pin that only the other one has: a run of its own, as with a pin of nobody.
            pinned = []
            for ref in ("ctxpack.support@5.2.0", "ctxpack.nobody@5.2.0"):
                body = copy.deepcopy(asked(ref))
                view = await world.invoke(body)
                assert (view.state, view.tenant_id) == ("rejected", OTHER)
                entry = next(one for one in await mine.read(view.run_id) if one.kind == "run.pinned")
                pinned.append((entry.body or b"").decode().replace(ref, "?"))
            answers = [json.loads(body)["answer"] for body in pinned]
            assert answers[0] == answers[1]
            assert len([one for one in await mine.read(INDEX) if one.kind == "run.indexed"]) == 2
            assert {entry.tenant for entry in await mine.read(INDEX)} == {OTHER}

    def asked(ref: str) -> dict[str, Any]:
        body = body_of("req_paid" if "support" in ref else "req_other")
        return {**body, "tenant_id": OTHER, "context_pack_refs": [ref]}

    run(go(request.getfixturevalue("database").app if place == "postgresql" else place))


def body_of(request_id: str) -> dict[str, Any]:
    return request(900, request_id)


@pytest.mark.requirement("J-TENANT")
def test_under_another_tenant_the_database_itself_shows_and_changes_nothing(tmp_path: Path, database: Database) -> None:
    """The last defence: statements that name the tenant of others, as the application's own role."""

    async def go() -> None:
        async with two_tenants(tmp_path, database.app) as (world, _runs):
            rows = await database.fetch("SELECT DISTINCT collection, key FROM contextos.documents")
            assert len({row["collection"] for row in rows}) >= 10
            for row in rows:
                assert await world.stores.tenant(OTHER).scan(row["collection"], key=row["key"]) == []
            connection = await connect_postgres(database.app)
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("SELECT set_config('contextos.tenant', $1, true)", OTHER)
            for table in TABLES:
                seen = f"SELECT count(*) FROM contextos.{table} WHERE tenant = $1"
                assert await connection.fetchval(seen, TENANT) == 0
            for statement in (
                "UPDATE contextos.documents SET version = version + 1 WHERE tenant = $1",
                "UPDATE contextos.runs SET wake_at_us = 1 WHERE tenant = $1",
            ):
                assert await connection.execute(statement, TENANT) == "UPDATE 0"
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute("INSERT INTO contextos.runs VALUES ($1, 'run_x', 1)", TENANT)
            await transaction.rollback()
            await connection.close()

    run(go())


@pytest.mark.requirement("J-TENANT")
def test_connections_come_back_to_the_pool_without_a_tenant(tmp_path: Path, database: Database) -> None:
    async def go() -> None:
        async with two_tenants(tmp_path, database.app) as (world, runs):
            for name in ("'; SET contextos.tenant = 'tenant_acme_prod'; --", runs["paid"]):
                for ask in roads(world, name).values():
                    await said(ask, name)
            link = world.stores.for_loop()
            idle = [*link.connections._idle, link.writer._connection]
            assert len(idle) >= 2
            for connection in idle:
                assert not await connection.fetchval("SELECT current_setting('contextos.tenant', true)")
                assert await connection.fetchval("SELECT count(*) FROM contextos.documents") == 0

    run(go())
