"""The envelopes of calls and results, and the record, have what API Contracts shows, on real runs of the example."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import ToolCallEnvelope
from contextos.control.artifacts import POLICY_TYPE
from contextos.trust.seal import seal
from tests.attached_files import NOTE, attaching, decided
from tests.spec.whole import whole_envelopes
from tests.world import TENANT, TestWorld, open_world, request, run

ORDERS, PAYMENTS = "adp_orders.lookup", "adp_payments.issue_refund"
GATE = "GATE_FINANCE_APPROVAL"
SPEC = json.loads((Path(__file__).parent / "tool_call_envelope.json").read_text("utf-8"))


async def bodies(world: TestWorld, run_id: str, *kinds: str) -> list[Any]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [json.loads(one.body) for one in entries if one.kind in kinds]


async def calls(world: TestWorld, run_id: str) -> dict[str, Any]:
    """The envelopes of the calls that were sent, by capability."""
    entries = await world.stores.tenant(TENANT).read(run_id)
    return whole_envelopes([(one.kind, one.key, json.loads(one.body)) for one in entries], "tool.dispatching")


async def put_in_force(world: TestWorld, level: Any, bundle_id: str, **rule: Any) -> None:
    rules = [{"rule_id": "R_HOUSE", "if": True, **rule}]
    bundle = {"bundle_id": bundle_id, "policy_dsl": {"language": "jsonlogic", "rules": rules}}
    sealed = seal(POLICY_TYPE, canonical({"version": "1.0.0", "tenant": TENANT, "bundle": bundle}), world.keys, "pack")
    await world.activate((level, await world.publish(sealed)))


async def replays(world: TestWorld, view: Any) -> None:
    assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]


def within(path: Path, story: Callable[[TestWorld], Any], **options: Any) -> None:
    async def told() -> None:
        world = await open_world(path, **options)
        await story(world)
        await world.aclose()

    asyncio.run(told())


def test_a_call_says_its_schema_its_protocol_and_the_gate_that_asks_about_it(tmp_path: Path) -> None:
    async def story(world: TestWorld) -> None:
        waiting = await world.invoke(request(4200, "req_gated"))
        view = await world.approve(waiting.run_id)
        sent = await calls(world, view.run_id)
        paid, adapter = sent[PAYMENTS], world.adapters["adp_payments"].describe()
        assert paid["metadata"].keys() >= SPEC["metadata"].keys()
        assert paid["metadata"] == {
            "definition_digest": paid["metadata"]["definition_digest"],
            "gates": [GATE],
            "arg_schema_ref": f"schema://{PAYMENTS}.v{adapter.version}",
            "requires_approval_gate": GATE,
            "protocol": adapter.type,
            "version": adapter.version,
        }
        assert "requires_approval_gate" not in sent[ORDERS]["metadata"]
        for one in sent.values():
            ToolCallEnvelope.sealed_from(one)
        await replays(world, view)

    within(tmp_path, story)


def test_rules_of_the_tenant_are_evidence_of_a_call_as_those_of_the_pack_are(tmp_path: Path) -> None:
    async def story(world: TestWorld) -> None:
        await put_in_force(world, "tenant", "POLICY_HOUSE", applies_to={"capability": PAYMENTS}, then={"allow": True})
        view = await world.invoke(request(900, "req_house"))
        assert view.state == "completed"
        refs = (await calls(world, view.run_id))[PAYMENTS]["evidence_refs"]
        assert "policy:POLICY_HOUSE#R_HOUSE" in refs
        assert any(one.startswith("policy:POLICY_RETURNS_V4#") for one in refs)
        await replays(world, view)

    within(tmp_path, story)


def test_a_blocked_call_has_its_envelope_with_the_decision_and_the_rule_that_blocked_it(tmp_path: Path) -> None:
    """The rule reads evidence, so nothing is denied before the call is about to be sent."""
    condition = {"==": [{"var": "args.amount_inr"}, 900]}

    async def story(world: TestWorld) -> None:
        scope = {"capability": PAYMENTS, "point": "execute"}
        await put_in_force(
            world, "tenant", "POLICY_HOUSE", **{"applies_to": scope, "if": condition, "then": {"allow": False}}
        )
        view = await world.invoke(request(900, "req_blocked"))
        assert view.state in ("refused", "rejected")
        assert world.refunds() == []
        [refused] = await bodies(world, view.run_id, "tool.refused")
        result, call = refused["envelope"], refused["call"]
        assert (result["status"], result["error"]["code"]) == ("blocked", "policy_denied")
        assert call["tool_call_id"] == result["tool_call_id"]
        assert call["policy_decision_id"] == result["policy_decision_id"]
        assert call["args"]["amount_inr"] == 900
        assert "policy:POLICY_HOUSE#R_HOUSE" in call["evidence_refs"]
        assert call["approval_mode_highest"] == "destructive"
        await replays(world, view)

    within(tmp_path, story)


def test_what_was_attached_is_evidence_of_the_record(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note, scan = files.attach("note", NOTE), files.attach("scan", b"%PDF-1.7", "application/pdf")
        record, run_id = run(decided(world, note, scan))
        attached = [one for one in record["evidence_refs"] if one.startswith("attachment:")]
        asked = [f"attachment:{one['artifact_id']}#sha256:{one['sha256']}" for one in (note, scan)]
        assert sorted(attached) == sorted(asked)
        run(replay(world.deployment, TENANT, run_id))


def test_the_confidence_of_a_record_is_the_lowest_of_what_it_rests_on(tmp_path: Path) -> None:
    async def story(world: TestWorld) -> None:
        paid = await world.invoke(request(900, "req_paid"))
        assert (paid.state, paid.record["confidence"]) == ("completed", 1)
        body = request(900, "req_stopped")
        body["runtime"] = {**body.get("runtime", {}), "max_tool_calls": 1}
        stopped = await world.invoke(body)
        card = stopped.record["scorecard"]
        assert stopped.state == "exhausted"
        assert stopped.record["confidence"] == min(card[axis]["score"] for axis in ("policy", "utility", "safety")) < 1
        await replays(world, stopped)

    within(tmp_path, story)


def test_a_result_names_its_transcript_which_is_another_for_each_call(tmp_path: Path) -> None:
    async def story(world: TestWorld) -> None:
        view = await world.invoke(request(900, "req_transcripts"))
        answers = [one["answer"]["envelope"] for one in await bodies(world, view.run_id, "tool.returned")]
        named = {one["metadata"]["tool_transcript_id"] for one in answers}
        assert len(named) == len(answers) == 3
        assert all(re.fullmatch("tool_tx_[0-9a-f]{16}", one) for one in named)
        await replays(world, view)

    within(tmp_path, story)
