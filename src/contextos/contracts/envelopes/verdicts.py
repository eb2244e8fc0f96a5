"""Verdicts and failures: typed values that the loop returns, never exceptions.

Source: How It Works, "Failure modes"; Reference Architecture, "Failure semantics"; docs/design/contracts.md, "Run".
"""

from __future__ import annotations

from typing import Literal

from contextos.contracts.ids import RuleId
from contextos.contracts.model import Model, Name, Seq, Text

FailureCode = Literal[
    "missing_evidence",
    "consent_missing",
    "approval_mode_mismatch",
    "violates_decision_spec",
    "tool_not_in_manifest",
    "schema_mismatch",
    "policy_denied",
    "policy_eval_error",
    "loop_guard",
    "budget_exhausted",
    "approval_timeout",
    "approval_denied",
    "approval_void",
    "no_model_route",
    "model_failed",
    "judge_objects",
    "unsafe_output",
    "output_disagrees",
    "effect_uncertain",
    "unknown_intent",
    "parameter_missing",
    "unpinned_ref",
    "other_environment",
    "unknown_ref",
    "identity_refused",
    "platform_scope_missing",
    "idempotency_conflict",
    "argument_out_of_bounds",
    "untrusted_destination",
    "secret_lost",
    "quarantined",
    "tool_failed",
    "cancelled",
    "must_escalate",
]

VerifyVerdict = Literal["ok", "replan", "reject", "escalate"]
ScoreVerdict = Literal["accept", "replan", "escalate"]
End = Literal["completed", "rejected", "refused", "escalated", "exhausted", "cancelled"]
RecordStatus = Literal["DECIDED", "DEFERRED", "REJECTED", "ESCALATED"]
SessionOutcome = Literal["approved", "denied", "escalated"]
"""The outcome that the agent of a session states when it finishes."""

DecisionStatus = Literal["IN_FLIGHT", "DECIDED", "DEFERRED", "REJECTED", "ESCALATED", "CLOSED"]
"""The state of a decision: the status of its record, the later act of a person, or that its run is being driven."""


class Failure(Model):
    """The reason why something was not done: a stable code, a sentence for people, and the step or capability.

    `facts` names the facts that policy lacked, or the limit of the run that was exhausted. `pointer` is set where a
    request is not admitted.
    """

    code: FailureCode
    """A stable code for programs."""
    detail: Text
    """What went wrong, for people."""
    step_id: Name | None = None
    """The id of the step that failed, if a step failed."""
    capability_id: Name | None = None
    """The id of the tool that failed, if a tool failed."""
    rule_ids: Seq[RuleId] = ()
    """The ids of the rules that caused the failure."""
    facts: Seq[Name] = ()
    """The facts that policy lacked, or the limit that was exhausted."""
    pointer: Text | None = None
    """The place in the request to correct, as a JSON Pointer; empty for the whole request."""
