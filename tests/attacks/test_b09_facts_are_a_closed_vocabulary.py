"""H2, B9: a rule reads facts that exist, and a run supplies exactly the facts that a rule can read.

The attack is a slip of the pen in a signed pack: a rule that reads `user.rol` never matches, and what it should have
denied is paid. `test_lint_names_every_planted_fault` holds the corpus of such slips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.envelopes.policy import POINTS, HistoryFact
from contextos.contracts.facts import FACTS, ROOTS, DeclaredFact, Vocabulary, declared_fact
from contextos.trust.policy.rule_evaluation import _TYPE_CHECKS
from contextos.trust.policy.rule_index import RuleIndex
from tests.world import open_world, request, run


def with_rule(condition: Any, **more: Any) -> Any:
    """A denying rule at the end of the example's bundle."""
    added = {"rule_id": "R_SLIP", "if": condition, "then": {"allow": False}} | more

    def change(body: dict[str, Any]) -> None:
        body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(added)

    return change


SLIPS = {
    "a fact with a slip": with_rule({"in": [{"var": ["user.rol", ""]}, ["intern"]]}),
    "an environment that is none": with_rule(True, applies_to={"environment": "production"}),
    "facts that are never known together": with_rule({"<": [{"var": "model.cost_cents"}, {"var": "args.amount_inr"}]}),
    "history that nobody supplies": with_rule({">": [{"var": ["history.refunds.sum", 0]}, 3000]}),
    "an amount as a text": with_rule({"==": [{"var": ["args.amount_inr", ""]}, "2500"]}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_deny_that_can_never_match_stops_the_pack_and_not_only_the_author(
    slip: str, stores: str, tmp_path: Path
) -> None:
    """Each of these rules was written to deny; before, the pack was pinned and the refund was paid."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=SLIPS[slip])
        view = await world.invoke(request(2500, "req_slip"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (view.state, failure["code"], world.refunds()) == ("rejected", "unknown_ref", [])
        assert "R_SLIP" in failure["detail"]
        await world.aclose()

    run(go())


def at_every_point(body: dict[str, Any]) -> None:
    """Rules that are only about memories, effects and plans, so that policy is asked there too."""
    for number, condition, applies in (
        (1, {"==": [{"var": "memory.predicate"}, "x"]}, {}),
        (2, {"==": [{"var": "user.role"}, "x"]}, {"point": "commit"}),
        (3, {"==": [{"var": "user.role"}, "x"]}, {"point": "plan"}),
    ):
        added = {"rule_id": f"R_POINT_{number}", "if": condition, "then": {"allow": False}, "applies_to": applies}
        body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(added)


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    fact = declared_fact(path)
    if fact is None and isinstance(value, Mapping):
        for name, below in value.items():
            yield from leaves(below, f"{path}.{name}")
    else:
        yield path, value


def test_a_run_supplies_exactly_the_declared_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    outcome = RuleIndex.outcome

    def watched(
        index: RuleIndex, point: Any, facts: Mapping[str, Any], served: Any, tool: Any, known: bool = False
    ) -> Any:
        if not known:
            asked.append((point, {**facts, **({"capability": dict(tool.facts)} if tool else {})}))
        return outcome(index, point, facts, served, tool, known)

    monkeypatch.setattr(RuleIndex, "outcome", watched)

    async def go() -> None:
        world = await open_world(tmp_path, pack=at_every_point)
        assert (await world.invoke(request(2500, "req_small"))).state == "completed"
        world.close()

    run(go())
    # What is asked about models: tests/unit/runtime/test_model_policy.py.
    assert {point for point, _ in asked} == {*POINTS} - {"model"}
    for point, facts in asked:
        assert facts.keys() <= set(ROOTS)
        for root, below in facts.items():
            for path, value in (leaf for name, one in below.items() for leaf in leaves(one, f"{root}.{name}")):
                fact = declared_fact(path)
                assert fact is not None, f"`{path}` is supplied and not declared"
                assert fact.type is None or _TYPE_CHECKS[fact.type](value), f"`{path}` is no {fact.type}"
        for fact in FACTS:
            if fact.always and point in fact.points:
                assert lies_in(facts, fact), f"`{fact.path}` is declared and not supplied at `{point}`"


def lies_in(facts: Mapping[str, Any], fact: DeclaredFact) -> bool:
    root, _, name = fact.path.partition(".")
    return name in facts.get(root, {})


def test_every_declared_type_is_one_that_a_rule_can_use() -> None:
    assert {fact.type for fact in FACTS} <= _TYPE_CHECKS.keys()
    history = {"name": HistoryFact(capability="adp.pay", aggregate="count", over="user", window_s=60)}
    known = Vocabulary(history=history, hours=("business_hours",))
    paths = {fact.path.replace("<", "").replace(">", "") + ".open" * (fact.root == "clock") for fact in FACTS}
    assert [path for path in paths if not known.find(path, "adp.pay")] == []


def misses(path: str) -> Any:
    """A deny that needs a fact which nobody has: evidence that retrieval does not find, or an organisation."""
    add = with_rule({"==": [{"var": path}, "frozen"]}, facts={path: "string"})

    def change(body: dict[str, Any]) -> None:
        refs = body["intelligence_refs"]
        refs["ontology"]["relationship_types"].append("change_freeze")
        nowhere = {"name": "change_freeze", "seed": 0, "path": ["placed_by", "change_freeze"]}
        refs["retrieval"]["evidence"].append(nowhere)
        add(body)

    return change


@pytest.mark.parametrize("path", ["user.organization_id", "evidence.change_freeze"])
def test_the_missing_fact_is_in_the_failure(path: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=misses(path))
        view = await world.invoke(request(2500, "req_missing"))
        assert view.record is not None
        failure = view.record["rationale"]["failures"][0]
        assert (failure["code"], failure["facts"], world.refunds()) == ("policy_eval_error", [path], [])
        assert f"`{path}`" in failure["detail"]
        await world.aclose()

    run(go())
