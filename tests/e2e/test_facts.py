"""Proof 6: for every fact of every rule of the example, take it away, null it, give it another type: never looser.

The list of facts comes from the compiled rules, so a rule that is added tomorrow is tested tomorrow. Each fact is
spoiled twice over: in what the policy engine is asked, alone and in pairs, and at its source (the directory, the graph,
an adapter's answer, the request), where the whole runtime is between the fact and the money.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from contextos.contracts.encoding.pointer import MISSING
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import APPROVAL_MODES, CapabilityView, LeveledBundle, PolicyDecision
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.contracts.facts import Vocabulary
from contextos.errors import ContextOSError
from contextos.trust.policy.policy_set import PolicySet, compile_policy
from tests.e2e.test_approvals import edge, edge_id
from tests.e2e.test_verdicts import Wrapped
from tests.world import TENANT, TestWorld, example, open_world, request, run

PACK: Final = ContextPack.model_validate(example("pack.json"))
PAYMENTS: Final = "adp_payments.issue_refund"


def compiled() -> PolicySet:
    layer = PACK.policy_layer
    return compile_policy(
        [LeveledBundle("pack", bundle, "5.2.0", "sha256:" + "0" * 64) for bundle in layer.policy_bundles],
        gates=[gate.gate_id for gate in layer.approval_gates],
        must_refuse=layer.guardrails.must_refuse,
        must_escalate=layer.guardrails.must_escalate,
        vocabulary=Vocabulary(),
    )


POLICY: Final = compiled()
FACTS: Final = sorted({(fact.path, fact.type) for rule in POLICY.rules.values() for fact in rule.facts}, key=str)

HONEST: Final[dict[str, Any]] = {
    "request": {"intent": "support.refund", "message": "x", "context": {}, "mode": "stream", "request_id": "req_1"},
    "user": {"user_id": "usr_771", "role": "support_agent"},
    "agent": {"agent_id": "agt_support"},
    "tenant": {"tenant_id": TENANT},
    "run": {"run_id": "run_0123456789abcdef", "environment": "dev"},
    "args": {"order_id": "ord_881", "amount_inr": 2500, "currency": "INR"},
    "evidence": {
        "identity_verified": True,
        "order_lookup": {"status": "delivered"},
        "policy": {"eval": {"eligible": True, "refundable_inr": 300_000, "policy_version": "returns-4"}},
    },
    "provenance": {},
}

SITUATIONS: Final[dict[str, dict[str, Any]]] = {
    "small": {},
    "large": {"args.amount_inr": 4200},
    "at_the_gate": {"args.amount_inr": 3001},
    "at_the_limit": {"args.amount_inr": 100_000},
    "above_the_limit": {"args.amount_inr": 100_001},
    "not_verified": {"evidence.identity_verified": False},
    "not_eligible": {"evidence.policy.eval.eligible": False},
    "too_much": {"evidence.policy.eval.refundable_inr": 2499},
    "stranger": {"user.role": "warehouse_clerk"},
}

WRONG: Final[dict[str | None, tuple[Any, ...]]] = {
    "boolean": ("true", "false", 1, 0, [], [True], {}, {"value": True}),
    "number": ("0", "4200", "", True, False, [], [1], {}, {"value": 1}),
    "string": (0, 1, True, False, [], ["support_agent"], {}, {"role": "support_agent"}),
}


def placed(facts: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The facts with another value at a dotted path; `MISSING` takes it away."""
    made: dict[str, Any] = copy.deepcopy(dict(facts))
    *above, last = path.split(".")
    node: Any = made
    for part in above:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict):
        if value is MISSING:
            node.pop(last, None)
        else:
            node[last] = value
    return made


def spoiled(path: str, kind: str | None) -> list[tuple[str, Any]]:
    """Every way to spoil a fact: it or something above it is absent, null, of another type."""
    parts = path.split(".")
    ways: list[tuple[str, Any]] = [(path, wrong) for wrong in (MISSING, None, *WRONG[kind])]
    for depth in range(1, len(parts)):
        above = ".".join(parts[:depth])
        ways += [(above, wrong) for wrong in ((MISSING, None, {}, [], "x") if depth > 1 else (MISSING, {}))]
    return ways


def decided(facts: Mapping[str, Any]) -> PolicyDecision:
    view = CapabilityView(PAYMENTS, "destructive", {"capability_id": PAYMENTS})
    return POLICY.decide("execute", facts, capability=view, granted=True, decision_id="pol_0123456789abcdef")


def assert_not_looser(than: PolicyDecision, now: PolicyDecision, what: object) -> None:
    """Denied is tighter than anything. What is still allowed has every gate, need and bound, and no lower mode."""
    if not now.allowed or now.must_escalate:
        return
    assert than.allowed, f"{what} allows what was denied"
    assert not than.must_escalate, f"{what} silences a guardrail"
    assert set(now.gates) >= set(than.gates), f"{what} opens a gate"
    assert set(now.requires) >= set(than.requires), f"{what} asks for less evidence"
    assert set(now.prohibits) >= set(than.prohibits), what
    rank = APPROVAL_MODES.index
    assert than.effective_approval_mode is not None
    assert now.effective_approval_mode is not None
    assert rank(now.effective_approval_mode) >= rank(than.effective_approval_mode), f"{what} lowers the mode"
    for name, bounds in than.arg_constraints.items():
        assert set(map(repr, now.arg_constraints.get(name, ()))) >= set(map(repr, bounds)), f"{what} lifts a bound"


def situation(name: str) -> dict[str, Any]:
    facts = copy.deepcopy(HONEST)
    for path, value in SITUATIONS[name].items():
        facts = placed(facts, path, value)
    return facts


def test_the_situations_come_out_as_their_names_say() -> None:
    outcomes = {name: decided(situation(name)) for name in SITUATIONS}
    assert {name for name, one in outcomes.items() if one.allowed and not one.gates} == {"small"}
    assert {name for name, one in outcomes.items() if one.allowed and one.gates} == {
        "large",
        "at_the_gate",
        "at_the_limit",
    }


def test_there_are_facts_and_each_kind_of_root_is_among_them() -> None:
    assert {path.split(".")[0] for path, _ in FACTS} == {"user", "evidence", "args"}


@pytest.mark.requirement("T-FACT-MISSING")
@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize(("path", "kind"), FACTS)
def test_a_spoiled_fact_never_loosens_the_decision(path: str, kind: str | None, name: str) -> None:
    facts = situation(name)
    honest = decided(facts)
    for where, wrong in spoiled(path, kind):
        now = decided(placed(facts, where, wrong))
        assert_not_looser(honest, now, (where, wrong))
        if where == path:
            assert not now.allowed, f"`{path}` as `{wrong!r}` is still allowed"


@pytest.mark.requirement("T-FACT-MISSING")
@pytest.mark.parametrize("name", SITUATIONS)
def test_two_spoiled_facts_never_loosen_the_decision(name: str) -> None:
    facts = situation(name)
    honest = decided(facts)
    ways = [way for path, kind in FACTS for way in spoiled(path, kind)[:5]]
    for one, two in itertools.combinations(ways, 2):
        assert_not_looser(honest, decided(placed(placed(facts, *one), *two)), (one, two))


@pytest.mark.requirement("T-FACT-MISSING")
@pytest.mark.parametrize("root", ["intent", "environment"])
def test_a_fact_that_selects_the_rules_never_loosens_when_it_is_gone(root: str) -> None:
    path = {"intent": "request.intent", "environment": "run.environment"}[root]
    for name in SITUATIONS:
        honest = decided(situation(name))
        for wrong in (MISSING, None, 5, [], {}, ""):
            assert_not_looser(honest, decided(placed(situation(name), path, wrong)), (path, wrong))


Spoil = Callable[[TestWorld, dict[str, Any], Any], Any]


async def spoil_role(world: TestWorld, body: dict[str, Any], value: Any) -> None:
    def change(tenant: dict[str, Any]) -> None:
        tenant["users"][0]["role"] = value
        tenant["users"][0]["roles"] = [value]
        if value is MISSING:
            del tenant["users"][0]["role"], tenant["users"][0]["roles"]

    world.edit_directory(change)


async def spoil_identity(world: TestWorld, body: dict[str, Any], value: Any) -> None:
    gone = await edge_id(world, "identity_verified")
    if value is MISSING:
        change: dict[str, Any] = {"retracts": gone, "evidence_ref": "artifact:gone#rev_1"}
    else:
        change = edge("identity_verified", "check:idv_cus_77", value=value, retracts=gone)
    await world.put_facts([change])


def spoil_eval(name: str) -> Spoil:
    async def spoil(world: TestWorld, body: dict[str, Any], value: Any) -> None:
        def answer(reply: AdapterReply) -> AdapterReply:
            output = {**(reply.output or {}), name: value}
            if value is MISSING:
                del output[name]
            return reply.model_copy(update={"output": output})

        world.adapters["adp_policy"] = Wrapped(world.adapters["adp_policy"], answer=answer)  # type: ignore[assignment]

    return spoil


async def spoil_amount(world: TestWorld, body: dict[str, Any], value: Any) -> None:
    # What the caller does not state is read from the message; nobody says it there either.
    body["input"]["message"] = "Refund order ord_881."
    body["input"]["context"]["refund_amount"] = value
    if value is MISSING:
        del body["input"]["context"]["refund_amount"]


SOURCES: Final[dict[str, Spoil]] = {
    "user.role": spoil_role,
    "evidence.identity_verified": spoil_identity,
    "evidence.policy.eval.eligible": spoil_eval("eligible"),
    "evidence.policy.eval.refundable_inr": spoil_eval("refundable_inr"),
    "args.amount_inr": spoil_amount,
}
"""Where each fact comes from. A rule with a new fact fails the test below until its source stands here."""


def test_every_fact_of_the_example_has_a_source_that_the_tests_spoil() -> None:
    assert SOURCES.keys() == {path for path, _ in FACTS}


ENDED_TO_END: Final = [
    pytest.param(path, wrong, id=f"{path}-{'absent' if wrong is MISSING else repr(wrong)}")
    for path, kind in FACTS
    for wrong in (MISSING, None, *WRONG[kind])
]


@pytest.mark.requirement("T-FACT-MISSING", "T-ASSERTED")
@pytest.mark.parametrize(("path", "wrong"), ENDED_TO_END)
def test_a_fact_spoiled_at_its_source_never_moves_money_that_it_did_not_move_before(
    path: str, wrong: Any, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        for amount in (2500, 4200):
            body = request(amount, f"req_{amount}")
            if amount == 2500 or SOURCES[path] is spoil_amount:
                await SOURCES[path](world, body, wrong)
            try:
                view = await world.invoke(body)
            except ContextOSError:
                continue
            if SOURCES[path] is spoil_amount and wrong is MISSING:
                # Where nobody says an amount, it is the total of the order, and a person is asked about that.
                assert view.state == "waiting"
                continue
            assert view.state in ("rejected", "refused", "escalated"), view.state
            assert view.record is not None
            assert view.record["rationale"]["failures"]
        assert world.refunds() == []
        world.close()

    run(go())


@pytest.mark.requirement("T-ASSERTED")
def test_a_fact_asserted_by_the_caller_counts_for_nothing(tmp_path: Path) -> None:
    """The request says `identity_verified: true` in every test here; the graph is what is asked."""

    async def go() -> None:
        world = await open_world(tmp_path)
        asserted = {
            "identity_verified": True,
            "evidence": {"identity_verified": True},
            "role": "support_lead",
            "policy": {"eval": {"eligible": True, "refundable_inr": 9900}},
        }
        view = await world.invoke(request(2500, "req_1", order_id="ord_890", **asserted))
        assert view.record is not None
        assert view.record["rationale"]["failures"][0]["code"] == "missing_evidence"
        assert (view.state, world.refunds()) == ("escalated", [])
        world.close()

    run(go())
