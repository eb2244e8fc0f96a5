"""What every `Witness` does. A subclass gives the fixture `make`: another witness over the same place, each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from contextos.audit import verify
from contextos.contracts.journal import CONTROL, INDEX, WitnessedHead
from contextos.contracts.ports.outside import Witness
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher, restorations, witnessed_lengths
from contextos.errors import ChainBroken, ContextOSError
from tests.unit.deployment.test_restore import backup, restore
from tests.world import TENANT, open_world, request, run

Make = Callable[[], Witness]


def head(seq: int, stream: str = INDEX, tenant: str = TENANT) -> WitnessedHead:
    return WitnessedHead(tenant, stream, seq, f"sha256:{seq:064x}", "kid_1", "ab" * 64, 1_793_000_000_000_000 + seq)


class WitnessSuite:
    def test_a_head_that_was_put_is_visible_to_every_reader_of_its_tenant_alone(self, make: Make) -> None:
        async def go() -> None:
            assert await make().heads(TENANT) == []
            await make().put([head(1), head(2, CONTROL), head(3, tenant="other")])
            await make().put([head(5)])
            known = await make().heads(TENANT)
            assert witnessed_lengths(known) == {INDEX: 5, CONTROL: 2}
            assert set(known) == {head(1), head(5), head(2, CONTROL)}
            assert list(await make().heads("other")) == [head(3, tenant="other")]
            assert await make().heads("nobody") == []

        asyncio.run(go())

    def test_the_furthest_head_of_many_is_found(self, make: Make) -> None:
        async def go() -> None:
            for upto in (1, 2, 3, 9):
                await make().put([head(seq) for seq in range(1, upto + 1)])
                assert witnessed_lengths(await make().heads(TENANT)) == {INDEX: upto}

        asyncio.run(go())

    def test_an_older_head_that_comes_late_hides_no_newer_one(self, make: Make) -> None:
        async def go() -> None:
            await make().put([head(7)])
            await make().put([head(3)])
            assert witnessed_lengths(await make().heads(TENANT)) == {INDEX: 7}

        asyncio.run(go())

    def test_of_many_who_put_at_once_nobody_is_lost(self, make: Make) -> None:
        async def go() -> None:
            await asyncio.gather(*(make().put([head(seq), head(seq, CONTROL)]) for seq in range(1, 6)))
            assert witnessed_lengths(await make().heads(TENANT)) == {INDEX: 5, CONTROL: 5}

        asyncio.run(go())

    @pytest.mark.parametrize("tenant", ["..", "a/b", "a b", "ä", "%2e%2e", "index", "?x#y", "a" * 128])
    def test_a_tenant_of_any_name_is_apart_from_the_others(self, make: Make, tenant: str) -> None:
        async def go() -> None:
            await make().put([head(1), head(4, tenant=tenant)])
            assert list(await make().heads(tenant)) == [head(4, tenant=tenant)]
            assert list(await make().heads(TENANT)) == [head(1)]

        asyncio.run(go())

    def test_a_cut_a_restore_and_a_cut_after_it_are_distinguished(self, make: Make, tmp_path: Path) -> None:
        async def go() -> None:
            world = await open_world(tmp_path)

            def new_publisher() -> WitnessPublisher:
                return WitnessPublisher(world.stores, make(), world.keys, world.clock)

            async def verified() -> None:
                heads = await make().heads(TENANT)
                await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys, heads)

            await world.invoke(request(900, "req_1"))
            await new_publisher().publish([TENANT])
            taken = backup(world)
            await world.invoke(request(901, "req_2"))
            await new_publisher().publish([TENANT])
            await verified()
            restore(world, taken)
            with pytest.raises(ChainBroken, match="witnessed at"):
                await verified()
            await record_restore(world.deployment, new_publisher(), TENANT, by=world.actor())
            await new_publisher().publish([TENANT])
            await verified()
            assert [(one.stream, one.gone) for one in restorations(await make().heads(TENANT))] == [
                (CONTROL, 0),
                (INDEX, 3),
            ]
            whole = backup(world)
            await world.invoke(request(902, "req_3"))
            await new_publisher().publish([TENANT])
            await verified()
            restore(world, whole)
            with pytest.raises(ChainBroken, match="witnessed at"):
                await verified()
            with pytest.raises(ContextOSError):
                await new_publisher().publish([TENANT])
            world.close()

        run(go())
