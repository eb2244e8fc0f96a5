"""Lint of parameters: what no run could have, a pattern that is not safe, and a seed that would need its own answer."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.pack import ContextPack
from contextos.control.lint.pack import lint_pack
from tests.world import example

HERE = "/decision_layer/intents/0/parameters"


def found(change: Any) -> list[tuple[str, str]]:
    pack = example("pack.json")
    change(pack, pack["decision_layer"]["intents"][0]["parameters"])
    return [(one.code, one.pointer) for one in lint_pack(ContextPack.model_validate(pack), None)]


def declares(name: str, **source: str) -> Any:
    return lambda _pack, listed: listed.append({"name": name, "type": "string", "from": [source]})


def agreement(pack: dict[str, Any], _listed: Any) -> None:
    pack["tooling_layer"]["permissions"][2]["agrees_with"]["order_id"] = "/parameters/order"


def seed_of_a_fact(_pack: Any, listed: list[dict[str, Any]]) -> None:
    listed[0]["from"].append({"evidence": "order_total"})


def undeclared(_pack: Any, listed: list[dict[str, Any]]) -> None:
    del listed[2]


def test_the_example_has_no_problem() -> None:
    assert found(lambda _pack, _listed: None) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (declares("order_id", context="x"), ("duplicate", f"{HERE}/3/name")),
        (declares("x", message="(?=a)"), ("pattern_refused", f"{HERE}/3/from/0/message")),
        (declares("x", message="(a)(b)"), ("pattern_refused", f"{HERE}/3/from/0/message")),
        (declares("x", evidence="order_lookup"), ("unknown_edge", f"{HERE}/3/from/0/evidence")),
        (agreement, ("unknown_edge", "/tooling_layer/permissions/2/agrees_with/order_id")),
        (seed_of_a_fact, ("too_early", "/intelligence_refs/retrieval/seeds/0/binding/pointer")),
        (undeclared, ("unknown_edge", "/decision_layer/task_templates/0/steps/2/params/currency/pointer")),
    ],
)
def test_what_no_run_could_have_is_refused(change: Any, problem: tuple[str, str]) -> None:
    assert problem in found(change)
