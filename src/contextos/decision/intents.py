"""Find the intent that the request names, among the intents of the pack and its catalogs. An intent is never guessed.

Source: docs/design/contracts.md, "Who is asking".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, Protocol

from contextos.contracts.envelopes.identity import AgentIdentity, IdentityClaim, Principals, UserClaims
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import Intent, TaskTemplate
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode
from contextos.contracts.envelopes.run import (
    BucketTokens,
    BudgetInForce,
    InvokeRequest,
    RunBudget,
    RunContext,
    RuntimeHints,
)
from contextos.contracts.envelopes.verdicts import Failure

_LIMITS: Final = ("total_tokens", "max_tool_calls", "max_replan_attempts", "wall_clock_ms", "max_cost_cents")
_limits_in: Final = attrgetter(*_LIMITS)


class DeploymentCeilings(Protocol):
    """The upper limits that a deployment sets for every run."""

    @property
    def total_tokens(self) -> int: ...
    @property
    def max_tool_calls(self) -> int: ...
    @property
    def max_replan_attempts(self) -> int: ...
    @property
    def wall_clock_ms(self) -> int: ...
    @property
    def max_cost_cents(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ResolvedIntent:
    """An intent (what the user asks for) with the task templates that can serve it, in the catalog's order."""

    intent: Intent
    templates: tuple[TaskTemplate, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the journal entry `intent.resolved`."""
        return {
            "intent_id": self.intent.intent_id,
            "version": self.intent.version,
            "risk_class": self.intent.risk_class,
            "templates": [f"{template.template_id}@{template.version}" for template in self.templates],
            "confidence": 1,
        }


def resolve_intent(
    request: InvokeRequest, intents: Mapping[str, Intent], templates: Mapping[str, TaskTemplate]
) -> tuple[ResolvedIntent | None, tuple[Failure, ...]]:
    """Look up the intent that the request names in `input.intent`.

    Returns the intent, or None if it is unknown or has no task template, and the failures. Each has the code
    `unknown_intent`: for such an intent, and for a channel or locale that the intent does not support.
    """
    body = request.input
    intent = intents.get(body.intent)
    if intent is None:
        return None, (_failure("intent", f"`{body.intent}` is not in the catalog; name an intent of the pack"),)
    faults = []
    for member, verb, supported in (
        ("channel", "accept", intent.accepted_channels),
        ("locale", "support", intent.locale_support),
    ):
        value = getattr(body, member)
        if value and supported and value not in supported:
            remedy = f"; name one of {', '.join(f'`{option}`' for option in supported[:8])}, or none"
            faults.append(_failure(member, f"`{body.intent}` does not {verb} the {member} `{value}`{remedy}"))
    eligible = tuple(templates[name] for name in intent.eligible_task_templates if name in templates)
    if not eligible:
        faults.append(_failure("intent", f"`{body.intent}` has no task template; publish one"))
    return ResolvedIntent(intent, eligible) if eligible else None, tuple(faults)


def _failure(member: str, detail: str) -> Failure:
    return Failure(code="unknown_intent", detail=detail, pointer=f"/input/{member}")


def build_run_context(
    request: InvokeRequest,
    known: Principals,
    claim: IdentityClaim,
    pack: ContextPack,
    intent: Intent,
    run_id: str,
    limits: DeploymentCeilings,
) -> RunContext:
    """Build the context of a run: who acts, as the directory knows them, and for each limit the lowest value that is
    set.
    """
    hints, meta = request.runtime, pack.pack_meta
    modes = [intent.risk_class, meta.safety_ceiling, known.agent.ceiling]
    delegation = request.user.delegation
    agent = AgentIdentity.construct_trusted(
        {
            "agent_id": known.agent.agent_id,
            "agent_urn": known.agent.agent_urn,
            "role": known.agent.role,
            "workload_identity": known.agent.workload_identity,
            "lifecycle": known.agent.lifecycle,
            "principal_chain": claim.principal_chain,
            "identity_claim": claim,
            "token_ref": known.agent.token_ref,
        },
        unset="token_ref" if known.agent.token_ref is None else "",
    )
    return RunContext.construct_trusted(
        {
            "run_id": run_id,
            "trace_id": request.trace.trace_id,
            "session_id": request.session_id,
            "tenant_id": request.tenant_id,
            "user": UserClaims(user_id=known.user.user_id, role=known.user.role, delegation=delegation),
            "agent": agent,
            "intent": intent.intent_id,
            "locale": request.input.locale,
            "safety_mode": lowest_mode([*modes, hints.safety_mode] if hints.safety_mode else modes),
            "run_budget": _budget_in_force(hints, meta.run_budget, known, limits),
            "metadata": {},
        }
    )


def _budget_in_force(
    hints: RuntimeHints, pack: RunBudget | None, principals: Principals, limits: DeploymentCeilings
) -> BudgetInForce:
    limited_by, fields = dict[str, Any](), dict[str, Any]()
    of_hints, of_limits = _limits_in(hints), _limits_in(limits)
    of_pack = _limits_in(pack) if pack else of_limits
    for name, hint, pack_limit, ceiling in zip(_LIMITS, of_hints, of_pack, of_limits, strict=True):
        value = min(pack_limit, ceiling) if hint is None else min(hint, pack_limit, ceiling)
        fields[name], owner = lowest_of(name, value, principals)
        if owner:
            limited_by[name] = owner
    fields["bucket_tokens"] = pack.bucket_tokens if pack else _shares(fields["total_tokens"])
    return BudgetInForce(**fields, limited_by=limited_by) if limited_by else BudgetInForce(**fields)


def lowest_of(name: str, stated: float, known: Principals) -> tuple[float, Literal["agent", "tenant"] | None]:
    """Return the limit `name` in force, and its owner (`agent` or `tenant`) if the directory sets it below `stated`."""
    of_agent, of_tenant = getattr(known.agent, name), getattr(known.tenant, name)
    lowest = stated if of_agent is None else min(stated, of_agent)
    if of_tenant is not None and of_tenant < lowest:
        return of_tenant, "tenant"
    return lowest, "agent" if lowest < stated else None


def _shares(total: int) -> BucketTokens:
    """Share `total` tokens over six buckets in the proportions of the specification's example, rounded down."""
    example = {"policy": 1800, "tool": 1500, "evidence": 3500, "memory": 1500, "business": 1500, "session": 2200}
    return BucketTokens(**{bucket: total * share // 12_000 for bucket, share in example.items()})


def lowest_mode(modes: Sequence[ApprovalMode]) -> ApprovalMode:
    """Return the lowest of several approval-mode ceilings, so that a caller can lower the ceiling and
    never raise it.
    """
    return min(modes, key=APPROVAL_MODES.index)
