"""Cursors over the index of a tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.journal import INDEX
from contextos.deployment.queries.positions import cursor_of, line_at
from contextos.errors import InvalidInput
from tests.world import TENANT, open_world, request, run


def test_a_cursor_names_its_line_and_an_empty_one_names_none(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        for line in await store.read(INDEX):
            assert await line_at(store, TENANT, cursor_of(line)) == line
        assert await line_at(store, TENANT, "") is None

    run(act())


def test_a_cursor_of_another_search_is_refused(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        [line, *_] = await store.read(INDEX)
        cursor = cursor_of(line, ("subject", "a"))
        assert await line_at(store, TENANT, cursor, ("subject", "a")) == line
        for asked in (None, ("subject", "b"), ("subject", "a", None)):
            with pytest.raises(InvalidInput, match="that of another search"):
                await line_at(store, TENANT, cursor, asked)
        with pytest.raises(InvalidInput, match="that of another search"):
            await line_at(store, TENANT, cursor_of(line), ("subject", "a"))
        with pytest.raises(InvalidInput, match="names nothing here"):
            await line_at(store, TENANT, f"{cursor}0", ("subject", "a"))

    run(act())


@pytest.mark.parametrize("cursor", ["1", "0.0", "1.zz", "-1." + "0" * 32, "1." + "0" * 32, "99." + "0" * 32, "x" * 999])
def test_a_text_that_names_no_line_is_refused(tmp_path: Path, cursor: str) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        with pytest.raises(InvalidInput, match="names nothing here"):
            await line_at(world.stores.tenant(TENANT), TENANT, cursor)

    run(act())
