"""Lint asks for the sum of a write that moves money and for the default of the tool that a rule guesses."""

from __future__ import annotations

from typing import Any

import pytest

import contextos
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.pack import PolicyArtifact
from contextos.control.lint.money import EACH_IS_ASKED
from contextos.errors import Problem
from contextos.packs.checking import KnownHere, artifact_problems

TENANT = "acme"


@contextos.write(risk="irreversible", idempotency="none", destinations=["account"])
def pay(account: str, amount: int, currency: str = "USD", note: str | None = None) -> str:
    """Pay an account."""
    return "paid"


@contextos.write(risk="irreversible", idempotency="none", destinations=["to"])
def transfer(to: str, euros: float) -> str:
    """Pay an account, too."""
    return "paid"


@contextos.write(risk="reversible", idempotency="none", destinations=["url"])
def settle(url: str, total_amount: str) -> str:
    """Pay what a bill says, as a text."""
    return "paid"


@contextos.write(risk="reversible", idempotency="none", destinations=[])
def scale(service: str, replicas: int, payment_id: str, urgent_refund: bool) -> str:
    """No money."""
    return "done"


TOOLS = contextos.toolset("bank", [pay, transfer, settle, scale])
WITHOUT = {name: {"without_sum": "a person is asked about each"} for name in ("pay", "transfer", "settle")}


def house(*tools: str, **fact: Any) -> PolicyArtifact:
    """A policy above the packs with a sum over `pay` and perhaps `transfer`, and a rule about each of the tools."""
    names = {"bank.pay": "amount", "bank.transfer": "euros"}
    rules = [
        {
            "rule_id": f"R_HOUSE_{number}",
            "applies_to": {"capability": tool},
            "if": {">": [{"+": [{"var": "history.paid"}, {"var": f"args.{names[tool]}"}]}, 9]},
            "then": {"allow": False},
        }
        for number, tool in enumerate(tools)
    ]
    paid = {"capability": "bank.pay", "aggregate": "sum", "of": "amount", "over": "tenant", "window_s": 60, **fact}
    dsl = {"language": "jsonlogic", "rules": rules}
    bundle = {"bundle_id": "POLICY_HOUSE", "history": {"paid": paid}, "policy_dsl": dsl}
    return PolicyArtifact.model_validate({"version": "1.0.0", "tenant": TENANT, "bundle": bundle})


def linted(*above: PolicyArtifact, **more: Any) -> list[Problem]:
    named = {"who": ["clerk"], "approver": "boss", **more}
    pack = contextos.pack("acme.bank", version="1.0.0", tenant=TENANT, tools=[TOOLS], **named)
    definition = TOOLS.describe()
    held = HeldRoles(users=("clerk",), approvers=("boss",))
    known = KnownHere({definition.adapter_id: definition}, {TENANT: held}, {}, {TENANT: above})
    return list(pack.expansion.placed(artifact_problems(pack.expansion.pack, (), known)))


def about_money(problems: list[Problem]) -> list[str]:
    return [one.detail.split("`")[1] for one in problems if one.code == "money_without_sum"]


def test_lint_asks_for_a_sum_over_each_tool_that_moves_money() -> None:
    assert about_money(linted()) == ["bank.pay", "bank.transfer", "bank.settle"]


def test_a_second_tool_for_the_same_payment_needs_the_sum_too() -> None:
    assert about_money(linted(house("bank.pay"))) == ["bank.transfer", "bank.settle"]
    both = house("bank.pay", "bank.transfer", also={"bank.transfer": {"of": "euros"}})
    assert about_money(linted(both)) == ["bank.settle"]


@pytest.mark.parametrize("fact", [{"aggregate": "count", "of": None}, {"capability": "bank.transfer", "of": "euros"}])
def test_what_adds_up_no_payment_of_the_tool_is_no_sum_of_it(fact: dict[str, Any]) -> None:
    counted = {name: one for name, one in fact.items() if one is not None}
    policy = house("bank.pay").to_json()
    policy["bundle"]["history"]["paid"] |= counted
    if fact.get("of") is None and "aggregate" in fact:
        del policy["bundle"]["history"]["paid"]["of"]
    assert "bank.pay" in about_money(linted(PolicyArtifact.model_validate(policy)))


def test_a_policy_that_observes_limits_nothing() -> None:
    policy = house("bank.pay").to_json()
    policy["bundle"]["mode"] = "observe"
    assert "bank.pay" in about_money(linted(PolicyArtifact.model_validate(policy)))


def test_a_statement_is_enough_and_is_in_the_pack() -> None:
    assert linted(permissions=WITHOUT) == []


def test_what_a_draft_says_of_a_tool_counts_only_as_long_as_it_is_so() -> None:
    drafted = {**WITHOUT, "pay": {"without_sum": EACH_IS_ASKED}}
    assert linted(permissions=drafted) == []
    bounds = {name: {"any": True} for name in pay_arguments()} | {"amount": {"min": 0, "max": 9}}
    unasked = [{"tools": ["pay"], "bounds": bounds, "when": 'user.role == "clerk"'}]
    assert about_money(linted(permissions=drafted, auto_approve=unasked)) == ["bank.pay"]
    assert about_money(linted(permissions=WITHOUT, auto_approve=unasked)) == []
    assert about_money(linted(permissions={**WITHOUT, "pay": {"without_sum": "  "}})) == ["bank.pay"]


def pay_arguments() -> list[str]:
    return list(TOOLS.describe().capabilities[0].input_schema["properties"])


def defaults(condition: Any) -> list[Problem]:
    rule = {"rule_id": "R_HOUSE", "applies_to": {"capability": "bank.pay"}, "if": condition, "then": {"allow": False}}
    bundle = {"bundle_id": "POLICY_HOUSE", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    policy = PolicyArtifact.model_validate({"version": "1.0.0", "tenant": TENANT, "bundle": bundle})
    definition = TOOLS.describe()
    known = KnownHere({definition.adapter_id: definition}, {TENANT: HeldRoles()}, {})
    return list(artifact_problems(policy, (), known))


@pytest.mark.parametrize(
    ("condition", "code", "said"),
    [
        ({"!=": [{"var": ["args.currency", "INR"]}, "INR"]}, "other_default", "`pay` takes `USD`"),
        ({"!": [{"==": [{"var": ["args.currency", "INR"]}, "INR"]}]}, "other_default", "the rule takes `INR`"),
        ({"==": [{"var": ["args.note", "x"]}, "x"]}, "other_default", "`pay` takes `null`"),
    ],
)
def test_lint_says_where_a_rule_takes_another_default_than_the_tool(condition: Any, code: str, said: str) -> None:
    [problem] = defaults(condition)
    assert problem.code == code
    assert said in problem.detail
    assert problem.pointer.startswith("/bundle/policy_dsl/rules/0/if/")


@pytest.mark.parametrize(
    "condition",
    [
        {"!=": [{"var": ["args.currency", "USD"]}, "INR"]},
        {"!=": [{"var": "args.currency"}, "INR"]},
        {">": [{"var": ["args.amount", 0]}, 5]},
    ],
)
def test_the_default_of_the_tool_and_of_what_is_always_there_are_fine(condition: Any) -> None:
    assert defaults(condition) == []


def test_lint_says_it_of_a_condition_of_the_short_form_at_its_place() -> None:
    denied = {"when": 'default(args.currency, "INR") != "INR"', "tools": ["pay"]}
    [problem] = linted(permissions=WITHOUT, deny=[denied])
    assert (problem.code, problem.pointer) == ("other_default", "/deny/0/when")


AUTO = [{"tools": ["scale"], "bounds": {"replicas": {"min": 1, "max": 3}}}]
ASKS = {"ask": [{"role": "boss"}]}


def test_an_auto_approval_of_the_pack_counts_in_the_intents_that_do_not_ask_about_all_themselves() -> None:
    pack = contextos.pack(
        "acme.bank",
        version="1.0.0",
        tenant=TENANT,
        tools=[TOOLS],
        who=["clerk"],
        approver="boss",
        auto_approve=AUTO,
        intents={"one": ASKS, "two": {}},
    )
    rules = [one.rule_id for one in pack.expansion.pack.policy_layer.policy_bundles[0].policy_dsl.rules]
    assert [one for one in rules if "_AUTO_" in one] == ["R_ACME_BANK_TWO_BANK_SCALE_AUTO_1"]
