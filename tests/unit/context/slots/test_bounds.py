"""However much there is, a resolution reads no more of it than a slot may hold."""

from __future__ import annotations

import asyncio

import pytest

from contextos.contracts.envelopes.slots import CandidateQuery
from contextos.store.postgres.stores import PostgresStores
from tests.postgres import LOGIN, Database, awaited
from tests.slots import ICP, actor, install

MANY, LIMIT = 6000, 1001
# Every other one is the organisation's; the others are of many teams.
_OURS = "CASE WHEN i % 2 = 0 THEN '{}' ELSE {} END"
_VISIBILITY, _SCOPE = _OURS.format("org", "'team:x' || i % 200"), _OURS.format("organization", "'team'")
_NUMBERS = f"FROM generate_series(1, {MANY}) AS n (i)"
_KEY = "lpad(to_hex(i), 16, '0')"
FILLS = f"""
INSERT INTO contextos.artifacts SELECT 'acme', 'acme', 'art_' || i, 'artifact', 'title', 'organization', 'acme',
  {_VISIBILITY}, 'ann', 1 {_NUMBERS};
INSERT INTO contextos.representations SELECT 'acme', 'acme', 'art_' || i, 1, 'rev_' || {_KEY}, 'text/plain', 'text',
  'sha256:0', 'ann', 1 {_NUMBERS};
INSERT INTO contextos.semantic_assertions SELECT 'acme', 'acme', 'art_' || i, '{ICP}', 'asr_' || {_KEY}, 'user', 'ann',
  1, {_VISIBILITY}, {_SCOPE}, '', 'eligible', 1 {_NUMBERS}
"""
READ = (
    "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) AS read FROM pg_stat_user_tables"
    " WHERE relname IN ('artifacts', 'representations', 'semantic_assertions')"
)


@pytest.mark.parametrize("statistics", ["ANALYZE", "SELECT"], ids=["with statistics", "before the first ones"])
def test_of_many_visible_artifacts_a_server_reads_as_many_as_a_slot_may_hold(
    database: Database, statistics: str
) -> None:
    async def history() -> int:
        stores = PostgresStores(database.app)
        repository = stores.artifacts("acme")
        await install(repository)
        for statement in (*FILLS.split(";"), statistics, "SELECT pg_stat_reset()"):
            await database.fetch(statement)
        found = await repository.candidates(CandidateQuery(actor=actor(), extensions=(ICP,), limit=LIMIT))
        await stores.aclose()
        # A session tells what it read when it ends.
        for _ in range(2000):
            if not await database.fetch(f"SELECT FROM pg_stat_activity WHERE usename = '{LOGIN}'"):
                return len(found)
            await asyncio.sleep(0.005)
        raise AssertionError("its sessions do not end")

    assert awaited(history()) == LIMIT
    read = dict(database.execute(READ))
    assert len(read) == 3
    # As long as there are no statistics any index is as good as another to the planner.
    bounded = read if statistics == "ANALYZE" else {name: read[name] for name in ("artifacts", "representations")}
    assert 0 < max(bounded.values()) <= LIMIT, read
