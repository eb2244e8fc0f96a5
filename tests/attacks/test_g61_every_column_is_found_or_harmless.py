"""G61: what is altered in any column of any table of a store is found, or changes nothing that is decided or done.

The attacker owns the database and holds no key. The tables come from the schema, and docs/design/rows.md says of each
column what proves it.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import ContextOSError
from tests.altered_rows import (
    DOC,
    Alteration,
    Rows,
    alterations,
    collections,
    copied,
    decisions,
    found_by_verify,
    opened,
    outcome,
    populated_collections,
    verdicts,
)
from tests.world import run

SAMPLE = 31
"""One alteration in this many is tried in `make test`; the slow test tries each way for each column, and `make soak`
each way for every row."""


PARTS = 8
"""A test has a limit of time, and a database is copied for each alteration."""

EACH_COLUMN = [
    pytest.param(kind, part, marks=pytest.mark.slow if part < (4 if kind == "sqlite" else 1) else pytest.mark.soak)
    for kind in ("sqlite", "postgresql")
    for part in range(PARTS)
]
"""Each alteration copies a database, so `make test-slow` tries a half on SQLite and an eighth on PostgreSQL, and `make
soak` the rest.
"""


class World:
    """A populated world that is copied for each alteration."""

    def __init__(self, path: Path, request: pytest.FixtureRequest, kind: str) -> None:
        self.path, self._copies = path / "world", path
        self._request, self._kind, self._number = request, kind, 0
        self.path.mkdir()
        self._database = request.getfixturevalue("database") if kind == "postgresql" else None
        run(self._populate())
        self.rows = Rows(self.path, self._database.owner if self._database else None)
        self.baseline = self._in_copy(lambda rows: None, decisions)
        assert ("ord_x2", 4_200) in self.baseline["refunds"], "the approved refund is paid"

    async def _populate(self) -> None:
        world = await opened(self.path, self._database.app if self._database else "sqlite")
        try:
            assert not await found_by_verify(world)
            assert await populated_collections(world) == set(collections()), "every collection has a row"
        finally:
            await world.aclose()

    def outcome(self, alteration: Alteration, *, at_use: bool) -> str:
        """What comes of an alteration: how it is found, or what it changes. With `at_use` nobody verifies before it is
        used.
        """

        def alter(rows: Rows) -> str | None:
            try:
                return None if rows.execute(alteration.statement, *alteration.parameters) else "not there"
            except Exception as error:
                if type(error).__module__.partition(".")[0] not in ("sqlite3", "asyncpg"):
                    raise
                return "refused by the database"

        async def look(world: Any) -> str:
            if not at_use and await found_by_verify(world):
                return "verify"
            comes = outcome(self.baseline, await decisions(world))
            return "verify" if comes in ("nothing", "denies") and await found_by_verify(world) else comes

        return str(self._in_copy(alter, look))

    def _in_copy(self, alter: Any, look: Any) -> Any:
        self._number += 1
        path = copied(self.path, self._copies / f"copy{self._number}")
        database = self._database.server.database(like=self._database.name) if self._database else None

        rows = Rows(path, database.owner if database else None)
        if database:
            rows.be_at_home()

        async def act() -> Any:
            try:
                world = await opened(path, database.app if database else "sqlite")
            except ContextOSError:
                return "refused"
            try:
                return await look(world)
            finally:
                await world.aclose()

        try:
            return alter(rows) or run(act())
        finally:
            shutil.rmtree(path)
            if database:
                database.drop()


FOUND = ("verify", "refused", "refused by the database")


def judged(world: World, chosen: Sequence[Alteration], page: Mapping[tuple[str, str], tuple[str, str]]) -> list[str]:
    """What is wrong: an alteration that is neither found nor harmless, or a verdict of the page that is not true."""
    wrong: list[str] = []
    said: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in chosen:
        place = (one.table, one.column)
        proof, allowed = page.get(place, ("", ""))
        found = world.outcome(one, at_use="at use" in proof)
        said[place][found] += 1
        denies = any(word in allowed for word in ("denies", "delays", "found"))
        if found not in (*FOUND, "nothing", "not there") and not (found == "denies" and denies):
            wrong.append(f"{one.table}.{one.column} ({one.how}): {found}")
    columns = len(said)
    found = sum(any(name in FOUND for name in counts) for counts in said.values())
    tried = sum(sum(counts.values()) for counts in said.values())
    open_ones = len({one.split(" ")[0] for one in wrong})
    harmless = columns - found - open_ones
    print(f"\n{tried} alterations; columns tried {columns}, found {found}, harmless {harmless}, open {open_ones}")
    return wrong


@pytest.fixture(params=["sqlite", "postgresql"])
def populated(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request, request.param)


def test_the_page_has_a_verdict_for_every_column_and_every_field(populated: World) -> None:
    page = verdicts(DOC.read_text("utf-8"))
    places = {(one.table, one.column) for one in alterations(populated.rows)}
    schema = {
        (table, name)
        for table, columns in populated.rows.columns().items()
        for name, _ in columns
        if (table, name) != ("documents", "body")
    }
    assert sorted((places | schema) - page.keys()) == []
    assert sorted(name for name in collections() if not any(of == name for of, _ in page)) == []
    assert all(proof.startswith(("**proved**", "*hint*")) for proof, _ in page.values())


def test_a_sample_of_what_can_be_altered_is_found_or_harmless(populated: World) -> None:
    page = verdicts(DOC.read_text("utf-8"))
    assert judged(populated, list(alterations(populated.rows))[::SAMPLE], page) == []


@pytest.mark.parametrize(("populated", "part"), EACH_COLUMN, indirect=["populated"])
def test_whatever_is_altered_in_any_column_is_found_or_harmless(part: int, populated: World) -> None:
    once = {(one.table, one.column, one.how.split(": ")[-1]): one for one in alterations(populated.rows)}
    assert judged(populated, list(once.values())[part::PARTS], verdicts(DOC.read_text("utf-8"))) == []


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_is_altered_in_any_row_is_found_or_harmless(part: int, populated: World) -> None:
    assert judged(populated, list(alterations(populated.rows))[part::PARTS], verdicts(DOC.read_text("utf-8"))) == []
