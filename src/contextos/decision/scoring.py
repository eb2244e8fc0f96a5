"""Score a finished execution on five axes (the Critic), and map failures to the end of a run.

Source: How It Works, step 6; Reference Architecture, "Failure semantics".
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

from contextos.contracts.envelopes.pack import ContextPack, EvalTarget
from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.envelopes.verdicts import End, Failure, FailureCode, ScoreVerdict

END_OF: Final[dict[FailureCode, End]] = {
    "policy_denied": "refused",
    "policy_eval_error": "refused",
    "approval_denied": "rejected",
    "cancelled": "cancelled",
    "tool_not_in_manifest": "rejected",
    "schema_mismatch": "rejected",
    "approval_mode_mismatch": "rejected",
    "violates_decision_spec": "rejected",
    "argument_out_of_bounds": "rejected",
    "idempotency_conflict": "rejected",
    "unknown_intent": "rejected",
    "parameter_missing": "rejected",
    "unpinned_ref": "rejected",
    "other_environment": "rejected",
    "unknown_ref": "rejected",
    "identity_refused": "refused",
    "consent_missing": "refused",
    "platform_scope_missing": "refused",
    "budget_exhausted": "exhausted",
}
"""The end of a run by failure code. Any other code escalates to a person."""

_POLICY_CODES: Final = frozenset(
    {"policy_denied", "policy_eval_error", "approval_denied", "approval_void", "tool_not_in_manifest"}
)

_SAFETY_CODES: Final = frozenset({"unsafe_output", "output_disagrees"})


REPLANNED: Final[frozenset[FailureCode]] = frozenset({"missing_evidence"})
"""The failures after which another template is tried."""


def end_of(failures: tuple[Failure, ...]) -> End:
    """Return how a run with these failures ends. The first failure is the one that stopped it."""
    return END_OF.get(failures[0].code, "escalated") if failures else "completed"


def score(
    pack: ContextPack,
    intent: str,
    budget: RunBudget,
    *,
    wall_clock_us: int,
    cost_cents: float,
    steps: int,
    done: int,
    failures: tuple[Failure, ...],
    acted: bool,
    instructions: Sequence[str] = (),
    again: Set[FailureCode] = REPLANNED,
) -> dict[str, Any]:
    """Return the scores of a finished plan and the verdict: `accept` only if nothing failed and no score is too low.

    `acted` says that a step had an effect on an external system. Then there is no replan: a person takes over.
    `instructions` names content that addresses an agent: each is a finding of the axis `safety`, and lowers no score.
    The verdict is `replan` if all failures are in `again`. `wall_clock_us` and `cost_cents` are what the run used;
    `done` of `steps` steps were completed.
    """
    targets = [target for target in pack.evaluation_layer.eval_targets if target.intent == intent]
    target = targets[0] if targets else EvalTarget(intent=intent)
    codes = {failure.code for failure in failures}
    wall_limit_us = budget.wall_clock_ms * 1_000
    axes = {
        "policy": 0 if codes & _POLICY_CODES else 1,
        "utility": _share(done / steps) if steps else 0,
        "latency": _share(1 - wall_clock_us / wall_limit_us),
        "safety": 0 if codes & _SAFETY_CODES else 1,
        "economics": _share(1 - cost_cents / budget.max_cost_cents) if budget.max_cost_cents else 0,
    }
    card: dict[str, Any] = {}
    for axis, value in axes.items():
        threshold = getattr(target, axis)
        card[axis] = {
            "evaluator": f"{axis}@1",
            "score": value,
            "threshold": threshold,
            "status": "pass" if value >= threshold else "fail",
        }
    if instructions:
        card["safety"]["findings"] = [f"`{text}` speaks to an agent" for text in instructions]
    passed = not failures and all(card[axis]["status"] == "pass" for axis in axes)
    verdict: ScoreVerdict = "accept" if passed else ("replan" if codes and codes <= again and not acted else "escalate")
    card["verdict"] = verdict
    return card


def _share(value: float) -> float | int:
    """Return `value` clamped to 0..1 and rounded to 4 decimals; 0 and 1 as integers, their canonical form."""
    rounded = round(min(1.0, max(0.0, value)), 4)
    return int(rounded) if rounded.is_integer() else rounded
