"""Without an admission controller nothing is bounded, and a turn costs no wait."""

from __future__ import annotations

import asyncio

from contextos_sim.ports import UnboundedAdmission


def test_nobody_waits_and_nobody_is_refused() -> None:
    async def go() -> None:
        admission = UnboundedAdmission()
        for _ in range(100):
            with admission.caller("t"):
                admission.begin("t")
                async with admission.turn("t", "run_1"), admission.yield_turn("t", "run_1") as turn:
                    assert turn.waited_us == 0
                await admission.yield_to_others("t", "run_1")

    asyncio.run(go())
