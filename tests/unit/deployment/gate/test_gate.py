"""Sessions: an agent chooses its calls one after the other, and each is governed, recorded and replayed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ConfigDict

import contextos
from contextos.audit.replay import replay
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.journal import Batch
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.deployment.driver import MAX_DEATHS
from contextos.deployment.gate.gate import REMEDIES, _reason
from contextos.deployment.gate.opening import find_session, open_session, session_tools, with_tools
from contextos.deployment.operator import erase_entry
from contextos.errors import ConflictingRequest, InvalidInput, Unavailable
from contextos.testing import TEST_OPERATOR, Person, in_memory
from tests.e2e.test_settlements import DID_NOT, HAPPENED, PAID, Lossy
from tests.messages import models as messages
from tests.modelled import EVALUATE, calls, finish, modelled, pack
from tests.modelled import LOOKUP as ASKED_LOOKUP
from tests.modelled import REFUND as ASKED_REFUND
from tests.observed.recording import INTERN, deployed, observing, open_gate
from tests.observed.recording import TENANT as SHOP
from tests.observed.shop import World
from tests.sessions import (
    EVAL,
    LOOKUP,
    REFUND,
    assert_replays,
    chosen_by_agent,
    in_world,
    read_first,
    refund_args,
    refund_session,
)
from tests.world import TENANT, TestWorld


def test_a_session_is_one_run_with_one_record_and_replays(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_1")
        assert gate.tools == (LOOKUP, REFUND, EVAL)
        refused = await gate.call(REFUND, refund_args(), call_id="early")
        assert isinstance(refused, Refused), refused
        assert [reason.code for reason in refused.reasons] == ["missing_evidence"]
        assert "order_lookup" in str(refused)
        assert not refused.ended
        await read_first(gate)
        waiting = await gate.call(REFUND, refund_args(), call_id="pay")
        assert isinstance(waiting, Waiting), waiting
        assert (waiting.waits_for, waiting.about, waiting.question["required_role"]) == (
            "approval",
            "pay",
            "finance_lead",
        )
        assert world.refunds() == []
        await world.approve(gate.run_id)
        paid = await gate.call(REFUND, refund_args(), call_id="pay")
        assert isinstance(paid, Done)
        assert paid.output
        assert paid.output["refund_amount_inr"] == 4200
        assert len(world.refunds()) == 1
        view = await gate.finish("approved", "the refund is paid")
        assert (view.state, view.record["status"], view.record["outcome"]) == ("completed", "DECIDED", "approved")
        assert view.record["decision_key"] == "support.refund.execute"
        assert view.record["outputs"]["refund_amount"] == 4200
        assert view.record["rationale"]["strategy"] == "agent:task_refund_with_eligibility@1.0.0"
        assert [one["verdict"] for one in view.record["approvals"]] == ["approved"]
        assert [one["capability_id"] for one in view.record["effects"]] == [REFUND]
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


def test_the_same_call_again_has_the_recorded_answer_and_no_second_effect(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_again", 900)
        await read_first(gate, 900)
        first = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(first, Done)
        before = await world.kinds(gate.run_id)
        other = await refund_session(world, "ses_again", 900)
        assert other.run_id == gate.run_id
        assert await other.call(REFUND, refund_args(900), call_id="pay") == first
        assert await world.kinds(gate.run_id) == before
        same = await gate.call(REFUND, refund_args(900), call_id="pay_once_more")
        assert isinstance(same, Done)
        assert same.replayed
        assert same.output == first.output
        assert len(world.refunds()) == 1
        with pytest.raises(ConflictingRequest, match="used for another call"):
            await gate.call(REFUND, refund_args(901), call_id="pay")

    in_world(tmp_path, play)


def test_a_refused_call_tells_the_agent_why_and_the_session_goes_on(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_refused", 2500)
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("adp_payments.drain", {}, "tool_not_in_manifest"),
            (LOOKUP, {"order": "ord_881"}, "schema_mismatch"),
            (LOOKUP, {"order_id": {"from": "request", "pointer": "/input/context/order_id"}}, "schema_mismatch"),
            (EVAL, {"order_id": "ord_881", "amount_inr": 1}, "argument_out_of_bounds"),
        ]
        for number, (tool, args, code) in enumerate(calls):
            answer = await gate.call(tool, args, call_id=f"c{number}")
            assert isinstance(answer, Refused), (tool, answer)
            assert [reason.code for reason in answer.reasons] == [code]
            assert answer.reasons[0].remedy
            assert not answer.ended
        await read_first(gate, 2500)
        view = await gate.finish("denied", "the customer changed their mind")
        assert (view.state, view.record["status"], view.record["outcome"]) == ("rejected", "REJECTED", "denied")
        assert world.refunds() == []
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play)


@pytest.mark.parametrize("condition", [True, {"==": [{"var": "evidence.policy.eval.eligible"}, True]}])
@pytest.mark.parametrize(
    ("bound", "says"),
    [({"enum": ["USD"]}, 'is not one of "USD"'), ({"pattern": "US.*"}, "does not match `US.*`")],
    ids=["enum", "pattern"],
)
def test_a_call_out_of_a_limit_of_a_rule_receives_the_argument_and_that_limit(
    tmp_path: Path, bound: dict[str, Any], says: str, condition: Any
) -> None:
    """The permission of the tool allows more than the rule does."""

    def limited(pack: dict[str, Any]) -> None:
        chosen_by_agent(pack)
        for permission in pack["tooling_layer"]["permissions"]:
            if permission["capability"] == "issue_refund":
                permission["arg_constraints"]["currency"] = {"enum": ["INR", "USD"]}
        rules = pack["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
        then = {"allow": True, "arg_constraints": {"currency": bound}}
        rules.append(
            rules[0] | {"rule_id": "R_USD", "applies_to": {"capability": REFUND}, "if": condition, "then": then}
        )

    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_limited", 900)
        await read_first(gate, 900)
        answer = await gate.call(REFUND, refund_args(900), call_id="pay")
        assert isinstance(answer, Refused)
        assert [reason.detail for reason in answer.reasons] == [f"`{REFUND}` at `/currency`: `currency` {says}"]
        assert world.refunds() == []

    in_world(tmp_path, play, pack=limited)


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_whose_effect_a_person_settled_is_answered_with_what_they_found(tmp_path: Path, happened: bool) -> None:
    async def play(world: TestWorld) -> None:
        world.adapters["adp_payments"] = Lossy(world.adapters["adp_payments"])
        gate = await refund_session(world, "ses_settled", 2500)
        await read_first(gate, 2500)
        waiting = await gate.call(REFUND, refund_args(2500), call_id="pay")
        assert isinstance(waiting, Waiting)
        assert waiting.waits_for == "settlement"
        with pytest.raises(InvalidInput, match="waits for an answer"):
            await gate.finish("approved")
        await world.settle(gate.run_id, HAPPENED if happened else DID_NOT, drive=False)
        answer = await gate.call(REFUND, refund_args(2500), call_id="pay")
        assert isinstance(answer, Done)
        if happened:
            assert (answer.output, answer.error) == (PAID, None)
        else:
            assert answer.error is not None
            assert answer.output == {"error": {"code": answer.error.code, "message": answer.error.message}}
            assert answer.error.message == "a person settled that it did not happen"
        view = await gate.finish("approved" if happened else "denied")
        assert view.ended
        await assert_replays(world, gate.run_id)

    in_world(tmp_path, play, payments="none")


def test_a_denied_call_says_what_the_author_of_the_rule_wrote(tmp_path: Path) -> None:
    """The words are those of the pack that the session is pinned to, also after another version is in force."""
    because = "payroll is frozen until Monday"
    world = World([])
    deny = [{"when": 'args.currency == "USD"', "tools": ["shop.refund"], "because": because}]
    dollars = {"order_id": "ord_1", "amount": 5, "currency": "USD"}
    with deployed(observing(world, deny=deny, mode="enforce")) as app:
        gate = open_gate(app, "denied")
        refused = gate.call("shop.refund", dollars, call_id="pay")
        assert isinstance(refused, Refused)
        assert because in {one for reason in refused.reasons for one in reason.because}
        assert f"({because})" in str(refused)
        before = app.call(app.deployment.ports.stores.tenant(SHOP).read, gate.run_id)
        assert because not in str([entry.body for entry in before if entry.kind != "context.compiled"])
        told = app.runs.timeline(app.runs.get(SHOP, gate.run_id))
        (line,) = [one.text for part in told.parts for one in part.moments if because in one.text]
        assert line.endswith(f"denied (denied_by_rule) by R_SHOP_WATCH_SHOP_REFUND_DENY_1: {because}")
        counted = {"shop.refund": {"without_sum": "the shop counts"}}
        rules = {"deny": [{**deny[0], "because": "other"}], "permissions": counted}
        other = observing(world, **rules, mode="enforce", version="0.2.0")
        app.install(other, by=Person(TEST_OPERATOR).actor())
        assert gate.call("shop.refund", dollars, call_id="pay") == refused
        gate.finish("denied")
        assert app.call(replay, app.deployment, SHOP, gate.run_id).record_hash


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (("args.note",), "schema_mismatch"),
        (("args.note", "args.tag"), "schema_mismatch"),
        (("args.note", "evidence.order.status"), "policy_eval_error"),
        ((), "policy_eval_error"),
    ],
)
def test_a_rule_that_lacks_arguments_alone_asks_for_them_and_not_for_a_read(
    facts: tuple[str, ...], code: FailureCode
) -> None:
    said = _reason(Failure(code="policy_eval_error", detail="a fact is missing", facts=facts), "shop.tag", (), ())
    assert (said.code, said.remedy) == ("policy_eval_error", REMEDIES[code])


def test_a_user_who_can_use_no_tool_is_not_sent_to_the_tools_of_the_session(tmp_path: Path) -> None:
    with deployed(observing(World([]), mode="enforce")) as app:
        gate = open_gate(app, "intern", user=INTERN)
        refused = gate.call("shop.refund", {}, call_id="pay")
        assert isinstance(refused, Refused)
        assert gate.tools == ()
        assert "use one of" not in str(refused)
        assert "can use none of its tools" in str(refused)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("adp_orders.lokup", f"did you mean `{LOOKUP}`?"),
        ("issue_refund", f"did you mean `{REFUND}`?"),
        ("zzz", f"use one of {LOOKUP}, {REFUND}, {EVAL}"),
        ("x" * 200, f"use one of {LOOKUP}, {REFUND}, {EVAL}"),
    ],
    ids=["misspelt", "own name", "nothing alike", "long"],
)
def test_an_unknown_tool_is_answered_with_the_nearest_one(tmp_path: Path, asked: str, remedy: str) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_unknown", 900)
        refused = await gate.call(asked, {}, call_id="what")
        assert isinstance(refused, Refused)
        assert [(one.code, one.remedy) for one in refused.reasons] == [("tool_not_in_manifest", remedy)]

    in_world(tmp_path, play)


def test_every_refusal_says_what_an_agent_can_do() -> None:
    assert set(get_args(FailureCode)) < set(REMEDIES)
    assert all(REMEDIES.values())


def test_a_session_has_one_outcome(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_two_ends")
        first = await gate.finish("denied", "not needed")
        with pytest.raises(ConflictingRequest, match="finished as `denied`"):
            await gate.finish("approved")
        assert (await gate.finish("denied", "said again")).record == first.record

    in_world(tmp_path, play)


def test_a_session_that_ended_its_drivers_is_unavailable_and_does_not_wait(tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_killer")
        store = world.stores.tenant(TENANT)
        lease = await LEASES.one(store, gate.run_id)
        assert lease is not None
        dead = replace(lease.body, owner="another", until_us=1, deaths=MAX_DEATHS)
        await store.commit(Batch(run=gate.run_id, writes=(LEASES.write(gate.run_id, lease.version, dead),)))
        with pytest.raises(Unavailable, match="dead-letters"):
            await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")

    in_world(tmp_path, play)


@pytest.mark.parametrize("erased", ["tool.returned", "call.answered"])
def test_an_answer_that_was_erased_is_of_a_call_that_was_sent(erased: str, tmp_path: Path) -> None:
    async def play(world: TestWorld) -> None:
        gate = await refund_session(world, "ses_erased")
        refused = await gate.call("adp_payments.drain", {}, call_id="first")
        assert isinstance(refused, Refused)
        await read_first(gate)
        await gate.finish("escalated")
        kinds = await world.kinds(gate.run_id)
        of_look = kinds.index("tool.dispatching")
        for seq in (kinds.index(erased, of_look) + 1, kinds.index("call.answered") + 1):
            await erase_entry(world.deployment, TENANT, gate.run_id, seq, by=world.actor(), reason="a customer asked")
        unsent = await gate.call("adp_payments.drain", {}, call_id="first")
        assert isinstance(unsent, Refused)
        assert [reason.code for reason in unsent.reasons] == ["erased"]
        answer = await gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look")
        assert isinstance(answer, Done), answer
        assert answer.error is not None
        assert answer.withheld is not None
        assert (answer.error.code, answer.withheld.code) == ("erased", "erased")

    in_world(tmp_path, play)


def test_a_call_is_refused_with_the_reason_of_its_own_denial() -> None:
    """Both rules read evidence, so the gateway decides each call, and the session has both decisions."""
    much, region = "more than was paid", "a region that is not served"
    deny = [
        {"when": "args.amount > evidence.order.total", "tools": ["shop.refund"], "because": much},
        {"when": 'evidence.order.region == "br"', "tools": ["shop.refund"], "because": region},
    ]
    about = {"shop.refund": {"evidence_args": {"order": {"order_id": "order_id"}}}}
    with deployed(observing(World([]), deny=deny, permissions=about, mode="enforce")) as app:
        gate = open_gate(app, "two")
        said = []
        for order, place, amount in (("ord_1", "eu", 1_000), ("ord_2", "br", 5)):
            found = gate.call("shop.find_order", {"order_id": order, "region": place}, call_id=f"find_{order}")
            assert isinstance(found, Done)
            args = {"order_id": order, "amount": amount, "currency": "EUR"}
            said.append(gate.call("shop.refund", args, call_id=f"pay_{order}"))
        assert [[one.because for one in refused.reasons] for refused in said] == [[(much,)], [(region,)]]


class Nothing(BaseModel):
    """What a tool answers that has nothing to say."""

    model_config = ConfigDict(extra="forbid")


def test_an_output_without_members_is_the_output() -> None:
    @contextos.read(integrity="trusted")
    def hours() -> Nothing:
        """Return nothing."""
        return Nothing()

    pack = contextos.pack(
        "acme.desk",
        version="1.0.0",
        tenant=messages.TENANT,
        tools=[contextos.toolset("desk", [hours])],
        who=["clerk"],
        intents={"acme.desk": {}},
    )

    async def play() -> None:
        async with in_memory(packs=[pack], directory=messages.PEOPLE) as app:
            gate = await app.gate(session="s", user="ana", agent="agt_desk", token="tok_ana")
            answer = await gate.call("desk.hours", {}, call_id="one")
        assert isinstance(answer, Done), answer
        assert (answer.output, answer.error) == ({}, None)

    asyncio.run(play())


@pytest.mark.parametrize("amount", [900, 4200], ids=["ended", "waiting"])
def test_a_program_is_not_heard_by_a_run_whose_calls_a_model_chooses(amount: int) -> None:
    of_amount = [(tool, {**args, "amount_inr": amount}) for tool, args in (EVALUATE, ASKED_REFUND)]
    script = [calls(ASKED_LOOKUP), *(calls(one) for one in of_amount), finish()]
    who = {"user": "usr_771", "token": "tok_usr_771", "agent": "agt_support"}
    with modelled(*script, of=pack(chosen_by="model")) as world:
        view, deployment = world.run(amount, "ses_model"), world.app.deployment
        before = world.journal(view)
        of_model = next(one.key for one in before if one.kind == "call.asked")
        gate, _ = world.app.call(find_session, deployment, TENANT, "ses_model")
        for asked in (
            lambda: gate.call(LOOKUP, {"order_id": "ord_881"}, call_id="look"),
            lambda: gate.call(ASKED_LOOKUP[0], ASKED_LOOKUP[1], call_id=of_model),
            lambda: gate.finish("denied"),
            lambda: world.app.call(with_tools, gate),
            lambda: world.app.call(session_tools, deployment, TENANT, "ses_model", **who),
            lambda: world.app.call(session_tools, deployment, TENANT, "ses_new", **who),
            lambda: world.app.call(open_session, deployment, TENANT, "ses_model", **who),
        ):
            with pytest.raises(InvalidInput, match="chosen by a model") as refused:
                asked()
            assert refused.value.problems[0].code == "no_session"
        assert world.journal(view) == before
