"""G151: what is active in one environment is active in no other, and nobody chooses another than the deployment serves.

The attackers: a caller who names the environment whose rules are looser, an operator who pins for another deployment,
and a deployment of `prod` that is opened over the store of `staging`.
Source: docs/adr/0067-a-deployment-serves-one-environment.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import POLICY_TYPE
from contextos.deployment.acts.governance import pin_packs, withdraw_pin
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import SettlementInput, settle_effect
from contextos.deployment.slot_answers import answer_slot, read_offer
from contextos.errors import InvalidArtifact, OtherEnvironment
from contextos.trust.seal import seal
from contextos.workspace.build import open_app
from contextos.workspace.configuration import Configuration
from contextos.workspace.settings import Settings
from tests.attacks.shop import Shop
from tests.attacks.test_a01_approver_signs_what_is_proved import SignerSpy
from tests.e2e.test_settlements import DID_NOT, HAPPENED, uncertain
from tests.e2e.test_slots_in_runs import USER, declaring, opened
from tests.sessions import LOOKUP, chosen_by_agent, in_world, refund_session
from tests.unit.control.example import policy_json
from tests.world import INTENT, TENANT, TestWorld, open_world, request, run

REF = "ctxpack.support@5.2.0"


async def moved(world: TestWorld, environment: str) -> TestWorld:
    """The world with a deployment of another environment over the same store."""
    old = world.deployment
    world.deployment = Deployment(old.ports, replace(old.config, environment=environment))
    return world


async def refused(world: TestWorld, environment: Any, request_id: str) -> tuple[str, str]:
    view = await world.invoke({**request(900, request_id), "environment": environment})
    assert view.record is not None
    (failure,) = view.record["rationale"]["failures"]
    return str(failure["code"]), str(failure["detail"])


def test_a_caller_does_not_choose_another_environment(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        for number, (asked, says) in enumerate({"prod": "deployment of `prod`", "PROD": "serves `dev`"}.items()):
            code, detail = await refused(world, asked, f"req_other_{number}")
            assert (code, says in detail) == ("other_environment", True), detail
        assert world.refunds() == []
        for number, same in enumerate(({"environment": "dev"}, {})):
            view = await world.invoke({**request(900, f"req_{number}"), **same})
            assert view.record is not None
            assert view.record["lineage"]["environment"] == "dev"
        await world.aclose()

    run(go())


async def repinned(world: TestWorld) -> None:
    """What was pinned for `dev` is pinned for `prod`, which the deployment serves now."""
    pin = PackPin(refs=(REF,), intents=(INTENT,), environment="dev")
    await withdraw_pin(world.deployment, TENANT, pin, expected=await world.active_version(), by=world.actor())
    await moved(world, "prod")
    await world.pin_pack(REF)


def test_another_environment_over_the_same_store_decides_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await moved(await open_world(tmp_path), "prod")
        with pytest.raises(OtherEnvironment, match="`dev` was a mistake, set it, end its pins"):
            await world.invoke(request(900, "req_1"))
        with pytest.raises(OtherEnvironment):
            await world.activate()
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_a_run_that_waits_is_driven_by_its_own_environment_only(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        await moved(world, "prod")
        with pytest.raises(OtherEnvironment):
            await world.deployment.advance(TENANT, waiting.run_id)
        assert world.refunds() == []
        await moved(world, "dev")
        await world.deployment.advance(TENANT, waiting.run_id)
        assert len(world.refunds()) == 1
        await world.aclose()

    run(go())


def test_a_run_that_waits_is_not_driven_elsewhere_when_nothing_is_pinned_any_more(tmp_path: Path) -> None:
    """Without a pin the active set is of no environment, so the run itself is compared."""

    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        await repinned(world)
        for drive in (world.deployment.advance(TENANT, waiting.run_id), world.invoke(request(4200, "req_1"))):
            with pytest.raises(OtherEnvironment, match=f"`{waiting.run_id}` is of the environment `dev`"):
                await drive
        assert world.refunds() == []
        assert (await world.invoke(request(900, "req_2"))).ended
        await world.aclose()

    run(go())


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_an_answer_in_another_environment_is_refused_before_it_is_stored(tmp_path: Path, verdict: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await moved(world, "prod")
        before = await world.stores.tenant(TENANT).read(waiting.run_id)
        with pytest.raises(OtherEnvironment, match=waiting.run_id):
            await world.answer(waiting.run_id, verdict)
        assert await world.stores.tenant(TENANT).read(waiting.run_id) == before
        await moved(world, "dev")
        await world.answer(waiting.run_id, verdict)
        await world.aclose()

    run(go())


def test_a_settlement_in_another_environment_is_refused_before_it_is_signed_or_stored(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores="memory")
        await moved(world, "prod")
        before = await world.stores.tenant(TENANT).read(run_id)
        signer = SignerSpy()
        with pytest.raises(OtherEnvironment, match=run_id):
            await settle_effect(world.deployment, TENANT, run_id, DID_NOT, vouch=signer)
        assert signer.statements == []
        assert await world.stores.tenant(TENANT).read(run_id) == before
        world.close()

    run(go())


@pytest.mark.parametrize("settlement", [HAPPENED, DID_NOT], ids=["happened", "did_not"])
def test_an_effect_is_settled_by_its_own_environment_whatever_is_active(
    tmp_path: Path, settlement: SettlementInput
) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores="memory")
        await repinned(world)
        await moved(world, "dev")
        await world.settle(run_id, settlement, drive=False)
        assert "effect.settled" in [one.kind for one in await world.stores.tenant(TENANT).read(run_id)]
        assert len(world.refunds()) == 1
        world.close()

    run(go())


def test_a_selection_in_another_environment_is_neither_offered_nor_stored(tmp_path: Path) -> None:
    async def go() -> None:
        world = await opened(tmp_path, declaring(selectionMode="interactive"), stores="memory")
        world.know(USER)
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        await moved(world, "prod")
        before = await world.stores.tenant(TENANT).read(run_id)
        picked = answer_slot(world.deployment, TENANT, run_id, b"{}", by=world.actor(USER))
        for asked in (read_offer(world.deployment, TENANT, run_id, by=USER), picked):
            with pytest.raises(OtherEnvironment, match=run_id):
                await asked
        assert await world.stores.tenant(TENANT).read(run_id) == before
        world.close()

    run(go())


def test_a_selection_is_offered_by_the_environment_of_its_run_whatever_is_active(tmp_path: Path) -> None:
    async def go() -> None:
        world = await opened(tmp_path, declaring(selectionMode="interactive"), stores="memory")
        world.know(USER)
        run_id = (await world.invoke(request(900, "req_1"))).run_id
        await repinned(world)
        await moved(world, "dev")
        question, _ = await read_offer(world.deployment, TENANT, run_id, by=USER)
        assert question.actor.principal_id == USER
        world.close()

    run(go())


def test_an_agent_of_another_environment_adds_nothing_to_a_session(tmp_path: Path) -> None:
    async def go(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_other", 900)
        before = await world.stores.tenant(TENANT).read(gate.run_id)
        gate = replace(gate, deployment=(await moved(world, "prod")).deployment)
        for said in (gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="1"), gate.finish("denied")):
            with pytest.raises(OtherEnvironment, match=gate.run_id):
                await said
        assert await world.stores.tenant(TENANT).read(gate.run_id) == before

    in_world(tmp_path, go, pack=chosen_by_agent)


def test_readiness_says_that_what_is_active_is_of_another_environment(tmp_path: Path) -> None:
    async def go() -> None:
        world = await moved(await open_world(tmp_path), "prod")
        configuration = Configuration(Settings(tmp_path), world.deployment, lambda: (TENANT, "tenant_other"))
        await configuration._check_later()
        ((where, found),) = configuration.latest()
        assert (where, found.code) == (TENANT, "not_checked")
        assert "of the environment `dev`" in found.detail
        await world.aclose()

    run(go())


def test_a_tenant_of_another_environment_does_not_stop_the_start_for_all(initialised: Shop) -> None:
    initialised.settings('environment = "prod"\npolicies = []\n')

    async def go() -> None:
        app = await open_app(Settings.read(initialised.path))
        try:
            assert [found.code for _, found in await app.configuration.check()] == ["not_checked"]
        finally:
            app.close()

    run(go())


def test_nobody_pins_for_another_deployment_and_an_old_pin_can_end(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        for environment, code in (("staging", "other_environment"), ("embedded", "unknown_environment")):
            pin = PackPin(refs=(REF,), intents=(INTENT,), environment=environment)
            with pytest.raises(InvalidArtifact) as raised:
                await pin_packs(world.deployment, TENANT, pin, expected=await world.active_version(), by=world.actor())
            assert raised.value.problems[0].code == code
        pin = PackPin(refs=(REF,), intents=(INTENT,), environment="dev")
        await withdraw_pin(world.deployment, TENANT, pin, expected=await world.active_version(), by=world.actor())
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "unpinned_ref"
        await world.aclose()

    run(go())


def test_a_rule_of_one_environment_binds_there_and_nowhere_else(tmp_path: Path) -> None:
    """The same signed files, in two deployments: the rule is for `prod`, and the request names nothing."""

    async def decided(environment: str) -> str:
        (tmp_path / environment).mkdir()
        world = await open_world(tmp_path / environment, environment=environment)
        body = policy_json(tenant=TENANT)
        (rule,) = body["bundle"]["policy_dsl"]["rules"]
        rule |= {"applies_to": {"environment": "prod"}, "if": {"==": [{"var": "user.role"}, "support_agent"]}}
        policy = await world.publish(seal(POLICY_TYPE, canonical(body), world.keys, "pack"))
        await world.activate(("tenant", policy))
        view = await world.invoke(request(900, "req_1"))
        await world.aclose()
        return str(view.record and view.record["end"])

    assert run(decided("staging")) == "completed"
    assert run(decided("prod")) != "completed"


def test_the_environment_of_a_run_is_in_what_it_exports(initialised: Shop, tmp_path: Path) -> None:
    initialised.say("invoke", str(initialised.request("small")))
    out = tmp_path / "runs.jsonl"
    assert initialised.say("runs", "export", "req_small", "--out", str(out), *initialised.by).code == 0
    assert '"environment":"dev"' in out.read_text().replace('\\"', '"').replace(" ", "")
    assert initialised.say("verify", str(out)).code == 0
