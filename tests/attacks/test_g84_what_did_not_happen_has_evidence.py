"""G84: an operator releases a payment for another attempt with evidence that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.deployment.operator import SettlementInput
from contextos.errors import InvalidInput
from tests.e2e.test_sessions import losing_the_reply
from tests.evidence import BOOKS, keep_books
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run

UNKNOWN = [
    "artifact:ticket_4711#rev_1",
    "artifact:books#rev_2",
    "artifact:books#rev_0",
    "artifact:books#draft",
    "kg:order:ord_999#snapshot_kg_1",
    "kg:order:ord_881#snapshot_kg_99",
    "kg:order:ord_881#snapshot_today",
    "tool:adp_payments.issue_refund:tool_00000000000000000000000000000000",
    "policy:pol.refunds@1.0.0#rule_1",
    "session:sess_42f1",
    "memory:mem_1",
]


async def _lost(world: TestWorld, number: str = "1") -> str:
    with losing_the_reply(world):
        view = await world.invoke(request(900, f"req_lost_{number}"))
    assert (view.waiting or {}).get("for") == "settlement"
    return view.run_id


def test_evidence_that_resolves_to_nothing_releases_nothing(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        await keep_books(world.stores, TENANT)
        run_id = await _lost(world)
        before = await world.stores.tenant(TENANT).read(run_id)
        sent = [body for one in before if one.kind == "tool.dispatching" and (body := read_body(one))]
        own = f"tool:adp_payments.issue_refund:{sent[-1]['envelope']['tool_call_id']}"
        for ref in [*UNKNOWN, own]:
            with pytest.raises(InvalidInput) as refused:
                await world.settle(run_id, SettlementInput(False, OPERATOR, ref))
            assert refused.value.problems[0].pointer in ("/evidence_ref", ""), ref
            assert await world.stores.tenant(TENANT).read(run_id) == before
        assert len(world.refunds()) == 1
        await world.aclose()

    run(go())


@pytest.mark.parametrize("ref", [BOOKS, "kg:order:ord_881#snapshot_kg_1", "the look-up of the order"])
def test_evidence_that_resolves_settles(ref: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        await keep_books(world.stores, TENANT)
        run_id = await _lost(world)
        named = ref if ":" in ref else await _of_own_read(world, run_id)
        view = await world.settle(run_id, SettlementInput(False, OPERATOR, named))
        assert view.state == "escalated"
        await world.aclose()

    run(go())


async def _of_own_read(world: TestWorld, run_id: str) -> str:
    entries = await world.stores.tenant(TENANT).read(run_id)
    bodies = [body for one in entries if one.kind == "tool.returned" and (body := read_body(one))]
    return str(next(one["envelope"]["citations"][0]["evidence_ref"] for one in bodies if one["envelope"]["citations"]))
