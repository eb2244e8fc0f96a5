"""From bundles as authored to rules that can be asked: everything that can be refused is refused here.

A rule is refused with a pointer into its bundle and a remedy, so that at an enforcement point nothing is left to
interpret. Levels need no order of evaluation: every rule of every level is asked and any deny wins, so a lower level
can only add. What it could try instead, to restate a rule of another level, is refused unless the two are equal.
Source: shared/design/contracts.md, "Policy", "Who is asking", "Approval modes".
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
    PolicyBundle,
    Rule,
)
from contextos.errors import Problem
from contextos.trust.policy.conditions import ConditionAnalysis, FactPath, analyse_condition
from contextos.trust.policy.constraints import is_bounding, lint_constraint
from contextos.trust.policy.operators import JsonPath

MAX_RULES: Final = 10_000
MAX_GUARDRAILS: Final = 100
GUARD_PREFIX: Final = "R_GUARD_"
"""Ids of guardrail conditions: this and the head of the condition's digest."""

LATE_ROOTS: Final = frozenset({"args", "evidence", "history", "provenance"})
"""Facts that exist from execute; a literal argument already at plan."""

VERIFIED_OF_REQUEST: Final = frozenset({"request.channel", "request.intent", "request.locale", "request.mode"})
"""What the runtime has validated of a request. Everything else in it the caller only asserts."""

MODE_RANK: Final[dict[str, int]] = {mode: rank for rank, mode in enumerate(APPROVAL_MODES)}


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """One rule, or one condition of a guardrail (`allow` is None), ready to be asked.

    `enforcing` is false in a bundle that observes; `passable` is the rule's `non_enforcing`. `order` sorts by
    (priority descending, bundle id, rule id). `says` holds each constraint with its name and digest.
    `only_allows` marks a rule of which a match says nothing beyond `allow: true`.
    """

    rule_id: str
    order: tuple[int, str, str]
    digest: str
    strength: tuple[int, int]
    applies_to: AppliesTo
    condition: Any
    facts: tuple[FactPath, ...]
    enforcing: bool = True
    passable: bool = False
    allow: bool | None = None
    mode: int | None = None
    bounded: bool = False
    gate: str | None = None
    requires: tuple[str, ...] = ()
    prohibits: tuple[str, ...] = ()
    says: tuple[tuple[str, str, ArgConstraint], ...] = ()
    asserted: tuple[str, ...] = ()
    refuses: bool = False
    escalates: bool = False
    only_allows: bool = False


def is_asserted(path: str) -> bool:
    """Whether nobody but the caller vouches for a fact; unknown parts of the request count as asserted."""
    if path == "request" or path.startswith("request."):
        return path not in VERIFIED_OF_REQUEST
    return path == "run" or path == "run.metadata" or path.startswith("run.metadata.")


def compile_rules(
    bundles: Sequence[LeveledBundle], gates: Collection[str], declared: Mapping[str, str]
) -> tuple[dict[str, CompiledRule], list[Problem]]:
    """Every rule by id, and what is wrong. `declared` are the modes of the capabilities that are known."""
    problems = list(_lint_bundles(bundles))
    rules: dict[str, CompiledRule] = {}
    if sum(len(leveled.bundle.policy_dsl.rules) for leveled in bundles) > MAX_RULES:
        return rules, [Problem("/policy_dsl/rules", "too_many", f"there are more than {MAX_RULES} rules", "merge some")]
    for leveled in bundles:
        for index, rule in enumerate(leveled.bundle.policy_dsl.rules):
            at: JsonPath = ("policy_dsl", "rules", index)
            analysis = analyse_condition(rule.condition, rule.facts, at=(*at, "if"))
            found = [*analysis.problems, *_lint_rule(rule, leveled.bundle, analysis.facts, gates, declared, at)]
            problems += [_named(problem, leveled.bundle.bundle_id, rule.rule_id) for problem in found]
            if analysis.problems:
                continue
            compiled = _compiled(rule, leveled, analysis)
            other = rules.get(rule.rule_id)
            if other is not None and other.digest != compiled.digest:
                clash = Problem(
                    pointer((*at, "rule_id")), "duplicate_rule", "another rule has this id", "give it an id of its own"
                )
                problems.append(_named(clash, leveled.bundle.bundle_id, rule.rule_id))
            if other is None or (compiled.strength, compiled.order) < (other.strength, other.order):
                rules[rule.rule_id] = compiled
    return rules, problems


def add_guardrails(
    rules: dict[str, CompiledRule], must_refuse: Sequence[Any], must_escalate: Sequence[Any]
) -> list[Problem]:
    """Mark the rules that guardrails name, and add the conditions they state; return what is wrong."""
    problems: list[Problem] = []
    for name, entries in (("must_refuse", must_refuse), ("must_escalate", must_escalate)):
        if len(entries) > MAX_GUARDRAILS:
            detail = f"there are more than {MAX_GUARDRAILS} entries"
            problems.append(Problem(pointer(("guardrails", name)), "too_many", detail, "merge some"))
            continue
        for index, entry in enumerate(entries):
            rule = _guardrail(rules, entry, ("guardrails", name, index), problems)
            if rule is not None:
                refuses, escalates = rule.refuses or name == "must_refuse", rule.escalates or name == "must_escalate"
                rules[rule.rule_id] = replace(rule, refuses=refuses, escalates=escalates, only_allows=False)
    return problems


def _guardrail(
    rules: Mapping[str, CompiledRule], entry: Any, at: JsonPath, problems: list[Problem]
) -> CompiledRule | None:
    """The rule that an entry names, or a rule made of the condition that it states."""
    if isinstance(entry, dict):
        analysis = analyse_condition(entry, at=at)
        problems += analysis.problems
        if analysis.problems:
            return None
        guard = _guard(entry, analysis)
        return rules.get(guard.rule_id, guard)
    rule = rules.get(entry) if isinstance(entry, str) else None
    if rule is None or rule.passable or not rule.enforcing:
        detail = f"`{str(entry)[:80]}` is no enforced rule"
        problems.append(Problem(pointer(at), "unknown_rule", detail, "name a rule that is enforced"))
        return None
    return rule


def _guard(condition: Any, analysis: ConditionAnalysis) -> CompiledRule:
    digest = content_address(condition)
    rule_id = GUARD_PREFIX + digest.removeprefix("sha256:")[:16].upper()
    return CompiledRule(rule_id, (0, "", rule_id), digest, (0, 0), AppliesTo(), condition, analysis.facts)


def _compiled(rule: Rule, leveled: LeveledBundle, analysis: ConditionAnalysis) -> CompiledRule:
    bundle, then = leveled.bundle, rule.then
    enforcing = bundle.mode == "enforce"
    asserted = tuple(fact.path for fact in analysis.facts if is_asserted(fact.path))
    more = then.approval_mode or then.requires_approval_gate or then.requires or then.prohibits or then.arg_constraints
    return CompiledRule(
        rule_id=rule.rule_id,
        order=(-bundle.priority, bundle.bundle_id, rule.rule_id),
        digest=content_address(rule.to_json()),
        strength=(not enforcing, LEVELS.index(leveled.level)),
        applies_to=rule.applies_to,
        condition=rule.condition,
        facts=analysis.facts,
        enforcing=enforcing,
        passable=rule.non_enforcing,
        allow=then.allow,
        mode=None if then.approval_mode is None else MODE_RANK[then.approval_mode],
        bounded=any(map(is_bounding, then.arg_constraints.values())),
        gate=then.requires_approval_gate,
        requires=then.requires,
        prohibits=then.prohibits,
        says=tuple((name, content_address(c.to_json()), c) for name, c in sorted(then.arg_constraints.items())),
        asserted=asserted,
        only_allows=enforcing and not rule.non_enforcing and then.allow and not (more or asserted),
    )


def _named(problem: Problem, bundle_id: str, rule_id: str) -> Problem:
    return replace(problem, detail=f"rule `{rule_id}` of `{bundle_id}`: {problem.detail}")


def _lint_bundles(bundles: Sequence[LeveledBundle]) -> Iterator[Problem]:
    seen: dict[str, tuple[str, str]] = {}
    enforced = {LEVELS.index(leveled.level) for leveled in bundles if leveled.bundle.mode == "enforce"}
    for leveled in bundles:
        name = leveled.bundle.bundle_id
        if seen.setdefault(name, (leveled.version, leveled.digest)) != (leveled.version, leveled.digest):
            yield Problem("/bundle_id", "duplicate_bundle", f"`{name}` is there in two versions", "pin one of them")
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
        yield Problem(pointer((*at, "rule_id")), "reserved_id", f"`{GUARD_PREFIX}` is ours", "choose another id")
    late = sorted({fact.path for fact in facts if fact.path.split(".")[0] in LATE_ROOTS})
    if late and applies.point in ("compile", "plan"):
        detail = f"`{late[0]}` need not exist yet at `{applies.point}`"
        yield Problem(pointer((*at, "applies_to", "point")), "point_too_early", detail, "drop `point`")
    if then.requires_approval_gate is not None and then.requires_approval_gate not in gates:
        detail = f"there is no gate `{then.requires_approval_gate}`"
        yield Problem(pointer((*at, "then", "requires_approval_gate")), "unknown_gate", detail, "define it in the pack")
    if applies.capability is not None and set(then.prohibits) - {applies.capability}:
        detail = "it prohibits capabilities for which it is never asked"
        yield Problem(pointer((*at, "then", "prohibits")), "prohibits_unasked", detail, "drop `applies_to.capability`")
    if then.allow or then.requires_approval_gate is not None:
        for path in sorted({fact.path for fact in facts if is_asserted(fact.path)} - set(bundle.accept_asserted)):
            detail = f"it decides on `{path}`, which only the caller asserts"
            remedy = "read a verified fact, or list the path in `accept_asserted`"
            yield Problem(pointer((*at, "if")), "asserted_fact", detail, remedy)
    yield from _lint_mode(rule, declared, at)
    for name, constraint in then.arg_constraints.items():
        yield from lint_constraint(constraint, pointer((*at, "then", "arg_constraints", name)))


def _lint_mode(rule: Rule, declared: Mapping[str, str], at: JsonPath) -> Iterator[Problem]:
    """A mode below the declared one needs a bound; where the declaration is not known, below `destructive`."""
    then, place = rule.then, pointer((*at, "then", "approval_mode"))
    if then.approval_mode is None or not then.allow:
        return
    known = declared.get(rule.applies_to.capability or "")
    if MODE_RANK[then.approval_mode] > MODE_RANK[known or "destructive"]:
        detail = f"`{then.approval_mode}` is above the declared `{known}`"
        yield Problem(place, "mode_above_declared", detail, "drop `approval_mode`, or declare the capability higher")
    if MODE_RANK[then.approval_mode] < MODE_RANK[known or "destructive"] and not any(
        map(is_bounding, then.arg_constraints.values())
    ):
        detail = f"`{then.approval_mode}` can lower the mode, and the rule bounds no argument"
        remedy = "bound an argument without `unless_approved`, or drop `approval_mode`"
        yield Problem(place, "mode_not_bounded", detail, remedy)
