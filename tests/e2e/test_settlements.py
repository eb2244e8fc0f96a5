"""What is not known to have happened is settled by an operator, signed, on record; no other word moves money again.

In each world the refund was paid once and its reply was lost, with a payment service that knows neither keys nor
look-ups. What does not count must leave the act claimed, so that the same refund asked for again is not paid again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterReply, CallContext
from contextos.contracts.journal import Batch, Write
from contextos.deployment import operator
from contextos.deployment.acts.act import unsafe_local_assertion
from contextos.errors import ApprovalRefused, ChainBroken, InvalidInput, LostReply, Unavailable
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement
from contextos.trust.journal.chain import append
from contextos.trust.seal import kid_of
from tests.e2e.test_verdicts import Wrapped, audited
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    OPERATOR,
    OPERATOR_KEY,
    TENANT,
    TestWorld,
    open_world,
    public_key,
    request,
    run,
)

AMOUNT = 2500
STRANGER_KEY = bytes(range(9, 41))
PAID = {"transaction_id": "txn_seen", "refund_amount_inr": AMOUNT, "currency": "INR"}
HAPPENED = operator.SettlementInput(True, OPERATOR, "kg:order:ord_881#snapshot_kg_1", PAID, ("refund:txn_seen",))
DID_NOT = operator.SettlementInput(False, OPERATOR, "kg:order:ord_881#snapshot_kg_1")


@dataclass
class Lossy(Wrapped):
    """Payments whose first reply is lost on the way back."""

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        reply = await super().call(capability, args, context)
        if len(self.calls) == 1:
            raise LostReply("the reply was lost")
        return reply


async def uncertain(path: Path, **options: Any) -> tuple[TestWorld, str]:
    world = await open_world(path, payments="none", **options)
    world.adapters["adp_payments"] = Lossy(world.adapters["adp_payments"])  # type: ignore[assignment]
    view = await world.invoke(request(AMOUNT, "req_1"))
    assert (view.waiting or {})["for"] == "settlement"
    assert len(world.refunds()) == 1
    return world, view.run_id


async def act_state(world: TestWorld) -> str:
    (act,) = await world.stores.tenant(TENANT).scan("keys")
    return str(orjson.loads(act.body)["state"])


async def still_uncertain(world: TestWorld, run_id: str) -> None:
    """Nothing was released: the same refund is not paid again, and an operator can still settle the first."""
    view = await world.deployment.view(TENANT, run_id)
    assert (view.waiting or {})["for"] == "settlement"
    assert await act_state(world) == "claimed"
    assert "effect.settled" not in await world.kinds(run_id)
    again = await world.invoke(request(AMOUNT, "req_2"))
    assert not again.ended
    assert len(world.refunds()) == 1
    view = await world.settle(run_id, HAPPENED)
    assert view.state == "completed"
    assert await act_state(world) == "completed"
    await audited(world, view)
    await world.deployment.advance(TENANT, again.run_id)
    again = await world.deployment.view(TENANT, again.run_id)
    assert again.state == "completed", "the second request gets what the first one gave"
    assert len(world.refunds()) == 1


def jws(seed: bytes, sign: Any = sign_settlement, **changed: Any) -> operator.SignStatement:
    def vouch(said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"kind": "jws", "token": sign(seed, kid_of(public_key(seed)), {**said, **changed})}

    return vouch


def person(approver_id: str, seed: bytes = OPERATOR_KEY, **more: Any) -> Callable[[dict[str, Any]], None]:
    """Puts somebody with the operator's role into the directory."""

    def change(tenant: dict[str, Any]) -> None:
        public = public_key(seed)
        one = {
            "approver_id": approver_id,
            "roles": ["operator"],
            "granted_by": {"operator": "user_coo_1"},
            "keys": [{"kid": kid_of(public), "public_key": public.hex()}],
            **more,
        }
        others = [other for other in tenant["approvers"] if other["approver_id"] != approver_id]
        tenant["approvers"] = [*others, one]

    return change


def as_it_is(_tenant: dict[str, Any]) -> None:
    """The directory of the example."""


AGENT = "agent:contextos/support-refund@1.2.0"
OTHER_CALL = {"tool_call_id": "tool_0000000000000000"}
REFUSED: dict[str, tuple[str, Callable[[dict[str, Any]], None], operator.SignStatement, str]] = {
    "the requester": ("usr_771", person("usr_771"), jws(OPERATOR_KEY), "self_settlement"),
    "the requester, unknown as anything else": ("usr_771", as_it_is, jws(OPERATOR_KEY), "self_settlement"),
    "the agent": ("agt_support", person("agt_support"), jws(OPERATOR_KEY), "self_settlement"),
    "the agent by its urn": (AGENT, person(AGENT), jws(OPERATOR_KEY), "self_settlement"),
    "the agent's owner": ("usr_owner_1", person("usr_owner_1"), jws(OPERATOR_KEY), "self_settlement"),
    "a stranger": ("user_ops_1", as_it_is, jws(OPERATOR_KEY), "not_operator"),
    "an approver": (APPROVER, as_it_is, jws(APPROVER_KEY), "not_operator"),
    "who lost the role": (OPERATOR, person(OPERATOR, roles=[]), jws(OPERATOR_KEY), "not_operator"),
    "who gave it to themselves": (
        OPERATOR,
        person(OPERATOR, granted_by={"operator": OPERATOR}),
        jws(OPERATOR_KEY),
        "self_granted",
    ),
    "whom nobody gave it": (OPERATOR, person(OPERATOR, granted_by={}), jws(OPERATOR_KEY), "not_granted"),
    "without a key": (OPERATOR, person(OPERATOR, keys=[]), jws(OPERATOR_KEY), "assertion_invalid"),
    "another's key": (OPERATOR, as_it_is, jws(STRANGER_KEY), "assertion_invalid"),
    "a token for approvals": (OPERATOR, as_it_is, jws(OPERATOR_KEY, sign_approval), "assertion_invalid"),
    "of another call": (OPERATOR, as_it_is, jws(OPERATOR_KEY, **OTHER_CALL), "assertion_invalid"),
    "of another run": (OPERATOR, as_it_is, jws(OPERATOR_KEY, run_id="run_0000000000000000"), "assertion_invalid"),
    "the other outcome": (OPERATOR, as_it_is, jws(OPERATOR_KEY, happened=True), "assertion_invalid"),
    "other evidence": (OPERATOR, as_it_is, jws(OPERATOR_KEY, evidence_ref="memory:x"), "assertion_invalid"),
    "no token": (OPERATOR, as_it_is, lambda _: {"kind": "jws"}, "assertion_invalid"),
    "no kind": (OPERATOR, as_it_is, lambda _: {}, "assertion_invalid"),
    "unsigned": (OPERATOR, as_it_is, unsafe_local_assertion, "unsafe_not_allowed"),
}


@pytest.mark.requirement("T-SETTLEMENT", "A-SAME-ACT")
@pytest.mark.parametrize("name", REFUSED)
def test_a_settlement_that_does_not_count_releases_nothing(name: str, tmp_path: Path) -> None:
    by, change, vouch, reason = REFUSED[name]

    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        before = (tmp_path / "directory.json").read_bytes()
        world.edit_directory(change)
        with pytest.raises(ApprovalRefused) as refused:
            await operator.settle_effect(world.deployment, TENANT, run_id, replace(DID_NOT, by=by), vouch=vouch)
        assert refused.value.reason == reason
        (tmp_path / "directory.json").write_bytes(before)
        await still_uncertain(world, run_id)
        world.close()

    run(go())


UNFIT: dict[str, tuple[operator.SettlementInput, str]] = {
    "no reference": (replace(DID_NOT, evidence_ref=""), "/evidence_ref"),
    "no such reference": (replace(DID_NOT, evidence_ref="bank:1"), "/evidence_ref"),
    "a long mutation": (replace(HAPPENED, mutations=("m" * 600,)), "/mutations/0"),
    "no output": (replace(HAPPENED, output=None), ""),
    "an output of nothing": (replace(DID_NOT, output=PAID), ""),
    "a mutation of nothing": (replace(DID_NOT, mutations=("refund:x",)), ""),
    "an output that does not fit": (replace(HAPPENED, output={"paid": True}), "/output"),
    "a hidden character": (replace(HAPPENED, output={**PAID, "transaction_id": "t\u202ex"}), "/output/transaction_id"),
    "a hidden mutation": (replace(HAPPENED, mutations=("refund\u202e",)), "/mutations/0"),
    "a large output": (replace(HAPPENED, output={**PAID, "transaction_id": "t" * 1_100_000}), "/output"),
}


@pytest.mark.requirement("T-SETTLEMENT")
@pytest.mark.parametrize("name", UNFIT)
def test_a_settlement_that_a_run_could_not_go_by_is_refused_before_it_is_kept(name: str, tmp_path: Path) -> None:
    settlement, pointer = UNFIT[name]

    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        with pytest.raises(InvalidInput) as refused:
            await world.settle(run_id, settlement)
        assert refused.value.problems[0].pointer == pointer
        assert refused.value.problems[0].remedy
        await still_uncertain(world, run_id)
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_a_settlement_is_redacted_before_it_is_signed_and_stored(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        signed: list[Mapping[str, Any]] = []

        def vouch(said: Mapping[str, Any]) -> Mapping[str, Any]:
            signed.append(said)
            return jws(OPERATOR_KEY)(said)

        settlement = replace(HAPPENED, output={**PAID, "transaction_id": "4111 1111 1111 1111"})
        await operator.settle_effect(world.deployment, TENANT, run_id, settlement, vouch=vouch)
        await world.deployment.advance(TENANT, run_id)
        view = await world.deployment.view(TENANT, run_id)
        assert (view.record or {})["outputs"]["transaction_id"] == "[redacted:pan]"
        raw = b"".join(entry.body or b"" for entry in await world.stores.tenant(TENANT).read(run_id))
        assert b"4111 1111" not in raw
        assert signed[0]["output"] == {**PAID, "transaction_id": "[redacted:pan]"}
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT", "A-DEFINITION-PINNED")
def test_a_settlement_must_fit_the_definition_that_was_pinned(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        payments: Any = world.adapters["adp_payments"]
        pinned = payments.inner.describe()
        act = pinned.capabilities[0]
        schema = {"type": "object", "properties": {"receipt": {"type": "string"}}, "additionalProperties": False}
        payments.definition = pinned.model_copy(
            update={"capabilities": (act.model_copy(update={"output_schema": schema}), *pinned.capabilities[1:])}
        )
        with pytest.raises(InvalidInput):
            await world.settle(run_id, replace(HAPPENED, output={"receipt": "r"}))
        view = await world.settle(run_id, HAPPENED)
        assert view.state == "completed"
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_a_deployment_without_the_adapter_can_still_settle(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        del world.adapters["adp_payments"]
        assert (await world.settle(run_id, HAPPENED)).state == "completed"
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_an_unsigned_settlement_counts_where_the_settings_allow_it_and_the_record_says_so(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, unsafe=("unsafe_local_approvals",))
        with pytest.raises(ApprovalRefused) as refused:
            await operator.settle_effect(
                world.deployment, TENANT, run_id, replace(HAPPENED, by=APPROVER), vouch=unsafe_local_assertion
            )
        assert refused.value.reason == "not_operator"
        await operator.settle_effect(world.deployment, TENANT, run_id, HAPPENED, vouch=unsafe_local_assertion)
        await world.deployment.advance(TENANT, run_id)
        view = await world.deployment.view(TENANT, run_id)
        assert view.state == "completed"
        assert "unsafe_local_approvals" in str((view.record or {})["lineage"]["unsafe"])
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_what_did_not_happen_may_be_asked_for_again(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        with sqlite3.connect(world.path / "shop.db") as books:
            books.execute("DELETE FROM refunds")
        view = await world.settle(run_id, DID_NOT)
        assert view.state == "escalated"
        assert await act_state(world) == "released"
        await audited(world, view)
        assert (await world.invoke(request(AMOUNT, "req_2"))).state == "completed"
        assert len(world.refunds()) == 1
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT", "P-ACTS")
def test_settling_only_puts_it_on_record_and_the_run_concludes_the_act(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        await world.settle(run_id, HAPPENED, drive=False)
        assert await act_state(world) == "claimed"
        control = await world.stores.tenant(TENANT).read("control")
        assert (control[-1].kind, control[-1].by) == ("effect.settled", OPERATOR)
        with pytest.raises(ApprovalRefused) as refused:
            await world.settle(run_id, DID_NOT)
        assert refused.value.reason == "not_waiting"
        await world.deployment.advance(TENANT, run_id)
        assert await act_state(world) == "completed"
        with pytest.raises(ApprovalRefused) as refused:
            await world.settle(run_id, DID_NOT)
        assert refused.value.reason == "not_waiting"
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_of_two_settlements_at_once_one_counts(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        directory: Any = world.deployment.ports.directory
        known = directory.approver

        async def overtaken(tenant_id: str, approver_id: str) -> Any:
            directory.approver = known
            await world.settle(run_id, HAPPENED, drive=False)
            return await known(tenant_id, approver_id)

        directory.approver = overtaken
        with pytest.raises(ApprovalRefused) as refused:
            await world.settle(run_id, DID_NOT)
        assert refused.value.reason == "already_answered"
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "completed"
        assert (await world.kinds(run_id)).count("effect.settled") == 1
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
@pytest.mark.parametrize("kind", ["identity.resolved", "tool.dispatching"])
def test_an_effect_whose_dispatch_was_erased_cannot_be_settled(kind: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        entries = await world.stores.tenant(TENANT).read(run_id)
        seqs = [entry.seq for entry in entries if entry.kind == kind]
        seq = seqs[0 if kind == "identity.resolved" else -1]
        await operator.erase_entry(world.deployment, TENANT, run_id, seq, by=world.actor(), reason="x")
        with pytest.raises(ApprovalRefused) as refused:
            await world.settle(run_id, DID_NOT)
        assert refused.value.reason == "not_waiting"
        assert await act_state(world) == "claimed"
        world.close()

    run(go())


def plain(**changed: Any) -> dict[str, Any]:
    return {
        "happened": False,
        "by": OPERATOR,
        "evidence_ref": "kg:order:ord_881#snapshot_kg_1",
        "output": None,
        "mutations": [],
        "assertion": {"kind": "unsafe_local"},
        **changed,
    }


def signed_for(run_id: str, call: str, seed: bytes, body: dict[str, Any]) -> dict[str, Any]:
    said = {
        "run_id": run_id,
        "tool_call_id": call,
        "happened": body["happened"],
        "output_digest": content_address(body["output"]),
        "mutations": body["mutations"],
        "evidence_ref": body["evidence_ref"],
        "by": body["by"],
    }
    return {**body, "assertion": jws(seed)(said)}


FORGED: dict[str, Callable[[str, str], Any]] = {
    "as it was before settlements were signed": lambda _run, _call: {
        name: value for name, value in plain(by="usr_771", evidence_ref="").items() if name != "assertion"
    },
    "unsigned": lambda _run, _call: plain(),
    "by the requester": lambda run_id, call: signed_for(run_id, call, OPERATOR_KEY, plain(by="usr_771")),
    "by a stranger": lambda run_id, call: signed_for(run_id, call, STRANGER_KEY, plain(by="user_ops_1")),
    "with a stranger's key": lambda run_id, call: signed_for(run_id, call, STRANGER_KEY, plain()),
    "of another run": lambda _run, call: signed_for("run_0000000000000000", call, OPERATOR_KEY, plain()),
    "of another call": lambda run_id, _call: signed_for(run_id, "tool_0000000000000000", OPERATOR_KEY, plain()),
    "a long mutation": lambda run_id, call: signed_for(
        run_id, call, OPERATOR_KEY, plain(happened=True, output=PAID, mutations=["m" * 600])
    ),
    "with more than there is": lambda run_id, call: signed_for(run_id, call, OPERATOR_KEY, plain()) | {"more": 1},
    "with nothing": lambda _run, _call: {},
}


async def waits_for(world: TestWorld, run_id: str) -> str:
    waiting = (await world.deployment.view(TENANT, run_id)).waiting
    assert waiting is not None
    return str(waiting["for"])


async def forge(world: TestWorld, run_id: str, settlement: Any) -> int:
    """Append a settlement past the operator's checks, as any process with store access can."""
    store = world.stores.tenant(TENANT)
    entries = await store.read(run_id)
    key = [entry.key for entry in entries if entry.kind == "tool.dispatching"][-1].rsplit("/", 1)[0]
    entry = append(
        entries, "effect.settled", key, by=OPERATOR, answer=settlement, at_us=world.clock.now_us(), salt=bytes(16)
    )
    await store.commit(Batch(run=run_id, entries=(entry,), wake_at_us=world.clock.now_us()))
    return entry.seq


@pytest.mark.requirement("T-SETTLEMENT", "A-SAME-ACT")
@pytest.mark.parametrize("stores", ["memory", "sqlite"])
@pytest.mark.parametrize("name", FORGED)
def test_a_settlement_appended_past_the_operators_checks_releases_nothing_and_the_run_waits_on(
    name: str, stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores=stores)
        entries = await world.stores.tenant(TENANT).read(run_id)
        sent = [orjson.loads(entry.body or b"") for entry in entries if entry.kind == "tool.dispatching"][-1]
        await forge(world, run_id, FORGED[name](run_id, sent["envelope"]["tool_call_id"]))
        for _ in range(2):
            await world.deployment.advance(TENANT, run_id)
            assert await waits_for(world, run_id) == "settlement", "nothing goes on from it"
        assert await act_state(world) == "claimed"
        assert not (await world.invoke(request(AMOUNT, "req_2"))).ended
        view = await world.settle(run_id, HAPPENED)
        assert view.state == "completed", "the operator can still settle it"
        with pytest.raises(ChainBroken, match=f"`{run_id}` entry"):
            await replay(world.deployment, TENANT, run_id)
        assert len(world.refunds()) == 1
        world.close()

    run(go())


@pytest.mark.requirement("T-SETTLEMENT")
def test_who_loses_the_role_before_the_run_goes_on_has_not_settled_it(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        await world.settle(run_id, HAPPENED, drive=False)
        before = (tmp_path / "directory.json").read_bytes()
        world.edit_directory(person(OPERATOR, roles=["finance_lead"]))
        await world.deployment.advance(TENANT, run_id)
        assert await waits_for(world, run_id) == "settlement", "an operator is asked again"
        assert await act_state(world) == "claimed"
        (tmp_path / "directory.json").write_bytes(before)
        view = await world.settle(run_id, HAPPENED)
        assert view.state == "completed"
        world.edit_directory(person(OPERATOR, roles=[]))
        await audited(world, view)
        world.close()

    run(go())


def test_an_act_that_somebody_released_in_the_store_is_not_concluded_by_a_settlement(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path)
        store = world.stores.tenant(TENANT)
        (act,) = await store.scan("keys")
        body = orjson.dumps({**orjson.loads(act.body), "state": "released"})
        await store.commit(Batch(run=run_id, writes=(Write("keys", act.key, act.version, body),)))
        with pytest.raises(Unavailable):
            await world.settle(run_id, HAPPENED)
        assert not (await world.deployment.view(TENANT, run_id)).ended
        world.close()

    run(go())


CANCELLERS = {
    "usr_771": None,
    "usr_owner_1": None,
    OPERATOR: None,
    "usr_772": "not_allowed",
    "user_ops_1": "unknown_actor",
    APPROVER: "not_allowed",
    "agt_support": "unknown_actor",
    "": "unknown_actor",
}


@pytest.mark.requirement("R-CANCEL")
@pytest.mark.parametrize(("by", "reason"), CANCELLERS.items())
def test_who_asked_the_agents_owner_and_operators_may_cancel(by: str, reason: str | None, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        if by in ("usr_771", "usr_772", "usr_owner_1", APPROVER):
            world.know(by)
        waiting = await world.invoke(request(4200, "req_1"))
        if reason is None:
            await operator.request_cancel(
                world.deployment, TENANT, waiting.run_id, by=world.actor(by), reason="a mistake"
            )
            await world.deployment.advance(TENANT, waiting.run_id)
            assert (await world.deployment.view(TENANT, waiting.run_id)).state == "cancelled"
        else:
            with pytest.raises(ApprovalRefused) as refused:
                await operator.request_cancel(
                    world.deployment, TENANT, waiting.run_id, by=world.actor(by), reason="a mistake"
                )
            assert refused.value.reason == reason
            assert "run.cancel_requested" not in await world.kinds(waiting.run_id)
            assert not await world.stores.tenant(TENANT).scan("cancels")
            seed = OPERATOR_KEY if by == APPROVER else APPROVER_KEY
            assert (await world.approve(waiting.run_id, seed=seed)).state == "completed"
        world.close()

    run(go())


@pytest.mark.requirement("R-CANCEL")
def test_where_it_was_erased_who_asked_only_an_operator_may_cancel(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        entries = await world.stores.tenant(TENANT).read(waiting.run_id)
        seq = next(one.seq for one in entries if one.kind == "identity.resolved")
        await operator.erase_entry(world.deployment, TENANT, waiting.run_id, seq, by=world.actor(), reason="x")
        with pytest.raises(ApprovalRefused) as refused:
            await operator.request_cancel(
                world.deployment, TENANT, waiting.run_id, by=world.actor("usr_771"), reason="x"
            )
        assert refused.value.reason == "unknown_actor"
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="x")
        assert await world.stores.tenant(TENANT).scan("cancels")
        world.close()

    run(go())


@pytest.mark.parametrize(("amount", "state"), [(AMOUNT, "waiting"), (8000, "cancelled")])
def test_a_cancel_beside_a_run_that_begins_to_wait_leaves_no_run_due(
    amount: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 412 of the simulator: the request to stop had seen a running run, and woke one that waited for a person."""

    async def act() -> None:
        world = await open_world(tmp_path, payments="none")
        world.adapters["adp_payments"] = Lossy(world.adapters["adp_payments"])  # type: ignore[assignment]
        view = await world.invoke(request(amount, "req_1") | {"mode": "long_running"})
        assert (view.state, view.waiting) == ("received", {"for": "engine"})
        propose = operator.propose_act

        def propose_late(*args: Any, **options: Any) -> Any:
            async def write(control: Any) -> Any:
                assert (await world.deployment.advance(TENANT, view.run_id)).state == "waiting"
                return await args[-1](control)

            return propose(*args[:-1], write, **options)

        monkeypatch.setattr(operator, "propose_act", propose_late)
        await operator.request_cancel(world.deployment, TENANT, view.run_id, by=world.actor(), reason="a mistake")
        await world.deployment.advance(TENANT, view.run_id)
        assert (await world.deployment.view(TENANT, view.run_id)).state == state
        assert [one async for one in world.stores.due(world.clock.now_us())] == []
        world.close()

    run(act())
