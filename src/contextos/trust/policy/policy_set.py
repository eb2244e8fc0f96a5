"""The entry point of the policy engine: compile bundles to a `PolicySet`, then ask it for decisions.

Refuses by default: without a rule that allows it, only a granted read is allowed. An empty list of bundles is therefore
valid and allows granted reads only. A rule that reads arguments is not evaluated before they exist.

A decision depends on nothing but the bundles and the facts: there is no clock and no I/O. Safe to call from any thread.
Source: docs/design/contracts.md, "Policy", "Approval modes"; Reference Architecture, "Trust plane".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from contextos.contracts.controls import KnownFacts
from contextos.contracts.envelopes.policy import (
    ApprovalMode,
    BusinessHours,
    CapabilityView,
    HistoryFact,
    LeveledBundle,
    Point,
    PolicyDecision,
    RulesAbove,
)
from contextos.contracts.facts import Vocabulary
from contextos.errors import InvalidArtifact
from contextos.trust.policy.constraints import check_args
from contextos.trust.policy.decision_combining import combine, resolve_verdict
from contextos.trust.policy.rule_evaluation import RuleOutcome
from contextos.trust.policy.rule_index import RuleIndex, kept
from contextos.trust.policy.rules import CompiledRule, add_guardrails, compile_rules, own_point

__all__ = ["CapabilityView", "LeveledBundle", "PolicySet", "check_args", "compile_policy"]


def compile_policy(
    bundles: Sequence[LeveledBundle],
    *,
    gates: Collection[str],
    must_refuse: Sequence[Any],
    must_escalate: Sequence[Any],
    vocabulary: Vocabulary,
    declared: Mapping[str, ApprovalMode] | None = None,
) -> PolicySet:
    """Lint the bundles of a run and compile them.

    `gates` are the ids of the approval gates that exist. `must_refuse` and `must_escalate` hold rule ids or JsonLogic
    conditions. `vocabulary` holds the facts that rules can read. `declared` maps capability ids to their approval
    modes; with it, lint checks exactly which rules lower a mode.

    Raises:
        InvalidArtifact: with every problem found, each with a pointer into its bundle (or `/guardrails`).
    """
    history = {name: fact for leveled in bundles for name, fact in leveled.bundle.history.items()}
    hours = {name: value for leveled in bundles for name, value in leveled.bundle.business_hours.items()}
    vocabulary = replace(vocabulary, history=history, hours=tuple(hours))
    rules, problems = compile_rules(bundles, gates, declared or {}, vocabulary)
    problems += add_guardrails(rules, must_refuse, must_escalate, vocabulary)
    if problems:
        raise InvalidArtifact(*problems)
    order = {leveled.bundle.bundle_id: -leveled.bundle.priority for leveled in bundles}
    return PolicySet(rules.values(), sorted(order, key=lambda name: (order[name], name)), history, hours)


class PolicySet:
    """Compiled policy rules, ready to decide. Built by `compile_policy`.

    `reads_origins`: a rule reads where an argument was found. `history` has the declared history facts, `above` the
    rules that bind also a pack that observes, `prohibiting` the tools that a rule prohibits, by its id. `homes` is the
    bundle of each rule, by its id.
    """

    def __init__(
        self,
        rules: Iterable[CompiledRule],
        bundle_ids: Sequence[str],
        history: Mapping[str, HistoryFact] = MappingProxyType({}),
        hours: Mapping[str, BusinessHours] = MappingProxyType({}),
    ) -> None:
        self.history, self._hours = history, hours
        self.rules = {rule.rule_id: rule for rule in rules}
        self.homes: Mapping[str, str] = {
            rule.rule_id: rule.order[1] for rule in self.rules.values() if rule.allow is not None
        }
        self.bundle_ids = tuple(bundle_ids)
        self._index = RuleIndex(self.rules.values())
        self._verdicts: dict[tuple[Any, ...], dict[str, Any]] = {}
        paths = [fact.segments for rule in self.rules.values() for fact in rule.facts]
        self._named_points = frozenset(own_point(rule.applies_to, rule.facts) for rule in self.rules.values())
        above = [rule for rule in self.rules.values() if rule.above_pack and rule.bundle_enforces]
        self.above = RulesAbove(
            frozenset(rule.rule_id for rule in above),
            frozenset(rule.gate for rule in above if rule.gate is not None),
            frozenset(name for rule in above for name in rule.requires),
            frozenset(name for rule in above for name in rule.prohibits),
            tuple((name, limit) for rule in above for name, _, limit in rule.constraints),
        )
        self.prohibiting: Mapping[str, Sequence[str]] = {
            rule.rule_id: rule.prohibits for rule in self.rules.values() if rule.prohibits
        }
        self._evidence_paths = frozenset(".".join(path[1:]) for path in paths if path[0] == "evidence")
        self._reads_evidence: dict[str, bool] = {}
        self._clocks = sorted(
            {
                (rule.applies_to.capability, fact.segments[1])
                for rule in self.rules.values()
                for fact in rule.facts
                if fact.segments[0] == "clock"
            },
            key=lambda pair: (pair[1], pair[0] or ""),
        )
        self.reads_origins = any(path[0] in ("origin", "integrity", "classification") for path in paths)

    def asked_at(self, point: Point) -> bool:
        """Return whether a rule is only about this point. Other rules decide there as they did at `execute`."""
        return point in self._named_points

    def reads_evidence(self, name: str) -> bool:
        """Return whether a rule reads this evidence, or a part of it."""
        known = self._reads_evidence.get(name)
        if known is not None:
            return known
        paths = self._evidence_paths
        reads = any(path == name or path.startswith(f"{name}.") or name.startswith(f"{path}.") for path in paths)
        return kept(self._reads_evidence, name, reads)

    def hours_of(self, capability_id: str) -> dict[str, BusinessHours]:
        """Return the business hours through which the rules about a tool read the clock, by name."""
        return {name: self._hours[name] for tool, name in self._clocks if tool in (None, capability_id)}

    def decide(
        self,
        point: Point,
        facts: Mapping[str, Any],
        *,
        capability: CapabilityView | None,
        granted: bool,
        decision_id: str,
    ) -> PolicyDecision:
        """Decide whether the tool `capability` is allowed at one point of a run.

        `facts` has one object for each root except `capability`. `granted`: the pack's permissions grant the tool.
        `decision_id` becomes the id of the decision.

        Raises:
            InvalidInput: `facts` has an unknown root, or a value that is not JSON.
        """
        known_facts = facts if isinstance(facts, KnownFacts) else KnownFacts(facts)
        outcome = self._index.outcome(point, known_facts, known_facts.served, capability)
        ids = {"policy_decision_id": decision_id, "facts_digest": known_facts.digest(capability)}
        return PolicyDecision.construct_trusted({**self._verdict(outcome, point, capability, granted), **ids})

    def decide_known(
        self, facts: KnownFacts, more: Mapping[str, Any], *, capability: CapabilityView, granted: bool
    ) -> PolicyDecision:
        """Decide about a call that is planned, by those rules alone whose facts (`facts` and `more`) are all known.

        It announces which of them match, and the gates that they require. It neither allows nor denies: other rules
        decide too once the call is made. It is recorded nowhere by itself, so it has neither an id nor a digest.
        """
        assert more.keys().isdisjoint(("run", "request")), "what the run serves is as `facts` state it"
        outcome = self._index.outcome("execute", {**facts, **more}, facts.served, capability, known=True)
        verdict = self._verdict(outcome, "compile", capability, granted)
        return PolicyDecision.construct_trusted({**verdict, "policy_decision_id": "", "facts_digest": ""})

    def _verdict(
        self, outcome: RuleOutcome, point: Point, capability: CapabilityView | None, granted: bool
    ) -> dict[str, Any]:
        """Return the decision about the tool that the outcome makes, without its id and the digest of its facts.

        It follows from nothing but the key under which it is kept, and the rules of this set.
        """
        tool = (capability.capability_id, capability.declared_mode) if capability else None
        key = (point, tool, granted, outcome.key)
        verdict = self._verdicts.get(key)
        if verdict is None:
            combined = combine(outcome.matched, outcome.indeterminate)
            fields = resolve_verdict(combined, point, capability, granted=granted, bundle_ids=self.bundle_ids)
            verdict = kept(self._verdicts, key, fields)
        return verdict
