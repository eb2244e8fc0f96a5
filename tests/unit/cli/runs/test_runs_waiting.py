"""`runs --waiting` costs the runs that wait, counted in rows and in steps of SQLite, whatever else the index holds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextos.store.sqlite import database
from contextos.store.sqlite.stores import SqliteStore

TENANT = "tenant_acme_prod"
STEPS_PER_CALL = 50
_ENDED = """
WITH RECURSIVE made (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM made WHERE n < :count)
INSERT INTO {}
"""
_LINES = """journal
SELECT :tenant, 'index', :last + n, 1, 'run.indexed', 'run_old' || (:last + n), 5, 'runtime', '', '', '', x'00', x'00'
FROM made"""
_RUNS = "runs (tenant, run, wake_at_us, number) SELECT :tenant, 'run_old' || (:last + n), 0, :last + n FROM made"


def add_ended_runs(path: Path, count: int) -> None:
    """Append the rows of `count` runs that wait for nobody."""
    with closing(sqlite3.connect(path / "contextos.db")) as store, store:
        query = "SELECT max(seq) FROM journal WHERE tenant = ? AND run = 'index'"
        ((last,),) = store.execute(query, (TENANT,)).fetchall()
        for rows in (_LINES, _RUNS):
            store.execute(_ENDED.format(rows), {"tenant": TENANT, "count": count, "last": last})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows that the store returned by the method that returned them, and steps that SQLite took to read."""
    counts: Counter[str] = Counter()
    connect = database.reader_connection

    def count_steps() -> int:
        counts["steps"] += STEPS_PER_CALL
        return 0

    def connected(*given: Any) -> sqlite3.Connection:
        connection = connect(*given)
        connection.set_progress_handler(count_steps, STEPS_PER_CALL)
        return connection

    def counting(name: str) -> Any:
        method = getattr(SqliteStore, name)

        async def returned(self: SqliteStore, *given: Any, **bounds: Any) -> Any:
            rows = await method(self, *given, **bounds)
            of_index = name == "read" and given[0] == "index"
            counts["index lines" if of_index else name] += len(rows)
            return rows

        return returned

    monkeypatch.setattr(database, "reader_connection", connected)
    for name in ("read", "scan", "look", "waiting"):
        monkeypatch.setattr(SqliteStore, name, counting(name))
    return counts


@pytest.mark.parametrize("thousands", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_three_waiting_among_thousands_of_runs_are_listed_at_the_cost_of_three(
    shop: Any, counted: Counter[str], thousands: int
) -> None:
    for name, others in (("next", 600 * thousands), ("deny", 400 * thousands), ("cancel", 0)):
        assert shop.say("invoke", shop.request(name)).code == 5
        if others:
            add_ended_runs(shop.path, others)
        counted.clear()
        said = shop.say("runs", "list", "--waiting", "--json")
        assert said.code == 0, said
        listed = said.json["runs"]
    assert [one["request_id"] for one in listed] == ["req_cancel", "req_deny", "req_next"]
    assert (counted["waiting"], counted["index lines"]) == (3, 4), "three, and the last that was witnessed"
    assert counted["read"] < 3 * 60, "the journals of three runs"
    assert counted["steps"] < 20_000
    assert listed[0]["began_at_us"] > listed[2]["began_at_us"]

    paged: list[Any] = []
    after, pages = "", 0
    while after is not None:
        counted.clear()
        said = shop.say("runs", "list", "--waiting", "--limit", "1", "--after", after, "--json").json
        paged, after, pages = paged + said["runs"], said["next_after"], pages + 1
        assert counted["index lines"] <= 4, "the place, the run there, the one behind it, and the last witnessed"
    assert (paged, pages) == (listed, 3)
    assert "more: contextos runs list --waiting --after " in shop.say("runs", "list", "--waiting", "--limit", "1").out


def test_a_run_that_is_marked_as_waiting_and_does_not_wait_is_read_and_not_listed(
    shop: Any, counted: Counter[str]
) -> None:
    shop.say("invoke", shop.request("next"))
    before = shop.say("runs", "list", "--waiting", "--json").json
    with closing(sqlite3.connect(shop.path / "contextos.db")) as store, store:
        store.execute("UPDATE runs SET waiting = 1")
    counted.clear()
    assert shop.say("runs", "list", "--waiting", "--json").json == before
    assert counted["waiting"] == 3, "the two that have ended were looked at"
