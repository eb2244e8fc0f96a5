"""A cursor is for one tenant and one history: made up, altered or from another tenant, it reads nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.deployment.queries.positions import line_at
from contextos.errors import ChainBroken, InvalidInput
from tests.world import TENANT, TestWorld, open_world, request, run

OTHER = "tenant_other_prod"


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


async def two_tenants(path: Path, stores: str) -> TestWorld:
    """Two tenants, each with one refused run and the same numbers of events."""
    world = await open_world(path, stores=stores)
    where = path / "directory.json"
    directory = json.loads(where.read_text("utf-8"))
    where.write_text(json.dumps({**directory, OTHER: directory[TENANT]}), "utf-8")
    for tenant_id in (TENANT, OTHER):
        body = request(900, "req_1") | {"tenant_id": tenant_id, "context_pack_refs": ["ctxpack.none@1.0.0"]}
        await world.invoke(body)
    return world


def test_a_cursor_of_another_tenant_is_refused(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await two_tenants(tmp_path, stores)
        runs = world.runs()
        theirs = [one async for one in runs.events(OTHER)]
        assert [one.sequence for one in theirs] == [one.sequence async for one in runs.events(TENANT)]
        for event in theirs:
            with pytest.raises(InvalidInput, match="names nothing here"):
                await anext(runs.events(TENANT, after=event.cursor))
            with pytest.raises(InvalidInput, match="names nothing here"):
                await runs.list(TENANT, cursor=event.cursor)
        await world.aclose()

    run(act())


def test_a_cursor_of_a_line_that_was_altered_is_found(tmp_path: Path) -> None:
    async def act() -> None:
        world = await two_tenants(tmp_path, "sqlite")
        store = world.stores.tenant(TENANT)
        first = (await anext(world.runs().events(TENANT))).cursor

        class Altered:
            async def read(self, *about: Any, **bounds: Any) -> Any:
                return [one._replace(body=b'{"entries":1}') for one in await store.read(*about, **bounds)]

        assert await line_at(store, TENANT, first)
        with pytest.raises(ChainBroken):
            await line_at(Altered(), TENANT, first)  # type: ignore[arg-type]
        await world.aclose()

    run(act())


def test_a_cursor_that_somebody_made_up_is_refused(tmp_path: Path, stores: str) -> None:
    async def act() -> None:
        world = await two_tenants(tmp_path, stores)
        runs = world.runs()
        first, last = [one.cursor async for one in runs.events(TENANT)]
        digit = "0" if last[-1] != "0" else "1"
        forged: list[Any] = [
            last[:-1] + digit,
            f"1.{last.partition('.')[2]}",
            f"2.{first.partition('.')[2]}",
            f"3.{last.partition('.')[2]}",
            "2",
            f" {last}",
            f"{last}\n",
            "2." + "٣" * 32,
            "9" * 400 + "." + "0" * 32,
            7,
            last.encode(),
            [last],
        ]
        for cursor in forged:
            with pytest.raises(InvalidInput, match="names nothing here"):
                await anext(runs.events(TENANT, after=cursor))
        await world.aclose()

    run(act())
