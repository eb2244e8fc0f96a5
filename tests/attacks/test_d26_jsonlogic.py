"""D26, conditions: what json-logic-js calls missing is missing, and no condition lints that can never be evaluated.

The guard is what an author of JsonLogic writes for a form that was left blank. json-logic-js, `missing`:
`value === null || value === ""`. No store takes part in a policy decision.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line as command
from contextos.trust.policy.conditions import analyse_condition
from contextos.trust.policy.operators import KNOWN
from tests.policies import ALLOW_AGENTS, NOTE, decide, facts, leveled, policy, rule, var
from tests.world import example

FORM = ["args.name", "args.city", "args.note"]
FILLED = {"name": "Ann", "city": "Pune", "note": "late"}


def outcome(condition: Any, args: dict[str, Any]) -> str:
    """The reason of the decision where a rule denies what `condition` describes and another allows everything."""
    policies = policy(leveled(ALLOW_AGENTS, rule("R_BLANK", condition, allow=False)))
    return decide(policies, facts() | {"args": args}, NOTE).reason


@pytest.mark.parametrize("blank", ["name", "city", "note"])
@pytest.mark.parametrize(
    "guard",
    [
        {"!!": [{"missing": FORM}]},
        {"!!": {"missing": FORM}},
        {"if": [{"missing": FORM}, True, False]},
        {"!": [{"if": [{"!": [{"missing": FORM}]}, True, False]}]},
        {"!!": [{"missing_some": [3, FORM]}]},
        {"or": [{"!!": [{"missing": path}]} for path in FORM]},
    ],
)
def test_a_blank_field_is_missing(guard: Any, blank: str) -> None:
    assert outcome(guard, FILLED) == "allowed"
    assert outcome(guard, FILLED | {blank: " "}) == "allowed", "a blank is not the empty text"
    assert outcome(guard, FILLED | {blank: ""}) == "denied_by_rule"
    assert outcome(guard, {name: value for name, value in FILLED.items() if name != blank}) == "denied_by_rule"
    assert outcome(guard, FILLED | {blank: None}) == "indeterminate"


def test_missing_some_counts_what_is_there() -> None:
    one_of = {"!!": [{"missing_some": [1, FORM]}]}
    assert outcome(one_of, {"name": "", "city": "", "note": "late"}) == "allowed"
    assert outcome(one_of, {"name": "", "city": ""}) == "denied_by_rule"
    assert outcome({"!!": [{"missing_some": [9, FORM]}]}, FILLED) == "allowed", "nothing is missing"
    assert outcome({"!!": [{"missing": []}]}, {}) == "allowed"


def test_a_fact_that_is_no_text_is_never_blank() -> None:
    for value in (0, False, [], {}, [""]):
        assert outcome({"!!": [{"missing": FORM}]}, FILLED | {"name": value}) == "allowed", value


@pytest.mark.parametrize("name", sorted(KNOWN - {"!", "!!", "var", "missing"}))
def test_an_operator_without_a_list_does_not_lint(name: str) -> None:
    for operand in (True, 3, "args.name", var("args.name"), {"!": [var("args.flag")]}):
        assert analyse_condition({"!": [{name: operand}]}).problems, operand


def test_the_lint_of_a_pack_says_where_the_list_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = example("pack.json")
    rules = pack["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    rules[4]["if"] = {"and": rules[4]["if"]}
    file = tmp_path / "pack.json"
    file.write_text(json.dumps(pack), "utf-8")
    assert command(["pack", "lint", str(file), "--json"]) == 2
    [problem] = [one for one in json.loads(capsys.readouterr().out)["problems"] if "list" in one["detail"]]
    assert problem["code"] == "operands_not_a_list"
    assert problem["pointer"].endswith("/rules/4/if/and")
