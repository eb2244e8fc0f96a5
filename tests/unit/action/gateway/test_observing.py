"""The guards of a session whose pack observes: what they find is recorded, and the call is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextos.contracts.ports.gates import Done
from tests.e2e.test_observed_sessions import findings, observed
from tests.sessions import LOOKUP, REFUND, assert_replays, in_world, read_first, refund_args, refund_session
from tests.world import TestWorld


def test_a_call_that_a_person_would_be_asked_about_is_made_at_once(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_ask")
        await read_first(gate)
        assert isinstance(await gate.call(REFUND, refund_args(), call_id="pay"), Done)
        assert len(world.refunds()) == 1
        assert await findings(world, gate.run_id) == [("approved", "ask", "approval_required")]
        await gate.finish("approved")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=observed)


def test_an_argument_that_is_not_the_requests_is_on_record(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_other", 900)
        await gate.call(LOOKUP, {"order_id": "ord_882"}, call_id="look")
        assert ("consistent_with_request", "deny", "argument_out_of_bounds") in await findings(world, gate.run_id)

    def agreeing(pack: dict[str, Any]) -> None:
        observed(pack)
        for permission in pack["tooling_layer"]["permissions"]:
            permission["agrees_with"] = {"order_id": "/input/context/order_id"}

    in_world(tmp_path, play, pack=agreeing)
