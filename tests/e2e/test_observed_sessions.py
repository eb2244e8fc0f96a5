"""Sessions whose pack observes: nothing changes for the world or for the agent, and what enforcing would do is on
record.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from contextos.audit.replay import replay
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.ports.gates import Done, Refused
from contextos.control.lint.pack import lint_pack
from contextos.deployment.queries.timeline import tell_story
from tests.observed.recording import INTERN, TENANT, deployed, observing, open_gate, played, unobserved
from tests.observed.shop import World, recorded_calls, tools_of
from tests.sessions import EVAL, LOOKUP, REFUND, assert_replays, chosen_by_agent, in_world, refund_args, refund_session
from tests.world import TENANT as SHOP_TENANT
from tests.world import TestWorld, example


def observed(pack: dict[str, Any]) -> None:
    chosen_by_agent(pack)
    pack["pack_meta"]["mode"] = "observe"


async def findings(world: TestWorld, run_id: str) -> list[tuple[str, str, str]]:
    """(check, verdict, code) of everything that was observed."""
    bodies = [
        json.loads(entry.body)
        for entry in await world.stores.tenant(SHOP_TENANT).read(run_id)
        if entry.kind == "call.observed"
    ]
    return [(body["by"], one["verdict"], one["code"]) for body in bodies for one in body["findings"]]


def test_500_observed_calls_change_nothing_in_the_world_or_in_the_answers() -> None:
    watched, plain = World([]), World([])
    outputs = asyncio.run(unobserved(tools_of(plain), recorded_calls()))
    with deployed(observing(watched)) as app:
        answers = played(app, recorded_calls())
        assert len(answers) == 500
        assert all(isinstance(one, Done) and one.error is None and not one.replayed for one in answers)
        assert [one.output for one in answers] == outputs
        assert watched.effects == plain.effects
        gate = open_gate(app, "watch_3")
        run_id, view = gate.run_id, gate.view()
        assert (view.state, view.record["outcome"]) == ("completed", "approved")
        assert "unsafe_observed" in view.record["lineage"]["unsafe"]
        assert view.record["approvals"] == []
        assert app.call(replay, app.deployment, TENANT, run_id).record_hash == view.record["record_hash"]


def test_a_user_whom_the_pack_does_not_name_is_served_and_the_denial_is_on_record() -> None:
    world = World([])
    call = ("shop.refund", {"order_id": "ord_1", "amount": 5, "currency": "EUR"})
    with deployed(observing(world)) as app:
        gate = open_gate(app, "watch", user=INTERN)
        assert "shop.refund" in gate.tools
        assert isinstance(gate.call(*call, call_id="pay"), Done)
        assert len(world.effects) == 1
        entries = app.call(app.deployment.ports.stores.tenant(TENANT).read, gate.run_id)
        bodies = [json.loads(entry.body) for entry in entries if entry.kind == "call.observed"]
        denied = {rule for body in bodies for one in body["findings"] for rule in one.get("rule_ids", ())}
        assert "R_SHOP_WATCH_OTHERS" in denied
        assert {one["verdict"] for body in bodies for one in body["findings"]} == {"deny"}
        gate.finish("approved")
        entries = app.call(app.deployment.ports.stores.tenant(TENANT).read, gate.run_id)
        told = [moment.text for part in tell_story(entries).values() for moment in part]
        assert any(line.startswith("not enforced: critic would deny by R_SHOP_WATCH_OTHERS") for line in told)
        assert "observed, not enforced: the pack stopped no call and asked nobody" in told
    with deployed(observing(World([]), mode="enforce")) as app:
        refused = open_gate(app, "real", user=INTERN).call(*call, call_id="pay")
        assert isinstance(refused, Refused)
        assert "policy_denied" in [one.code for one in refused.reasons]


def test_missing_evidence_is_on_record_for_the_call_and_for_the_end(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_early", 900)
        assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)
        assert len(world.refunds()) == 1
        view = await gate.finish("approved")
        assert view.record["outcome"] == "approved"
        found = await findings(world, gate.run_id)
        assert {by for by, _, code in found if code == "missing_evidence"} >= {"critic"}
        assert {verdict for _, verdict, _ in found} == {"deny"}
        await assert_replays(world, gate.run_id)
        idle = await refund_session(world, "ses_idle", 900)
        assert (await idle.finish("approved")).record["outcome"] == "approved"
        assert [(by, code) for by, _, code in await findings(world, idle.run_id)] == [("finish", "must_escalate")]
        await assert_replays(world, idle.run_id)

    in_world(tmp_path, play, pack=observed)


def test_what_protects_the_tool_and_the_machine_is_enforced_all_the_same(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_hard", 900)
        codes = []
        for number, (tool, args) in enumerate(
            [
                ("adp_payments.drain", {}),
                (REFUND, {"order_id": "ord_881"}),
                (LOOKUP, {"order_id": "4111 1111 1111 1111"}),
            ]
        ):
            refused = await gate.call(tool, args, call_id=f"c{number}")
            assert isinstance(refused, Refused), refused
            codes.append(refused.reasons[0].code)
        assert codes[:2] == ["tool_not_in_manifest", "schema_mismatch"]
        assert codes[2] in ("argument_out_of_bounds", "schema_mismatch")
        assert world.refunds() == []

    in_world(tmp_path, play, pack=observed)


def test_a_budget_is_enforced_all_the_same(tmp_path: Path) -> None:
    def small(pack: dict[str, Any]) -> None:
        observed(pack)
        pack["pack_meta"]["run_budget"]["max_tool_calls"] = 1

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_budget", 900)
        assert isinstance(await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="one"), Done)
        refused = await gate.call(EVAL, {"order_id": "ord_881", "amount_inr": 900}, call_id="two")
        assert isinstance(refused, Refused)
        assert (refused.reasons[0].code, refused.ended) == ("budget_exhausted", True)

    in_world(tmp_path, play, pack=small)


def test_a_pack_with_a_fixed_plan_cannot_observe() -> None:
    document = example("pack.json")
    assert lint_pack(parse(ContextPack, document), None) == ()
    document["pack_meta"]["mode"] = "observe"
    (problem,) = lint_pack(parse(ContextPack, document), None)
    assert (problem.pointer, problem.code) == ("/pack_meta/mode", "observes_plan")
    assert "chosen_by" in problem.remedy
