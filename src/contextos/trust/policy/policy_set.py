"""The policy engine: bundles compile to a `PolicySet`, and one pure function answers every enforcement point.

Deny by default. An empty set of bundles compiles, and allows no more than what a permission grants and only reads: no
rule can be missed there, because without a rule nothing above `read_only` is ever allowed. A rule that reads arguments
is first asked when they exist, so it alone never makes a capability visible at compile.

Reads no clock, does no I/O, holds no state that an answer depends on; may be called from any thread.
Source: shared/design/contracts.md, "Policy", "Approval modes"; Reference Architecture, "Trust plane".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from contextos.contracts.envelopes.policy import ApprovalMode, CapabilityView, LeveledBundle, Point, PolicyDecision
from contextos.errors import InvalidArtifact
from contextos.trust.policy.constraints import check_args
from contextos.trust.policy.decision_combining import resolve_decision
from contextos.trust.policy.rule_index import PolicyQuestion, RuleIndex
from contextos.trust.policy.rules import CompiledRule, add_guardrails, compile_rules

__all__ = ["CapabilityView", "LeveledBundle", "PolicySet", "check_args", "compile_policy"]


def compile_policy(
    bundles: Sequence[LeveledBundle],
    *,
    gates: Collection[str],
    must_refuse: Sequence[Any],
    must_escalate: Sequence[Any],
    declared: Mapping[str, ApprovalMode] | None = None,
) -> PolicySet:
    """Lint the bundles of a run and make them ready to be asked.

    `gates` are the ids that exist; `must_refuse` and `must_escalate` hold ids of rules or JsonLogic conditions;
    `declared` are the modes of the capabilities that are known, and makes lint exact about rules that lower a mode.

    Raises:
        InvalidArtifact: with every problem found, each with a pointer into its bundle (or `/guardrails`).
    """
    rules, problems = compile_rules(bundles, gates, declared or {})
    problems += add_guardrails(rules, must_refuse, must_escalate)
    if problems:
        raise InvalidArtifact(*problems)
    listed = {leveled.bundle.bundle_id: -leveled.bundle.priority for leveled in bundles}
    return PolicySet(rules.values(), sorted(listed, key=lambda name: (listed[name], name)))


class PolicySet:
    """Compiled rules. Made by `compile_policy`."""

    def __init__(self, rules: Iterable[CompiledRule], bundle_ids: Sequence[str]) -> None:
        self.rules = {rule.rule_id: rule for rule in rules}
        self.bundle_ids = tuple(bundle_ids)
        self._index = RuleIndex(self.rules.values())
        read = (fact.segments for rule in self.rules.values() for fact in rule.facts)
        self.evidence_paths = frozenset(".".join(path[1:]) for path in read if path[0] == "evidence")

    def decide(
        self,
        point: Point,
        facts: Mapping[str, Any],
        *,
        capability: CapabilityView | None,
        granted: bool,
        decision_id: str,
    ) -> PolicyDecision:
        """May this happen here? `facts` by root, without `capability`; `granted`: a permission grants the capability.

        Raises:
            InvalidInput: `facts` has a root that is none, or a value that is not JSON.
        """
        return self._decide(PolicyQuestion(self._index, point, facts), capability, granted, decision_id)

    def decide_all(
        self,
        point: Point,
        facts: Mapping[str, Any],
        capabilities: Sequence[CapabilityView],
        ids: Sequence[str],
        *,
        granted: Collection[str],
    ) -> tuple[PolicyDecision, ...]:
        """The same as `decide` for each capability, with what does not depend on the capability done once.

        `ids` are the decision ids in order; `granted` holds the ids of the capabilities that a permission grants.

        Raises:
            InvalidInput: as `decide`.
        """
        question = PolicyQuestion(self._index, point, facts)
        return tuple(
            self._decide(question, capability, capability.capability_id in granted, decision_id)
            for capability, decision_id in zip(capabilities, ids, strict=True)
        )

    def _decide(
        self, question: PolicyQuestion, capability: CapabilityView | None, granted: bool, decision_id: str
    ) -> PolicyDecision:
        united, facts_digest = question.about(capability)
        return resolve_decision(
            united,
            question.point,
            capability,
            granted=granted,
            decision_id=decision_id,
            bundle_ids=self.bundle_ids,
            facts_digest=facts_digest,
        )
