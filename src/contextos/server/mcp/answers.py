"""The answers of a gate as MCP results: what was done, what was refused and why, and what a call waits for.

Each answer is a result of `tools/call`, never a protocol error, because a model reads results and acts on them. A call
that was not done has `isError: true`, for clients that read nothing else. A write whose answer is withheld was done, so
it has `isError: false`.
Source: docs/adr/0041-an-mcp-client-is-governed-as-a-session.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.display_escape import displayed_json
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.ports.gates import CallAnswer, Reason, Refused, Waiting
from contextos.errors import Conflict, ContextOSError, Integrity, InvalidInput, OtherEnvironment, Unavailable
from contextos.frameworks.offers import answer_text, is_error

if TYPE_CHECKING:
    from mcp import types

    from contextos.contracts.envelopes.artifacts import RecordedArtifact

_LOG: Final = logging.getLogger(__name__)

META_RUN: Final = "io.contextos/run"
META_CALL: Final = "io.contextos/call"
META_REPLAYED: Final = "io.contextos/replayed"

HOW_IT_ENDS: Final[Mapping[str, str]] = {
    "approval": "tell your user who is asked; that person answers with `contextos approvals approve {run}`, or `deny`",
    "settlement": "tell your user that an operator has to settle it (`contextos runs settle {run}`)",
    "slot": "tell your user who has to choose what fills a context slot (`contextos slots answer {run}`)",
    "engine": "it is tried again by itself; wait some seconds",
}
"""What ends the waiting, by the value of `Waiting.waits_for`."""

AGAIN: Final = (
    "Then make exactly the same call again, with the same arguments, to get its answer; until then it says `waiting`"
)


def call_result(answer: CallAnswer, run_id: str, shown: Sequence[str] = (), link: str = "") -> types.CallToolResult:
    """Return the answer of a gate as the result of `tools/call`.

    `run_id` is the run of the session, `shown` are the names of its tools as the client sees them, and `link` is the
    page where a person finds the question.
    """
    meta = {META_RUN: run_id, META_CALL: answer.call_id}
    if isinstance(answer, Waiting):
        return _result(waiting_text(answer, run_id, link), waiting_json(answer, run_id, link), meta, failed=True)
    if isinstance(answer, Refused):
        answer = replace(answer, reasons=tuple(_for_client(reason, shown) for reason in answer.reasons))
        reasons = [asdict(reason) for reason in answer.reasons]
        refusal = {"status": "refused", "ended": answer.ended, "reasons": reasons}
        return _result(str(answer), refusal, meta, failed=True)
    if answer.replayed:
        meta[META_REPLAYED] = "true"
    if answer.withheld is not None and answer.error is None:
        outcome = {"status": "done", "withheld": answer.withheld.to_json()}
        return _result(answer_text(answer), outcome, meta, failed=False)
    if answer.error is not None:
        failure = {"status": "failed", "code": answer.error.code, "message": answer.error.message}
        return _result(answer_text(answer), failure, meta, failed=is_error(answer))
    embedded = [artifact for artifact in answer.artifacts if artifact.evidence_ref]
    unembedded = tuple(artifact for artifact in answer.artifacts if not artifact.evidence_ref)
    text = answer_text(replace(answer, artifacts=unembedded))
    result = _result(text, dict(answer.output or {}), meta, failed=False)
    result.content += map(_embedded_artifact, embedded)
    return result


def _embedded_artifact(artifact: RecordedArtifact) -> types.EmbeddedResource:
    from mcp import types

    text = artifact.content if isinstance(artifact.content, str) else canonical(artifact.content).decode()
    fields = {"uri": f"artifact:{artifact.artifact_id}", "mimeType": artifact.media_type}
    resource = {**fields, "blob": text} if artifact.encoding else {**fields, "text": text}
    return types.EmbeddedResource.model_validate({"type": "resource", "resource": resource})


def _for_client(reason: Reason, tool_names: Sequence[str]) -> Reason:
    """Return a reason in the terms of an MCP client, which knows the tools by other names and has no call ids."""
    remedy = reason.remedy.replace(" under a new call id", "")
    if reason.code == "tool_not_in_manifest" and tool_names:
        similar = (name for name in tool_names if remedy == f"did you mean `{name.replace('__', '.', 1)}`?")
        remedy = next((f"did you mean `{name}`?" for name in similar), f"use one of {', '.join(tool_names)}")
    return replace(reason, remedy=remedy)


def error_result(error: ContextOSError) -> types.CallToolResult:
    """Return an error of the runtime as a result: its reasons, and what to do about them.

    After an outage or a conflict, and where the record does not verify or is of another environment, it is unknown here
    whether a call was made. The result then does not say that the call was refused.
    """
    is_retryable = isinstance(error, Unavailable | Conflict) and not isinstance(error, OtherEnvironment)
    if isinstance(error, InvalidInput):
        reasons = [{"code": fault.code, "detail": fault.detail, "remedy": fault.remedy} for fault in error.problems]
    else:
        remedy = "make exactly the same call again" if is_retryable else "ask the operator of this server"
        reasons = [{"code": error.code, "detail": for_client(error), "remedy": remedy}]
    text = "; ".join(f"{reason['detail']}; {reason['remedy']}" for reason in reasons)
    if is_retryable or isinstance(error, OtherEnvironment | Integrity):
        status = {"status": "waiting", "waits_for": "engine"} if is_retryable else {"status": "failed"}
        return _result(
            f"no answer, and a call may have been made: {text}", {**status, "reasons": reasons}, {}, failed=True
        )
    return _result(f"refused: {text}", {"status": "refused", "ended": False, "reasons": reasons}, {}, failed=True)


def for_client(error: ContextOSError) -> str:
    """Return the text of an error for a client. The details of `OtherEnvironment` go to the log of the server alone."""
    if not isinstance(error, OtherEnvironment):
        return str(error)
    _LOG.warning("a request was refused: %s", error)
    return error.OUTSIDE


def waiting_text(waiting: Waiting, run_id: str, link: str = "") -> str:
    """Return sentences about what a session waits for, for a model to act on. `link` shows the question to a person."""
    question = waiting.question
    shown = question.get("shown") or {}
    call = f"`{shown['capability']}` {displayed_json(shown['args'], None)}" if shown else "an earlier call"
    question_text = call
    if "gate_id" in question:
        question_text = f"{question['gate_id']} asks somebody with the role `{question['required_role']}` about {call}"
    earlier = (
        "" if waiting.about == waiting.call_id else "an earlier call comes first, and this one was not asked for; "
    )
    remedy = HOW_IT_ENDS[waiting.waits_for].format(run=run_id)
    if link and waiting.waits_for != "engine":
        remedy += f"; it is shown at {link}"
    uncertain = waiting.waits_for == "settlement"
    so_far = "it may have happened, and nobody knows" if uncertain else "nothing is done yet, and nothing has failed"
    return (
        f"waiting, which is not final: {so_far}; {earlier}{question_text}. "
        f"You cannot answer it, and no other call does the same without it. Do this: {remedy}. {AGAIN}."
    )


def waiting_json(waiting: Waiting, run_id: str, link: str = "") -> dict[str, Any]:
    """Return what a session waits for as JSON: the role that is asked, the call, the deadline, the remedy, and the
    `link` for the person.
    """
    question = waiting.question
    shown = question.get("shown") or {}
    deadline_us = question.get("deadline_us")
    fields = {
        "gate": question.get("gate_id"),
        "asks": question.get("required_role"),
        "tool": shown.get("capability"),
        "arguments": shown.get("args"),
        "until": utc_text(deadline_us) if deadline_us else None,
    }
    return {
        "status": "waiting",
        "waits_for": waiting.waits_for,
        "run": run_id,
        "call": waiting.about,
        "this_call": waiting.about == waiting.call_id,
        "question": {name: value for name, value in fields.items() if value is not None},
        **({"link": link} if link and waiting.waits_for != "engine" else {}),
        "remedy": f"{HOW_IT_ENDS[waiting.waits_for].format(run=run_id)}. {AGAIN}",
    }


def utc_text(at_us: int) -> str:
    """Return a Unix time in microseconds as RFC 3339 writes it, in UTC and to the second."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _result(text: str, structured: Mapping[str, Any], meta: Mapping[str, str], *, failed: bool) -> types.CallToolResult:
    from mcp import types

    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=dict(structured),
        is_error=failed,
        _meta=dict(meta) or None,
    )
