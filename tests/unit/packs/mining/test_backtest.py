"""A recording is judged by the pack that is tested, with the recorded answers and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.encoding.codec import parse
from contextos.deployment.queries.observations import Recording, read_sessions
from contextos.errors import InvalidArtifact, InvalidInput
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import expand
from contextos.packs.mining.backtest import backtest
from contextos.workspace.in_memory import in_memory
from tests.observed.recording import TENANT, deployed, observing, played
from tests.observed.shop import CALLS_OF_SESSION, World, recorded_calls, tools_of


@pytest.fixture(scope="module")
def recording() -> Recording:
    with deployed(observing(World([]))) as app:
        played(app, [one for one in recorded_calls() if one.session == "watch_0"])
        return app.call(read_sessions, app.deployment.ports.stores.tenant(TENANT), TENANT, app.keys)


def judged(recording: Recording, world: World | None = None, **fields: Any) -> Counter[tuple[str, tuple[str, ...]]]:
    tools = tools_of(world or World([]))
    told = {"who": ["support"], "approver": "lead", "version": "1.0.0", "tenant": TENANT}
    told |= {"budget": {"max_tool_calls": CALLS_OF_SESSION, "wall_clock_ms": 600_000}}
    declared = parse(PackDeclaration, {"name": "shop.watch", **told, **fields})
    document = expand(declared, [tools.describe()]).document
    found = asyncio.run(backtest(document, [tools.describe()], recording.sessions, in_memory))
    return Counter((one.verdict, one.rules) for one in found)


def verdicts(counts: Counter[tuple[str, tuple[str, ...]]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (verdict, _), count in counts.items():
        found[verdict] += count
    return dict(found)


def test_the_pack_in_question_decides_and_no_tool_is_called(recording: Recording) -> None:
    world = World([])
    counts = judged(recording, world)
    assert verdicts(counts) == {"allowed": 30, "ask": 20}
    assert world.effects == []


def test_a_denial_names_its_rule(recording: Recording) -> None:
    counts = judged(recording, deny=[{"when": "args.amount > 100", "tools": ["refund"]}])
    assert counts["deny", ("R_SHOP_WATCH_SHOP_REFUND_DENY_1",)] == 4


def test_a_role_that_the_pack_does_not_name_is_denied_everything(recording: Recording) -> None:
    assert verdicts(judged(recording, who=["nobody"])) == {"deny": 50}


def test_an_intent_that_the_pack_does_not_have_is_denied(recording: Recording) -> None:
    assert dict(judged(recording, intents={"shop.other": {}})) == {("deny", ("admission: unknown_intent",)): 50}


def test_a_smaller_budget_denies_what_comes_after_it(recording: Recording) -> None:
    counts = judged(recording, budget={"max_tool_calls": 10, "wall_clock_ms": 600_000})
    assert counts["deny", ("session: ended",)] == 39
    assert verdicts(counts)["deny"] == 40


def test_a_tool_that_the_pack_leaves_out_is_denied(recording: Recording) -> None:
    used = ["find_order", "search_tickets", "count_customers", "tag_order", "set_stock", "notify"]
    assert verdicts(judged(recording, tools=used)) == {"allowed": 30, "ask": 15, "deny": 5}


def test_a_recording_of_another_tenant_is_refused(recording: Recording) -> None:
    other = [replace(one, request={**one.request, "tenant_id": "tenant_other"}) for one in recording.sessions]
    with pytest.raises(InvalidInput, match="another tenant"):
        judged(Recording(other))


def test_a_pack_with_a_fixed_plan_cannot_be_tested(recording: Recording) -> None:
    steps = [
        {"tool": "find_order", "args": {"order_id": "ord_1", "region": "eu"}},
        {"tool": "refund", "args": {"order_id": "ord_1", "amount": 5, "currency": "EUR"}},
    ]
    used = ["find_order", "refund"]
    with pytest.raises(InvalidArtifact) as refused:
        judged(recording, tools=used, intents={"shop.watch": {"steps": steps}})
    assert [one.code for one in refused.value.problems] == ["observes_plan"]
