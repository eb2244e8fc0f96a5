"""A call to which the person concerned has to agree is not made without their consent, whatever a caller says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.errors import ApprovalRefused
from tests.world import TENANT, TestWorld, open_world, request, run

CONSENT = "memory_consent"


def asking(pack: dict[str, Any], consent: str = CONSENT) -> None:
    """The refund needs the consent of the customer whose order it is."""
    for one in pack["tooling_layer"]["permissions"]:
        if one["capability"] == "issue_refund":
            one["consent"] = consent


async def refused(world: TestWorld, view: Any) -> dict[str, Any]:
    """The result of the refund that was not made."""
    assert view.state == "refused"
    assert world.refunds() == []
    assert [one["code"] for one in view.record["rationale"]["failures"]] == ["consent_missing"]
    assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
    entries = await world.stores.tenant(TENANT).read(view.run_id)
    [body] = [json.loads(one.body) for one in entries if one.kind == "tool.refused"]
    assert body["call"]["capability_id"] == body["envelope"]["capability_id"] == "adp_payments.issue_refund"
    result: dict[str, Any] = body["envelope"]
    return result


@pytest.mark.parametrize("said", [{}, {CONSENT: True, "consent": True}])
def test_a_no_of_the_customer_blocks_the_call_whatever_the_caller_says(said: dict[str, Any], tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, pack=asking)
        await world.stock("ord_900")
        view = await world.invoke(request(900, "req_no", order_id="ord_900", **said))
        result = await refused(world, view)
        assert (result["status"], result["error"]["code"]) == ("blocked", "consent_missing")
        assert result["error"]["facts"] == [CONSENT]
        await world.aclose()

    run(attack())


def test_a_consent_that_nobody_gave_blocks_the_call(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, pack=asking, seed_graph=False)
        graph = json.loads((Path(__file__).parents[2] / "examples/support_refund/graph.json").read_text("utf-8"))
        kept = [one for one in graph["edges"] if one["predicate"] != CONSENT]
        await world.put_facts(kept, graph["nodes"])
        result = await refused(world, await world.invoke(request(900, "req_none")))
        assert "is missing about these arguments" in result["error"]["message"]
        await world.aclose()

    run(attack())


def test_with_the_consent_of_this_customer_the_call_is_made_and_rests_on_it(tmp_path: Path) -> None:
    async def story() -> None:
        world = await open_world(tmp_path, pack=asking)
        view = await world.invoke(request(900, "req_yes"))
        assert (view.state, len(world.refunds())) == ("completed", 1)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        frozen = [json.loads(one.body) for one in entries if one.kind == "evidence.frozen"]
        assert CONSENT in {one["name"] for body in frozen for one in body["items"]}
        await world.aclose()

    run(story())


def test_a_consent_that_changes_while_a_person_is_asked_voids_the_approval(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, pack=asking)
        waiting = await world.invoke(request(4200, "req_withdrawn"))
        assert waiting.state == "waiting"
        graph = json.loads((Path(__file__).parents[2] / "examples/support_refund/graph.json").read_text("utf-8"))
        [given] = [one for one in graph["edges"] if one["predicate"] == CONSENT and one["src"] == "customer:cus_77"]
        later = {"value": False, "dst": "check:consent_no", "evidence_ref": "artifact:consent_no#rev_1"}
        nodes = [{"ceid": "check:consent_no", "type": "check", "properties": {}}]
        await world.put_facts([{**given, **later, "observed_at": "2026-06-01T09:30:00Z"}], nodes)
        with pytest.raises(ApprovalRefused, match=f"{CONSENT} was true and is"):
            await world.approve(waiting.run_id)
        assert world.refunds() == []
        await world.aclose()

    run(attack())
