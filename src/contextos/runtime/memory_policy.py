"""Policy at the point `memory`: asked before a proposal becomes a candidate, and again when a person promotes it.

Policy is asked if a rule is about memory, by its point or by a fact that it reads. A run then needs an allow for each
proposal, as for each call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from contextos.action.registry import Registry
from contextos.contracts.controls import KnownFacts
from contextos.contracts.entries.reading import environment_of
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.memory import MemoryProposal, ReviewRefused
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import supplied
from contextos.contracts.ids import derive
from contextos.contracts.journal import Entry
from contextos.contracts.ports.seams import Journal
from contextos.control.catalog import Catalog
from contextos.runtime.admission import AdmittedRun
from contextos.runtime.wiring import policy_facts, prepare
from contextos.trust.policy.policy_set import PolicySet


def permitted_proposals(
    proposals: Sequence[MemoryProposal], admitted: AdmittedRun, evidence: Collection[str], journal: Journal
) -> tuple[tuple[MemoryProposal, ...], tuple[str, ...]]:
    """Return the proposals that policy permits, and the guardrails that escalate. If one escalates, no proposal is
    permitted.

    `evidence` has the names of the run's evidence; a proposal is not permitted if a rule requires a name that is
    missing. A gate is asked at the promotion.
    """
    if not proposals or not admitted.policy.asked_at("memory"):
        return tuple(proposals), ()
    decisions = [decide_memory(admitted.policy, admitted.scope.facts, proposal, "memory") for proposal in proposals]
    journal.derive("policy.decided", "memory", {"decisions": [decision.stated() for decision in decisions]})
    escalating = sorted({rule for decision in decisions for rule in decision.must_escalate})
    if escalating:
        return (), tuple(escalating)
    pairs = zip(proposals, decisions, strict=True)
    return tuple(item for item, decision in pairs if decision.allowed and set(evidence) >= set(decision.requires)), ()


def decide_memory(policy: PolicySet, facts: KnownFacts, proposal: MemoryProposal, when: str) -> PolicyDecision:
    """Return the policy decision about one proposal, for a run with these facts; `when` is part of its id."""
    memory = {
        "entity": proposal.candidate.entity_ceid,
        "predicate": proposal.candidate.predicate,
        "write_class": proposal.write_class,
        "tier_target": proposal.tier_target,
        "classification": proposal.classification,
        "consent": proposal.consent_check,
    }
    return policy.decide(
        "memory",
        facts.also({"memory": supplied("memory", memory)}),
        capability=None,
        granted=False,
        decision_id=derive("pol_", proposal.run_id, f"policy.{when}", proposal.proposal_id),
    )


async def promotion_refusal(
    proposal: MemoryProposal,
    entries: Sequence[Entry],
    catalog: Catalog,
    definitions: Mapping[str, AdapterDefinition],
    reviewer_roles: Collection[str],
) -> ReviewRefused | None:
    """Return why policy does not let this reviewer promote a proposal of a run, or None.

    `entries` are those of the run. The policies that the run was pinned to are asked, and those in force now.
    """
    bodies = {(entry.kind, entry.key): orjson.loads(entry.body) for entry in entries if entry.body is not None}
    first = (bodies.get((kind, "")) for kind in ("run.received", "identity.resolved", "run.pinned", "run.context"))
    received, identity, pinned, context = first
    if received is None or identity is None or pinned is None or context is None:
        return _refusal("what policy reads of the run was erased, so it cannot be asked again")
    facts = _run_facts(received["answer"], identity["answer"], context, entries[0].run)
    request = received["answer"]["request"]
    new_pins = await catalog.pin(
        request["context_pack_refs"],
        definitions,
        intent=request["input"]["intent"],
        environment=environment_of(received["answer"]),
    )
    if "failure" in new_pins:
        return _refusal(f"the pack of the run cannot be used any more: {new_pins['failure']['detail']}")
    for pins in (pinned["answer"], new_pins):
        loaded = await catalog.load(pins)
        policy = prepare(loaded, Registry()).policy
        if not policy.asked_at("memory"):
            continue
        decision = decide_memory(policy, facts, proposal, "promotion")
        if not decision.allowed or decision.must_escalate:
            escalating = ", ".join(decision.must_escalate)
            return _refusal(decision.why_denied if not escalating else f"a guardrail escalates: {escalating}")
        gates = [gate for gate in decision.gates if loaded.gates[gate].required_approver_role not in reviewer_roles]
        if gates:
            role = loaded.gates[gates[0]].required_approver_role
            return _refusal(f"`{gates[0]}` asks for a reviewer with the role `{role}`")
    return None


def _run_facts(
    received: Mapping[str, Any], identity: Mapping[str, Any], context: Mapping[str, Any], run_id: str
) -> KnownFacts:
    request = InvokeRequest.model_validate(received["request"])
    principals = Principals.model_validate(identity["principals"])
    facts = {
        "run_id": run_id,
        "safety_mode": context["safety_mode"],
        "environment": environment_of(received),
        "mode": request.mode,
    }
    return policy_facts(request, received["request"], principals.user.to_json(), principals.agent.to_json(), facts)


def _refusal(detail: str) -> ReviewRefused:
    return ReviewRefused(reason="policy_denied", detail=detail)
