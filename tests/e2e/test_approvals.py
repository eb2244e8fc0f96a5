"""Proof 5: an approval is for one call as it was shown. Any change after it voids it before dispatch; one answer wins.

Each row below changes one thing between the answer and the moment when the run goes on. Nothing may move, and the
record says why. The other half: self-approval, double answers, answers at the deadline, on both stores.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.contracts.documents.operations import bound_denial
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.policy import PolicyBundle
from contextos.contracts.journal import Batch, Entry, Write
from contextos.contracts.statements.questions import approval_statement
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.deployment import operator
from contextos.deployment.acts.act import unsafe_local_assertion
from contextos.errors import ApprovalRefused, Conflict, InvalidInput
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.people import signer
from contextos.trust.journal.chain import append
from contextos.trust.seal import kid_of, seal
from contextos_sim.memory.stores import MemoryStore
from tests.e2e.test_verdicts import Wrapped, audited, edited
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    OPERATOR,
    OPERATOR_KEY,
    TENANT,
    TestWorld,
    example,
    open_world,
    public_key,
    request,
    run,
)

SECOND = "user_finance_lead_78"
SECOND_KEY = bytes(range(1, 33))
OWNER_KEY = bytes(range(2, 34))
STRANGER_KEY = bytes(range(3, 35))

Change = Callable[[TestWorld], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """Where a race is run; in memory nobody is overtaken inside of a commit."""
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_stores(request: pytest.FixtureRequest) -> str:
    """Where answers race that are given at the same time."""
    return str(request.getfixturevalue("database").app if request.param == "postgresql" else request.param)


def in_directory(change: Callable[[dict[str, Any]], None]) -> Change:
    async def go(world: TestWorld) -> None:
        world.edit_directory(change)

    return go


def in_shop(statement: str, *values: Any) -> Change:
    async def go(world: TestWorld) -> None:
        import sqlite3

        connection = sqlite3.connect(world.path / "shop.db")
        with connection:
            connection.execute(statement, values)
        connection.close()

    return go


def edge(predicate: str, dst: str, **more: Any) -> dict[str, Any]:
    return {
        "src": "customer:cus_77",
        "predicate": predicate,
        "dst": dst,
        "evidence_ref": f"artifact:{dst[6:]}#rev_2",
        "observed_at": "2026-05-04T09:30:00Z",
        "integrity": "trusted",
        "classification": "CONFIDENTIAL",
        **more,
    }


async def edge_id(world: TestWorld, predicate: str) -> str:
    graph = world.stores.graph(TENANT)
    edges = await graph.neighbourhood(["customer:cus_77"], at=await graph.head(), hops=1, fan_out=50, limit=50)
    return next(str(one["edge_id"]) for one in edges if one["predicate"] == predicate)


async def evidence_withdrawn(world: TestWorld) -> None:
    gone = {"retracts": await edge_id(world, "identity_verified"), "evidence_ref": "artifact:idv_withdrawn#rev_1"}
    await world.put_facts([gone])


async def evidence_replaced(world: TestWorld) -> None:
    new = edge("identity_verified", "check:idv_cus_77", value=False, retracts=await edge_id(world, "identity_verified"))
    await world.put_facts([new])


async def evidence_contradicted(world: TestWorld) -> None:
    await world.put_facts([edge("identity_verified", "check:idv_again", value=False)])


async def evidence_doubted(world: TestWorld) -> None:
    new = edge(
        "identity_verified",
        "check:idv_cus_77",
        value=True,
        integrity="untrusted",
        retracts=await edge_id(world, "identity_verified"),
    )
    await world.put_facts([new])


async def customer_replaced(world: TestWorld) -> None:
    moved = {
        **edge("placed_by", "customer:cus_79"),
        "src": "order:ord_881",
        "evidence_ref": "artifact:moved#rev_1",
        "retracts": await edge_id(world, "placed_by_of_881"),
    }
    await world.put_facts([moved])


async def pack_withdrawn(world: TestWorld) -> None:
    await world.withdraw("ctxpack.support@5.2.0")


def other_policy() -> dict[str, Any]:
    rule = {"rule_id": "R_TENANT_STOP", "if": {"==": [{"var": "user.role"}, "nobody"]}, "then": {"allow": False}}
    bundle = {"bundle_id": "POLICY_TENANT", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    PolicyBundle.model_validate(bundle)
    return bundle


async def policies_changed(world: TestWorld) -> None:
    body = {"version": "1.0.0", "tenant": TENANT, "bundle": other_policy()}
    ref = await world.publish(seal(POLICY_TYPE, canonical(body), world.keys, "pack"))
    await world.activate(("tenant", ref))


def definition_changed(adapter: str) -> Change:
    async def go(world: TestWorld) -> None:
        inner = world.adapters[adapter]
        definition = inner.describe()
        first = definition.capabilities[0].model_copy(update={"description": "It does something else now."})
        changed = definition.model_copy(update={"capabilities": (first,)})
        world.adapters[adapter] = Wrapped(inner, definition=changed)  # type: ignore[assignment]

    return go


async def adapter_gone(world: TestWorld) -> None:
    del world.adapters["adp_policy"]


def adapter_says(adapter: str, **output: Any) -> Change:
    async def go(world: TestWorld) -> None:
        from tests.e2e.test_verdicts import said

        world.adapters[adapter] = Wrapped(world.adapters[adapter], answer=said(**output))  # type: ignore[assignment]

    return go


async def too_late(world: TestWorld) -> None:
    world.clock.at_us += 3601 * 1_000_000


VOIDS: dict[str, Change] = {
    "evidence_withdrawn": evidence_withdrawn,
    "evidence_replaced": evidence_replaced,
    "evidence_contradicted": evidence_contradicted,
    "evidence_doubted": evidence_doubted,
    "order_total": in_shop("UPDATE orders SET total_inr = 9901 WHERE order_id = 'ord_881'"),
    "order_status": in_shop("UPDATE orders SET status = 'returned' WHERE order_id = 'ord_881'"),
    "order_customer": in_shop("UPDATE orders SET customer_id = 'cus_78' WHERE order_id = 'ord_881'"),
    "order_currency": in_shop("UPDATE orders SET currency = 'USD' WHERE order_id = 'ord_881'"),
    "refunded_meanwhile": in_shop("INSERT INTO refunds VALUES (900, 'ord_881', 1, 'INR', 'txn_elsewhere', 'k', NULL)"),
    "policy_answer": adapter_says("adp_policy", policy_version="returns-5"),
    "pack_withdrawn": pack_withdrawn,
    "policies_changed": policies_changed,
    "definition_of_the_call": definition_changed("adp_payments"),
    "definition_of_evidence": definition_changed("adp_orders"),
    "adapter_gone": adapter_gone,
    "role_taken_away": in_directory(edited("approvers", 0, "roles", to=[])),
    "role_self_granted": in_directory(edited("approvers", 0, "granted_by", to={"finance_lead": APPROVER})),
    "key_taken_away": in_directory(edited("approvers", 0, "keys", to=[])),
    "key_replaced": in_directory(
        edited(
            "approvers",
            0,
            "keys",
            to=[{"kid": kid_of(public_key(SECOND_KEY)), "public_key": public_key(SECOND_KEY).hex()}],
        )
    ),
    "key_replaced_under_its_name": in_directory(
        edited("approvers", 0, "keys", 0, "public_key", to=public_key(SECOND_KEY).hex())
    ),
    "approver_gone": in_directory(edited("approvers", to=lambda all_: all_[1:])),
    "delegation_revoked": in_directory(edited("users", 0, "delegation_live", to=False)),
    "scope_revoked": in_directory(edited("users", 0, "scopes", to=["orders.read"])),
    "role_of_the_user": in_directory(edited("users", 0, "role", to="warehouse_clerk")),
    "user_gone": in_directory(edited("users", to=lambda all_: all_[1:])),
    "agent_suspended": in_directory(edited("agents", 0, "lifecycle", to="suspended")),
    "agent_retired": in_directory(edited("agents", 0, "lifecycle", to="retired")),
    "agent_ceiling": in_directory(edited("agents", 0, "ceiling", to="delegated")),
    "agent_owner": in_directory(edited("agents", 0, "owner", to=APPROVER)),
    "agent_gone": in_directory(edited("agents", to=lambda all_: all_[1:])),
    "deadline": too_late,
}


@pytest.mark.requirement("T-APPROVAL-BOUND", "T-APPROVAL-RECHECK", "T-APPROVAL-ROLE-TWICE", "A-DEFINITION-PINNED")
@pytest.mark.parametrize("name", VOIDS)
def test_any_change_after_an_approval_voids_it_before_dispatch(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        before = len(world.refunds())
        await world.answer(waiting.run_id)
        await VOIDS[name](world)
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert failure["code"] == "approval_void", failure
        assert (view.state, view.record["status"]) == ("escalated", "ESCALATED")
        kinds = await world.kinds(waiting.run_id)
        assert "approval.voided" in kinds
        assert kinds.count("tool.dispatching") == 2, "only the two reads were ever sent"
        assert [refund for refund in world.refunds() if refund["key"].startswith("ik_")][before:] == []
        document = await world.stores.tenant(TENANT).scan("approvals", key=(waiting.waiting or {})["approval_id"])
        assert orjson.loads(document[0].body)["state"] != "consumed"
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-NEWER")
def test_a_newer_version_of_something_else_does_not_void(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        body = example("pack.json")
        body["pack_meta"]["pack_version"] = "5.3.0"
        await world.publish(seal(PACK_TYPE, canonical(body), world.keys, "pack"))
        world.edit_directory(edited("users", 1, "delegation_live", to=False))
        await in_shop("UPDATE orders SET total_inr = 1 WHERE order_id = 'ord_882'")(world)
        await world.put_facts([edge("memory_consent", "check:consent_2", value=False)])
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert view.state == "completed", view.record["rationale"]
        assert [refund["amount_inr"] for refund in world.refunds()] == [4200]
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-RECHECK", "I-FRESH")
def test_evidence_that_grows_too_old_between_asking_and_acting_voids_the_approval(tmp_path: Path) -> None:
    observed_s = 1_777_800_600  # 2026-05-03T09:30:00Z, as the graph has it
    fresh_s = 1_793_000_000 - observed_s + 1_000

    async def go() -> None:
        pack = edited("intelligence_refs", "retrieval", "evidence", 0, "max_age_s", to=fresh_s)
        world = await open_world(tmp_path, pack=pack)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        world.clock.at_us += 2_000 * 1_000_000
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (view.state, failure["code"]) == ("escalated", "approval_void")
        assert "identity_verified" in failure["detail"]
        late = await world.invoke(request(2500, "req_2"))
        assert late.record is not None
        assert late.record["rationale"]["failures"][0]["code"] == "missing_evidence"
        assert world.refunds() == []
        await audited(world, view)
        world.close()

    run(go())


async def open_question(world: TestWorld, run_id: str) -> tuple[list[Entry], str, dict[str, Any], Any]:
    store = world.stores.tenant(TENANT)
    entries = list(await store.read(run_id))
    asked = [entry for entry in entries if entry.kind == "approval.asked"][-1]
    question = orjson.loads(asked.body or b"")
    document = (await store.scan("approvals", key=question["approval_id"]))[0]
    return entries, asked.key, question, document


async def forge(world: TestWorld, run_id: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """An answer that bypasses the operator's checks: a process with store access appends it to a valid chain."""
    entries, key, asked, document = await open_question(world, run_id)
    given: dict[str, Any] = {
        "approver": APPROVER,
        "verdict": "approved",
        "reason": "test",
        "binding_digest": asked["binding_digest"],
    }
    said = approval_statement(asked, APPROVER, "approved", "test")
    given["assertion"] = {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public_key(APPROVER_KEY)), said)}
    change(given, asked)
    at_us = world.clock.now_us()
    entry = append(entries, "approval.answered", key, by=given["approver"], answer=given, at_us=at_us, salt=bytes(16))
    body = {**orjson.loads(document.body), "state": given["verdict"], "approver": given["approver"]}
    write = Write("approvals", asked["approval_id"], document.version, orjson.dumps(body))
    await world.stores.tenant(TENANT).commit(Batch(run=run_id, entries=(entry,), writes=(write,)))


def resigned(seed: bytes, approver: str = APPROVER, **change: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """A statement that says something else than what was asked, signed by a key."""

    def forged(given: dict[str, Any], asked: dict[str, Any]) -> None:
        said = {**approval_statement(asked, approver, "approved", "test"), **change}
        given["approver"] = approver
        given["assertion"] = {"kind": "jws", "token": sign_approval(seed, kid_of(public_key(seed)), said)}

    return forged


def denied_to_approved(given: dict[str, Any], asked: dict[str, Any]) -> None:
    """A denial that the approver really signed, sold as an approval."""
    said = approval_statement(asked, APPROVER, "denied", "test")
    given["assertion"] = {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public_key(APPROVER_KEY)), said)}


FORGED: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "no_key_at_all": lambda given, asked: given.update(assertion={"kind": "unsafe_local"}),
    "empty_token": lambda given, asked: given.update(assertion={"kind": "jws", "token": ""}),
    "another_binding": lambda given, asked: given.update(binding_digest="sha256:" + "0" * 64),
    "a_strangers_key": resigned(STRANGER_KEY),
    "another_question": resigned(APPROVER_KEY, approval_id="appr_0000000000000000"),
    "another_call": resigned(APPROVER_KEY, binding_digest="sha256:" + "0" * 64),
    "other_evidence": resigned(APPROVER_KEY, evidence=[]),
    "shown_something_else": resigned(APPROVER_KEY, args={"amount_inr": 42}),
    "another_reason": lambda given, asked: given.update(reason="another"),
    "a_denial_sold_as_approval": denied_to_approved,
    "the_owner_with_a_key": resigned(OWNER_KEY, "usr_owner_1"),
    "the_requester_with_a_key": resigned(OWNER_KEY, "usr_771"),
    "somebody_unknown": resigned(STRANGER_KEY, "user_nobody"),
    "another_approvers_name": resigned(APPROVER_KEY, SECOND),
}


@pytest.mark.requirement("T-APPROVAL-ASSERTION", "T-APPROVAL-NOT-SELF")
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_in_a_chain_that_verifies_moves_nothing(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(with_keys)
        waiting = await world.invoke(request(4200, "req_1"))
        await forge(world, waiting.run_id, FORGED[name])
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "approval_void"
        assert (view.state, world.refunds()) == ("escalated", [])
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.parametrize(
    "change",
    [
        lambda given, asked: given.update(verdict="maybe"),
        lambda given, asked: given.pop("assertion"),
        lambda given, asked: given.update(assertion={"kind": "webauthn", "token": "x"}),
        lambda given, asked: given["assertion"].update(note="x"),
        lambda given, asked: given.update(reason=7),
    ],
)
def test_an_appended_answer_that_is_none_voids_the_question_and_moves_nothing(change: Any, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await forge(world, waiting.run_id, change)
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert (view.state, world.refunds()) == ("escalated", [])
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "approval_void"
        world.close()

    run(go())


def test_an_honest_answer_by_the_same_road_counts(tmp_path: Path) -> None:
    """What makes the test above fail where it must: the forger's road itself works."""

    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await forge(world, waiting.run_id, lambda given, asked: None)
        await world.deployment.advance(TENANT, waiting.run_id)
        assert [refund["amount_inr"] for refund in world.refunds()] == [4200]
        world.close()

    run(go())


def with_keys(tenant: dict[str, Any]) -> None:
    """Everybody has a key of their own, so that what refuses them is not the lack of one."""
    by_name = {one["approver_id"]: one for one in tenant["approvers"]}
    by_name["usr_771"] = {"approver_id": "usr_771", "roles": ["finance_lead"], "granted_by": {}, "keys": []}
    for name, seed in (
        (SECOND, SECOND_KEY),
        ("usr_owner_1", OWNER_KEY),
        ("usr_771", OWNER_KEY),
        ("user_support_lead_5", SECOND_KEY),
    ):
        by_name[name]["keys"] = [{"kid": kid_of(public_key(seed)), "public_key": public_key(seed).hex()}]
    tenant["approvers"] = list(by_name.values())


@pytest.mark.requirement("T-APPROVAL-NOT-SELF")
@pytest.mark.parametrize(
    ("approver", "seed", "reason"),
    [
        ("usr_771", OWNER_KEY, "self_approval"),
        ("usr_owner_1", OWNER_KEY, "self_approval"),
        ("user_support_lead_5", SECOND_KEY, "not_approver"),
        ("user_nobody", SECOND_KEY, "not_approver"),
        (APPROVER, STRANGER_KEY, "assertion_invalid"),
        (SECOND, APPROVER_KEY, "assertion_invalid"),
    ],
)
def test_a_person_without_the_right_to_approve_gets_the_reason_and_the_question_stays_open(
    approver: str, seed: bytes, reason: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(with_keys)
        waiting = await world.invoke(request(4200, "req_1"))
        before = await world.kinds(waiting.run_id)
        with pytest.raises(ApprovalRefused) as error:
            await world.answer(waiting.run_id, approver=approver, seed=seed)
        assert (error.value.reason, error.value.exit_code) == (reason, 1)
        assert await world.kinds(waiting.run_id) == before
        assert (await world.approve(waiting.run_id)).state == "completed"
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-NOT-SELF")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edited("approvers", 0, "granted_by", to={"finance_lead": APPROVER}), "self_granted"),
        (edited("approvers", 0, "granted_by", to={"finance_lead": "usr_771"}), "self_granted"),
        (edited("approvers", 0, "granted_by", to={}), "not_granted"),
        (edited("agents", 0, "owner", to=APPROVER), "self_approval"),
    ],
)
def test_the_agents_owner_and_who_granted_the_role_may_not_approve(
    change: Callable[[dict[str, Any]], None], reason: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(change)
        waiting = await world.invoke(request(4200, "req_1"))
        with pytest.raises(ApprovalRefused) as error:
            await world.answer(waiting.run_id)
        assert error.value.reason == reason
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-NOT-SELF")
@pytest.mark.parametrize("who", ["issuer", "publisher"])
def test_the_packs_issuer_and_its_publisher_may_not_approve(who: str, tmp_path: Path) -> None:
    """The operator of the example publishes its pack; here they hold the approver's role as well."""

    def lead(tenant: dict[str, Any]) -> None:
        for one in tenant["approvers"]:
            if one["approver_id"] == OPERATOR:
                one["roles"].append("finance_lead")
                one["granted_by"]["finance_lead"] = "user_ops_1"

    async def go() -> None:
        world = await open_world(
            tmp_path, pack=edited("contract_meta", "issuer", to=APPROVER) if who == "issuer" else None
        )
        world.edit_directory(lead)
        waiting = await world.invoke(request(4200, "req_1"))
        answers = {"issuer": (APPROVER, APPROVER_KEY), "publisher": (OPERATOR, OPERATOR_KEY)}
        with pytest.raises(ApprovalRefused) as error:
            await world.answer(waiting.run_id, approver=answers[who][0], seed=answers[who][1])
        assert error.value.reason == "self_approval"
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-UNSAFE")
@pytest.mark.parametrize("allowed", [False, True])
def test_an_answer_without_a_key_counts_only_where_settings_allow_it_and_is_marked(
    allowed: bool, tmp_path: Path
) -> None:
    async def go() -> None:
        unsafe = ("unsafe_local_approvals",) if allowed else ()
        world = await open_world(tmp_path, unsafe=unsafe)
        waiting = await world.invoke(request(4200, "req_1"))
        answered = operator.answer_approval(
            world.deployment,
            TENANT,
            waiting.run_id,
            approver_id=APPROVER,
            verdict="approved",
            reason="test",
            binding_digest=await world.binding_digest(waiting.run_id),
            vouch=unsafe_local_assertion,
        )
        if not allowed:
            with pytest.raises(ApprovalRefused) as error:
                await answered
            assert error.value.reason == "unsafe_not_allowed"
            world.close()
            return
        await answered
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert view.state == "completed"
        assert "unsafe_local_assertion" in view.record["lineage"]["unsafe"]
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("R-FAIL-TYPED")
@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("maybe", "x"),
        ("open", "x"),
        ("consumed", "x"),
        ("expired", "x"),
        ("", "x"),
        ("Approved", "x"),
        ("approved", "x" * 2_001),
        ("denied", "x" * 200_000),
        ("approved", "\u202enever"),
        ("denied", "\ud800"),
        ("denied", "a\x00b"),
        ("approved", "AKIA" + "IOSFODNN7EXAMPLE"),
    ],
)
def test_an_answer_that_a_record_cannot_hold_is_refused_before_it_is_stored(
    verdict: str, reason: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        before = await world.kinds(waiting.run_id)

        def vouch(said: Any) -> dict[str, Any]:
            return {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public_key(APPROVER_KEY)), said)}

        with pytest.raises(InvalidInput):
            await operator.answer_approval(
                world.deployment,
                TENANT,
                waiting.run_id,
                approver_id=APPROVER,
                verdict=verdict,
                reason=reason,
                binding_digest=await world.binding_digest(waiting.run_id),
                vouch=vouch,
            )
        assert await world.kinds(waiting.run_id) == before
        assert (await world.approve(waiting.run_id)).state == "completed"
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-ONCE")
@pytest.mark.parametrize("verdicts", [("approved", "approved"), ("approved", "denied"), ("denied", "approved")])
def test_of_two_answers_the_first_counts_and_the_second_is_refused_with_a_reason(
    verdicts: tuple[str, str], tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        world.edit_directory(with_keys)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id, verdicts[0])
        with pytest.raises(ApprovalRefused) as error:
            await world.answer(waiting.run_id, verdicts[1], approver=SECOND, seed=SECOND_KEY)
        assert error.value.reason == "already_answered"
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.state == {"approved": "completed", "denied": "rejected"}[verdicts[0]]
        assert len(world.refunds()) == (verdicts[0] == "approved")
        with pytest.raises(ApprovalRefused):
            await world.answer(waiting.run_id, verdicts[1], approver=SECOND, seed=SECOND_KEY)
        world.close()

    run(go())


async def two_that_wait_on_one_act(world: TestWorld) -> tuple[str, str]:
    first, second = [await world.invoke(request(4200, f"req_{number}")) for number in (1, 2)]
    asked = [(await open_question(world, one.run_id))[2] for one in (first, second)]
    assert bound_denial(asked[0]["binding"]) == bound_denial(asked[1]["binding"])
    return first.run_id, second.run_id


@pytest.mark.requirement("T-APPROVAL-ONCE")
def test_one_act_can_be_denied_in_every_run_that_asks_for_it(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        for run_id in await two_that_wait_on_one_act(world):
            assert (await world.approve(run_id, "denied")).state == "rejected"
            assert (await world.kinds(run_id)).count("approval.answered") == 1
        assert world.refunds() == []
        await world.aclose()

    run(go())


@pytest.mark.requirement("T-APPROVAL-ONCE")
def test_an_answer_that_lost_to_something_else_while_its_question_is_open_may_be_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        first, second = await two_that_wait_on_one_act(world)
        await signer(world.deployment.ports, TENANT, APPROVER)
        commit = MemoryStore.commit

        async def overtaken(store: MemoryStore, batch: Batch) -> None:
            monkeypatch.undo()
            assert batch.run == second
            await world.answer(first, "denied")
            await commit(store, batch)

        monkeypatch.setattr(MemoryStore, "commit", overtaken)
        with pytest.raises(Conflict):
            await world.answer(second, "denied")
        assert (await world.approve(second, "denied")).state == "rejected"
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-ONCE")
def test_a_redeemed_approval_pays_once_however_often_the_run_is_driven(tmp_path: Path, shared_stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=shared_stores)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        drives = [world.deployment.advance(TENANT, waiting.run_id) for _ in range(8)]
        assert {one.state for one in await asyncio.gather(*drives)} == {"completed"}
        assert len(world.refunds()) == 1
        await audited(world, await world.deployment.view(TENANT, waiting.run_id))
        await world.aclose()

    run(go())


async def attempt(made: Awaitable[None]) -> str:
    try:
        await made
    except ApprovalRefused as refused:
        return refused.reason
    return "counted"


@pytest.mark.requirement("T-APPROVAL-ONCE")
def test_of_answers_given_at_the_same_time_in_one_loop_one_counts(tmp_path: Path, shared_stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=shared_stores)
        world.edit_directory(with_keys)
        for number in range(5):
            waiting = await world.invoke(request(4200 + number, f"req_{number}", order_id="ord_895"))
            outcomes = await asyncio.gather(
                attempt(world.answer(waiting.run_id)),
                attempt(world.answer(waiting.run_id, "denied", approver=SECOND, seed=SECOND_KEY)),
                attempt(world.answer(waiting.run_id, approver=SECOND, seed=SECOND_KEY)),
            )
            assert sorted(outcomes) == ["already_answered", "already_answered", "counted"]
            assert (await world.kinds(waiting.run_id)).count("approval.answered") == 1
        await world.aclose()

    run(go())


@pytest.mark.requirement("T-APPROVAL-ONCE")
def test_of_answers_given_at_the_same_time_by_threads_one_counts(tmp_path: Path, shared_stores: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=shared_stores)
        world.edit_directory(with_keys)
        for number in range(3):
            waiting = await world.invoke(request(4200 + number, f"req_{number}", order_id="ord_895"))
            start = threading.Barrier(4, timeout=60)

            async def answer(seed: bytes, approver: str, run_id: str, start: threading.Barrier) -> str:
                # A server's connections belong to one event loop, so there each thread comes with its own store.
                mine = world if shared_stores == "sqlite" else await open_world(tmp_path, stores=shared_stores)
                start.wait()
                outcomes = await attempt(mine.answer(run_id, approver=approver, seed=seed))
                if mine is not world:
                    await mine.aclose()
                return outcomes

            people = [(APPROVER_KEY, APPROVER), (SECOND_KEY, SECOND)] * 2
            outcomes = await asyncio.gather(
                *(asyncio.to_thread(lambda one: run(answer(*one)), (*who, waiting.run_id, start)) for who in people)
            )
            assert sorted(outcomes) == ["already_answered"] * 3 + ["counted"]
            await world.deployment.advance(TENANT, waiting.run_id)
        assert [refund["amount_inr"] for refund in world.refunds()] == [4200, 4201, 4202]
        await world.aclose()

    run(go())


@pytest.mark.requirement("T-APPROVAL-DEADLINE")
@pytest.mark.parametrize(("past_us", "counts"), [(-10_000_000, True), (1, False), (3600 * 1_000_000, False)])
def test_an_answer_counts_until_the_deadline_on_the_stores_clock(
    stores: str, past_us: int, counts: bool, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        world.clock.at_us = (waiting.waiting or {})["deadline_us"] + past_us
        assert await attempt(world.answer(waiting.run_id)) == ("counted" if counts else "expired")
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.state == ("completed" if counts else "escalated")
        assert len(world.refunds()) == counts
        if not counts:
            assert await attempt(world.answer(waiting.run_id)) == "expired"
        await world.aclose()

    run(go())


@pytest.mark.requirement("T-APPROVAL-DEADLINE")
def test_an_answer_whose_deadline_passes_between_the_check_and_the_commit_is_expired(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        deadline = (waiting.waiting or {})["deadline_us"]

        def vouch(said: Any) -> dict[str, Any]:
            # The approver takes their time: the operator's check was before, the store's check is after.
            world.clock.at_us = deadline - 1_500
            return {"kind": "jws", "token": sign_approval(APPROVER_KEY, kid_of(public_key(APPROVER_KEY)), said)}

        answered = operator.answer_approval(
            world.deployment,
            TENANT,
            waiting.run_id,
            approver_id=APPROVER,
            verdict="approved",
            reason="t",
            binding_digest=await world.binding_digest(waiting.run_id),
            vouch=vouch,
        )
        assert await attempt(answered) == "expired"
        assert "approval.answered" not in await world.kinds(waiting.run_id)
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-DEADLINE", "T-APPROVAL-ONCE")
def test_an_answer_and_the_expiry_at_one_moment_have_one_winner(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        for number, early_us in enumerate((6_000, 4_000, 3_000, 2_000, 1_000, 0)):
            waiting = await world.invoke(request(4200 + number, f"req_{number}", order_id="ord_895"))
            world.clock.at_us = (waiting.waiting or {})["deadline_us"] - early_us
            outcomes, _ = await asyncio.gather(
                attempt(world.answer(waiting.run_id)), world.deployment.advance(TENANT, waiting.run_id)
            )
            world.clock.at_us += 10_000
            await world.deployment.advance(TENANT, waiting.run_id)
            kinds = await world.kinds(waiting.run_id)
            assert kinds.count("approval.answered") + kinds.count("approval.expired") == 1
            assert (outcomes == "counted") == ("approval.answered" in kinds)
            view = await world.deployment.view(TENANT, waiting.run_id)
            assert view.ended
        await world.aclose()

    run(go())


@pytest.mark.requirement("R-CANCEL", "T-APPROVAL-ONCE")
def test_an_answer_after_the_cancellation_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="a mistake")
        assert await attempt(world.answer(waiting.run_id)) == "already_answered"
        await world.deployment.advance(TENANT, waiting.run_id)
        assert await attempt(world.answer(waiting.run_id)) == "already_answered"
        assert world.refunds() == []
        world.close()

    run(go())


def test_cancelling_twice_is_one_wish(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="a mistake")
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="again")
        assert (await world.kinds(waiting.run_id)).count("run.cancel_requested") == 1
        await world.deployment.advance(TENANT, waiting.run_id)
        assert (await world.deployment.view(TENANT, waiting.run_id)).state == "cancelled"
        world.close()

    run(go())


@pytest.mark.requirement("T-APPROVAL-SHOWN")
def test_the_approver_sees_the_call_and_its_evidence(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        shown = (waiting.waiting or {})["shown"]
        assert shown["args"] == {"order_id": "ord_881", "amount_inr": 4200, "currency": "INR"}
        assert shown["requester"] == ["user:usr_771", "agent:agent:contextos/support-refund@1.2.0"]
        assert {item["name"] for item in shown["evidence"]} == {"order_lookup", "policy.eval", "identity_verified"}
        assert json.dumps(shown).isascii()
        world.close()

    run(go())


@pytest.mark.requirement("R-UPGRADE")
def test_a_run_that_waits_survives_an_upgrade_of_the_runtime_and_its_settings(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        world.deployment.config = replace(
            world.deployment.config, runtime_version="9.9.9", profile="service", unsafe=("unsafe_unsigned_packs",)
        )
        view = await world.approve(waiting.run_id)
        assert view.record is not None
        assert (view.state, view.record["lineage"]["runtime_version"] != "9.9.9") == ("completed", True)
        world.deployment.config = replace(world.deployment.config, runtime_version="9.9.10")
        await replay(world.deployment, TENANT, view.run_id)
        world.close()

    run(go())
