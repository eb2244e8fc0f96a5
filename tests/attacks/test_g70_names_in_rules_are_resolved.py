"""A rule that can never match is refused by lint, publish and activation; one that cannot match now is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos import Actor
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import POLICY_TYPE
from contextos.deployment.acts import governance
from contextos.deployment.acts.unmatched_rules import unmatched_in_force
from contextos.errors import InvalidArtifact
from contextos.trust.seal import seal
from tests.attacks.shop import OPERATOR_FILE, Shop
from tests.sessions import in_world
from tests.world import TENANT, TestWorld

REFUND = "adp_payments.issue_refund"


def house(rule: dict[str, Any], **more: Any) -> dict[str, Any]:
    denial = {"rule_id": "R_HOUSE", "if": {"==": [{"var": "user.role"}, "support_agent"]}, "then": {"allow": False}}
    bundle = {"bundle_id": "POLICY_HOUSE", "policy_dsl": {"language": "jsonlogic", "rules": [denial | rule]}, **more}
    return {"version": "1.0.0", "tenant": TENANT, "bundle": bundle}


def about(capability: str) -> dict[str, Any]:
    return {"applies_to": {"capability": capability}}


NEVER: dict[str, tuple[dict[str, Any], str]] = {
    "a tool that its adapter has not": (house(about("adp_payments.issue_refnd")), f"write `{REFUND}`"),
    "a pattern": (house(about("adp_payments.*")), "a pattern matches none"),
    "a bare name": (house(about("issue_refund")), "the id of no tool"),
    "a tool in prohibits": (house({"then": {"allow": True, "prohibits": ["adp_payments.pay"]}}), "declares no tool"),
    "a tool in the condition": (
        house({"if": {"==": [{"var": "capability.capability_id"}, "adp_payments.issue_refnd"]}}),
        f"write `{REFUND}`",
    ),
    "one of several tools": (
        house({"if": {"in": [{"var": ["capability.capability_id", ""]}, [REFUND, "adp_payments.*"]]}}),
        "a pattern matches none",
    ),
    "a tool whose effects are counted": (
        house(
            {}, history={"sum": {"capability": "adp_payments.pay", "aggregate": "count", "over": "user", "window_s": 1}}
        ),
        "declares no tool",
    ),
    "an argument that is added up": (
        house(
            {},
            history={"sum": {"capability": REFUND, "aggregate": "sum", "of": "amount", "over": "user", "window_s": 1}},
        ),
        "no argument `amount`",
    ),
    "an argument with a default": (
        house({**about(REFUND), "if": {">": [{"var": ["args.amout_inr", 0]}, 10]}}),
        "write `args.amount_inr`",
    ),
    "a value that the fact never has": (house({"if": {"==": [{"var": "capability.kind"}, "wirte"]}}), "write `write`"),
    "an integrity that there is not": (
        house({**about(REFUND), "if": {"==": [{"var": "integrity.order_id"}, "untrustd"]}}),
        "write `untrusted`",
    ),
}

LATER: dict[str, tuple[dict[str, Any], str]] = {
    "an adapter that is not here": (
        house(about("adp_bank.pay")),
        "no adapter of the tenant has the tool `adp_bank.pay`",
    ),
    "an intent that no pack has": (
        house({"applies_to": {"intent": "support.refnd"}}),
        "no pinned pack has the intent `support.refnd`",
    ),
    "a gate that no pack has": (
        house({**about(REFUND), "then": {"allow": True, "requires_approval_gate": "GATE_X"}}),
        "no pinned pack has the gate `GATE_X`",
    ),
    "a role that nobody holds": (
        house({"if": {"in": [{"var": "user.role"}, ["clrk"]]}}),
        "no user of the tenant holds the role `clrk`",
    ),
    "an agent that there is not": (
        house({"if": {"in": [{"var": "agent.agent_id"}, ["agt_suport"]]}}),
        "no agent of the tenant has the `agent_id` `agt_suport`",
    ),
    "a role that no agent has": (
        house({"if": {"==": [{"var": "agent.role"}, "suport"]}}),
        "no agent of the tenant has the `role` `suport`",
    ),
    "evidence that nothing has": (
        house({**about(REFUND), "then": {"allow": True, "requires": ["weather"]}}),
        "has the evidence `weather`",
    ),
}


def sealed(world: TestWorld, document: dict[str, Any]) -> dict[str, Any]:
    return seal(POLICY_TYPE, canonical(document), world.keys, "pack")


@pytest.mark.parametrize("name", NEVER)
def test_a_rule_that_can_never_match_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, said = NEVER[name]

    async def play(world: TestWorld) -> None:
        envelope = sealed(world, document)
        with pytest.raises(InvalidArtifact) as refused:
            await world.publish(envelope)
        assert said in str(refused.value)
        # One that was published before it was looked at is refused where it would come into force.
        with monkeypatch.context() as before:

            async def nothing(*_: Any) -> None: ...

            before.setattr(governance, "refuse_unmatched", nothing)
            ref = await world.publish(envelope)
        with pytest.raises(InvalidArtifact) as refused:
            await world.activate(("tenant", ref))
        assert said in str(refused.value)
        assert (await world.deployment.catalog(TENANT).active()).policies == ()

    in_world(tmp_path, play)


@pytest.mark.parametrize("name", NEVER)
def test_lint_refuses_it_too(name: str, shop: Shop, tmp_path: Path) -> None:
    document, said = NEVER[name]
    (tmp_path / "house.json").write_text(json.dumps(document))
    told = shop.say("pack", "lint", "--adapters", str(tmp_path / "house.json"))
    assert told.code == 2
    assert said in told.out


@pytest.mark.parametrize("name", LATER)
def test_a_rule_that_cannot_match_now_is_listed_with_its_reason(name: str, tmp_path: Path) -> None:
    document, said = LATER[name]

    async def play(world: TestWorld) -> None:
        ref = await world.publish(sealed(world, document))
        await world.activate(("tenant", ref))
        [(listed, problem), *_] = await unmatched_in_force(world.deployment, TENANT)
        assert listed == ref
        assert said in problem.detail

    in_world(tmp_path, play)


def test_it_is_listed_until_it_can_match(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        ref = await world.publish(sealed(world, LATER["a role that nobody holds"][0]))
        await world.activate(("tenant", ref))
        assert len(await unmatched_in_force(world.deployment, TENANT)) == 1

        def hire(tenant: dict[str, Any]) -> None:
            tenant["users"][0]["roles"] = ["clrk"]

        world.edit_directory(hire)
        assert await unmatched_in_force(world.deployment, TENANT) == []

    in_world(tmp_path, play)


def test_a_policy_that_lost_its_tool_is_listed_and_can_end(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        ref = await world.publish(sealed(world, house(about(REFUND))))
        await world.activate(("tenant", ref))
        assert await unmatched_in_force(world.deployment, TENANT) == []
        del world.adapters["adp_payments"]
        [(listed, problem)] = await unmatched_in_force(world.deployment, TENANT)
        assert (listed, problem.code) == (ref, "not_now")
        await world.activate()

    in_world(tmp_path, play)


def test_the_command_line_lists_it(shop: Shop, tmp_path: Path) -> None:
    document = LATER["an adapter that is not here"][0]
    otto = Actor.with_key(OPERATOR_FILE, bytes.fromhex((shop.path / "keys" / f"{OPERATOR_FILE}.key").read_text()))
    with contextos.open(shop.path) as app:
        app.publish(seal(POLICY_TYPE, canonical(document), app.keys, "pack"), by=otto)
    version = str(shop.say("policies", "list", "--json").json["version"])
    done = shop.say("policies", "activate", "POLICY_HOUSE@1.0.0", "--expect", version, *shop.by)
    assert "cannot match now: POLICY_HOUSE@1.0.0" in done.out
    assert "no adapter of the tenant has the tool `adp_bank.pay`" in done.out
    assert shop.say("policies", "list").out == done.out
    [one] = shop.say("policies", "list", "--json").json["unmatched"]
    assert one["pointer"] == "/policy_dsl/rules/0/applies_to/capability"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"in": [{"var": "user.role"}, ["support_agent", "clrk"]]}, "no user of the tenant holds the role `clrk`"),
        ({"==": [{"var": "capability.capability_id"}, "adp_payments.*"]}, "a pattern matches none"),
        ({"==": [{"var": "request.intent"}, "support.refnd"]}, "no pinned pack has the intent `support.refnd`"),
    ],
)
def test_lint_resolves_the_names_in_the_conditions_of_a_pack(
    condition: dict[str, Any], said: str, shop: Shop, tmp_path: Path
) -> None:
    pack = json.loads((shop.path / "pack.json").read_text())
    pack["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"][0]["if"] = condition
    (tmp_path / "pack.json").write_text(json.dumps(pack))
    told = shop.say("pack", "lint", "--adapters", str(tmp_path / "pack.json"))
    assert told.code == 2
    assert said in told.out
