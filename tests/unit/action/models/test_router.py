"""The router: each filter by a table, and, for random sets of profiles, that the chosen one passes every limit and that
what is said of each other one is true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, get_args

import pytest

from contextos.action.models.router import WONT_CHANGE, RouteQuestion, RouteState, route, rule_of
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS
from contextos.contracts.envelopes.models import (
    KNOWN_MODEL_OPERATIONS,
    LEAST_TIME_MS,
    NEEDED_CAPABILITIES,
    FallbackTrigger,
    ModelCapability,
    ModelProfile,
    RouteReason,
    RoutingDecision,
    RoutingRule,
    RoutingRules,
)
from contextos.contracts.model import changed
from tests.modelled import QUESTION

CAPABILITIES = get_args(ModelCapability)
TALKS = CAPABILITIES[:3]
OPERATIONS = (*KNOWN_MODEL_OPERATIONS[:4], "summarize.trace", "embed")
TRIGGERS = get_args(FallbackTrigger)


def profile(name: str, units: int = 1, **more: Any) -> ModelProfile:
    """A profile whose tokens cost so many units each."""
    body = {
        "profile_id": name,
        "version": "1.0.0",
        "tenant": "acme",
        "wire": "openai",
        "model": name,
        "endpoint": "https://models.example/v1",
        "capabilities": ["structured_output"],
        "context_window": 10_000,
        "max_output_tokens": 450,
        "regions": ["eu"],
        "data_class": "CONFIDENTIAL",
        "retention": "none",
        "prices": {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": str(units), "output": str(units)}},
    }
    return ModelProfile.model_validate({**body, **more})


def rules_of(*rules: dict[str, Any]) -> RoutingRules:
    listed = [{"rule_id": f"R_{number}", "operation": "judge.plan", **one} for number, one in enumerate(rules)]
    return RoutingRules.model_validate({"rules_id": "rules", "version": "1.0.0", "tenant": "acme", "rules": listed})


def candidates(*names: str, **weights: int) -> list[dict[str, Any]]:
    return [{"profile": f"{name}@1.0.0"} for name in names] + [
        {"profile": f"{name}@1.0.0", "weight": weight} for name, weight in weights.items()
    ]


def by_pin(*profiles: ModelProfile) -> dict[str, ModelProfile]:
    return {one.pin: one for one in profiles}


NOTHING = RouteState()


def fallback_index(decision: RoutingDecision) -> int:
    """How many candidates the run prefers to the chosen one."""
    return [*(one.reason for one in decision.candidates), "chosen"].index("chosen")


def reasons(decision: RoutingDecision) -> dict[str, tuple[str, str]]:
    return {one.profile.partition("@")[0]: (one.reason, one.detail) for one in decision.candidates}


def decided(
    question: RouteQuestion, rules: RoutingRules, profiles: Mapping[str, ModelProfile], state: RouteState = NOTHING
) -> RoutingDecision:
    return route(question, rules, profiles, state)


A, B = profile("a"), profile("b")
EMBEDS = {"capabilities": ["embeddings"], "dimensions": 3, "max_output_tokens": 0}
TRIED: dict[str, Any] = {"tried": (("a@1.0.0", "unavailable"),)}


@pytest.mark.parametrize(
    ("of_profile", "of_rule", "of_question", "of_state", "reason", "detail"),
    [
        ({"capabilities": []}, {}, {}, {}, "capability", "structured_output"),
        ({}, {}, {"capabilities": frozenset({"tool_calls"})}, {}, "capability", "tool_calls"),
        (EMBEDS, {"operation": "answer.compose"}, {"operation": "answer.compose"}, {}, "capability", "it only embeds"),
        ({"regions": ["eu", "us"]}, {"regions": ["eu"]}, {}, {}, "region", "us"),
        ({}, {}, {"data_class": "RESTRICTED"}, {}, "data_class", "RESTRICTED is above CONFIDENTIAL"),
        ({}, {}, {}, {"refused": {"a@1.0.0": ("R_EU", "R_NO")}}, "policy", "R_EU, R_NO"),
        ({}, {}, {}, {"open_until_us": {"a@1.0.0": 7}}, "health", "open until 7"),
        ({}, {}, {}, {"exhausted": frozenset({"a@1.0.0"})}, "quota", "its limit of calls is used up"),
        ({"context_window": 549}, {}, {}, {}, "context_size", "550 tokens of 549"),
        ({}, {"min_context_tokens": 10_001}, {}, {}, "context_size", "10001 tokens of 10000"),
        ({"units": 20}, {}, {}, {}, "cost", "12000 units of 10000"),
        ({}, {"max_cost_cents": 0.0599}, {}, {}, "cost", "600 units of 599, by the rule"),
        ({}, {}, {"time_left_ms": 99}, {}, "latency", "99 ms of at least 100"),
        ({}, {}, {"time_left_ms": -5}, {}, "latency", "0 ms of at least 100"),
        ({}, {"max_attempts": 1}, TRIED, {}, "attempts", "1 of 1"),
        ({}, {"fallback_on": ["cut"]}, TRIED, {}, "attempts", "none after `unavailable`"),
        (
            {},
            {"fallback_on": ["unknown_model"]},
            {"tried": (("a@1.0.0", "unknown_model"),)},
            {},
            "tried",
            "it was `unknown_model`",
        ),
    ],
)
def test_each_filter_passes_a_candidate_over_and_says_why(
    of_profile: dict[str, Any],
    of_rule: dict[str, Any],
    of_question: dict[str, Any],
    of_state: dict[str, Any],
    reason: str,
    detail: str,
) -> None:
    one = profile("a", **of_profile)
    rules = rules_of({"candidates": candidates("a"), **of_rule})
    decision = decided(changed(QUESTION, **of_question), rules, by_pin(one), RouteState(**of_state))
    assert (decision.profile, reasons(decision)) == (None, {"a": (reason, detail)})
    assert (decision.reserved_units, decision.output_tokens) == (0, 0)


def test_a_candidate_that_meets_every_limit_exactly_is_chosen() -> None:
    one = profile("a", context_window=550)
    limits = {"regions": ["eu", "us"], "max_cost_cents": 0.06, "min_context_tokens": 550, "max_latency_ms": 100}
    question = changed(QUESTION, units_left=600, data_class="CONFIDENTIAL", time_left_ms=100)
    decision = decided(question, rules_of({"candidates": candidates("a"), **limits}), by_pin(one))
    assert decision.to_json() == {
        "operation": "judge.plan",
        "rules": "rules@1.0.0",
        "rule_id": "R_0",
        "profile": "a@1.0.0",
        "output_tokens": 450,
        "timeout_ms": 100,
        "reserved_units": 600,
        "candidates": [{"profile": "a@1.0.0", "reason": "chosen"}],
    }
    assert parse(RoutingDecision, canonical(decision.to_json())) == decision


@pytest.mark.parametrize(
    ("of_profile", "of_rule", "granted"),
    [
        ({}, {}, 450),
        ({}, {"max_output_tokens": 300}, 300),
        ({"max_output_tokens": 200}, {"max_output_tokens": 300}, 200),
    ],
)
def test_the_lowest_limit_on_the_answer_counts(
    of_profile: dict[str, Any], of_rule: dict[str, Any], granted: int
) -> None:
    rules = rules_of({"candidates": candidates("a"), **of_rule})
    one = profile("a", **of_profile)
    decision = decided(QUESTION, rules, by_pin(one))
    assert (decision.output_tokens, decision.reserved_units) == (granted, 150 + granted)


@pytest.mark.parametrize(
    ("of_rule", "applies"),
    [
        ({}, True),
        ({"operation": "judge.verify"}, False),
        ({"intents": ["deploy"]}, False),
        ({"intents": ["deploy", "refund"]}, True),
        ({"risk_classes": ["read_only"]}, False),
        ({"risk_classes": ["delegated"]}, True),
        ({"data_classes": ["RESTRICTED"]}, False),
        ({"data_classes": ["INTERNAL"], "intents": ["refund"]}, True),
        ({"data_classes": ["INTERNAL"], "intents": ["deploy"]}, False),
    ],
)
def test_the_first_rule_that_applies_decides(of_rule: dict[str, Any], applies: bool) -> None:
    rules = rules_of({"candidates": candidates("a"), **of_rule}, {"candidates": candidates("b")})
    rule = rule_of(QUESTION, rules)
    assert rule is not None
    assert rule.rule_id == ("R_0" if applies else "R_1")


def test_a_rule_that_applies_and_has_no_eligible_candidate_hands_on_to_no_other() -> None:
    rules = rules_of({"candidates": candidates("a"), "regions": ["us"]}, {"candidates": candidates("b")})
    decision = decided(QUESTION, rules, by_pin(A, B))
    assert (decision.rule_id, decision.profile, reasons(decision)) == ("R_0", None, {"a": ("region", "eu")})


def test_without_a_rule_nothing_is_asked() -> None:
    decision = decided(QUESTION, rules_of({"operation": "embed", "candidates": candidates("a")}), by_pin(A))
    assert decision.to_json() == {"operation": "judge.plan", "rules": "rules@1.0.0"}


def test_a_profile_that_the_run_does_not_pin_is_passed_over() -> None:
    decision = decided(QUESTION, rules_of({"candidates": candidates("a", "b")}), by_pin(B))
    assert (decision.profile, reasons(decision)["a"]) == ("b@1.0.0", ("unknown", ""))


def test_a_fallback_goes_to_what_was_asked_least_often_and_then_begins_again() -> None:
    rules = rules_of({"candidates": candidates("a", "b", c=0), "max_attempts": 4})
    profiles = by_pin(A, B, profile("c"))
    asked: list[str] = []
    found = []
    for _ in range(5):
        question = changed(QUESTION, tried=tuple((pin, "unavailable") for pin in asked))
        decision = decided(question, rules, profiles)
        found.append((decision.profile, fallback_index(decision)))
        asked.append(decision.profile or "")
    first, second = asked[:2]
    assert {first, second} == {"a@1.0.0", "b@1.0.0"}
    assert found == [(first, 0), (second, 1), ("c@1.0.0", 2), (first, 0), (None, 3)]
    again = decided(changed(QUESTION, tried=((first, "cut"),)), rules, profiles)
    assert [one.reason for one in again.candidates] == ["tried", "chosen", "weight"]


def test_the_only_candidate_is_asked_again_unless_its_answer_would_be_the_same() -> None:
    rules = rules_of({"candidates": candidates("a"), "fallback_on": ["cut", "too_large"]})
    again = [decided(changed(QUESTION, tried=(("a@1.0.0", one),)), rules, by_pin(A)) for one in ("cut", "too_large")]
    assert [one.profile for one in again] == ["a@1.0.0", None]


def test_neither_canary_nor_fallback_passes_a_ceiling() -> None:
    outside = [profile("far", regions=["us"]), profile("low", data_class="PUBLIC")]
    for one in outside:
        rule = {"candidates": candidates("a", **{one.profile_id: 0}), "regions": ["eu"]}
        canary = {"candidates": candidates("a"), "regions": ["eu"], "canary": {"profile": one.pin, "share": 1}}
        for rules in (rules_of(rule), rules_of(canary)):
            failed = changed(QUESTION, tried=(("a@1.0.0", "unavailable"),))
            for question in (QUESTION, failed):
                assert decided(question, rules, by_pin(A, one)).profile == "a@1.0.0"
            assert decided(failed, rules, by_pin(one)).profile is None


def test_a_canary_has_its_share_of_the_runs_and_the_weights_share_the_others() -> None:
    weights = {"a": 1, "b": 3, "c": 6, "d": 0}
    rules = rules_of({"candidates": candidates(**weights), "canary": {"profile": "e@1.0.0", "share": 0.1}})
    profiles, chosen = by_pin(*(profile(name) for name in "abcde")), Counter[str]()
    for number in range(20_000):
        decision = decided(changed(QUESTION, run_id=f"run_{number}"), rules, profiles)
        chosen[str(decision.profile)[0]] += 1
        if decision.profile != "e@1.0.0":
            assert reasons(decision)["e"] == ("share", "0.1 of the runs")
    for name, share in {"a": 0.09, "b": 0.27, "c": 0.54, "d": 0, "e": 0.1}.items():
        # Five standard deviations of a binomial distribution.
        assert abs(chosen[name] - 20_000 * share) <= 5 * (20_000 * share * (1 - share)) ** 0.5, name


def test_a_canary_is_not_asked_outside_of_its_share_where_no_other_is_eligible() -> None:
    rules = rules_of({"candidates": candidates("a"), "canary": {"profile": "b@1.0.0", "share": 0.5}})
    found = [decided(changed(QUESTION, run_id=f"run_{n}"), rules, by_pin(B)) for n in range(40)]
    assert {(one.profile, reasons(one)["b"][0]) for one in found} == {("b@1.0.0", "chosen"), (None, "share")}


@pytest.mark.parametrize(("share", "times"), [(0, 0), (0.0, 0), (1, 200), (1.0, 200)])
def test_no_run_and_every_run_are_shares_too(share: float, times: int) -> None:
    rules = rules_of({"candidates": candidates("a"), "canary": {"profile": "b@1.0.0", "share": share}})
    found = [decided(changed(QUESTION, run_id=f"run_{n}"), rules, by_pin(A, B)).profile for n in range(200)]
    assert found.count(B.pin) == times


def test_which_runs_are_in_a_share_is_another_question_for_each_rule() -> None:
    canary = {"profile": "b@1.0.0", "share": 0.5}
    one, other = (rules_of({"rule_id": name, "candidates": candidates("a"), "canary": canary}) for name in "xy")
    differ = 0
    for number in range(1_000):
        question = changed(QUESTION, run_id=f"run_{number}")
        differ += decided(question, one, by_pin(A, B)).profile != decided(question, other, by_pin(A, B)).profile
    assert 400 < differ < 600


def test_a_canary_that_is_a_candidate_too_keeps_its_weight_outside_of_its_share() -> None:
    rules = rules_of({"candidates": candidates("a", "b"), "canary": {"profile": "b@1.0.0", "share": 0.5}})
    found = [decided(changed(QUESTION, run_id=f"run_{n}"), rules, by_pin(A, B)) for n in range(2_000)]
    assert all(len(one.candidates) == 2 for one in found)
    assert 1_300 < sum(one.profile == B.pin for one in found) < 1_700


def test_a_candidate_that_leaves_changes_the_choice_of_its_own_runs_alone() -> None:
    profiles = by_pin(*(profile(name) for name in "abc"))
    every, fewer = rules_of({"candidates": candidates("a", "b", "c")}), rules_of({"candidates": candidates("a", "b")})
    for number in range(500):
        question = changed(QUESTION, run_id=f"run_{number}")
        before = decided(question, every, profiles).profile
        assert before == "c@1.0.0" or before == decided(question, fewer, profiles).profile


def test_the_choice_of_a_run_is_written_down() -> None:
    """Another choice would send the running share of every deployment elsewhere."""
    rules = rules_of({"candidates": candidates(a=1, b=2, c=5), "canary": {"profile": "d@1.0.0", "share": 0.25}})
    profiles = by_pin(*(profile(name) for name in "abcd"))
    found = [decided(changed(QUESTION, run_id=f"run_{n}"), rules, profiles).profile or "" for n in range(24)]
    assert "".join(one[0] for one in found) == "cccbcdcddacdddddccccccab"


Case = tuple[RouteQuestion, RoutingRules, dict[str, ModelProfile], RouteState]


def drawn(chance: random.Random) -> Case:
    """A question, rules, profiles and state in which each limit is met by some and not by others."""
    names = [f"p{number}" for number in range(chance.randint(1, 6))]
    some = lambda values, least=0: chance.sample(values, chance.randint(least, len(values)))  # noqa: E731
    regions = ["eu", "us", "ch"]
    profiles = {}
    for name in names:
        window, embeds = chance.choice([500, 1_000, 4_000]), chance.random() < 0.2
        able = ["embeddings"] if embeds else chance.choice([["structured_output"], some(TALKS), list(TALKS)])
        made = profile(
            name,
            units=chance.choice([1, 1, 2, 9]),
            capabilities=able,
            dimensions=3 if embeds else None,
            context_window=window,
            max_output_tokens=0 if embeds else chance.randint(1, window - 1),
            regions=chance.choice([["eu"], some(regions, 1)]),
            data_class=chance.choice(CLASSIFICATION_LEVELS[1:]),
            timeout_ms=chance.choice([100, 5_000]),
        )
        profiles[made.pin] = made
    listed = [{"profile": pin, "weight": chance.choice([0, 1, 1, 7])} for pin in some(list(profiles), 1)]
    rule: dict[str, Any] = {"operation": chance.choice(OPERATIONS), "candidates": listed}
    optional = {
        "regions": chance.choice([["eu"], ["eu", "us"], regions]),
        "max_cost_cents": chance.choice([0.1, 0.5]),
        "max_latency_ms": chance.choice([100, 9_000]),
        "min_context_tokens": chance.choice([400, 1_000]),
        "max_output_tokens": chance.randint(1, 900),
        "fallback_on": some(TRIGGERS),
        "max_attempts": chance.randint(1, 4),
        "canary": {"profile": chance.choice(list(profiles)), "share": chance.choice([0, 0.5, 1])},
    }
    rule |= {name: value for name, value in optional.items() if chance.random() < 0.4}
    if chance.random() < 0.1:
        del profiles[chance.choice(list(profiles))]
    pins = [one["profile"] for one in listed]
    state = RouteState(
        {pin: 1 for pin in pins if chance.random() < 0.15},
        {pin: ("R_1",) for pin in pins if chance.random() < 0.15},
        exhausted=frozenset(pin for pin in pins if chance.random() < 0.15),
    )
    tokens = chance.randint(1, 900)
    question = RouteQuestion(
        run_id=f"run_{chance.randrange(10**9)}",
        operation=chance.choice([rule["operation"], chance.choice(KNOWN_MODEL_OPERATIONS)]),
        intent="refund",
        risk_class="delegated",
        data_class=chance.choice(CLASSIFICATION_LEVELS[:3]),
        input_tokens=tokens,
        most_input_tokens=tokens + chance.randint(0, 900),
        units_left=chance.choice([500, 2_000, 50_000]),
        time_left_ms=chance.choice([50, 150, 60_000]),
        capabilities=frozenset(some(CAPABILITIES)) if chance.random() < 0.2 else frozenset(),
        tried=tuple(
            (chance.choice(pins), chance.choice([*TRIGGERS, "refused"])) for _ in range(chance.choice([0, 0, 1, 2]))
        ),
    )
    return question, rules_of(rule), profiles, state


def broken_limits(case: Case, rule: RoutingRule, pin: str) -> set[str]:
    """Every limit that a candidate does not meet, each written down a second time."""
    question, _, profiles, state = case
    one = profiles.get(pin)
    if one is None:
        return {"unknown"}
    needed = {NEEDED_CAPABILITIES[question.operation]} if question.operation in NEEDED_CAPABILITIES else set()
    tokens = min(one.max_output_tokens, rule.max_output_tokens or 10**9)
    cost = (question.most_input_tokens + tokens) * int(one.prices.prices["input"])
    limits = {
        "capability": {*needed, *question.capabilities} <= {*one.capabilities}
        and (not one.embeds or question.operation == "embed"),
        "region": not rule.regions or all(place in rule.regions for place in one.regions),
        "data_class": CLASSIFICATION_LEVELS.index(question.data_class) <= CLASSIFICATION_LEVELS.index(one.data_class),
        "policy": pin not in state.refused,
        "health": pin not in state.open_until_us,
        "quota": pin not in state.exhausted,
        "context_size": question.input_tokens + tokens <= one.context_window
        and (rule.min_context_tokens or 0) <= one.context_window,
        "cost": cost <= question.units_left
        and (rule.max_cost_cents is None or cost <= Fraction(str(rule.max_cost_cents)) * 10_000),
        "latency": all(
            most is None or most >= LEAST_TIME_MS
            for most in (one.timeout_ms, rule.max_latency_ms, question.time_left_ms)
        ),
        "attempts": len(question.tried) < rule.max_attempts
        and (not question.tried or question.tried[-1][1] in rule.fallback_on),
        "tried": not any(asked == pin and outcome in WONT_CHANGE for asked, outcome in question.tried),
    }
    return {name for name, met in limits.items() if not met}


def test_the_chosen_one_meets_every_limit_and_what_is_said_of_each_other_is_true() -> None:
    chance, seen = random.Random(42), Counter[str]()
    for _ in range(4_000):
        case = drawn(chance)
        question, rules, profiles, state = case
        decision = route(question, rules, profiles, state)
        shuffled = dict(chance.sample(list(profiles.items()), len(profiles)))
        assert route(question, rules, shuffled, state) == decision
        rule = rule_of(question, rules)
        if rule is None:
            assert (decision.rule_id, decision.candidates) == (None, ())
            continue
        named = {*(one.profile for one in rule.candidates), *([rule.canary.profile] if rule.canary else [])}
        assert {one.profile for one in decision.candidates} == named
        assert len(decision.candidates) == len(named)
        times = Counter(pin for pin, _ in question.tried)
        eligible = set[str]()
        for one in decision.candidates:
            broken = broken_limits(case, rule, one.profile)
            seen[one.reason] += 1
            if one.reason == "share":
                assert rule.canary is not None
                assert (rule.canary.profile, rule.canary.share < 1) == (one.profile, True)
                assert one.profile not in [each.profile for each in rule.candidates]
            elif one.reason in ("chosen", "weight") or (one.reason == "tried" and not one.detail):
                assert not broken, (one, broken)
                eligible.add(one.profile)
            else:
                assert one.reason in broken, (one, broken)
        chosen = [one.profile for one in decision.candidates if one.reason == "chosen"]
        assert chosen == ([decision.profile] if eligible else [])
        if decision.profile is None:
            assert not eligible
            continue
        assert times[decision.profile] == min(times[pin] for pin in eligible)
        for one in decision.candidates:
            if one.reason == "tried" and not one.detail:
                assert times[one.profile] > times[decision.profile]
            if one.reason == "weight":
                later = decision.candidates.index(one) > fallback_index(decision)
                assert later or times[one.profile] > times[decision.profile]
        heavy = {one.profile for one in rule.candidates if one.weight} & eligible
        light = not heavy or decision.profile in heavy or (rule.canary and rule.canary.profile == decision.profile)
        assert light or times[decision.profile] < min(times[pin] for pin in heavy)
        assert decision.reserved_units <= question.units_left
        assert decision.timeout_ms <= question.time_left_ms
    assert seen.keys() == set(get_args(RouteReason))
