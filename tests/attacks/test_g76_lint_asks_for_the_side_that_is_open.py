"""What nobody is asked about has both sides and every argument bounded, and what a sum adds up is a number from 0."""

from __future__ import annotations

from typing import Any

import pytest

import contextos
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.pack import PolicyArtifact
from contextos.errors import InvalidArtifact, Problem
from contextos.packs.checking import KnownHere, artifact_problems

TENANT = "acme"


@contextos.write(risk="irreversible", idempotency="none", destinations=["account"])
def pay(account: str, amount: int, note: str = "", tip: int = 0) -> str:
    """Pay an account."""
    return "paid"


TOOLS = contextos.toolset("bank", [pay])


def known() -> KnownHere:
    definition = TOOLS.describe()
    held = HeldRoles(users=("clerk",), approvers=("boss",))
    return KnownHere({definition.adapter_id: definition}, {TENANT: held}, {})


def linted(bounds: dict[str, Any], **more: Any) -> list[Problem]:
    pack = contextos.pack(
        "acme.bank",
        version="1.0.0",
        tenant=TENANT,
        tools=[TOOLS],
        who=["clerk"],
        approver="boss",
        permissions={"pay": {"without_sum": "the bounds are what is tried here"}},
        auto_approve=[{"tools": ["pay"], "bounds": bounds, **more}],
    )
    return list(pack.expansion.placed(artifact_problems(pack.expansion.pack, (), known())))


FREE = {"account": {"enum": ["a-1"]}, "note": {"any": True}, "tip": {"min": 0, "max": 0}}
OPEN: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "no lower side": ({**FREE, "amount": {"max": 500}}, {}, "one_sided", "add `min`"),
    "no upper side": ({**FREE, "amount": {"min": 1}}, {}, "one_sided", "add `max`"),
    "an argument that is free": ({**FREE}, {}, "argument_open", "whatever `amount` of `pay` is"),
    "one bounded argument frees the others": ({"account": {"enum": ["a-1"]}}, {}, "argument_open", "`note`"),
}
CLOSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "both sides": ({**FREE, "amount": {"min": 1, "max": 500}}, {}),
    "listed": ({**FREE, "amount": {"enum": [5]}}, {}),
    "said to be free": ({**FREE, "amount": {"any": True}}, {}),
    "in the condition": ({**FREE}, {"when": "args.amount > 0 and args.amount < 500"}),
}


@pytest.mark.parametrize("name", OPEN)
def test_lint_names_what_an_auto_approval_leaves_open(name: str) -> None:
    bounds, more, code, said = OPEN[name]
    problems = linted(bounds, **more)
    assert any(one.code == code and said in str(one) for one in problems), problems
    assert all(one.pointer.startswith("/auto_approve/0") for one in problems), problems


@pytest.mark.parametrize("name", CLOSED)
def test_lint_asks_for_nothing_more(name: str) -> None:
    bounds, more = CLOSED[name]
    assert linted(bounds, **more) == []


def test_a_second_entry_does_not_rest_on_the_bounds_of_the_first() -> None:
    pack = contextos.pack(
        "acme.bank",
        version="1.0.0",
        tenant=TENANT,
        tools=[TOOLS],
        who=["clerk"],
        approver="boss",
        permissions={"pay": {"without_sum": "the bounds are what is tried here"}},
        auto_approve=[
            {"tools": ["pay"], "bounds": {**FREE, "amount": {"min": 1, "max": 500}}},
            {"tools": ["pay"], "bounds": {**FREE, "account": {"enum": ["a-2"]}}},
        ],
    )
    [problem] = pack.expansion.placed(artifact_problems(pack.expansion.pack, (), known()))
    assert (problem.pointer, problem.code) == ("/auto_approve/1/bounds", "argument_open")


def test_an_entry_whose_arguments_are_all_free_is_refused() -> None:
    with pytest.raises(InvalidArtifact, match=r"no argument of `bank\.pay` is bounded"):
        linted({"amount": {"any": True}})
    with pytest.raises(InvalidArtifact, match="bounded and free"):
        linted({"amount": {"any": True, "max": 5}})


def house(of: str) -> PolicyArtifact:
    fact = {"capability": "bank.pay", "aggregate": "sum", "of": of, "over": "tenant", "window_s": 60}
    rule = {
        "rule_id": "R_HOUSE",
        "applies_to": {"capability": "bank.pay"},
        "if": {">": [{"var": "history.paid"}, 9]},
        "then": {"allow": False},
    }
    bundle = {
        "bundle_id": "POLICY_HOUSE",
        "history": {"paid": fact},
        "policy_dsl": {"language": "jsonlogic", "rules": [rule]},
    }
    return PolicyArtifact.model_validate({"version": "1.0.0", "tenant": TENANT, "bundle": bundle})


@pytest.mark.parametrize(
    ("of", "codes"), [("amount", ["sum_of_negative"]), ("tip", ["sum_of_optional", "sum_of_negative"])]
)
def test_lint_asks_that_what_a_sum_adds_up_is_required_and_from_0(of: str, codes: list[str]) -> None:
    problems = list(artifact_problems(house(of), (), known()))
    assert [one.code for one in problems] == codes
    assert {one.pointer for one in problems} == {"/bundle/history/paid/of"}
