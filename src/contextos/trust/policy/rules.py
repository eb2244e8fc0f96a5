"""Compile policy bundles to rules that can be evaluated, and refuse everything that is wrong with them.

Each problem has a pointer into its bundle and a remedy. Bundles have levels (platform, tenant, pack). Rules of all
levels are evaluated and any deny wins, so a lower level can only restrict further. Refuses two different rules with the
same id, so a lower level cannot replace a rule of a higher one.
Source: docs/design/contracts.md, "Policy", "Who is asking", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import (
    APPROVAL_MODES,
    LEVELS,
    AppliesTo,
    ArgConstraint,
    LeveledBundle,
    Point,
    PolicyBundle,
    Rule,
)
from contextos.contracts.facts import OWN_POINTS, Vocabulary, declared_fact
from contextos.errors import Problem
from contextos.trust.policy.conditions import ConditionAnalysis, FactPath, analyse_condition
from contextos.trust.policy.constraints import is_bounding, lint_constraint
from contextos.trust.policy.fact_lint import lint_facts, lint_scope
from contextos.trust.policy.history_lint import lint_history, lint_hours
from contextos.trust.policy.operators import JsonPath

MAX_RULES: Final = 10_000
MAX_GUARDRAILS: Final = 100
GUARD_PREFIX: Final = "R_GUARD_"
"""Start of the rule id of a guardrail condition; the first digits of the condition's digest follow."""

_OF_CALLS: Final = ("prohibits", "arg_constraints", "approval_mode")
WITHOUT_CALL: Final[Mapping[Point | None, tuple[str, Collection[str]]]] = {
    "memory": ("a memory", _OF_CALLS),
    "model": ("the question to a model", (*_OF_CALLS, "requires", "requires_approval_gate")),
}
"""The points at which no tool is called: the subject of the question, and the effects that a rule cannot have there."""

MODE_RANK: Final[dict[str, int]] = {mode: rank for rank, mode in enumerate(APPROVAL_MODES)}


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A policy rule, or a condition of a guardrail (`allow` is None), ready to be evaluated.

    `order` sorts by (priority descending, bundle id, rule id). `bundle_enforces` is false for a bundle in mode
    `observe`. `mode` is a rank of `MODE_RANK`; `bounded` says that a constraint bounds an argument in every case.
    `constraints` holds (argument, digest, constraint). `asserted` lists the facts that only the caller asserts.
    `refuses` and `escalates` mark guardrails. `above_pack`: it is of a tenant or of the platform. `only_allows`: a
    match does nothing but allow.
    """

    rule_id: str
    order: tuple[int, str, str]
    digest: str
    strength: tuple[int, int]
    applies_to: AppliesTo
    condition: Any
    facts: tuple[FactPath, ...]
    bundle_enforces: bool = True
    non_enforcing: bool = False
    allow: bool | None = None
    mode: int | None = None
    bounded: bool = False
    gate: str | None = None
    requires: tuple[str, ...] = ()
    prohibits: tuple[str, ...] = ()
    constraints: tuple[tuple[str, str, ArgConstraint], ...] = ()
    asserted: tuple[str, ...] = ()
    refuses: bool = False
    escalates: bool = False
    above_pack: bool = False
    only_allows: bool = False


def is_asserted(path: str) -> bool:
    """Return whether the fact at `path` is only stated by the caller. Unknown request fields count as asserted."""
    fact = declared_fact(path)
    return fact.asserted if fact is not None else path.partition(".")[0] == "request"


def compile_rules(
    bundles: Sequence[LeveledBundle], gates: Collection[str], declared: Mapping[str, str], vocabulary: Vocabulary
) -> tuple[dict[str, CompiledRule], list[Problem]]:
    """Compile all policy bundles; return (rules by id, problems). `declared` maps tool ids to their approval modes.

    A rule of a tenant or of the platform can read arguments and evidence that this pack does not have.
    """
    problems = [*_lint_bundles(bundles), *lint_history(bundles, declared, vocabulary), *lint_hours(bundles)]
    rules: dict[str, CompiledRule] = {}
    if sum(len(leveled.bundle.policy_dsl.rules) for leveled in bundles) > MAX_RULES:
        return rules, [Problem("/policy_dsl/rules", "too_many", f"there are more than {MAX_RULES} rules", "merge some")]
    for leveled in bundles:
        for index, rule in enumerate(leveled.bundle.policy_dsl.rules):
            at: JsonPath = ("policy_dsl", "rules", index)
            analysis = analyse_condition(rule.condition, rule.facts, at=(*at, "if"))
            level_vocabulary = vocabulary if leveled.level == "pack" else vocabulary.above_the_pack()
            rule_problems = [*analysis.problems, *_lint_rule(rule, leveled.bundle, analysis.facts, gates, declared, at)]
            rule_problems += [
                *lint_scope(rule.applies_to, level_vocabulary, (*at, "applies_to")),
                *lint_facts(analysis.facts, rule.condition, rule.applies_to, level_vocabulary, (*at, "if")),
            ]
            problems += [_with_rule_name(problem, leveled.bundle.bundle_id, rule.rule_id) for problem in rule_problems]
            if analysis.problems:
                continue
            compiled = _compile_rule(rule, leveled, analysis)
            existing = rules.get(rule.rule_id)
            if existing is not None and existing.digest != compiled.digest:
                duplicate = Problem(
                    pointer((*at, "rule_id")), "duplicate_rule", "another rule has this id", "choose another id"
                )
                problems.append(_with_rule_name(duplicate, leveled.bundle.bundle_id, rule.rule_id))
            if existing is None or (compiled.strength, compiled.order) < (existing.strength, existing.order):
                rules[rule.rule_id] = compiled
    return rules, problems


def add_guardrails(
    rules: dict[str, CompiledRule], must_refuse: Sequence[Any], must_escalate: Sequence[Any], vocabulary: Vocabulary
) -> list[Problem]:
    """Mark the rules that guardrails name, and add a rule for each condition that they state. Returns the problems.

    A guardrail is a condition that wins over every rule that allows.
    """
    problems: list[Problem] = []
    for name, entries in (("must_refuse", must_refuse), ("must_escalate", must_escalate)):
        if len(entries) > MAX_GUARDRAILS:
            detail = f"there are more than {MAX_GUARDRAILS} entries"
            problems.append(Problem(pointer(("guardrails", name)), "too_many", detail, "merge some"))
            continue
        for index, entry in enumerate(entries):
            rule = _guardrail_rule(rules, entry, ("guardrails", name, index), vocabulary, problems)
            if rule is not None:
                refuses, escalates = rule.refuses or name == "must_refuse", rule.escalates or name == "must_escalate"
                rules[rule.rule_id] = replace(rule, refuses=refuses, escalates=escalates, only_allows=False)
    return problems


def _guardrail_rule(
    rules: Mapping[str, CompiledRule], entry: Any, at: JsonPath, vocabulary: Vocabulary, problems: list[Problem]
) -> CompiledRule | None:
    """Return the rule that an entry names, or a new rule for the condition that it states."""
    if isinstance(entry, dict):
        analysis = analyse_condition(entry, at=at)
        fact_problems = lint_facts(analysis.facts, entry, AppliesTo(), vocabulary, at)
        problems += (entry_problems := [*analysis.problems, *fact_problems])
        if entry_problems:
            return None
        guard_rule = _condition_rule(entry, analysis)
        return rules.get(guard_rule.rule_id, guard_rule)
    rule = rules.get(entry) if isinstance(entry, str) else None
    if rule is None or rule.non_enforcing or not rule.bundle_enforces:
        detail = f"`{str(entry)[:80]}` is not an enforced rule"
        problems.append(Problem(pointer(at), "unknown_rule", detail, "name a rule that is enforced"))
        return None
    return rule


def _condition_rule(condition: Any, analysis: ConditionAnalysis) -> CompiledRule:
    digest = content_address(condition)
    rule_id = GUARD_PREFIX + digest.removeprefix("sha256:")[:16].upper()
    return CompiledRule(rule_id, (0, "", rule_id), digest, (0, 0), AppliesTo(), condition, analysis.facts)


def _compile_rule(rule: Rule, leveled: LeveledBundle, analysis: ConditionAnalysis) -> CompiledRule:
    bundle, then = leveled.bundle, rule.then
    enforces = bundle.mode == "enforce"
    asserted = tuple(fact.path for fact in analysis.facts if is_asserted(fact.path))
    extra = then.approval_mode or then.requires_approval_gate or then.requires or then.prohibits or then.arg_constraints
    return CompiledRule(
        rule_id=rule.rule_id,
        order=(-bundle.priority, bundle.bundle_id, rule.rule_id),
        digest=content_address(rule.to_json()),
        strength=(not enforces, LEVELS.index(leveled.level)),
        applies_to=rule.applies_to,
        condition=rule.condition,
        facts=analysis.facts,
        bundle_enforces=enforces,
        non_enforcing=rule.non_enforcing,
        allow=then.allow,
        mode=None if then.approval_mode is None else MODE_RANK[then.approval_mode],
        bounded=any(map(is_bounding, then.arg_constraints.values())),
        gate=then.requires_approval_gate,
        requires=then.requires,
        prohibits=then.prohibits,
        constraints=tuple(
            (name, content_address(constraint.to_json()), constraint)
            for name, constraint in sorted(then.arg_constraints.items())
        ),
        asserted=asserted,
        above_pack=leveled.level != "pack",
        only_allows=enforces and not rule.non_enforcing and then.allow and not (extra or asserted),
    )


def _with_rule_name(problem: Problem, bundle_id: str, rule_id: str) -> Problem:
    return replace(problem, detail=f"rule `{rule_id}` of `{bundle_id}`: {problem.detail}")


def _lint_bundles(bundles: Sequence[LeveledBundle]) -> Iterator[Problem]:
    seen: dict[str, tuple[str, str]] = {}
    enforced = {LEVELS.index(leveled.level) for leveled in bundles if leveled.bundle.mode == "enforce"}
    for leveled in bundles:
        name = leveled.bundle.bundle_id
        if seen.setdefault(name, (leveled.version, leveled.digest)) != (leveled.version, leveled.digest):
            yield Problem("/bundle_id", "duplicate_bundle", f"`{name}` is listed in two versions", "pin one of them")
        if leveled.bundle.mode == "observe" and not any(level < LEVELS.index(leveled.level) for level in enforced):
            detail = f"`{name}` only observes and no level above it enforces"
            yield Problem("/mode", "observe_not_covered", detail, "set `mode` to enforce")


def _lint_rule(
    rule: Rule,
    bundle: PolicyBundle,
    facts: Sequence[FactPath],
    gates: Collection[str],
    declared: Mapping[str, str],
    at: JsonPath,
) -> Iterator[Problem]:
    then, applies = rule.then, rule.applies_to
    if rule.rule_id.startswith(GUARD_PREFIX):
        yield Problem(pointer((*at, "rule_id")), "reserved_id", f"`{GUARD_PREFIX}` is reserved", "choose another id")
    if then.requires_approval_gate is not None and then.requires_approval_gate not in gates:
        detail = f"there is no gate `{then.requires_approval_gate}`"
        yield Problem(pointer((*at, "then", "requires_approval_gate")), "unknown_gate", detail, "define it in the pack")
    if applies.capability is not None and set(then.prohibits) - {applies.capability}:
        detail = "it prohibits capabilities that it does not apply to"
        yield Problem(pointer((*at, "then", "prohibits")), "prohibits_unasked", detail, "drop `applies_to.capability`")
    if then.allow or then.requires_approval_gate is not None:
        for path in sorted({fact.path for fact in facts if is_asserted(fact.path)} - set(bundle.accept_asserted)):
            detail = f"it depends on `{path}`, which only the caller asserts"
            remedy = "read a verified fact, or list the path in `accept_asserted`"
            yield Problem(pointer((*at, "if")), "asserted_fact", detail, remedy)
    question = WITHOUT_CALL.get(own_point(applies, facts))
    yield from _lint_mode(rule, declared, at) if question is None else _lint_rule_without_call(rule, question, at)
    for name, constraint in then.arg_constraints.items():
        yield from lint_constraint(constraint, pointer((*at, "then", "arg_constraints", name)))


def own_point(applies: AppliesTo, facts: Sequence[FactPath]) -> Point | None:
    """Return the only point where a rule applies: the point of a fact known nowhere else, or `applies.point`."""
    return next((OWN_POINTS[fact.segments[0]] for fact in facts if fact.segments[0] in OWN_POINTS), applies.point)


def _lint_rule_without_call(rule: Rule, question: tuple[str, Collection[str]], at: JsonPath) -> Iterator[Problem]:
    """Yield a problem for each part of a rule that is about a call of a tool, at a point where no tool is called."""
    subject, unused = question
    capability_parts = [("applies_to", "capability")] if rule.applies_to.capability is not None else []
    for place, name in (*capability_parts, *(("then", name) for name in unused if getattr(rule.then, name))):
        detail = f"`{name}` is about a call of a tool, and {subject} is not one"
        yield Problem(pointer((*at, place, name)), "not_enforced", detail, f"drop `{name}`")


def _lint_mode(rule: Rule, declared: Mapping[str, str], at: JsonPath) -> Iterator[Problem]:
    """Yield the problems of the approval mode that a rule sets. A rule that can lower the mode must bound an argument.

    If the mode of the capability is not declared, every mode below `destructive` counts as lower.
    """
    then, place = rule.then, pointer((*at, "then", "approval_mode"))
    if then.approval_mode is not None and rule.applies_to.point not in (None, "execute"):
        detail = f"the mode of a call is decided at `execute`, not at `{rule.applies_to.point}`"
        yield Problem(place, "not_enforced", detail, "drop `approval_mode`, or drop `point`")
    if then.approval_mode is None or not then.allow:
        return
    declared_mode = declared.get(rule.applies_to.capability or "")
    if MODE_RANK[then.approval_mode] > MODE_RANK[declared_mode or "destructive"]:
        detail = f"`{then.approval_mode}` is above the declared `{declared_mode}`"
        yield Problem(place, "mode_above_declared", detail, "drop `approval_mode`, or declare the capability higher")
    if MODE_RANK[then.approval_mode] < MODE_RANK[declared_mode or "destructive"] and not any(
        map(is_bounding, then.arg_constraints.values())
    ):
        detail = f"`{then.approval_mode}` can lower the mode, and the rule bounds no argument"
        remedy = "bound an argument without `unless_approved`, or drop `approval_mode`"
        yield Problem(place, "mode_not_bounded", detail, remedy)
