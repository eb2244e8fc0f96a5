"""Proof 2: every way to be refused is a typed verdict with a record, and none of them has an effect.

One row per line of the failure tables (Reference Architecture, "Failure semantics"; How It Works, "Failure modes that
block execution"; contracts.md, "Run"). Each row is run, its record and its end are compared, the shop's own database is
looked into, the journal is verified, and the run is replayed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

from contextos.audit import verify
from contextos.audit.replay import replay
from contextos.cli.command_context import exit_code_of
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, ToolError
from contextos.contracts.envelopes.verdicts import FailureCode
from contextos.contracts.journal import Entry
from contextos.decision.planners import template
from contextos.deployment import operator
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ConflictingRequest, InvalidInput, LostReply, NotFound, Unavailable
from contextos.runtime.attempts import planning
from contextos.runtime.environment import RunLimits
from contextos.store.shared.clock import SystemClock
from tests.world import APPROVER, OPERATOR, TENANT, TestWorld, open_world, request, run

Body = dict[str, Any]


@dataclass
class Wrapped:
    """An adapter whose answer, or whose definition, a test changes; counts what reaches it."""

    inner: Any
    answer: Callable[[AdapterReply], AdapterReply] = lambda reply: reply
    definition: AdapterDefinition | None = None
    calls: list[Mapping[str, Any]] = field(default_factory=list)

    def describe(self) -> AdapterDefinition:
        return self.definition or self.inner.describe()

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        self.calls.append(dict(args))
        return self.answer(await self.inner.call(capability, args, context))

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return await self.inner.lookup(capability, idempotency_key, context)


def said(**output: Any) -> Callable[[AdapterReply], AdapterReply]:
    return lambda reply: reply.model_copy(update={"output": {**(reply.output or {}), **output}})


def edited(*path: str | int, to: Any) -> Callable[[Body], None]:
    """A change of the pack at one place; `to` can be a function of the value there."""

    def change(body: Body) -> None:
        node: Any = body
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = to(node[path[-1]]) if callable(to) else to

    return change


TEMPLATE = ("decision_layer", "task_templates", 0)


def bound(source: str, place: str) -> dict[str, str]:
    return {"from": source, "pointer": place}


RULES = ("policy_layer", "policy_bundles", 0, "policy_dsl", "rules")


def all_of(*changes: Callable[[Body], None]) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        for one in changes:
            one(body)

    return change


def three_lookups(steps: list[Body]) -> list[Body]:
    again = [{**copy.deepcopy(steps[0]), "id": f"again_{number}"} for number in (1, 2)]
    return [steps[0], *again, *steps[1:]]


def templates(*changes: Callable[[Body], None]) -> Callable[[Body], None]:
    """The pack with one more template per change, each eligible, in order after the first."""

    def change(body: Body) -> None:
        layer = body["decision_layer"]
        first = layer["task_templates"][0]
        for number, one in enumerate(changes, start=2):
            made = copy.deepcopy(first)
            made["template_id"] = f"task_refund_{number}"
            one(made)
            layer["task_templates"].append(made)
            layer["intents"][0]["eligible_task_templates"].append(made["template_id"])

    return change


def nowhere(body: Body) -> None:
    """The first template's checkpoint needs evidence that only another template's steps produce."""
    first = body["decision_layer"]["task_templates"][0]
    first["steps"] = [step for step in first["steps"] if step["id"] != "s1"]
    for step in first["steps"]:
        step["depends_on"] = [name for name in step.get("depends_on", []) if name != "s1"]


def with_lookup(template: Body) -> None:
    """Undo what `nowhere` did, for a template that was copied from it."""
    template["steps"].insert(
        0,
        {
            "id": "s1",
            "tool": "adp_orders.lookup",
            "approval_mode": "read_only",
            "params": {"order_id": {"from": "request", "pointer": "/input/context/order_id"}},
        },
    )
    template["steps"][1]["depends_on"] = ["s1"]


def hidden(body: Body) -> None:
    """Nothing allows a refund at compile, so policy hides it."""
    body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].insert(
        0,
        {
            "rule_id": "R_CLOSED",
            "applies_to": {"capability": "adp_payments.issue_refund", "point": "compile"},
            "if": {"==": [{"var": "tenant.tenant_id"}, TENANT]},
            "then": {"allow": False},
            "rationale": "closed today",
        },
    )


def reads_freeze(body: Body) -> None:
    """A rule reads evidence that retrieval looks for, and that no customer of the example has."""
    refs = body["intelligence_refs"]
    refs["ontology"]["relationship_types"].append("change_freeze")
    refs["retrieval"]["evidence"].append({"name": "change_freeze", "seed": 0, "path": ["placed_by", "change_freeze"]})
    edited(*RULES, 4, "if", to={"==": [{"var": "evidence.change_freeze"}, True]})(body)


@dataclass
class Case:
    """A request and a world, and the verdict that they must come to."""

    code: FailureCode
    end: str
    amount: int = 2500
    order: str = "ord_881"
    request: Callable[[Body], None] = lambda body: None
    pack: Callable[[Body], None] = lambda body: None
    directory: Callable[[Body], None] | None = None
    wrap: dict[str, Any] = field(default_factory=dict)
    without: str | None = None
    limits: RunLimits = RunLimits()  # noqa: RUF009
    reaches: dict[str, int] | None = None


def user(name: str) -> Callable[[Body], None]:
    token = {"subject": name, "token_ref": f"tok_{name}"}
    return edited("user", to=lambda stated: {"user_id": name, "delegation": {**stated["delegation"], **token}})


def hint(name: str, value: Any) -> Callable[[Body], None]:
    return lambda body: body["runtime"].__setitem__(name, value)


READS = {"adp_orders": 1, "adp_policy": 1, "adp_payments": 0}
NOTHING = {"adp_orders": 0, "adp_policy": 0, "adp_payments": 0}

CASES: dict[str, Case] = {
    # Who and what: admission.
    "unknown_intent": Case(
        "unknown_intent", "rejected", request=edited("input", "intent", to="support.gift"), reaches=NOTHING
    ),
    "unknown_channel": Case(
        "unknown_intent", "rejected", request=edited("input", to=lambda i: {**i, "channel": "fax"}), reaches=NOTHING
    ),
    "unpinned_ref": Case("unpinned_ref", "rejected", request=edited("context_pack_refs", to=["ctxpack.support"])),
    "range_ref": Case("unpinned_ref", "rejected", request=edited("context_pack_refs", to=["ctxpack.support@^5.0.0"])),
    "unknown_ref": Case("unknown_ref", "rejected", request=edited("context_pack_refs", to=["ctxpack.support@9.9.9"])),
    "unknown_adapter": Case("unknown_ref", "rejected", without="adp_payments"),
    "mode_misstated": Case(
        "unknown_ref", "rejected", pack=edited(*TEMPLATE, "steps", 2, "approval_mode", to="read_only")
    ),
    "unknown_user": Case("identity_refused", "refused", request=user("usr_nobody"), reaches=NOTHING),
    "unknown_agent": Case("identity_refused", "refused", request=edited("agent", "agent_id", to="agt_nobody")),
    "retired_agent": Case(
        "identity_refused",
        "refused",
        request=edited(
            "agent", to={"agent_id": "agt_support_old", "workload_identity": "spiffe://contextos/agents/support-old"}
        ),
    ),
    "claimed_role": Case("identity_refused", "refused", request=edited("user", to=lambda u: {**u, "role": "cfo"})),
    "other_workload": Case(
        "identity_refused",
        "refused",
        request=edited("agent", "workload_identity", to="spiffe://contextos/agents/other"),
    ),
    "undelegated_scope": Case("identity_refused", "refused", request=user("usr_773")),
    "too_many_scopes": Case(
        "identity_refused",
        "refused",
        request=edited("user", "delegation", "scopes", to=["orders.read", "payments.refund", "everything"]),
    ),
    # What may be seen: the manifest.
    "wrong_role": Case(
        "tool_not_in_manifest",
        "rejected",
        reaches=NOTHING,
        request=all_of(user("usr_774"), edited("user", "delegation", "scopes", to=["orders.read"])),
    ),
    "scope_missing": Case(
        "tool_not_in_manifest",
        "rejected",
        reaches=NOTHING,
        request=edited("user", "delegation", "scopes", to=["orders.read"]),
    ),
    "platform_scope_missing": Case(
        "platform_scope_missing",
        "refused",
        reaches=NOTHING,
        directory=edited("agents", 0, "platform_scopes", to=["tools:read"]),
    ),
    "no_permission": Case(
        "tool_not_in_manifest",
        "rejected",
        reaches=NOTHING,
        pack=edited("tooling_layer", "permissions", to=lambda all_: all_[:-1]),
    ),
    "hidden_by_policy": Case("policy_denied", "refused", reaches=NOTHING, pack=hidden),
    "caller_lowers_mode": Case("policy_denied", "refused", reaches=NOTHING, request=hint("safety_mode", "delegated")),
    "pack_ceiling": Case(
        "policy_denied", "refused", reaches=NOTHING, pack=edited("pack_meta", "safety_ceiling", to="delegated")
    ),
    "agent_ceiling": Case(
        "policy_denied", "refused", reaches=NOTHING, directory=edited("agents", 0, "ceiling", to="delegated")
    ),
    "intent_risk": Case(
        "policy_denied",
        "refused",
        reaches=NOTHING,
        pack=edited("decision_layer", "intents", 0, "risk_class", to="delegated"),
    ),
    # What the Critic refuses.
    "evidence_missing": Case("missing_evidence", "escalated", order="ord_890", reaches=NOTHING),
    "order_unknown_to_all": Case("missing_evidence", "escalated", order="ord_999", reaches=NOTHING),
    "parameter_of_another_type": Case(
        "parameter_missing", "rejected", reaches=NOTHING, request=edited("input", "context", "refund_amount", to="2500")
    ),
    "schema_at_plan": Case(
        "schema_mismatch",
        "rejected",
        reaches=NOTHING,
        pack=edited(*TEMPLATE, "steps", 1, "params", "amount_inr", to="2500"),
    ),
    "argument_unresolved": Case(
        "schema_mismatch",
        "rejected",
        reaches=NOTHING,
        pack=edited(*TEMPLATE, "steps", 2, "params", "currency", to=bound("request", "/input/context/none")),
    ),
    # What the Gateway refuses.
    "schema_at_gateway": Case(
        "schema_mismatch",
        "rejected",
        reaches=READS,
        pack=all_of(
            edited(*TEMPLATE, "steps", 2, "params", "amount_inr", to={"from": "step", "pointer": "/s1/currency"}),
            edited(*TEMPLATE, "steps", 2, "depends_on", to=["s1", "s2"]),
        ),
    ),
    "request_and_argument_disagree": Case(
        "argument_out_of_bounds",
        "rejected",
        reaches=READS,
        pack=edited(
            *TEMPLATE, "steps", 2, "params", "amount_inr", to={"from": "step", "pointer": "/s2/refundable_inr"}
        ),
    ),
    "above_permission": Case(
        "argument_out_of_bounds",
        "rejected",
        reaches=READS,
        pack=edited("tooling_layer", "permissions", 2, "arg_constraints", to={"amount_inr": {"min": 1, "max": 2000}}),
    ),
    "above_rule_bound": Case(
        "argument_out_of_bounds",
        "rejected",
        reaches=READS,
        pack=edited(*RULES, 6, "then", "arg_constraints", "amount_inr", to={"max": 2000}),
    ),
    "wrong_currency": Case(
        "argument_out_of_bounds", "rejected", reaches=READS, request=edited("input", "context", "currency", to="USD")
    ),
    "identity_not_verified": Case("policy_denied", "refused", order="ord_896", reaches=READS),
    "not_eligible": Case("policy_denied", "refused", amount=2000, order="ord_883", reaches=READS),
    "more_than_refundable": Case("policy_denied", "refused", amount=9901, reaches=READS),
    "guardrail_escalates": Case("must_escalate", "escalated", amount=200_000, order="ord_895", reaches=READS),
    "guardrail_refuses": Case(
        "policy_denied",
        "refused",
        amount=200_000,
        order="ord_895",
        reaches=READS,
        pack=edited("policy_layer", "guardrails", "must_refuse", to=["R_ABOVE_LIMIT"]),
    ),
    "guardrail_escalates_what_is_allowed": Case(
        "must_escalate",
        "escalated",
        reaches=READS,
        pack=edited("policy_layer", "guardrails", "must_escalate", to=["R_LOW_VALUE_DELEGATED"]),
    ),
    "destructive_without_gate": Case(
        "policy_denied",
        "refused",
        amount=4200,
        reaches=READS,
        pack=edited(
            *RULES, 7, "then", to=lambda then: {k: v for k, v in then.items() if k != "requires_approval_gate"}
        ),
    ),
    "fact_missing_at_policy": Case("policy_eval_error", "refused", reaches=READS, pack=reads_freeze),
    "loop_guard": Case(
        "loop_guard",
        "escalated",
        reaches={"adp_orders": 2, "adp_policy": 0, "adp_payments": 0},
        pack=edited(*TEMPLATE, "steps", to=three_lookups),
    ),
    # What comes back.
    "output_of_other_schema": Case("unsafe_output", "escalated", wrap={"adp_policy": said(eligible="yes")}),
    "output_with_more": Case("unsafe_output", "escalated", wrap={"adp_orders": said(card="x")}),
    "output_with_secret": Case(
        "unsafe_output", "escalated", wrap={"adp_orders": said(customer_id="AKIA" + "IOSFODNN7EXAMPLE")}
    ),
    "output_with_zero_width": Case("unsafe_output", "escalated", wrap={"adp_orders": said(status="deliv\u200bered")}),
    "output_with_bidi": Case("unsafe_output", "escalated", wrap={"adp_orders": said(status="\u202edereviled")}),
    "output_too_large": Case("unsafe_output", "escalated", wrap={"adp_orders": said(status="x" * 1_100_000)}),
    "output_absent": Case("unsafe_output", "escalated", wrap={"adp_orders": lambda reply: AdapterReply()}),
    "order_unknown_to_shop": Case("missing_evidence", "escalated", order="ord_777"),
    # The six budgets, and the deployment's own limits.
    "total_tokens": Case("budget_exhausted", "exhausted", request=hint("total_tokens", 100), reaches=NOTHING),
    "bucket_tokens": Case(
        "budget_exhausted",
        "exhausted",
        reaches=NOTHING,
        pack=edited("pack_meta", "run_budget", "bucket_tokens", "policy", to=10),
    ),
    "max_tool_calls": Case("budget_exhausted", "exhausted", request=hint("max_tool_calls", 2), reaches=NOTHING),
    "max_replan_attempts": Case(
        "budget_exhausted",
        "exhausted",
        order="ord_890",
        reaches=NOTHING,
        pack=templates(lambda template: None),
        request=hint("max_replan_attempts", 0),
    ),
    "wall_clock_ms": Case("budget_exhausted", "exhausted", request=hint("wall_clock_ms", 1), reaches=NOTHING),
    "max_cost_cents": Case("budget_exhausted", "exhausted", request=hint("max_cost_cents", 0.2), reaches=READS),
    "limit_of_deployment": Case("budget_exhausted", "exhausted", limits=RunLimits(max_tool_calls=2), reaches=NOTHING),
    "limit_of_agent": Case(
        "budget_exhausted", "exhausted", reaches=READS, directory=edited("agents", 0, "max_cost_cents", to=0.3)
    ),
}

STATUS = {
    "escalated": "ESCALATED",
    "exhausted": "ESCALATED",
    "rejected": "REJECTED",
    "refused": "REJECTED",
    "cancelled": "REJECTED",
    "completed": "DECIDED",
}


async def opened(path: Path, case: Case) -> tuple[TestWorld, dict[str, Wrapped]]:
    world = await open_world(path, pack=case.pack, limits=case.limits)
    if case.directory:
        world.edit_directory(case.directory)
    wrapped = {name: Wrapped(adapter) for name, adapter in world.adapters.items()}
    for name, answer in case.wrap.items():
        wrapped[name].answer = answer
    world.adapters.update(wrapped)
    if case.without:
        del world.adapters[case.without]
    return world, wrapped


async def audited(world: TestWorld, view: RunView) -> None:
    """What holds for every run: the journal verifies, and a replay comes to the same record."""
    await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    replayed = await replay(world.deployment, TENANT, view.run_id)
    assert view.record is not None
    assert (replayed.status, replayed.record_hash) == (view.record["status"], view.record["record_hash"])


@pytest.mark.requirement(
    "T-FAIL-INTENT",
    "T-FAIL-MANIFEST",
    "T-FAIL-SCHEMA",
    "T-FAIL-POLICY",
    "T-FAIL-BUDGET",
    "T-FAIL-UNSAFE",
    "A-GUARD-AGREE",
    "A-STATUS",
    "R-LIMITS-LOWEST",
    "R-FAIL-TYPED",
    "R-LOOP-GUARD",
    "R-ADMISSION",
)
@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_typed_recorded_and_without_effect(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    async def go() -> None:
        world, wrapped = await opened(tmp_path, case)
        if case.order == "ord_777":
            await known_only_to_the_graph(world, case.order)
        body = request(case.amount, f"req_{name}", order_id=case.order)
        case.request(body)
        view = await world.invoke(body)
        assert view.record is not None
        failures = view.record["rationale"]["failures"]
        assert (failures[0]["code"], view.record["end"]) == (case.code, case.end), failures
        assert (view.state, view.record["status"]) == (case.end, STATUS[case.end])
        assert exit_code_of(view) == 1
        assert failures[0]["detail"]
        assert view.record["outputs"] == {}
        assert world.refunds() == []
        assert not await world.stores.tenant(TENANT).scan("memory")
        assert stopped_as(await world.stores.tenant(TENANT).read(view.run_id)) <= {STOPPED.get(case.code, "blocked")}
        if view.record["lineage"]["pins_digest"] == content_address({}):
            assert (view.record["decision_key"], view.record["decision_version"]) == ("runtime.admission", "1.0.0")
        if case.reaches is not None:
            assert {adapter: len(one.calls) for adapter, one in wrapped.items()} == case.reaches
        await audited(world, view)
        again = await world.invoke(body)
        assert (again.run_id, again.record) == (view.run_id, view.record)
        world.close()

    run(go())


STOPPED = {"tool_not_in_manifest": "rejected", "schema_mismatch": "rejected", "argument_out_of_bounds": "rejected"}


def stopped_as(entries: Sequence[Entry]) -> set[str]:
    """The statuses of the calls that were refused on their way."""
    return {orjson.loads(entry.body or b"")["envelope"]["status"] for entry in entries if entry.kind == "tool.refused"}


async def known_only_to_the_graph(world: TestWorld, order: str) -> None:
    await world.put_facts(
        [
            {
                "src": f"order:{order}",
                "predicate": "placed_by",
                "dst": "customer:cus_77",
                "evidence_ref": f"artifact:order_{order}#rev_1",
                "observed_at": "2026-05-03T09:30:00Z",
                "integrity": "trusted",
                "classification": "CONFIDENTIAL",
            }
        ],
        [{"ceid": f"order:{order}", "type": "order", "properties": {}}],
    )


REFUSED_BY_LINT = {
    "prohibited": edited("tooling_layer", "prohibitions", to=["adp_payments.issue_refund"]),
    "tool_without_spec": edited(*TEMPLATE, "decision_checkpoints", to=[]),
    "spec_may_only_recommend": edited("decision_layer", "decision_specs", 0, "decision_right", to="recommend"),
    "spec_mode_too_low": edited("decision_layer", "decision_specs", 0, "approval_mode", to="delegated"),
}


@pytest.mark.parametrize("name", REFUSED_BY_LINT)
def test_a_pack_whose_every_run_would_be_refused_is_not_published(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        with pytest.raises(InvalidInput) as error:
            await open_world(tmp_path, pack=REFUSED_BY_LINT[name])
        assert error.value.exit_code == 2

    run(go())


def step_3(**change: Any) -> Callable[[Plan], Plan]:
    """A plan whose refund step is not what the template says: what a planner that cannot be trusted might propose."""
    return lambda plan: plan.model_copy(
        update={"steps": (*plan.steps[:2], plan.steps[2].model_copy(update=change), *plan.steps[3:])}
    )


HOSTILE: dict[str, tuple[FailureCode, Callable[[Plan], Plan]]] = {
    "mode_misstated": ("approval_mode_mismatch", step_3(approval_mode="read_only")),
    "tool_invented": ("tool_not_in_manifest", step_3(tool="adp_payments.transfer")),
    "tool_of_nobody": ("tool_not_in_manifest", step_3(tool="adp_nobody.shell")),
    "no_checkpoint": ("violates_decision_spec", lambda plan: plan.model_copy(update={"decision_checkpoints": ()})),
    "checkpoint_not_before": ("violates_decision_spec", step_3(depends_on=())),
    "decision_invented": (
        "violates_decision_spec",
        lambda plan: plan.model_copy(
            update={
                "decision_checkpoints": (
                    plan.decision_checkpoints[0].model_copy(update={"decision_id": "support.refund.anything"}),
                )
            }
        ),
    ),
    "step_twice": ("schema_mismatch", step_3(id="s1")),
    "depends_on_itself": ("schema_mismatch", step_3(depends_on=("s3",))),
    "binding_ahead": (
        "schema_mismatch",
        lambda plan: plan.model_copy(
            update={
                "steps": (
                    plan.steps[0].model_copy(
                        update={"params": {"order_id": {"from": "step", "pointer": "/s3/currency"}}}
                    ),
                    *plan.steps[1:],
                )
            }
        ),
    ),
    "argument_added": (
        "schema_mismatch",
        step_3(params={"order_id": "ord_881", "amount_inr": 2500, "currency": "INR", "to": "acc_1"}),
    ),
    "literal_above_limit": (
        "must_escalate",
        step_3(params={"order_id": "ord_881", "amount_inr": 500_000, "currency": "INR"}),
    ),
    "other_amount": (
        "argument_out_of_bounds",
        step_3(params={"order_id": "ord_881", "amount_inr": 2600, "currency": "INR"}),
    ),
    "other_order": (
        "argument_out_of_bounds",
        step_3(params={"order_id": "ord_882", "amount_inr": 1000, "currency": "INR"}),
    ),
}


@pytest.mark.requirement("T-FAIL-MANIFEST", "C-INV-2", "R-PLAN-TYPED", "A-SPEC-BOUND")
@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_planner_proposes_the_boundary_decides(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, spoil = HOSTILE[name]
    honest = template.propose_plan
    monkeypatch.setattr(planning, "propose_plan", lambda *args: spoil(honest(*args)))

    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case(code, ""))
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        failures = view.record["rationale"]["failures"]
        assert failures[0]["code"] == code, failures
        assert view.state in ("rejected", "escalated", "refused")
        assert (world.refunds(), wrapped["adp_payments"].calls) == ([], [])
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-FAIL-UNSAFE")
def test_unsafe_output_is_quarantined_and_only_its_reason_is_kept(tmp_path: Path) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"

    async def go() -> None:
        world, _ = await opened(
            tmp_path, Case("unsafe_output", "escalated", wrap={"adp_orders": said(customer_id=secret)})
        )
        view = await world.invoke(request(2500, "req_1"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "unsafe_output"
        assert not any(secret.encode() in (entry.body or b"") for entry in entries)
        world.close()

    run(go())


OUTPUTS: dict[str, AdapterReply] = {
    "other_schema": AdapterReply(output={"paid": True}),
    "secret": AdapterReply(
        output={"transaction_id": "AKIA" + "IOSFODNN7EXAMPLE", "refund_amount_inr": 2500, "currency": "INR"}
    ),
    "absent": AdapterReply(),
    "half_a_character": AdapterReply(output={"transaction_id": "\ud800", "refund_amount_inr": 2500, "currency": "INR"}),
    "too_big_a_number": AdapterReply(output={"transaction_id": "t", "refund_amount_inr": 10**30, "currency": "INR"}),
}


@pytest.mark.requirement("T-FAIL-UNSAFE", "A-SAME-ACT")
@pytest.mark.parametrize("payments", ["keyed", "lookup", "none"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_effect_whose_output_is_unsafe_still_happened_and_is_never_sent_again(
    name: str, payments: str, tmp_path: Path
) -> None:
    """The adapter paid, said so badly, and named no mutation. Nobody may conclude that it did not pay."""

    async def go() -> None:
        world = await open_world(tmp_path, payments=payments, clock=SystemClock() if payments == "lookup" else None)
        inner = world.adapters["adp_payments"]
        world.adapters["adp_payments"] = Wrapped(inner, answer=lambda reply: OUTPUTS[name])
        first = await world.invoke(request(2500, "req_1"))
        assert first.record is not None
        assert first.record["rationale"]["failures"][0]["code"] == "unsafe_output"
        assert (first.state, len(world.refunds())) == ("escalated", 1)
        world.adapters["adp_payments"] = inner
        second = await world.invoke(request(2500, "req_2"))
        assert second.ended
        assert len(world.refunds()) == 1, "the same act was sent twice"
        await audited(world, first)
        await audited(world, second)
        world.close()

    run(go())


@pytest.mark.requirement("R-FAIL-TYPED")
@pytest.mark.parametrize("code", ["cancelled", "missing_evidence", "approval_denied", "policy_denied", "whatever"])
def test_an_error_code_of_an_adapter_is_never_taken_for_one_of_the_gateway(code: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("tool_failed", "escalated"))
        error = ToolError(code=code, message="no")
        wrapped["adp_payments"].answer = lambda reply: AdapterReply(error=error)
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        assert (view.state, view.record["rationale"]["failures"][0]["code"]) == ("escalated", "tool_failed")
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("T-FAIL-UNSAFE")
@pytest.mark.parametrize("adapter", ["adp_orders", "adp_payments"])
def test_an_adapters_error_message_is_looked_at_like_its_output(adapter: str, tmp_path: Path) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"

    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("unsafe_output", "escalated"))
        error = ToolError(code="odd", message=f"key {secret} is wrong")
        wrapped[adapter].answer = lambda reply: AdapterReply(error=error)
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "unsafe_output"
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        assert not any(secret.encode() in (entry.body or b"") for entry in entries)
        world.close()

    run(go())


@pytest.mark.requirement("T-FAIL-EVIDENCE", "R-REPLAN")
def test_missing_evidence_replans_to_the_next_template(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=all_of(nowhere, templates(with_lookup)))
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        assert view.state == "completed", view.record["rationale"]
        assert view.record["rationale"]["strategy"] == "template@1:task_refund_2@1.0.0"
        assert view.record["rationale"]["alternatives_considered"] == ["task_refund_with_eligibility@1.0.0"]
        kinds = await world.kinds(view.run_id)
        assert (kinds.count("plan.proposed"), kinds.count("context.compiled")) == (2, 2)
        assert [refund["amount_inr"] for refund in world.refunds()] == [2500]
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("R-REPLAN")
def test_replanning_ends_where_the_budget_ends(tmp_path: Path) -> None:
    three = templates(lambda t: None, lambda t: None, with_lookup)

    async def go() -> None:
        world = await open_world(tmp_path, pack=all_of(nowhere, three))
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        codes = [failure["code"] for failure in view.record["rationale"]["failures"]]
        assert (view.state, codes) == ("exhausted", ["budget_exhausted", "missing_evidence"])
        assert (await world.kinds(view.run_id)).count("plan.proposed") == 3
        assert world.refunds() == []
        await audited(world, view)
        world.close()

    run(go())


def meanwhile(world: TestWorld, happens: Callable[[], object]) -> None:
    """Something else happens in the world between admission and the refund: while the policy service is asked."""

    def answer(reply: AdapterReply) -> AdapterReply:
        happens()
        return reply

    world.adapters["adp_policy"] = Wrapped(world.adapters["adp_policy"], answer)  # type: ignore[assignment]


@pytest.mark.requirement("A-MODE-DELEGATED")
@pytest.mark.parametrize(
    "lost",
    [
        lambda tenant: tenant["users"][0].update(delegation_live=False),
        lambda tenant: tenant["users"].pop(0),
        lambda tenant: tenant["agents"][0].update(lifecycle="suspended"),
    ],
    ids=["delegation", "user", "agent"],
)
def test_a_user_who_lost_their_role_since_admission_moves_no_money(tmp_path: Path, lost: Any) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        meanwhile(world, lambda: world.edit_directory(lost))
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        codes = [failure["code"] for failure in view.record["rationale"]["failures"]]
        assert (view.state, codes, world.refunds()) == ("refused", ["identity_refused"], [])
        await audited(world, view)
        world.close()

    run(go())


def test_an_adapter_that_changed_since_admission_moves_no_money(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        inner = world.adapters["adp_payments"]
        first = inner.describe().capabilities[0].model_copy(update={"description": "It does something else now."})
        other = inner.describe().model_copy(update={"capabilities": (first,)})
        changed = Wrapped(inner, definition=other)
        meanwhile(world, lambda: world.adapters.update(adp_payments=changed))  # type: ignore[call-overload]
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        codes = [failure["code"] for failure in view.record["rationale"]["failures"]]
        assert (view.state, codes, world.refunds(), changed.calls) == ("rejected", ["unknown_ref"], [], [])
        await audited(world, view)
        world.close()

    run(go())


def test_what_would_leave_the_machine_is_refused_without_an_allow_list(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        inner = world.adapters["adp_payments"]
        outward = Wrapped(inner, definition=inner.describe().model_copy(update={"external": True}))
        world.adapters["adp_payments"] = outward  # type: ignore[assignment]
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (failure["code"], outward.calls) == ("unknown_ref", [])
        assert "declares no endpoint" in failure["detail"]
        await audited(world, view)
        world.close()

    run(go())


def test_a_gate_on_a_read_is_refused_and_never_passed_over(tmp_path: Path) -> None:
    def reads_too(body: Body) -> None:
        body["decision_layer"]["task_templates"][0]["steps"][0]["requires"] = ["GATE_FINANCE_APPROVAL"]

    async def go() -> None:
        world = await open_world(tmp_path, pack=reads_too)
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "policy_denied"
        assert "tool.dispatching" not in await world.kinds(view.run_id)
        await audited(world, view)
        world.close()

    run(go())


def demands_the_gate(body: Body) -> None:
    """The plan itself asks for a person, also where no rule does."""
    body["decision_layer"]["task_templates"][0]["steps"][2]["requires"] = ["GATE_FINANCE_APPROVAL"]


def test_a_gate_that_the_plan_requires_is_asked_also_where_policy_asks_nobody(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=demands_the_gate)
        waiting = await world.invoke(request(900, "req_1"))
        assert waiting.waiting is not None
        assert waiting.waiting["gate_id"] == "GATE_FINANCE_APPROVAL"
        assert world.refunds() == []
        view = await world.approve(waiting.run_id)
        assert (view.state, len(world.refunds())) == ("completed", 1)
        await audited(world, view)
        world.close()

    run(go())


def test_a_request_above_its_own_limit_of_bytes_is_refused_for_that(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = request(900, "req_1", padding="x" * 5_000)
        body["runtime"] |= {"max_payload_bytes": 4_096}
        with pytest.raises(InvalidInput) as error:
            await world.invoke(body)
        assert (error.value.code, error.value.problems[0].code) == ("invalid_input", "too_large")
        world.close()

    run(go())


@pytest.mark.requirement("R-REPLAN")
def test_all_revisions_together_stay_within_the_tokens_of_the_run(tmp_path: Path) -> None:
    three = templates(lambda t: None, lambda t: None, with_lookup)

    async def go() -> None:
        world = await open_world(tmp_path, pack=all_of(nowhere, three))
        once = (await world.invoke(request(2500, "req_1"))).record
        assert once is not None
        total = once["budget_usage"]["tokens"] - 1
        body = request(2500, "req_2")
        body["runtime"] |= {"total_tokens": total}
        view = await world.invoke(body)
        assert view.record is not None
        assert view.state == "exhausted", view.record["rationale"]
        assert "total_tokens" in view.record["rationale"]["failures"][0]["detail"]
        assert 0 < view.record["budget_usage"]["tokens"] <= total
        await audited(world, view)
        world.close()

    run(go())


def reads_only(body: Body) -> None:
    """One template that looks an order up and decides nothing."""
    layer = body["decision_layer"]
    template = layer["task_templates"][0]
    template["steps"], template["decision_checkpoints"] = template["steps"][:1], []
    template["memory"], template["outputs"] = [], {"status": {"from": "step", "pointer": "/s1/status"}}


def test_a_plan_that_only_reads_completes_without_a_decision_of_the_pack(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, pack=reads_only)
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        assert (view.state, view.record["outputs"]) == ("completed", {"status": "delivered"}), view.record["rationale"]
        assert view.record["decision_key"] == "runtime.admission"
        await audited(world, view)
        world.close()

    run(go())


def stored(world: TestWorld) -> int:
    return len(world.stores._tenants[TENANT].streams) + len(world.stores._tenants[TENANT].documents)


@pytest.mark.requirement("R-MALFORMED")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"request_id": "req_1"}',
        b'{"a": 1, "a": 2}',
        b"\xff",
        b'{"a": NaN}',
        pytest.param(request(2500, "req_1") | {"surprise": 1}, id="unknown_field"),
        pytest.param(request(2500, "req_1") | {"context_pack_refs": []}, id="no_pack"),
        pytest.param(request(2500, "req\n1"), id="bad_request_id"),
        pytest.param(request(2500, "req_1") | {"mode": "someday"}, id="bad_mode"),
    ],
)
def test_a_malformed_request_is_refused_and_stores_nothing(raw: Any, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        before = stored(world)
        with pytest.raises(InvalidInput) as error:
            await world.invoke(raw)
        assert error.value.exit_code == 2
        assert stored(world) == before
        world.close()

    run(go())


def pointers(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON value but its root."""
    listed = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in listed:
        yield (*at, name)
        yield from pointers(child, (*at, name))


JUNK: list[Any] = [None, "", "x", 0, -1, 10**12, 1.5, True, [], {}, ["x"], {"a": 1}, "\u202e", "x" * 3000]


@pytest.mark.requirement("R-MALFORMED", "R-FAIL-TYPED")
def test_a_request_with_junk_anywhere_is_refused_with_a_type_or_pays_its_own_amount(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        number = 0
        for place in pointers(request(2500, "req_0")):
            for junk in (JUNK[number % len(JUNK)], JUNK[(number + 5) % len(JUNK)], None, {}):
                number += 1
                body = request(2500, f"req_{number}")
                edited(*place, to=junk)(body)
                paid = len(world.refunds())
                try:
                    view = await world.invoke(body)
                except InvalidInput:
                    assert len(world.refunds()) == paid
                    continue
                assert view.ended, (place, junk)
                assert view.record is not None
                if view.state != "completed":
                    assert view.record["rationale"]["failures"], (place, junk)
                    assert len(world.refunds()) == paid
        assert {refund["amount_inr"] for refund in world.refunds()} <= {2500}
        assert len(world.refunds()) <= 1, "all of them ask for one and the same act"
        world.close()

    run(go())


@pytest.mark.requirement("R-MALFORMED")
def test_a_request_above_its_own_payload_limit_stores_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        before = stored(world)
        body = request(2500, "req_1")
        body["runtime"]["max_payload_bytes"] = 100
        with pytest.raises(InvalidInput):
            await world.invoke(body)
        assert stored(world) == before
        world.close()

    run(go())


@pytest.mark.requirement("R-SAME-REQUEST")
def test_the_same_request_id_with_another_body_is_refused(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        first = await world.invoke(request(2500, "req_1"))
        with pytest.raises(ConflictingRequest) as error:
            await world.invoke(request(2600, "req_1"))
        assert error.value.exit_code == 2
        retried = request(2500, "req_1")
        retried["trace"]["span_id"] = "00f067aa0ba902b8"
        assert (await world.invoke(retried)).run_id == first.run_id
        assert len(world.refunds()) == 1
        world.close()

    run(go())


@pytest.mark.requirement("R-DENIED", "A-DENIAL-FINAL")
def test_a_denial_is_final_and_nobody_is_asked_again(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        assert (waiting.state, exit_code_of(waiting)) == ("waiting", 5)
        assert waiting.record is not None
        assert (waiting.record["status"], waiting.record["revision"]) == ("DEFERRED", 0)
        view = await world.approve(waiting.run_id, "denied")
        again = await world.invoke(request(4200, "req_2"))
        for one in (view, again):
            assert one.record is not None
            summary = [one.record[name] for name in ("status", "end", "outcome")]
            assert summary == ["REJECTED", "rejected", "denied"]
            assert one.record["rationale"]["failures"][0]["code"] == "approval_denied"
            assert exit_code_of(one) == 1
            await audited(world, one)
        assert view.record is not None
        assert [receipt["verdict"] for receipt in view.record["approvals"]] == ["denied"]
        assert "approval.asked" not in await world.kinds(again.run_id)
        assert world.refunds() == []
        other = await world.invoke(request(4300, "req_3"))
        assert other.state == "waiting"
        world.close()

    run(go())


@pytest.mark.requirement("R-UNANSWERED")
@pytest.mark.parametrize(
    ("on_timeout", "end", "code"),
    [("escalate", "escalated", "approval_timeout"), ("deny", "rejected", "approval_denied")],
)
def test_an_unanswered_approval_ends_as_its_gate_says(on_timeout: str, end: str, code: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(
            tmp_path, pack=edited("policy_layer", "approval_gates", 0, "on_timeout", to=on_timeout)
        )
        waiting = await world.invoke(request(4200, "req_1"))
        early = await world.deployment.advance(TENANT, waiting.run_id)
        assert early.state == "waiting"
        world.clock.at_us += 3601 * 1_000_000
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert (view.state, view.record["status"]) == (end, STATUS[end])
        assert view.record["rationale"]["failures"][0]["code"] == code
        assert [receipt["verdict"] for receipt in view.record["approvals"]] == ["expired"]
        assert world.refunds() == []
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("R-WALL-CLOCK")
def test_waiting_for_a_person_costs_no_wall_clock(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        world.clock.at_us += 3000 * 1_000_000
        view = await world.approve(waiting.run_id)
        assert view.record is not None
        assert view.state == "completed"
        assert view.record["budget_usage"]["wall_clock_ms"] < 1_000
        world.close()

    run(go())


@pytest.mark.requirement("R-CANCEL", "P-ACTS")
def test_a_run_cancelled_while_it_waits_moves_no_money(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="a mistake")
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert (view.state, view.record["status"]) == ("cancelled", "REJECTED")
        assert view.record["rationale"]["failures"][0]["code"] == "cancelled"
        assert world.refunds() == []
        await audited(world, view)
        control = await world.stores.tenant(TENANT).read("control")
        assert [(entry.kind, entry.by) for entry in control][-1] == ("run.cancelled", OPERATOR)
        world.close()

    run(go())


@pytest.mark.requirement("R-CANCEL")
def test_a_run_cancelled_after_the_approval_and_before_the_dispatch_moves_no_money(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        await operator.request_cancel(world.deployment, TENANT, waiting.run_id, by=world.actor(), reason="a mistake")
        await world.deployment.advance(TENANT, waiting.run_id)
        view = await world.deployment.view(TENANT, waiting.run_id)
        assert view.record is not None
        assert (view.state, view.record["rationale"]["failures"][0]["code"]) == ("cancelled", "cancelled")
        assert world.refunds() == []
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.requirement("R-CANCEL")
def test_a_run_that_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(2500, "req_1"))
        with pytest.raises(operator.ApprovalRefused) as error:
            await operator.request_cancel(world.deployment, TENANT, view.run_id, by=world.actor(), reason="too late")
        assert error.value.reason == "not_waiting"
        world.close()

    run(go())


@pytest.mark.requirement("A-MODE-DELEGATED")
def test_without_a_live_delegation_nothing_delegated_happens(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = request(2500, "req_1")
        body["user"] = {"user_id": "usr_773"}
        view = await world.invoke(body)
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "tool_not_in_manifest"
        assert (view.state, world.refunds()) == ("rejected", [])
        world.close()

    run(go())


@pytest.mark.requirement("A-SAME-ACT")
def test_the_same_act_asked_twice_happens_once_and_both_records_say_so(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        first = await world.invoke(request(2500, "req_1"))
        second = await world.invoke(request(2500, "req_2"))
        assert first.record is not None
        assert second.record is not None
        assert first.run_id != second.run_id
        assert first.record["outputs"] == second.record["outputs"]
        assert len(world.refunds()) == 1
        refused = [
            entry for entry in await world.stores.tenant(TENANT).read(second.run_id) if entry.kind == "tool.refused"
        ]
        assert len(refused) == 1
        assert b'"idempotent_replayed":true' in (refused[0].body or b"")
        await audited(world, second)
        world.close()

    run(go())


def test_an_unknown_run_and_another_tenants_run_answer_alike(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(2500, "req_1"))
        messages = []
        for tenant, name in ((TENANT, "run_" + "0" * 16), ("tenant_other_prod", view.run_id)):
            with pytest.raises(NotFound) as error:
                await world.deployment.view(tenant, name)
            messages.append(str(error.value).replace(name, "NAME"))
        assert messages[0] == messages[1]
        world.close()

    run(go())


@pytest.mark.requirement("R-UNAVAILABLE")
def test_an_outside_that_does_not_answer_ends_a_read_typed_after_its_attempts(tmp_path: Path) -> None:
    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("tool_failed", "escalated"))

        def away(reply: AdapterReply) -> AdapterReply:
            raise Unavailable("adp_orders", "it is down")

        wrapped["adp_orders"].answer = away
        view = await world.invoke(request(2500, "req_1"))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "tool_failed"
        assert (view.state, len(wrapped["adp_orders"].calls), world.refunds()) == ("escalated", 3, [])
        await audited(world, view)
        world.close()

    run(go())


@pytest.mark.parametrize(("passed_us", "state", "sent"), [(0, "escalated", 3), (31_000_000, "exhausted", 1)])
def test_a_read_is_not_tried_again_when_the_wall_clock_is_used_up(
    tmp_path: Path, passed_us: int, state: str, sent: int
) -> None:
    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("tool_failed", "escalated"))

        def away(reply: AdapterReply) -> AdapterReply:
            world.clock.at_us += passed_us
            raise Unavailable("adp_orders", "it is down")

        wrapped["adp_orders"].answer = away
        view = await world.invoke(request(2500, "req_1"))
        assert (view.state, len(wrapped["adp_orders"].calls)) == (state, sent)
        await audited(world, view)
        world.close()

    run(go())


def test_a_lost_payment_is_sent_again_under_its_key_and_paid_for_once(tmp_path: Path) -> None:
    """The reads cost 0.1 each and the payment 0.31, however often it is sent."""

    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("effect_uncertain", "waiting"))
        lost = [True]

        def once(reply: AdapterReply) -> AdapterReply:
            if lost and lost.pop():
                raise LostReply("the reply was lost after the money moved")
            return reply

        wrapped["adp_payments"].answer = once
        view = await world.invoke(request(900, "req_1"))
        assert view.record is not None
        assert (len(wrapped["adp_payments"].calls), view.record["budget_usage"]["cost_usd_cents"]) == (2, 0.51)
        assert [refund["amount_inr"] for refund in world.refunds()] == [900]
        assert view.state == "completed"
        await audited(world, view)
        world.close()

    run(go())


def altered(args: Any) -> None:
    args["note"]["text"] = "something else"


@pytest.mark.parametrize(
    "fault", [LostReply("no answer"), Unavailable("adp_payments", "away")], ids=["lost", "not sent"]
)
@pytest.mark.parametrize("change", [altered, dict.clear], ids=["altered", "emptied"])
def test_a_change_that_an_adapter_makes_to_its_arguments_is_not_sent_again(
    change: Callable[[Any], None], fault: Exception, tmp_path: Path
) -> None:
    def with_note(body: Body) -> None:
        body["decision_layer"]["task_templates"][0]["steps"][2]["params"]["note"] = {"text": "as agreed"}

    async def go() -> None:
        world, wrapped = await opened(tmp_path, Case("completed", "completed", pack=with_note))
        payments, sent = wrapped["adp_payments"], list[Any]()
        definition = payments.inner.describe().to_json()
        definition["capabilities"][0]["input_schema"]["properties"]["note"] = {"type": "object"}
        payments.definition = AdapterDefinition.model_validate(definition)

        async def spoiling(capability: str, args: Any, context: CallContext) -> AdapterReply:
            sent.append(copy.deepcopy(args))
            known = {name: value for name, value in args.items() if name != "note"}
            change(args)
            if len(sent) == 1 and isinstance(fault, Unavailable):
                raise fault
            reply = await payments.inner.call(capability, known, context)
            if len(sent) == 1:
                raise fault
            return reply

        payments.call = spoiling
        view = await world.invoke(request(900, "req_1"))
        whole = {"amount_inr": 900, "currency": "INR", "note": {"text": "as agreed"}, "order_id": "ord_881"}
        assert (view.state, sent) == ("completed", [whole] * 2)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        stated = [orjson.loads(one.body)["envelope"] for one in entries if one.kind == "tool.dispatching"]
        assert [one["args"] for one in stated if one["capability_id"] == "adp_payments.issue_refund"] == sent
        await audited(world, view)
        world.close()

    run(go())


DIRECTORIES = {
    "empty": "",
    "no_json": "{",
    "a_list": "[]",
    "no_lists": json.dumps({TENANT: {}}),
    "null": "null",
    "users_are_a_text": json.dumps({TENANT: {"users": "all", "agents": [], "approvers": []}}),
    "nameless_user": json.dumps({TENANT: {"users": [{}], "agents": [], "approvers": []}}),
    "unknown_lifecycle": json.dumps(
        {TENANT: {"users": [], "approvers": [], "agents": [{"agent_id": "agt_support", "lifecycle": "immortal"}]}}
    ),
}


@pytest.mark.requirement("R-UNAVAILABLE", "R-FAIL-TYPED")
@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_broken_directory_knows_nobody_and_nothing_is_lost(name: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.answer(waiting.run_id)
        whole = (tmp_path / "directory.json").read_text("utf-8")
        (tmp_path / "directory.json").write_text(DIRECTORIES[name], "utf-8")
        with pytest.raises(Unavailable):
            await world.invoke(request(2500, "req_2"))
        with pytest.raises(Unavailable):
            await world.deployment.advance(TENANT, waiting.run_id)
        assert world.refunds() == []
        (tmp_path / "directory.json").write_text(whole, "utf-8")
        await world.deployment.advance(TENANT, waiting.run_id)
        assert [refund["amount_inr"] for refund in world.refunds()] == [4200]
        world.close()

    run(go())


def test_every_failure_code_that_this_version_can_give_has_a_case() -> None:
    elsewhere = {
        "approval_timeout",
        "approval_denied",
        "cancelled",  # above
        "approval_void",  # test_approvals
        "tool_failed",  # above, and in the crash tests
        "effect_uncertain",
        "idempotency_conflict",  # the crash tests, and the gateway's machine
        "output_disagrees",  # tests/attacks/test_b13_evidence_is_about_the_call.py
        "quarantined",  # tests/attacks/test_d44_quarantined_capabilities.py
        "secret_lost",  # tests/attacks/test_d45_declared_secrets.py
        "consent_missing",  # tests/attacks/test_g97_no_call_without_consent.py
        "other_environment",  # tests/attacks/test_g151_a_deployment_serves_one_environment.py
        "untrusted_destination",  # tests/attacks/test_d39_untrusted_destinations.py
    }
    of_models = {"no_model_route", "model_failed", "judge_objects"}  # tests/unit/runtime/test_models.py
    tested = {case.code for case in CASES.values()} | {code for code, _ in HOSTILE.values()}
    assert set(get_args(FailureCode)) - tested == elsewhere | of_models


def test_a_gate_opens_at_exactly_the_amount_that_the_pack_says(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        states = [(await world.invoke(request(amount, f"req_{amount}"))).state for amount in (3000, 3001)]
        assert states == ["completed", "waiting"]
        assert [refund["amount_inr"] for refund in world.refunds()] == [3000]
        world.close()

    run(go())


def test_approver_of_the_tests_is_not_barred(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        view = await world.approve(waiting.run_id, approver=APPROVER)
        assert view.record is not None
        assert (view.state, exit_code_of(view)) == ("completed", 0)
        assert [receipt["approver"] for receipt in view.record["approvals"]] == [APPROVER]
        world.close()

    run(go())
