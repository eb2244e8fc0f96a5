"""Attacks on packs that observe: an observed run passed off as a governed one, a pack turned to observing, rules above
the pack put out of force.
"""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.errors import InvalidArtifact, InvalidSettings, ReplayMismatch, SignatureInvalid
from contextos.operations.gate.gate import Done, Refused, Waiting
from contextos.settings import Settings, check_settings
from contextos.trust.seal import seal
from tests.e2e.test_observed_sessions import observed
from tests.policies import rule
from tests.sessions import REFUND, assert_replays, chosen_by_agent, in_world, read_first, refund_args, refund_session
from tests.unit.control.example import policy_json
from tests.world import TENANT, TestWorld, example


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """A policy of the tenant with these rules."""
    body = copy.deepcopy(policy_json())
    body["bundle"]["policy_dsl"]["rules"] = list(rules)
    return body


async def in_force(world: TestWorld, body: dict[str, Any]) -> None:
    ref = await world.publish(seal(POLICY_TYPE, canonical(body), world.keys, "pack"))
    await world.activate(("tenant", ref))


def test_every_record_of_an_observed_run_says_so_also_where_nothing_was_refused(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_nothing", 900)
        await read_first(gate, 900)
        view = await gate.finish("denied")
        assert "call.observed" not in await world.kinds(gate.run_id)
        assert "unsafe_observed" in view.record["lineage"]["unsafe"]

    in_world(tmp_path, play, pack=observed)


def test_a_record_without_the_word_does_not_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_passed_off", 900)
        await read_first(gate, 900)
        with monkeypatch.context() as patched:
            # A runtime that leaves the word out signs such a record; an honest one derives another.
            patched.setattr("contextos.runtime.wiring._unsafe_of", lambda scope: ())
            view = await gate.finish("denied")
        assert "unsafe_observed" not in view.record["lineage"]["unsafe"]
        with pytest.raises(ReplayMismatch):
            await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=observed)


def test_a_pack_turned_to_observing_after_its_signature_is_refused(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        document = example("pack.json")
        document["pack_meta"]["pack_version"] = "6.0.0"
        envelope = seal(PACK_TYPE, canonical(document), world.keys, "pack")
        document["pack_meta"]["mode"] = "observe"
        forged = {**envelope, "payload": base64.b64encode(canonical(document)).decode()}
        with pytest.raises(SignatureInvalid):
            await world.publish(forged)

    in_world(tmp_path, play)


def test_a_published_version_cannot_be_replaced_by_one_that_observes(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        document = example("pack.json")
        chosen_by_agent(document)
        document["pack_meta"]["mode"] = "observe"
        with pytest.raises(InvalidArtifact, match="different content"):
            await world.publish(seal(PACK_TYPE, canonical(document), world.keys, "pack"))

    in_world(tmp_path, play)


def test_a_denial_above_the_pack_stops_an_observed_call(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        forbidden = rule("R_HOUSE_LIMIT", {">": [{"var": "args.amount_inr"}, 1000]}, allow=False)
        await in_force(world, policy({**forbidden, "applies_to": {"capability": REFUND}}))
        gate = await refund_session(world, "ses_house")
        refused = await gate.call(REFUND, refund_args(), call_id="pay")
        assert isinstance(refused, Refused), refused
        assert "R_HOUSE_LIMIT" in str(refused)
        assert world.refunds() == []
        await gate.finish("denied")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=observed)


def test_a_tool_that_is_hidden_above_the_pack_stays_out_of_reach(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        nobody = rule("R_HOUSE_CLOSED", {"==": [{"var": "user.role"}, "support_agent"]}, allow=False)
        await in_force(world, policy({**nobody, "applies_to": {"capability": REFUND, "point": "compile"}}))
        gate = await refund_session(world, "ses_hidden", 900)
        await read_first(gate, 900)
        refused = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(refused, Refused), refused
        assert "R_HOUSE_CLOSED" in str(refused)
        assert world.refunds() == []

    in_world(tmp_path, play, pack=observed)


def test_bounds_and_evidence_above_the_pack_bind_an_observed_call(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        always = {"==": [{"var": "user.role"}, "support_agent"]}
        bounds = rule("R_HOUSE_BOUNDS", always, arg_constraints={"amount_inr": {"max": 500}})
        evidence = rule("R_HOUSE_EVIDENCE", always, requires=["order_lookup"])
        applied = [{**one, "applies_to": {"capability": REFUND, "point": "execute"}} for one in (bounds, evidence)]
        await in_force(world, policy(*applied))
        gate = await refund_session(world, "ses_bounds", 900)
        refused = await gate.call(REFUND, refund_args(400), call_id="unread")
        assert isinstance(refused, Refused), refused
        assert refused.reasons[-1].code == "missing_evidence"
        await read_first(gate, 900)
        refused = await gate.call(REFUND, refund_args(900), call_id="large")
        assert isinstance(refused, Refused), refused
        assert refused.reasons[-1].code == "argument_out_of_bounds"
        assert world.refunds() == []

    in_world(tmp_path, play, pack=observed)


def test_a_gate_above_the_pack_asks_a_person(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        always = {"==": [{"var": "user.role"}, "support_agent"]}
        asks = rule("R_HOUSE_ASKS", always, requires_approval_gate="GATE_FINANCE_APPROVAL")
        await in_force(world, policy({**asks, "applies_to": {"capability": REFUND, "point": "execute"}}))
        gate = await refund_session(world, "ses_gate", 900)
        await read_first(gate, 900)
        waiting = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(waiting, Waiting), waiting
        await world.approve(gate.run_id)
        assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)
        assert len(world.refunds()) == 1

    in_world(tmp_path, play, pack=observed)


def test_a_service_runs_no_pack_that_observes_unless_its_operator_names_it(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        deployment = world.deployment
        loaded = await deployment.catalog(TENANT).load(await pinned(world))
        service = type(deployment)(deployment.ports, replace(deployment.config, profile="service"))
        with pytest.raises(InvalidArtifact, match="observed_packs"):
            service._check_pins(loaded)
        named = frozenset({loaded.pack.pack_meta.pack_id})
        stated = type(deployment)(deployment.ports, replace(deployment.config, profile="service", observed_packs=named))
        stated._check_pins(loaded)

    async def pinned(world: TestWorld) -> dict[str, Any]:
        gate = await refund_session(world, "ses_pins", 900)
        entries = await world.stores.tenant(TENANT).read(gate.run_id)
        body = next(json.loads(entry.body) for entry in entries if entry.kind == "run.pinned")
        return dict(body["answer"])

    in_world(tmp_path, play, pack=observed)


@pytest.mark.parametrize("value", ["shop", [7], [""]])
def test_a_malformed_list_of_observed_packs_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InvalidSettings):
        check_settings(Settings(tmp_path, observed_packs=value))
