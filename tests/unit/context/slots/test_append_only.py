"""What no statement may do, on either database: rewrite the audit or a representation, or land what is not coherent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contextos.context.slots.resolve import resolve_context_slot
from contextos.context.slots.select import select_autonomously
from contextos.contracts.envelopes.slots import Selected
from contextos.errors import IncoherentSelection
from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import LOGIN, Database, awaited
from tests.slots import ICP, VOICE, CuratedArtifacts, actor, add, classify, complete, install, origin, revise, slot

FROZEN = {
    "representations": ("content", "digest", "revision", "artifact_id", "org_id", "tenant"),
    "context_selection_acts": ("slot_id", "picked", "selected_by", "fingerprint", "tenant"),
    "run_context_selections": ("artifact_id", "representation_revision_id", "extension", "source_scope", "position"),
    "artifacts": ("visibility", "owner_id", "title", "org_id"),
    "semantic_assertions": ("extension", "asserted_by", "confidence", "asserted_at_us", "artifact_id"),
}
COLUMNS = [(table, column) for table, columns in FROZEN.items() for column in columns]


async def pick(repository: CuratedArtifacts, key: str = "1") -> Selected:
    installed = await repository.extensions()
    resolution = await resolve_context_slot(actor(), slot(), None, installed, artifacts=repository)
    made = await select_autonomously(slot(), resolution, origin(act_key=key), at_us=5, artifacts=repository)
    assert isinstance(made, Selected)
    return made


async def fill(repository: CuratedArtifacts) -> Selected:
    await install(repository)
    await complete(repository, "a")
    await complete(repository, "b")
    return await pick(repository)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The file of a store in which one selection of two refs was made, as somebody who has it may open it."""
    stores = SqliteStores(tmp_path / "slots.db")
    asyncio.run(fill(stores.artifacts("acme")))
    stores.close()
    connection = sqlite3.connect(tmp_path / "slots.db", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    yield connection
    connection.close()


@pytest.fixture
def served(database: Database) -> Database:
    """A database in which one selection of two refs was made."""

    async def history() -> None:
        stores = PostgresStores(database.app)
        await fill(stores.artifacts("acme"))
        await stores.aclose()

    awaited(history())
    return database


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_no_column_of_a_stored_row_can_be_updated_in_a_file(file: sqlite3.Connection, table: str, column: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        file.execute(f"UPDATE {table} SET {column} = 77")


@pytest.mark.requirement("SLOT-AUDIT")
@pytest.mark.parametrize("table", FROZEN)
def test_no_row_can_be_deleted_or_replaced_in_a_file(file: sqlite3.Connection, table: str) -> None:
    before = file.execute(f"SELECT * FROM {table}").fetchall()
    with pytest.raises(sqlite3.IntegrityError):
        file.execute(f"DELETE FROM {table}")
    with pytest.raises(sqlite3.IntegrityError):
        file.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
    assert before
    assert file.execute(f"SELECT * FROM {table}").fetchall() == before


@pytest.mark.parametrize("who", ["owner", "app"])
@pytest.mark.parametrize("table", FROZEN)
def test_no_row_can_be_updated_deleted_or_truncated_on_a_server(served: Database, table: str, who: str) -> None:
    async def attack() -> list[str]:
        connection = await asyncpg.connect(getattr(served, who))
        await connection.execute("SELECT set_config('contextos.tenant', 'acme', false)")
        answers = []
        updates = [f"UPDATE contextos.{table} SET {column} = {column}" for column in FROZEN[table]]
        for statement in [*updates, f"DELETE FROM contextos.{table}", f"TRUNCATE contextos.{table} CASCADE"]:
            try:
                await connection.execute(statement)
                answers.append(statement)
            except (asyncpg.IntegrityConstraintViolationError, asyncpg.InsufficientPrivilegeError):
                pass
        await connection.close()
        return answers

    before = served.execute(f"SELECT * FROM contextos.{table}")
    assert awaited(attack()) == []
    assert before
    assert served.execute(f"SELECT * FROM contextos.{table}") == before


def test_no_row_can_be_put_before_the_first_or_where_another_may_replace_it(
    file: sqlite3.Connection, served: Database
) -> None:
    """A number of one's own at or below 0 would put an act before all others, and slip past the triggers of a file."""
    columns = (
        "tenant, org_id, parent_run_id, parent_package_name, act_key, slot_id, resolution_mode, selection_mode,"
        " selected_by, principal_id, picked, fingerprint, selected_at_us"
    )
    act = f"(ordinal, selection_id, {columns}) {{}}SELECT {{}}, 'sel_00000000000000ff', {columns} FROM"
    for number in (-5, 0):
        with pytest.raises(sqlite3.IntegrityError):
            file.execute(f"INSERT INTO context_selection_acts {act.format('', number)} context_selection_acts")
        with pytest.raises(asyncpg.CheckViolationError):
            served.execute(
                "INSERT INTO contextos.context_selection_acts"
                f" {act.format('OVERRIDING SYSTEM VALUE ', number)} contextos.context_selection_acts"
            )
        with pytest.raises(sqlite3.IntegrityError):
            file.execute(
                "INSERT INTO representations (rowid, tenant, org_id, artifact_id, revision, revision_id, mime, content,"
                f" digest, created_by, created_at_us) SELECT {number}, tenant, org_id, artifact_id, 2, 'rev_of_mine',"
                " mime, 'forged', digest, created_by, 1 FROM representations WHERE artifact_id = 'a'"
            )


WRONG = {
    "a revision of another artifact": ("artifact_id = 'b'",),
    "an assertion of another extension": (f"extension = '{VOICE}'",),
    "another organisation": ("org_id = 'rival'",),
    "another tenant": ("tenant = 'rival'",),
    "an act that never was": ("selection_id = 'sel_0000000000000000'",),
    "a scope that there is not": ("source_scope = 'planet'",),
    "a scope that is not the artifact's": ("source_scope = 'team'",),
    "an owner who is not the artifact's": ("owner_id = 'bob'",),
    "an artifact that never was": ("artifact_id = 'never'",),
    "a revision that never was": ("representation_revision_id = 'rev_0000000000000000'",),
    "an assertion that never was": ("semantic_assertion_id = 'asr_0000000000000000'",),
}
_ROW = (
    "tenant, org_id, 'sel_00000000000000aa', position + 7 AS position, parent_run_id, parent_package_name, slot_id,"
    " artifact_id, representation_revision_id, semantic_assertion_id, extension, source_scope, owner_id, selected_by,"
    " selection_mode, selected_at_us"
)


def forged(table: str, change: str) -> str:
    """The INSERT of a copy of the row of `a` in which one column is another, for an act that has room for it."""
    name, _, value = change.partition(" = ")
    columns = [
        value if name in column.split() or (name == "selection_id" and column[0] == "'") else column
        for column in _ROW.split(", ")
    ]
    return f"INSERT INTO {table} SELECT {', '.join(columns)} FROM {table} WHERE artifact_id = 'a' LIMIT 1"


def roomy(table: str) -> str:
    """The INSERT of an act that says that it has more refs than the act of the fixture."""
    columns = (
        "tenant, org_id, parent_run_id, parent_package_name, act_key, slot_id, resolution_mode, selection_mode,"
        " selected_by, principal_id, fingerprint, selected_at_us"
    )
    return (
        f"INSERT INTO {table} (selection_id, picked, {columns})"
        f" SELECT 'sel_00000000000000aa', 99, {columns} FROM {table} LIMIT 1"
    )


@pytest.mark.requirement("SLOT-COHERENT")
@pytest.mark.parametrize("change", [change for (change,) in WRONG.values()], ids=WRONG)
def test_not_even_a_bare_insert_lands_a_mixed_triple(file: sqlite3.Connection, served: Database, change: str) -> None:
    file.execute(roomy("context_selection_acts"))
    served.execute(roomy("contextos.context_selection_acts"))
    for foreign_keys in ("ON", "OFF"):
        file.execute(f"PRAGMA foreign_keys = {foreign_keys}")
        with pytest.raises(sqlite3.IntegrityError):
            file.execute(forged("run_context_selections", change))
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        served.execute(forged("contextos.run_context_selections", change))


ENDINGS = {
    "archive": "UPDATE {0}semantic_assertions SET eligibility = 'archived', archived_at_us = 9",
    "tombstone": "UPDATE {0}artifacts SET deleted_at_us = 9 WHERE artifact_id = 'a'",
}


@pytest.mark.requirement("SLOT-COHERENT")
@pytest.mark.parametrize("ending", ENDINGS)
def test_even_a_bare_insert_cannot_record_an_ended_artifact(
    file: sqlite3.Connection, served: Database, ending: str
) -> None:
    file.execute(roomy("context_selection_acts"))
    served.execute(roomy("contextos.context_selection_acts"))
    again = "tenant = tenant"
    file.execute(forged("run_context_selections", again))
    served.execute(forged("contextos.run_context_selections", again))
    file.execute(ENDINGS[ending].format(""))
    served.execute(ENDINGS[ending].format("contextos."))
    with pytest.raises(sqlite3.IntegrityError, match="not coherent"):
        file.execute(forged("run_context_selections", again).replace("+ 7", "+ 9"))
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="not coherent"):
        served.execute(forged("contextos.run_context_selections", again).replace("+ 7", "+ 9"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_bare_insert_too_waits_for_an_end_that_is_under_way(served: Database, ending: str) -> None:
    async def history() -> Any:
        other, mine = await asyncpg.connect(served.owner), await asyncpg.connect(served.app)
        await mine.execute("SELECT set_config('contextos.tenant', 'acme', false)")
        transaction = other.transaction()
        await transaction.start()
        await other.execute(ENDINGS[ending].format("contextos."))
        await mine.execute(roomy("contextos.context_selection_acts"))
        landing = asyncio.ensure_future(mine.execute(forged("contextos.run_context_selections", "tenant = tenant")))
        await until_blocked(other)
        await transaction.commit()
        outcome = (await asyncio.gather(landing, return_exceptions=True))[0]
        await other.close()
        await mine.close()
        return outcome

    assert isinstance(awaited(history()), asyncpg.IntegrityConstraintViolationError)


def test_an_archived_assertion_is_not_resurrected_and_a_draft_never_made_eligible(
    file: sqlite3.Connection, served: Database
) -> None:
    file.execute("UPDATE semantic_assertions SET eligibility = 'archived', archived_at_us = 1 WHERE artifact_id = 'a'")
    for change in ("eligibility = 'eligible', archived_at_us = NULL", "eligibility = 'draft', archived_at_us = NULL"):
        with pytest.raises(sqlite3.IntegrityError):
            file.execute(f"UPDATE semantic_assertions SET {change} WHERE artifact_id = 'a'")
    archive = "SET eligibility = 'archived', archived_at_us = 1 WHERE artifact_id = 'a'"
    served.execute(f"UPDATE contextos.semantic_assertions {archive}")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        served.execute("UPDATE contextos.semantic_assertions SET eligibility = 'eligible', archived_at_us = NULL")


def test_a_copy_that_lies_about_the_artifact_shows_nothing(tmp_path: Path, database: Database) -> None:
    forged = (
        "INSERT INTO {0}semantic_assertions (tenant, org_id, artifact_id, extension, assertion_id, asserted_by,"
        " principal_id, confidence, visibility, source_scope, own_user, eligibility, asserted_at_us) VALUES ('acme',"
        f" 'acme', 'secret', '{ICP}', 'asr_00000000000000ff', 'user', 'x', 1, {{1}}, 'eligible', 1)"
    )
    lies = ("'org', 'organization', ''", "'owner', 'user', 'ann'")

    async def resolved(repository: Any) -> list[str]:
        found = await resolve_context_slot(actor(), slot(), None, await repository.extensions(), artifacts=repository)
        return [ref.artifact_id for ref in found.refs]

    async def secret(repository: Any) -> None:
        await install(repository)
        await add(repository, "secret", visibility="team:legal")
        await revise(repository, "secret")

    async def served(lie: str) -> list[str]:
        stores = PostgresStores(database.app)
        repository = stores.artifacts("acme")
        if lie == lies[0]:
            await secret(repository)
        owner = await asyncpg.connect(database.owner)
        await owner.execute("UPDATE contextos.semantic_assertions SET eligibility = 'archived', archived_at_us = 1")
        await owner.execute(forged.format("contextos.", lie).replace("ff'", f"f{lies.index(lie)}'"))
        await owner.close()
        found = await resolved(repository)
        await stores.aclose()
        return found

    for number, lie in enumerate(lies):
        stores = SqliteStores(tmp_path / f"{number}.db")
        asyncio.run(secret(stores.artifacts("acme")))
        connection = sqlite3.connect(tmp_path / f"{number}.db", isolation_level=None)
        connection.execute(forged.format("", lie))
        connection.close()
        assert asyncio.run(resolved(stores.artifacts("acme"))) == []
        stores.close()
        assert awaited(served(lie)) == []


ACTIVE = "SELECT count(*) FROM {0}semantic_assertions WHERE eligibility <> 'archived' AND artifact_id = '{1}'"


def test_a_tombstone_takes_the_assertions_with_it_and_out_of_the_way_of_a_resolution(
    tmp_path: Path, database: Database
) -> None:
    async def history(repository: Any) -> None:
        await fill(repository)
        await classify(repository, "a", VOICE, "matcher")
        await repository.archive("acme", "a", ICP, 7)
        await classify(repository, "a")
        await repository.tombstone("acme", "a", 9)

    async def served() -> None:
        stores = PostgresStores(database.app)
        await history(stores.artifacts("acme"))
        await stores.aclose()

    stores = SqliteStores(tmp_path / "slots.db")
    asyncio.run(history(stores.artifacts("acme")))
    stores.close()
    awaited(served())
    ended = "SELECT archived_at_us FROM {0}semantic_assertions WHERE artifact_id = 'a' ORDER BY 1"
    with closing(sqlite3.connect(tmp_path / "slots.db")) as file:
        assert file.execute(ended.format("")).fetchall() == [(7,), (9,), (9,)]
        assert file.execute(ACTIVE.format("", "b")).fetchall() == [(1,)]
    assert [row[0] for row in database.execute(ended.format("contextos."))] == [7, 9, 9]
    assert database.execute(ACTIVE.format("contextos.", "b"))[0][0] == 1


def test_a_tombstone_waits_for_a_classification_that_is_under_way_and_ends_it_too(served: Database) -> None:
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('artifact acme acme a', 0))"
    columns = (
        "tenant, org_id, artifact_id, asserted_by, principal_id, confidence, visibility, source_scope, own_user,"
        " eligibility, asserted_at_us"
    )
    classified = (
        f"INSERT INTO contextos.semantic_assertions (extension, assertion_id, {columns}) SELECT '{VOICE}',"
        f" 'asr_00000000000000ff', {columns} FROM contextos.semantic_assertions WHERE artifact_id = 'a'"
    )

    async def history() -> None:
        stores = PostgresStores(served.app)
        repository = stores.artifacts("acme")
        await repository.extensions()
        other = await asyncpg.connect(served.owner)
        async with other.transaction():
            await other.execute(lock)
            ending = asyncio.ensure_future(repository.tombstone("acme", "a", 9))
            await until_blocked(other)
            await other.execute(classified)
        await ending
        await other.close()
        await stores.aclose()

    awaited(history())
    assert served.execute(ACTIVE.format("contextos.", "a"))[0][0] == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_selection_waits_for_an_end_that_is_under_way_and_then_does_not_land(database: Database, ending: str) -> None:
    async def history() -> tuple[bool, Any, int]:
        stores = PostgresStores(database.app)
        repository: Any = stores.artifacts("acme")
        made = await fill(repository)
        other = await asyncpg.connect(database.owner)
        transaction = other.transaction()
        await transaction.start()
        await other.execute(ENDINGS[ending].format("contextos."))
        act = made.act.model_copy(update={"selection_id": "sel_00000000000000ff"})
        landing = asyncio.ensure_future(repository.insert_selection(act))
        await until_blocked(other)
        waited = not landing.done()
        await transaction.commit()
        outcome = (await asyncio.gather(landing, return_exceptions=True))[0]
        await other.close()
        acts = await repository.selections("acme", "run_1")
        await stores.aclose()
        return waited, outcome, len(acts)

    waited, outcome, acts = awaited(history())
    assert waited
    assert isinstance(outcome, IncoherentSelection)
    assert acts == 1


async def until_blocked(connection: Any) -> None:
    """Until a session of the application waits for a lock that this connection holds."""
    waiting = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity"
        " WHERE usename = $1 AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
    )
    for _ in range(2000):
        if await connection.fetchval(waiting, LOGIN):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody waits")
