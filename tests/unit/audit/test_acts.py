"""Verify reads each act and follows the version of the active set through all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from contextos.audit.acts import ACTIVATING, verify_acts
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.journal import CONTROL, Batch, Draft, Entry
from contextos.errors import ChainBroken
from tests.world import TENANT, open_world, run


async def paged(entries: Sequence[Entry]) -> AsyncIterator[Sequence[Entry]]:
    yield entries


def test_the_kinds_that_change_the_active_set_are_acts() -> None:
    assert ACT_ARGUMENTS.keys() > ACTIVATING


def test_each_act_follows_the_one_before(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store = world.stores.tenant(TENANT)
        seen = await store.read(CONTROL)
        await verify_acts(store, TENANT, paged(seen), world.keys)
        await world.pin_pack("ctxpack.support@5.2.0")
        await verify_acts(store, TENANT, paged(seen), world.keys)
        whole = await store.read(CONTROL)
        for cut in (whole[:2] + whole[3:], whole[:2] + whole[1:]):
            with pytest.raises(ChainBroken, match=r"active set|copy of an earlier act"):
                await verify_acts(store, TENANT, paged(cut), world.keys)
        world.close()

    run(go())


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"act": {}}'])
def test_a_line_that_is_no_act_is_named(tmp_path: Path, body: bytes) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store = world.stores.tenant(TENANT)
        line = Draft("run.retried", "run_1", 1, "mallory", body, bytes(16))
        await store.commit(Batch(run=CONTROL, shared=((CONTROL, line),)))
        control = await store.read(CONTROL)
        with pytest.raises(ChainBroken, match=f"entry {len(control)}: is not a `run.retried` as the runtime"):
            await verify_acts(store, TENANT, paged(control), world.keys)
        world.close()

    run(go())
