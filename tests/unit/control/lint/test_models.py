"""Lint of profiles, of routing rules, and of what a pack asks models for: each fault at its place, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from contextos.contracts.envelopes.models import ASKED_OPERATIONS, KNOWN_MODEL_OPERATIONS, ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import GovernedArtifact
from contextos.control.lint.models import lint_models
from contextos.control.lint.pack import lint_pack
from tests.attacks import modelled
from tests.modelled import embedder, pack, profile, rules

Found = list[tuple[str, str, str]]

LARGE = ModelProfile.model_validate(profile())
SMALL, TWIN, OTHER, SHORT = (
    ModelProfile.model_validate(
        embedder(context_window=8_000, regions=["eu", "us"], data_class="INTERNAL", profile_id=f"model.{name}", **of)
    )
    for name, of in (("small", {}), ("twin", {}), ("other", {"model": "other"}), ("short", {"dimensions": 2}))
)
KNOWN = (LARGE, SMALL, TWIN, OTHER, SHORT)


def found(artifact: GovernedArtifact, there: Iterable[GovernedArtifact] = (), egress: Any = ()) -> Found:
    return [(one.pointer, one.code, one.remedy) for one in lint_models(artifact, there, egress)]


def of_rules(*listed: dict[str, Any], there: Iterable[GovernedArtifact] = KNOWN, egress: Any = ()) -> Found:
    made = [{"operation": "judge.plan", "candidates": [{"profile": LARGE.pin}], **one} for one in listed]
    return found(RoutingRules.model_validate(rules(*made)), there, egress)


def candidates(*pins: str) -> dict[str, Any]:
    return {"candidates": [{"profile": one} for one in pins]}


@pytest.mark.parametrize(
    ("endpoint", "egress", "refused"),
    [
        ("https://api.models.example/v1", ["api.models.example"], False),
        ("https://api.models.example/v1", ["api.models.example:443"], False),
        ("http://api.models.example/v1", ["api.models.example:443"], True),
        ("https://api.models.example:8443/v1", ["api.models.example"], True),
        ("https://api.models.example:8443/v1", ["api.models.example:8443"], False),
        ("https://models.example/v1", ["api.models.example"], True),
        ("https://api.models.example/v1", [], True),
        ("https://api.models.example/v1", None, False),
        ("", [], False),
    ],
)
def test_a_profile_reaches_what_the_list_of_its_tenant_names(endpoint: str, egress: Any, refused: bool) -> None:
    of = {"wire": "openai", "endpoint": endpoint} if endpoint else {}
    problems = found(ModelProfile.model_validate(profile(**of)), (), egress)
    assert [one[:2] for one in problems] == ([("/endpoint", "egress_not_allowed")] if refused else [])


def test_a_slip_in_the_list_is_named() -> None:
    one = ModelProfile.model_validate(profile(wire="openai", endpoint="https://api.models.example/v1"))
    [(_, _, remedy)] = found(one, (), ["api.model.example:443"])
    assert "write `api.models.example:443` for `api.model.example:443`" in remedy


@pytest.mark.parametrize(
    ("rule", "pointer", "code", "said"),
    [
        (candidates("model.larg@1.0.0"), "/rules/0/candidates/0/profile", "not_published", "`model.large@1.0.0`"),
        (candidates("other@1.0.0"), "/rules/0/candidates/0/profile", "not_published", "publish it first"),
        ({"canary": {"profile": "o@1.0.0", "share": 0.5}}, "/rules/0/canary/profile", "not_published", "publish"),
        (candidates(LARGE.pin, LARGE.pin), "/rules/0/candidates/1/profile", "duplicate", "weights"),
        (candidates(SMALL.pin), "/rules/0/candidates/0/profile", "never_eligible", "another profile"),
        ({"canary": {"profile": SMALL.pin, "share": 0.5}}, "/rules/0/canary/profile", "never_eligible", "another"),
        (
            {"operation": "answer.compose", "canary": {"profile": SMALL.pin, "share": 0.1}},
            "/rules/0/canary/profile",
            "never_eligible",
            "another profile",
        ),
        ({"operation": "embed", **candidates(SMALL.pin, OTHER.pin)}, "/rules/0/candidates", "two_models", "one model"),
        (
            {"operation": "embed", **candidates(SMALL.pin), "canary": {"profile": SHORT.pin, "share": 0.1}},
            "/rules/0/candidates",
            "two_models",
            "one size",
        ),
        ({"operation": "embed"}, "/rules/0/candidates/0/profile", "never_eligible", "another profile"),
        ({"min_context_tokens": 200_001}, "/rules/0/candidates/0/profile", "never_eligible", "min_context_tokens"),
        ({"regions": ["us"]}, "/rules/0/candidates/0/profile", "never_eligible", "allow it"),
        (
            {"operation": "embed", "regions": ["eu"], **candidates(SMALL.pin)},
            "/rules/0/candidates/0/profile",
            "never_eligible",
            "allow it",
        ),
        (
            {"operation": "embed", "data_classes": ["CONFIDENTIAL", "RESTRICTED"], **candidates(SMALL.pin)},
            "/rules/0/candidates/0/profile",
            "never_eligible",
            "another profile",
        ),
        (
            {"operation": "embed", "data_classes": ["PUBLIC", "RESTRICTED"], **candidates(SMALL.pin)},
            "/rules/0/data_classes/1",
            "no_candidate",
            "higher `data_class`",
        ),
    ],
)
def test_what_no_call_could_use_is_refused_at_its_place(
    rule: dict[str, Any], pointer: str, code: str, said: str
) -> None:
    problems = of_rules(rule)
    assert (problems[0][:2], said in problems[0][2]) == ((pointer, code), True)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"regions": ["eu"], "min_context_tokens": 200_000, "data_classes": ["RESTRICTED"]},
        {"operation": "embed", "data_classes": ["PUBLIC"], **candidates(SMALL.pin)},
        {"operation": "embed", "data_classes": ["PUBLIC"], **candidates(SMALL.pin, TWIN.pin)},
        {"operation": "summarize.trace", **candidates(LARGE.pin)},
    ],
)
def test_what_a_call_can_use_is_fine(rule: dict[str, Any]) -> None:
    assert of_rules(rule) == []


def test_a_rule_behind_one_that_applies_to_all_of_its_calls_is_refused() -> None:
    early = {"intents": ["a", "b"], "data_classes": ["PUBLIC"]}
    behind = [
        {"intents": ["a"], "data_classes": ["PUBLIC"]},
        {"intents": ["a", "c"], "data_classes": ["PUBLIC"]},
        {"intents": ["a"]},
        {"data_classes": ["PUBLIC"]},
        {**early, "operation": "judge.score"},
        {**early, "risk_classes": ["read_only"]},
    ]
    assert [of_rules(early, one) != [] for one in behind] == [True, False, False, False, False, True]
    assert of_rules({}, {"intents": ["a"]})[0][:2] == ("/rules/1", "never_applies")


def test_two_rules_have_two_names() -> None:
    problems = of_rules({"rule_id": "R", "intents": ["a"]}, {"rule_id": "R", "intents": ["b"]})
    assert [one[:2] for one in problems] == [("/rules/1/rule_id", "duplicate")]


def test_where_nothing_is_known_a_profile_can_be_elsewhere() -> None:
    assert of_rules(candidates("other@1.0.0"), there=(), egress=None) == []
    assert of_rules(candidates("other@1.0.0"), there=())[0][1] == "not_published"
    assert of_rules(candidates(SMALL.pin), there=(SMALL,), egress=None)[0][1] == "never_eligible"


def test_a_pack_names_rules_that_are_there_and_have_a_rule_for_the_operation() -> None:
    there = RoutingRules.model_validate(rules())
    fine, other = (ContextPack.model_validate(pack(*named)) for named in (("judge.plan",), ("judge.score",)))
    twice = ContextPack.model_validate(pack("judge.plan", "judge.plan"))
    at = "/decision_layer/models"
    assert found(fine, [there]) == found(fine, (), None) == []
    assert [one[:2] for one in found(fine)] == [(f"{at}/0/rules", "not_published")]
    assert [one[:2] for one in found(other, [there])] == [(f"{at}/0/rules", "no_rule")]
    assert [one[:2] for one in found(twice, [there])] == [(f"{at}/1/operation", "duplicate")]


def problems_of(pack: dict[str, Any], *definitions: AdapterDefinition) -> list[tuple[str, str]]:
    known = {one.adapter_id: one for one in definitions} or None
    problems = lint_pack(ContextPack.model_validate(pack), known)
    return [(one.code, one.pointer) for one in problems if "adapter_registry" not in one.pointer]


@pytest.mark.parametrize("pack", [modelled.planned_pack(), modelled.session_pack()], ids=["planned", "session"])
def test_the_example_with_a_model_has_no_problem(pack: dict[str, Any]) -> None:
    assert problems_of(pack) == []


@pytest.mark.parametrize("operation", sorted(set(KNOWN_MODEL_OPERATIONS) - ASKED_OPERATIONS))
def test_an_operation_that_nothing_asks_for_is_refused(operation: str) -> None:
    pack = modelled.planned_pack()
    pack["decision_layer"]["models"].append({"operation": operation, "rules": modelled.RULES})
    assert problems_of(pack) == [("not_enforced", "/decision_layer/models/1/operation")]


@pytest.mark.parametrize("operation", ["judge.verify", "judge.score"])
def test_a_judge_needs_a_rubric(operation: str) -> None:
    of = pack("judge.plan", operation)
    assert problems_of(of) == []
    for empty in ("", " \n"):
        of["decision_layer"]["models"][1]["prompt_fragment"] = empty
        assert problems_of(of) == [("no_rubric", "/decision_layer/models/1/prompt_fragment")]


def test_a_model_that_chooses_calls_has_a_profile_that_can_call() -> None:
    mute = ModelProfile.model_validate(profile("mute", capabilities=["structured_output"]))
    chosen, planned = (ContextPack.model_validate(pack(chosen_by=one)) for one in ("model", "template"))

    def problems(artifact: ContextPack, *named: dict[str, Any], egress: Any = ()) -> list[tuple[str, str]]:
        made = RoutingRules.model_validate(rules(*({"operation": "judge.plan", **one} for one in named)))
        return [one[:2] for one in found(artifact, [made, mute, LARGE], egress)]

    refused = [("/decision_layer/models/0/rules", "never_eligible")]
    for_others = {**candidates(LARGE.pin), "intents": ["support.other"]}
    for egress in ((), None):
        assert problems(chosen, candidates(mute.pin), egress=egress) == refused
        assert problems(chosen, for_others, candidates(mute.pin), egress=egress) == refused
        assert problems(chosen, for_others, egress=egress) == refused, "no rule is for its intent"
        mute_at_risk = {**candidates(mute.pin), "risk_classes": ["destructive"]}
        assert problems(chosen, mute_at_risk, candidates(LARGE.pin), egress=egress) == refused
        assert problems(chosen, candidates(LARGE.pin), mute_at_risk, egress=egress) == [], "it never applies"
        assert problems(planned, candidates(mute.pin), egress=egress) == []
        assert problems(chosen, candidates(mute.pin, LARGE.pin), egress=egress) == []
        assert problems(chosen, {**candidates(mute.pin), "canary": {"profile": LARGE.pin, "share": 1}}) == []
    assert problems(chosen, candidates(mute.pin, "elsewhere@1.0.0"), egress=None) == []


@pytest.mark.parametrize(
    "models", [[], [{"operation": "judge.verify", "rules": modelled.RULES, "prompt_fragment": "Be strict."}]]
)
def test_a_model_that_chooses_calls_needs_rules(models: list[dict[str, str]]) -> None:
    pack = modelled.session_pack()
    pack["decision_layer"]["models"] = models
    assert problems_of(pack) == [("no_model", "/decision_layer/task_templates/0/chosen_by")]


def payments(**stated: Any) -> AdapterDefinition:
    schema = {"type": "object", "properties": {"pin": {"type": "string"}, "order_id": {"type": "string"}}}
    capability = {
        "name": "issue_refund",
        "kind": "write",
        "risk_level": "write_irreversible",
        "approval_mode": "destructive",
        "input_schema": schema,
        "output_schema": {"type": "object"},
        "idempotency": {"strategy": "none", "scope": "run"},
    }
    return AdapterDefinition.model_validate(
        {"adapter_id": "adp_payments", "type": "function", "version": "1", "capabilities": [capability | stated]}
    )


def test_a_tool_with_a_secret_is_no_tool_of_a_model() -> None:
    at = "/decision_layer/task_templates/0/steps/2/tool"
    assert ("secret_shown", at) in problems_of(modelled.session_pack(), payments(secrets=["pin"]))
    assert ("secret_shown", at) not in problems_of(modelled.session_pack(), payments())
    by_agent = modelled.session_pack()
    by_agent["decision_layer"]["task_templates"][0]["chosen_by"] = "agent"
    assert ("secret_shown", at) not in problems_of(by_agent, payments(secrets=["pin"]))
