"""Check an adapter's reply and turn it into the status, output and error of a result envelope.

Refuses output that is too large, does not satisfy the capability's schema, or contains unsafe text. Of refused output
only the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from contextos.action.registry import Registry
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import (
    AdapterReply,
    Settled,
    ToolCallEnvelope,
    ToolError,
    ToolResultEnvelope,
    ToolStatus,
)
from contextos.contracts.scope import Capability
from contextos.errors import InvalidInput, Problem

MAX_OUTPUT_BYTES: Final = 1_048_576

Cleanse = Callable[[Any], tuple[Any, tuple[str, ...], tuple[Problem, ...]]]
"""output -> (redacted output, redaction rules applied, problems with unsafe text)."""


def validate_reply(
    registry: Registry,
    cleanse: Cleanse,
    capability: Capability,
    reply: AdapterReply | None,
    outcome: str,
    why: str,
    code: str,
) -> tuple[ToolStatus, Any, ToolError | None, tuple[str, ...]]:
    """Return (status, output, error, redaction rules applied).

    Without a reply, `outcome` is `unknown` or `not_sent`, and `code` and `why` say what stopped the call.
    """
    if reply is None:
        status: ToolStatus = "paused" if outcome == "unknown" else "failed"
        code = "effect_uncertain" if outcome == "unknown" else code
        return status, None, ToolError(code=code, message=why, retryable=True), ()
    if reply.error is not None:
        kept, applied, unsafe = cleanse(reply.error.to_json())
        if unsafe:
            message = f"the adapter's error cannot be kept: {unsafe[0].detail}"
            return "failed", None, ToolError(code="unsafe_output", message=message), applied
        return "error", None, ToolError.model_validate(kept), applied
    try:
        fits = reply.output is not None and len(canonical(reply.output)) <= MAX_OUTPUT_BYTES
    except InvalidInput as invalid:
        return "failed", None, ToolError(code="unsafe_output", message=f"the output is not JSON: {invalid}"), ()
    if not fits:
        return "failed", None, ToolError(code="unsafe_output", message="the output is absent or too large"), ()
    problem = registry.check(capability, "output", reply.output)
    if problem:
        message = f"{problem.detail} at `{problem.pointer}`"
        return "failed", None, ToolError(code="unsafe_output", message=message), ()
    output, applied, unsafe = cleanse(reply.output)
    if unsafe:
        unsafe_output = ToolError(code="unsafe_output", message=unsafe[0].detail, pointer=unsafe[0].pointer)
        return "failed", None, unsafe_output, applied
    return ("completed" if capability.definition.kind == "write" else "ok"), output, None, applied


def result_of_settlement(envelope: ToolCallEnvelope, settled: Settled) -> ToolResultEnvelope:
    """Build the result of a call from an operator's settlement. It is the same when it is given and when it is used."""
    happened = settled.happened
    return ToolResultEnvelope(
        envelope_version="contextos.tool_result.v1",
        tool_call_id=envelope.tool_call_id,
        run_id=envelope.run_id,
        trace_id=envelope.trace_id,
        session_id=envelope.session_id,
        capability_id=envelope.capability_id,
        status="completed" if happened else "failed",
        output=settled.output if happened else None,
        error=None if happened else ToolError(code="tool_failed", message="a person settled that it did not happen"),
        artifacts=(),
        citations=(),
        mutations=settled.mutations if happened else (),
        risk_tags=("settled",),
        policy_decision_id=envelope.policy_decision_id,
        latency_ms=0,
        metadata={"settled_by": settled.by, "evidence_ref": settled.evidence_ref},
    )
