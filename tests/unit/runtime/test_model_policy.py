"""Policy about models: what a decision reads, who is refused, and that rules about calls decide nothing there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from contextos.action.models.router import RouteState, route
from contextos.contracts.controls import KnownFacts
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.facts import FACTS, Vocabulary
from contextos.contracts.model import changed
from contextos.contracts.scope import RunScope
from contextos.runtime.model_policy import decide_model, refused_models
from contextos.trust.policy.policy_set import PolicySet, compile_policy
from contextos.trust.policy.rule_evaluation import _TYPE_CHECKS
from tests.modelled import QUESTION
from tests.policies import leveled, paths_in, var
from tests.policies import rule as stated_rule

OF_RUN = KnownFacts({"request": {"intent": "refund"}, "run": {"environment": "prod"}, "user": {"role": "agent"}})


def profile(name: str, region: str, **more: Any) -> ModelProfile:
    body = {
        "profile_id": name,
        "version": "1.0.0",
        "tenant": "acme",
        "wire": "anthropic",
        "model": f"model-{name}",
        "endpoint": "https://models.example",
        "capabilities": ["structured_output"],
        "context_window": 10_000,
        "max_output_tokens": 1_000,
        "regions": [region],
        "data_class": "CONFIDENTIAL",
        "retention": "none",
        "prices": {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "1", "output": "2"}},
    }
    return ModelProfile.model_validate({**body, **more})


PROFILES = {one.pin: one for one in (profile("near", "eu"), profile("far", "us", retention="stored"))}


def rule(rule_id: str, condition: Any, **more: Any) -> dict[str, Any]:
    typed = {"facts": {"model.regions": "array"}} if "model.regions" in paths_in(condition) else {}
    return stated_rule(rule_id, condition, **typed, **more)


ALLOW = rule("R_ALLOW", True, applies_to={"point": "model"})


def compiled(*rules: dict[str, Any], **more: Any) -> PolicySet:
    stated: dict[str, Any] = {"gates": (), "must_refuse": (), "must_escalate": (), **more}
    return compile_policy([leveled(*rules)], vocabulary=Vocabulary(), **stated)


def refused(*rules: dict[str, Any], **more: Any) -> dict[str, tuple[str, ...]]:
    scope = cast("RunScope", SimpleNamespace(facts=OF_RUN, run=SimpleNamespace(run_id="run_1")))
    costs = dict.fromkeys(PROFILES, 600)
    return refused_models(scope, compiled(*rules, **more), "judge.plan", "INTERNAL", PROFILES, costs, "plan/0")


@pytest.mark.parametrize("allow", [True, False])
def test_a_tenant_without_a_rule_about_models_is_asked_nothing(allow: bool) -> None:
    assert refused(rule("R_1", True, allow=allow)) == {}


@pytest.mark.parametrize(
    ("condition", "denied"),
    [
        ({"in": ["us", var("model.regions")]}, ["far"]),
        ({"==": [var("model.retention"), "stored"]}, ["far"]),
        ({"==": [var("model.profile_id"), "near"]}, ["near"]),
        ({"==": [var("model.model"), "model-near"]}, ["near"]),
        ({"==": [var("model.wire"), "anthropic"]}, ["far", "near"]),
        ({"==": [var("model.operation"), "embed"]}, []),
        ({"==": [var("model.shown_class"), "INTERNAL"]}, ["far", "near"]),
        ({"==": [var("model.data_class"), "PUBLIC"]}, []),
        ({">": [var("model.cost_cents"), 0.06]}, []),
        ({">=": [var("model.cost_cents"), 0.06]}, ["far", "near"]),
        ({"and": [{"==": [var("user.role"), "agent"]}, {"in": ["us", var("model.regions")]}]}, ["far"]),
    ],
)
def test_a_rule_reads_the_profile_and_the_call(condition: Any, denied: list[str]) -> None:
    assert refused(ALLOW, rule("R_DENY", condition, allow=False)) == {f"{name}@1.0.0": ("R_DENY",) for name in denied}


def test_where_a_rule_is_about_models_each_profile_needs_an_allow() -> None:
    near = rule("R_NEAR", {"!": [{"in": ["us", var("model.regions")]}]})
    assert refused(near) == {"far@1.0.0": ("no_rule_allows",)}


def test_a_general_denial_counts_there_too_and_one_about_a_tool_does_not() -> None:
    general = rule("R_ROLE", {"==": [var("user.role"), "agent"]}, allow=False)
    assert refused(ALLOW, general) == dict.fromkeys(PROFILES, ("R_ROLE",))
    of_tools = rule("R_TOOL", {"==": [var("capability.kind"), "write"]}, allow=False)
    assert refused(ALLOW, of_tools, rule("R_ARG", {">": [var("args.n"), 1]}, allow=False)) == {}


def test_what_cannot_be_evaluated_refuses() -> None:
    asked = rule("R_TEAM", {"==": [var("user.organization_id"), "o"]}, applies_to={"point": "model"})
    assert refused(ALLOW, asked) == dict.fromkeys(PROFILES, ("R_TEAM",))


def test_guardrails_refuse_and_a_model_is_not_asked_while_a_person_has_to_look() -> None:
    stored = {"==": [var("model.retention"), "stored"]}
    for name in ("must_refuse", "must_escalate"):
        [(pin, rules)] = refused(ALLOW, **{name: [stored]}).items()
        assert (pin, len(rules)) == ("far@1.0.0", 1)
    assert refused(ALLOW, rule("R_MARK", stored), must_escalate=["R_MARK"]) == {"far@1.0.0": ("R_MARK",)}


def test_each_declared_fact_is_supplied_with_its_type_and_nothing_else_is() -> None:
    seen: list[Any] = []

    class Watched(KnownFacts):
        def also(self, facts: Any, digests: Any = None) -> KnownFacts:
            seen.append(facts["model"])
            return super().also(facts, digests)

    decide_model(compiled(ALLOW), Watched(OF_RUN), "embed", "PUBLIC", PROFILES["near@1.0.0"], 7, "pol_1")
    declared = {fact.path.partition(".")[2]: fact.type for fact in FACTS if fact.root == "model"}
    [facts] = seen
    assert facts.keys() == declared.keys()
    for name, kind in declared.items():
        assert kind is not None
        assert _TYPE_CHECKS[kind](facts[name]), name


def test_the_router_passes_over_what_policy_refuses_and_names_the_rule() -> None:
    rules = RoutingRules.model_validate(
        {
            "rules_id": "rules",
            "version": "1.0.0",
            "tenant": "acme",
            "rules": [
                {"rule_id": "R_1", "operation": "judge.plan", "candidates": [{"profile": one} for one in PROFILES]}
            ],
        }
    )
    state = RouteState(refused=refused(ALLOW, rule("R_EU", {"in": ["us", var("model.regions")]}, allow=False)))
    for asked in (QUESTION, changed(QUESTION, tried=(("near@1.0.0", "unavailable"),))):
        decision = route(asked, rules, PROFILES, state)
        of_far = next(one for one in decision.candidates if one.profile == "far@1.0.0")
        assert (decision.profile, of_far.reason, of_far.detail) == ("near@1.0.0", "policy", "R_EU")
