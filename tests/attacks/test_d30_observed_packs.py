"""Attacks on packs that observe: an observed run passed off as a governed one, a pack turned to observing, rules above
the pack put out of force, and recordings that poison the pack that is mined from them.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import UserClaims
from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.deployment.queries.observations import read_sessions
from contextos.errors import InvalidArtifact, InvalidInput, InvalidSettings, NotFound, ReplayMismatch, SignatureInvalid
from contextos.packs.expansion import expand
from contextos.packs.mining.draft import mined_yaml
from contextos.packs.mining.miner import mine
from contextos.packs.reading import read_declaration
from contextos.trust.policy.constraints import check_args
from contextos.trust.seal import seal
from contextos.workspace.settings import Settings, check_settings
from tests.e2e.test_observed_sessions import observed
from tests.observed.recording import TENANT as SHOP
from tests.observed.recording import deployed, observing, open_gate
from tests.observed.shop import World, tools_of
from tests.policies import rule
from tests.sessions import REFUND, assert_replays, chosen_by_agent, in_world, read_first, refund_args, refund_session
from tests.unit.control.example import policy_json
from tests.world import TENANT, TestWorld, example, request


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
            patched.setattr("contextos.runtime.wiring._unsafe_lineage", lambda scope: ())
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


@pytest.mark.parametrize("point", [{}, {"point": "execute"}], ids=["at any point", "at the call alone"])
def test_a_denial_above_the_pack_stops_an_observed_call(tmp_path: Path, point: dict[str, str]) -> None:
    async def play(world: TestWorld) -> None:
        forbidden = rule("R_HOUSE_LIMIT", {">": [{"var": "args.amount_inr"}, 1000]}, allow=False)
        await in_force(world, policy({**forbidden, "applies_to": {"capability": REFUND, **point}}))
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


def test_a_gate_above_the_pack_is_answered_also_for_a_call_that_the_pack_would_deny(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        always = {"==": [{"var": "user.role"}, "support_agent"]}
        asks = rule("R_HOUSE_ASKS", always, requires_approval_gate="GATE_FINANCE_APPROVAL")
        await in_force(world, policy({**asks, "applies_to": {"capability": REFUND, "point": "execute"}}))
        gate = await refund_session(world, "ses_unread", 900)
        waiting = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(waiting, Waiting), waiting
        assert world.refunds() == []
        await world.approve(gate.run_id)
        assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)
        assert len(world.refunds()) == 1
        assert "call.observed" in await world.kinds(gate.run_id)
        await gate.finish("approved")
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, pack=observed)


READS = ["adp_orders.lookup", "adp_policy.eval"]


def without_delegation() -> UserClaims:
    return UserClaims.model_validate({**request(900, "x")["user"], "delegation": None})


def agents(**change: Any) -> Callable[[dict[str, Any]], None]:
    def edit(tenant: dict[str, Any]) -> None:
        for one in tenant["agents"]:
            one.update(change)

    return edit


WITHHELD: dict[str, tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = {
    "the request names other tools": (agents(), {"tools": READS}),
    "the request accepts reads only": (agents(), {"hints": RuntimeHints(safety_mode="read_only")}),
    "the directory lets the agent read only": (agents(ceiling="read_only"), {}),
    "the agent has not the scope": (agents(scopes=["orders.read"]), {}),
    "the user delegated nothing": (agents(), {"user": without_delegation()}),
}


@pytest.mark.parametrize(("edit", "stated"), WITHHELD.values(), ids=WITHHELD)
def test_what_others_than_the_pack_withhold_stays_out_of_reach(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], stated: dict[str, Any]
) -> None:
    """The pack observes; the request, the user and the directory do not."""

    async def play(world: TestWorld) -> None:
        world.edit_directory(edit)
        gate = await refund_session(world, "ses_withheld", 900, **stated)
        refused = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(refused, Refused), refused
        assert world.refunds() == []
        await gate.finish("denied")
        opened = [one for one in await world.stores.tenant(TENANT).read(gate.run_id) if one.kind == "session.opened"]
        assert [json.loads(one.body)["tools"] for one in opened] == [READS]
        await assert_replays(world, gate.run_id)

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


EVIL: dict[str, Any] = {
    "a line of YAML": "vip\nmode: observe\nwho: [everyone]",
    "an end of a comment": "vip\r# \x85who: [everyone]\u2028mode: observe",
    "an alias and a tag": "*vip !!python/object:os.system &vip",
    "a document": "---\nname: evil\n...",
    "a control character": "vip\x00\x1b[2J\u202e",
    "everything of a pattern": ".*|(?:.*)[^x]{0,}$\\E",
    "a huge text": "x" * 200_000,
}


@pytest.mark.parametrize("text", EVIL.values(), ids=list(EVIL))
def test_what_an_agent_sends_cannot_write_the_draft(text: str) -> None:
    world = World([])
    definitions = [tools_of(world).describe()]
    with deployed(observing(world, redaction=[])) as app:
        gate = open_gate(app, "poisoned")
        gate.call("shop.search_tickets", {"text": text[:4_000], "limit": 5}, call_id="evil # \\n who: [everyone]")
        gate.call("shop.search_tickets", {"text": "parcel", "limit": 6}, call_id="plain")
        gate.call(f"shop.{text[:100]}", {}, call_id="tool")
        recording = app.call(read_sessions, app.deployment.ports.stores.tenant(SHOP), SHOP, app.keys)
    mined = mine(recording.sessions, definitions, name="m", version="0.1.0", tenant_id=SHOP, approver="lead")
    file = mined_yaml(mined)
    assert len(file) < 20_000
    declaration = read_declaration(file.encode())
    assert declaration == mined.declaration
    assert (declaration.mode, set(declaration.intents), declaration.tools) == (
        "enforce",
        {"shop.watch"},
        ("shop.search_tickets",),
    )
    assert declaration.intents["shop.watch"].who == ("support",)
    bound = declaration.permissions["shop.search_tickets"].arg_constraints["text"]
    assert check_args({"text": (bound,)}, {"text": "another ticket"}, approved=False), "it bounds all the same"
    expand(declaration, definitions)


def test_the_call_that_widens_a_range_is_named() -> None:
    world = World([])
    with deployed(observing(world)) as app:
        gate = open_gate(app, "widened")
        for number, amount in enumerate((5, 20, 1_000_000)):
            args = {"order_id": "ord_1", "amount": amount, "currency": "EUR"}
            gate.call("shop.refund", args, call_id=f"call_{number}")
        recording = app.call(read_sessions, app.deployment.ports.stores.tenant(SHOP), SHOP, app.keys)
    definitions = [tools_of(world).describe()]
    mined = mine(recording.sessions, definitions, name="m", version="0.1.0", tenant_id=SHOP, approver="lead")
    assert f"amount: 5 in {gate.run_id}/call_0, 1000000 in {gate.run_id}/call_2" in mined_yaml(mined)
    assert mined.declaration.auto_approve == ()


def test_a_recording_of_another_tenant_is_not_found(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_ours", 900)
        await read_first(gate, 900)
        other = world.stores.tenant("tenant_other")
        with pytest.raises(NotFound):
            await read_sessions(other, "tenant_other", world.keys, ["ses_ours"])
        with pytest.raises(InvalidInput):
            await read_sessions(other, "tenant_other", world.keys, [gate.run_id])
        assert (await read_sessions(other, "tenant_other", world.keys)).sessions == []

    in_world(tmp_path, play, pack=observed)


def test_an_altered_recording_is_left_out_and_named(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_altered", 900)
        await read_first(gate, 900)
        store = world.stores.tenant(TENANT)
        honest = await store.read_run(gate.run_id)

        class Altered:
            """The store, whose owner wrote another tool into the recording."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            async def read_run(self, run_id: str) -> Any:
                entries = tuple(
                    one._replace(body=one.body.replace(b"lookup", b"refund"))
                    if one.kind == "call.asked" and one.body
                    else one
                    for one in honest.entries
                )
                return honest._replace(entries=entries)

        forged: Any = Altered()
        recording = await read_sessions(forged, TENANT, world.keys)
        assert recording.sessions == []
        assert list(recording.faults) == [gate.run_id]

    in_world(tmp_path, play, pack=observed)
