"""What a run leaves in a database with segments is what it leaves as plain entries, but for ids, times and hashes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.exported import read_export
from contextos.contracts.journal import Batch, Entry
from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.seal import KeyRing
from tests.golden.journal_dictionary import SEED, SOURCES, with_placeholders
from tests.postgres import awaited
from tests.world import TENANT, open_world, request

GOLDEN = Path(__file__).parents[1] / "golden"
AMOUNTS = (900, 4200, 42_000, 150, 9_999, 25_000)
EACH = 4
"""Each fourth approval is refused, and four entries of a golden run are one commit."""


def kept_in(stores: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app) if stores == "postgresql" else stores


def told(entry: Entry) -> tuple[Any, ...]:
    """An entry without ids, times and hashes."""
    body = None if entry.body is None else with_placeholders(entry.body)
    return entry.v, entry.seq, with_placeholders(entry.kind.encode()), with_placeholders(entry.key.encode()), body


async def records(path: Path, stores: str, count: int) -> list[list[tuple[Any, ...]]]:
    """What each of `count` runs left; all differ in amount and text, and some are approved, denied or rejected."""
    world = await open_world(path, stores=stores)
    found = []
    for number in range(count):
        body = request(AMOUNTS[number % len(AMOUNTS)] + number, f"req_{number}")
        body["input"]["message"] += f" Case {number * number}."
        view = await world.invoke(body)
        if view.waiting:
            await world.approve(view.run_id, "approved" if number % EACH else "denied")
        found.append([told(one) for one in await world.stores.tenant(TENANT).read(view.run_id)])
    await world.aclose()
    return found


@pytest.mark.requirement("J-CHAIN")
@pytest.mark.parametrize("stores", ["sqlite", "postgresql"])
@pytest.mark.parametrize("count", [30, pytest.param(1_000, marks=pytest.mark.soak)])
def test_runs_leave_the_records_that_plain_entries_are(
    stores: str, count: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for name in ("plain", "packed"):
        (tmp_path / name).mkdir()
    plain = awaited(records(tmp_path / "plain", "memory", count))
    packed = awaited(records(tmp_path / "packed", kept_in(stores, request), count))
    assert len({len(run) for run in plain}) > 2, "runs of different courses"
    assert packed == plain


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("stores", ["sqlite", "postgresql"])
def test_entries_of_golden_runs_are_read_back_byte_for_byte(
    stores: str, source: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = gzip.decompress((GOLDEN / f"{source}.jsonl.gz").read_bytes())
    streams = read_export(text, KeyRing.from_seed(SEED)).streams

    url = kept_in(stores, request)

    async def stored() -> None:
        kept: Any = SqliteStores(tmp_path / "store.db") if stores == "sqlite" else PostgresStores(url)
        for run, entries in streams.items():
            store = kept.tenant(entries[0].tenant)
            for start in range(0, len(entries), EACH):
                await store.commit(Batch(run, entries[start : start + EACH]))
            assert await store.read(run) == list(entries)
        if stores == "sqlite":
            kept.close()
        else:
            await kept.aclose()

    awaited(stored())
