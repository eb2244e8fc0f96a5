"""Check an adapter's reply and turn it into the status, output and error of a result envelope.

Output is withheld if it is too large, does not satisfy the capability's schema, or contains unsafe text: only the
reason, the digest and the size are kept. Each artifact is judged by itself. Output that disagrees with the arguments is
kept, because it says what happened, but withheld from the agent. If the output of a write is withheld, the write was
still made; a read then has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.action.breaker_adapter import BreakerAdapter
from contextos.action.gateway.delivery import Cleanse, DispatchPorts
from contextos.action.quarantine import has_drifted
from contextos.action.registry import Registry
from contextos.contracts.encoding.instructions import INSTRUCTIONS_TAG, instructs
from contextos.contracts.encoding.jcs import canonical, content_address, digest, same_json
from contextos.contracts.encoding.pointer import MISSING, last_name, resolve_pointer
from contextos.contracts.envelopes.artifacts import ToolArtifact, Withheld
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.tool import (
    MAX_SAID_CHARS,
    AdapterReply,
    StatedCall,
    StatedResult,
    ToolError,
    ToolStatus,
)
from contextos.contracts.ids import derive
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.refs import artifact_ref, tool_ref
from contextos.contracts.scope import Capability
from contextos.errors import InvalidInput, Problem

MAX_OUTPUT_BYTES: Final = 1_048_576
"""The most bytes of an output as canonical JSON, and of all artifacts of an answer together."""
MAX_ARTIFACTS: Final = 64
MAX_KEPT_CHARS: Final = 4_000
"""The longest error message, in characters, that is repeated in the reason for asking a person."""
MAX_POINTER_CHARS: Final = 200
UNSAID: Final = "the answer cannot be taken, and what is said of it is unsafe or too long"
UNNAMED: Final = "an effect with an unsafe name"
UNNAMED_ARTIFACT: Final = ["an artifact with an unsafe name", "application/octet-stream"]


@final_fields
class CheckedReply:
    """The result of checking a reply: the members of a result envelope, and the redaction rules that applied.

    The status of a write whose answer is withheld is `completed`, because the call was made.
    """

    status: ToolStatus
    output: Any = None
    error: ToolError | None = None
    withheld: Withheld | None = None
    redacted: tuple[str, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()


def _adapter_texts(checked: CheckedReply) -> list[Any]:
    """Return the parts of a reply beside its output that can contain an adapter's own words."""
    texts = [artifact.get(name) for artifact in checked.artifacts for name in ("name", "content")]
    if checked.error:
        texts.append(checked.error.message)
    if checked.withheld:
        texts.append(checked.withheld.detail)
    return texts


def validate_reply(
    registry: Registry,
    cleanse: Cleanse,
    capability: Capability,
    args: Mapping[str, Any],
    reply: AdapterReply | None,
    outcome: str,
    why: str,
    code: str,
) -> CheckedReply:
    """Check an adapter's reply.

    `args` are the arguments of the call. Output that does not repeat them as the capability declares is kept, and
    withheld from the agent. Without a reply, `outcome` is `unknown` or `not_sent`, and `code` and `why` say what
    stopped the call.
    """
    if reply is None:
        status: ToolStatus = "paused" if outcome == "unknown" else "failed"
        code = "effect_uncertain" if outcome == "unknown" else code
        text, applied, unsafe = cleanse(why)
        message = f"the reason cannot be kept: {unsafe[0].detail}" if unsafe else text
        return CheckedReply(status, error=ToolError(code=code, message=message, retryable=True), redacted=applied)
    writes = capability.definition.kind == "write"
    if reply.error is not None and (reply.had_no_effect or not writes):
        clean_error, applied, unsafe = cleanse(reply.error.to_json())
        if unsafe:
            message = f"the adapter's error cannot be kept: {unsafe[0].detail}"
            return CheckedReply("failed", error=ToolError(code="unsafe_output", message=message), redacted=applied)
        error_status: ToolStatus = "paused" if reply.paused and not writes else "error"
        return CheckedReply(error_status, error=ToolError.model_validate(clean_error), redacted=applied)
    output, (withheld, pointer, applied) = _check_output(registry, cleanse, capability, args, reply)
    if withheld is None or writes:
        # A bad answer does not mean that the write was not made.
        artifacts, rules = _check_artifacts(cleanse, reply.artifacts if withheld is None else ())
        return CheckedReply("completed" if writes else "ok", output, None, withheld, applied + rules, artifacts)
    error = ToolError(code=withheld.code, message=withheld.detail, pointer=pointer)
    return CheckedReply("failed", output, error, withheld, applied)


def _check_output(
    registry: Registry, cleanse: Cleanse, capability: Capability, args: Mapping[str, Any], reply: AdapterReply
) -> tuple[Any, tuple[Withheld | None, str | None, tuple[str, ...]]]:
    """Return the output as it is kept, and (why it is withheld or None, a pointer to the fault, redaction rules)."""
    if reply.error is not None:
        message = f"it had an effect, and answered with the error `{reply.error.code}`: {reply.error.message}"
        return None, _withhold(cleanse, message)
    if reply.withheld is not None:
        return None, _withhold(cleanse, reply.withheld.message, reply.withheld.pointer)
    if (output := reply.output) is None:
        return None, _withhold(cleanse, "there is no output")
    if len(reply.artifacts) > MAX_ARTIFACTS:
        return None, _withhold(cleanse, f"the answer has more than {MAX_ARTIFACTS} artifacts")
    clean, applied, unsafe, facts = _cleanse_value(cleanse, output, "the output")
    problem = unsafe if unsafe and clean is None else registry.check(capability, "output", output) or unsafe
    if problem is not None:
        return None, _withhold(cleanse, problem.detail, problem.pointer, applied, **facts)
    if differs := disagreement(capability, args, output):
        return clean, (Withheld(code="output_disagrees", detail=differs.detail, **facts), differs.pointer, applied)
    return clean, (None, None, applied)


def _cleanse_value(
    cleanse: Cleanse, value: Any, value_name: str, earlier_bytes: int = 0
) -> tuple[Any, tuple[str, ...], Problem | None, dict[str, Any]]:
    """Return (redacted value, redaction rules, why it must be withheld or None, known facts: `size`, `digest`).

    `value_name` is used in details. `earlier_bytes` were kept before and count toward the same limit. A value that is
    not JSON or too large is returned as None.
    """
    try:
        raw = canonical(value)
    except InvalidInput as invalid:
        fault = invalid.problems[0]
        return None, (), Problem(fault.pointer, "not_json", f"{value_name} is not JSON: {fault.detail}"), {}
    if earlier_bytes + (size := len(raw)) > MAX_OUTPUT_BYTES:
        suffix = " with what is before it" if earlier_bytes else ""
        detail = f"{value_name} has more than {MAX_OUTPUT_BYTES} bytes{suffix}"
        return None, (), Problem("", "too_large", detail), {"size": size}
    clean, applied, unsafe = cleanse(value)
    # A digest of a secret could be inverted.
    if any(problem.code == "secret" for problem in unsafe):
        return clean, applied, unsafe[0], {"size": size}
    address = digest(raw) if clean is value else content_address(clean)
    return clean, applied, next(iter(unsafe), None), {"size": size, "digest": address}


def _check_artifacts(
    cleanse: Cleanse, replied: Sequence[ToolArtifact]
) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Return the artifacts of an answer as they are kept, each judged by itself, and the redaction rules applied."""
    if not replied:
        return (), ()
    bodies, rules, total = list[dict[str, Any]](), tuple[str, ...](), 0
    for artifact in (ToolArtifact.model_validate(dict(reply)) for reply in replied):
        clean_names, applied, unsafe = cleanse([artifact.name, artifact.media_type])
        name, media_type = UNNAMED_ARTIFACT if unsafe else clean_names
        body = {"name": name, "media_type": media_type}
        content, content_rules, problem, facts = _cleanse_value(cleanse, artifact.content, "the artifact", total)
        rules += applied + content_rules
        if problem is None and (secret_problem := _hidden_problem(cleanse, artifact)):
            # A digest of the artifact could be inverted to get the secret in it.
            problem, facts = secret_problem, {"size": facts["size"]}
        if problem is None:
            total += facts["size"]
            encoded = {"encoding": artifact.encoding} if artifact.encoding else {}
            body |= {"content": content, **encoded, "digest": facts["digest"], "size": len(canonical(content))}
        else:
            withheld, _, _ = _withhold(cleanse, problem.detail, problem.pointer, **facts)
            body["withheld"] = withheld.to_json()
        bodies.append(body)
    return tuple(bodies), rules


def _hidden_problem(cleanse: Cleanse, artifact: ToolArtifact) -> Problem | None:
    """Return why an artifact of encoded bytes, which cannot be redacted, is withheld, or None if it can be kept."""
    try:
        (_, joined, unsafe), (_, apart, _) = map(cleanse, artifact.hidden_texts())
    except ValueError as fault:
        return Problem("", "unreadable", f"the artifact {fault}")
    if apart or "secret" in joined or any(problem.code == "secret" for problem in unsafe):
        return Problem("", "secret", "the artifact has bytes in which something is that has to be redacted")
    return None


def _with_id(artifact: dict[str, Any], tool_call_id: str, number: int) -> dict[str, Any]:
    """Return the artifact with its id, and with an evidence reference if its digest is known."""
    artifact_id = derive("art_", tool_call_id, "artifact", number)
    reference = {"evidence_ref": artifact_ref(artifact_id, artifact["digest"])} if "digest" in artifact else {}
    return {"artifact_id": artifact_id, **reference, **artifact}


def _withhold(
    cleanse: Cleanse, message: str, pointer: str | None = None, applied: tuple[str, ...] = (), **facts: Any
) -> tuple[Withheld, str | None, tuple[str, ...]]:
    """Return (why an answer is withheld, a pointer to the fault or None, redaction rules).

    An adapter's message and the names in a pointer can repeat the withheld answer. So a message that is unsafe or too
    long is left out, and so is a pointer that is long, unsafe or would be redacted.
    """
    clean, rules, unsafe = cleanse(message)
    detail = UNSAID if unsafe or len(clean) > MAX_SAID_CHARS else clean
    if pointer and len(pointer) <= MAX_POINTER_CHARS and pointer.isprintable():
        parts = [pointer, *map(last_name, pointer.split("/"))]
        if cleanse(parts)[::2] == (parts, ()):
            return Withheld(code="unsafe_output", detail=f"{detail} at `{pointer}`", **facts), pointer, applied + rules
    return Withheld(code="unsafe_output", detail=detail, **facts), None, applied + rules


def disagreement(capability: Capability, args: Mapping[str, Any], output: Any) -> Problem | None:
    """Return a problem for the first argument of `output_repeats` that the output lacks or changes, or None if all
    agree. `output_repeats` of the capability names the arguments that its output has to repeat.
    """
    for argument, pointer in capability.definition.output_repeats.items():
        answered = resolve_pointer(output, pointer)
        if answered is MISSING or not same_json(answered, args.get(argument)):
            detail = f"the answer at `{pointer}` is not what was asked as `{argument}`"
            return Problem(pointer, "output_disagrees", detail, "compare with the other system's records")
    return None


def why_inconclusive(reply: AdapterReply) -> str | None:
    """Return why the answer to a repeated call does not say what the first attempt did, or None if it says so.

    An error is an answer to the last attempt only, and the first attempt can still have had its effect. A system that
    forgot the key answers "already paid"; a server whose definition drifted answers before anything is sent.
    """
    if reply.error is None or not reply.had_no_effect:
        return None
    error = f"`{reply.error.code}`" + (f": {reply.error.message}" if len(reply.error.message) <= MAX_KEPT_CHARS else "")
    return f"sent again, it was answered with an error, so it is not known whether it happened before: {error}"


@final_fields
class AttemptOutcome:
    """Builds the body of `tool.returned` for the current attempt of a call, which began at `began_us` (Unix
    microseconds).
    """

    registry: Registry
    ports: DispatchPorts
    call: ToolCall
    adapter: Adapter
    began_us: int

    def body(self, outcome: str, reply: AdapterReply | None, why: str, *, code: str = "tool_failed") -> dict[str, Any]:
        """Return the body for a reply. If `reply` is None, `code` and `why` say what stopped the call.

        Raises:
            InvalidInput: the reply forms no valid envelope. Nothing of it is recorded.
        """
        call, ports = self.call, self.ports
        envelope, approval, capability = call.envelope, call.approval, call.capability
        checked = validate_reply(self.registry, ports.cleanse, capability, envelope.args, reply, outcome, why, code)
        effect = capability.definition.kind == "write"
        # Time between the reply and the run's next turn counts neither for the call nor for the run.
        waited_us = self.adapter.waited_us if isinstance(self.adapter, BreakerAdapter) else 0
        reported = list(reply.mutations) if reply else []
        mutations = reported and [UNNAMED if ports.cleanse(name)[2] else name for name in ports.cleanse_text(reported)]
        is_usable = checked.status in ("ok", "completed") and checked.withheld is None
        artifacts = [_with_id(body, envelope.tool_call_id, number) for number, body in enumerate(checked.artifacts)]
        refs = [artifact["evidence_ref"] for artifact in artifacts if "evidence_ref" in artifact]
        cited = [tool_ref(envelope.capability_id, envelope.tool_call_id), *refs] if is_usable else []
        tags: list[str] = [envelope.approval_mode_effective] if effect else []
        if instructs([checked.output, *_adapter_texts(checked)]):
            tags.append(INSTRUCTIONS_TAG)
        # For a call that was made, an adapter can state a cost above the declared one, but not below it.
        declared_cents = capability.definition.cost_cents
        cost = declared_cents if outcome == "unknown" else 0
        if reply:
            cost = max(reply.cost_cents, 0 if has_drifted(capability, reply) else declared_cents)
        wire = {
            **_call_fields(envelope),
            "status": checked.status,
            **({"output": checked.output} if checked.output is not None else {}),
            **({"error": checked.error.to_json()} if checked.error else {}),
            **({"withheld": checked.withheld.to_json()} if checked.withheld else {}),
            **({"artifacts": artifacts} if artifacts else {}),
            "citations": [{"evidence_ref": ref} for ref in cited],
            **({"mutations": mutations} if mutations else {}),
            **({"risk_tags": tags} if tags else {}),
            "latency_ms": max(0, ports.clock.now_us() - self.began_us - waited_us) / 1_000,
            "metadata": {
                **({"redaction_applied": True} if checked.redacted or mutations != reported else {}),
                **({"retries": call.attempt - 1} if call.attempt > 1 else {}),
                "tool_transcript_id": derive("tool_tx_", envelope.tool_call_id, "transcript", call.attempt),
                "cost_cents": cost if reply else 0,
                **(
                    {"approver": approval.approver, "approval_evidence_snapshot_hash": approval.evidence_snapshot_hash}
                    if approval
                    else {}
                ),
            },
        }
        StatedResult.model_validate(wire)
        age_ms = reply.definition_age_ms if reply else None
        return {
            "outcome": outcome,
            "envelope": wire,
            "cost_cents": cost,
            "happened": effect and reply is not None and not reply.had_no_effect,
            **({"waited_us": waited_us} if waited_us else {}),
            **({"definition_age_ms": age_ms} if age_ms is not None else {}),
        }


def _call_fields(envelope: StatedCall) -> dict[str, Any]:
    """Return the fields of a result that identify its call."""
    return {
        "tool_call_id": envelope.tool_call_id,
        "capability_id": envelope.capability_id,
        "policy_decision_id": envelope.policy_decision_id,
    }


def result_of_settlement(envelope: StatedCall, settled: Settled) -> dict[str, Any]:
    """Build the result of a call, in its journal form, from an operator's statement whether the call took effect.

    The result is the same when the statement is made and when the run uses it.
    """
    happened = settled.happened
    return StatedResult(
        **_call_fields(envelope),
        status="completed" if happened else "failed",
        output=settled.output if happened else None,
        error=None if happened else ToolError(code="tool_failed", message="a person settled that it did not happen"),
        artifacts=(),
        citations=(),
        mutations=settled.mutations if happened else (),
        risk_tags=("settled",),
        latency_ms=0,
        metadata={"settled_by": settled.by, "evidence_ref": settled.evidence_ref},
    ).to_json()
