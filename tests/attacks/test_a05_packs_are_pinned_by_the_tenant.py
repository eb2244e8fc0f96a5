"""Attack: a requester chooses the pack: an older one, one nobody pinned, or a pinned one without the rest of its set.

Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.deployment.acts.governance import pin_packs, withdraw_pin
from contextos.errors import InvalidArtifact
from contextos.trust.seal import seal
from tests.attacks.shop import Shop
from tests.unit.control.example import changed, pack_json, policy_json
from tests.world import INTENT, TENANT, TestWorld, open_world, request, run

NEW, OLD, LOOSE = "ctxpack.support@5.2.0", "ctxpack.support@5.1.0", "ctxpack.support@9.9.9"


async def world_with_older_packs(path: Path, stores: str) -> TestWorld:
    """A tenant with three published versions, of which only `NEW` is pinned."""
    world = await open_world(path, stores=stores)
    for ref in (OLD, LOOSE):
        body = changed(pack_json(), {"/pack_meta/pack_version": ref.partition("@")[2]})
        await world.publish(seal(PACK_TYPE, canonical(body), world.keys, "pack"))
    return world


async def asked(world: TestWorld, refs: Sequence[str], request_id: str = "req_1") -> str:
    """The code of the refusal of a request with these refs; empty if it was decided."""
    view = await world.invoke({**request(900, request_id), "context_pack_refs": list(refs)})
    assert view.ended
    assert view.record is not None
    failures = (view.record.get("rationale") or {}).get("failures", ())
    return str(failures[0]["code"]) if failures else ""


@pytest.mark.parametrize("ref", [OLD, LOOSE])
def test_a_requester_cannot_choose_a_version_that_is_not_pinned(tmp_path: Path, stores: str, ref: str) -> None:
    async def go() -> None:
        world = await world_with_older_packs(tmp_path, stores)
        assert await asked(world, [ref]) == "unpinned_ref"
        assert world.refunds() == []
        assert await asked(world, [NEW], "req_2") == ""
        await world.aclose()

    run(go())


@pytest.mark.parametrize(("intents", "environment"), [(("support.refund",), "staging"), (("support.cancel",), "dev")])
def test_a_pin_counts_for_its_intents_in_its_environment(
    tmp_path: Path, stores: str, intents: tuple[str, ...], environment: str
) -> None:
    async def go() -> None:
        world = await world_with_older_packs(tmp_path, stores)
        body = pack_json()
        layer = body["decision_layer"]
        other = {"intent_id": "support.cancel", "eligible_task_templates": ["task_cancel"]}
        layer["intents"].append({**layer["intents"][0], **other})
        template = {"template_id": "task_cancel", "intent": "support.cancel"}
        layer["task_templates"].append({**layer["task_templates"][0], **template})
        body["pack_meta"]["pack_version"] = "6.0.0"
        ref = await world.publish(seal(PACK_TYPE, canonical(body), world.keys, "pack"))
        pin = PackPin(refs=(ref,), intents=intents, environment=environment)
        elsewhere = pytest.raises(InvalidArtifact, match="serves `dev`") if environment != "dev" else nullcontext()
        with elsewhere:
            await pin_packs(world.deployment, TENANT, pin, expected=await world.active_version(), by=world.actor())
        assert await asked(world, [ref]) == "unpinned_ref"
        await world.aclose()

    run(go())


def test_what_is_pinned_together_is_named_together(tmp_path: Path, stores: str) -> None:
    """Leaving out the policy that the tenant pinned beside the pack loosens nothing, nor does one more beside it."""

    async def go() -> None:
        world = await world_with_older_packs(tmp_path, stores)
        beside = await world.publish(seal(POLICY_TYPE, canonical(policy_json(tenant=TENANT)), world.keys, "pack"))
        both = PackPin(refs=(LOOSE, beside), intents=(INTENT,), environment="dev")
        await pin_packs(world.deployment, TENANT, both, expected=await world.active_version(), by=world.actor())
        assert await asked(world, [LOOSE]) == "unpinned_ref"
        assert await asked(world, [NEW, beside], "req_2") == "unpinned_ref"
        assert await asked(world, [NEW, OLD], "req_3") == "unpinned_ref"
        assert await asked(world, [beside, LOOSE], "req_4") == ""
        await world.aclose()

    run(go())


def test_an_approval_under_a_pack_that_lost_its_pin_is_void(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        world = await world_with_older_packs(tmp_path, stores)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        pin = PackPin(refs=(NEW,), intents=(INTENT,), environment="dev")
        await withdraw_pin(world.deployment, TENANT, pin, expected=await world.active_version(), by=world.actor())
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "approval_void"
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_the_commands_pin_and_withdraw_by_version(initialised: Shop) -> None:
    before = initialised.say("pack", "list").json
    assert [pin["refs"] for pin in before["packs"]] == [[NEW]]
    words: list[Any] = ["pack", "withdraw", NEW, "--intent", INTENT]
    assert (
        initialised.say(*words, "--expect", "1", *initialised.by).json["error"]["problems"][0]["code"]
        == "stale_version"
    )
    assert initialised.say(*words, "--expect", str(before["version"]), *initialised.by).json["packs"] == []
    assert initialised.say("invoke", str(initialised.request("small"))).code == 1
    words = ["pack", "pin", NEW, "--intent", INTENT, "--expect", str(before["version"] + 1)]
    assert initialised.say(*words, *initialised.by).json["version"] == before["version"] + 2
    assert initialised.say("verify").code == 0
