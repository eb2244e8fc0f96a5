"""D25: a selection of 256 refs asks the store as often as a selection of one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.envelopes.slots import MAX_SLOT_BYTES, MAX_SLOT_REFS, PickRefused, Selected
from contextos.errors import NotFound
from contextos.store.postgres.connections import Connections
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from tests.postgres import Database, awaited
from tests.slots import CuratedArtifacts, actor, add, classify, complete, install, origin, revise, slot


async def opened(stores: str, path: Path) -> Any:
    if stores == "sqlite":
        return SqliteStores(path / "slots.db")
    from contextos.store.postgres.stores import PostgresStores

    return PostgresStores(stores)


async def close(stores: Any) -> None:
    if hasattr(stores, "aclose"):
        await stores.aclose()
    stores.close()


async def taken(repository: CuratedArtifacts, count: int, act: str) -> Selected | PickRefused:
    steps = ArtifactSlots(repository, repository, SystemClock())
    return await steps.take(slot(maxItems=count), actor(), None, origin(act_key=act))


def test_selecting_256_refs_costs_as_many_statements_as_one(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    original = Connections.transaction

    @asynccontextmanager
    async def watched(self: Connections, tenant: str) -> AsyncIterator[Any]:
        async with original(self, tenant) as connection:
            connection.add_query_logger(log := lambda record: statements.append(re.sub(r"\s+", " ", record.query)))
            try:
                yield connection
            finally:
                connection.remove_query_logger(log)

    async def go() -> None:
        stores = await opened(database.app, tmp_path)
        repository = stores.artifacts("tenant_acme_prod")
        await install(repository)
        for number in range(MAX_SLOT_REFS):
            await complete(repository, f"art_{number:03}")
        await taken(repository, 1, "act_before")  # From the second act of a run on, the earlier ones are read too.
        monkeypatch.setattr(Connections, "transaction", watched)
        counts = []
        for count in (1, MAX_SLOT_REFS):
            statements.clear()
            selected = await taken(repository, count, f"act_{count}")
            assert isinstance(selected, Selected)
            assert len(selected.act.refs) == count
            counts.append(len(statements))
        assert counts[0] == counts[1], statements
        assert sum("octet_length" in one for one in statements) == 1
        await close(stores)

    awaited(go())


def test_the_limit_counts_bytes_and_reads_no_content(
    stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        opened_stores = await opened(stores, tmp_path)
        repository = opened_stores.artifacts("tenant_acme_prod")
        await install(repository)
        share = MAX_SLOT_BYTES // 4 // len("ü".encode())
        for name in "abcd":
            await add(repository, f"art_{name}")
            await revise(repository, f"art_{name}", "ü" * share)
            await classify(repository, f"art_{name}")
        fits = await taken(repository, 4, "all")
        assert isinstance(fits, Selected), fits
        assert list(await repository.pinned_sizes("acme", fits.act.refs)) == [MAX_SLOT_BYTES // 4] * 4
        with pytest.raises(NotFound):
            await repository.pinned_sizes("other", fits.act.refs)

        await complete(repository, "art_e")

        async def unread(*_: Any) -> Any:
            raise AssertionError("content was read")

        monkeypatch.setattr(type(repository), "pinned", unread)
        refused = await taken(repository, 5, "more")
        assert isinstance(refused, PickRefused)
        assert refused.code == "too_large"
        await close(opened_stores)

    awaited(go())
