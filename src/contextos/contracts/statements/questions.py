"""The question to an approver in clear, what is derived from it, and the statement that they sign.

A question states the whole call: its binding (who asks, which capability, gate, role and deadline), its final arguments
and the frozen evidence with values and sources. Everything else is derived from these three: the digests, and the text
that a person is shown. The signer derives it anew, so no digest is signed whose value nobody saw.
Source: docs/adr/0058-a-signature-is-over-what-was-shown.md; RFC 8785.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.encoding.jcs import content_address

CONTENT: Final = ("approval_id", "binding", "binding_digest", "args", "evidence")
"""The members of a question that its statement repeats, so that they are signed."""


def question_disagreement(question: Mapping[str, Any]) -> str | None:
    """Return the first digest of a question that does not follow from its content, or None.

    The digests of arguments, evidence and binding are computed from what a person is shown.
    """
    binding = question["binding"]
    if content_address(question["args"]) != binding["args_digest"]:
        return "its arguments have another digest"
    if content_address(question["evidence"]) != binding["evidence_snapshot_hash"]:
        return "its evidence has another digest"
    if content_address(binding) != question["binding_digest"]:
        return "its binding has another digest"
    return None


def approval_statement(question: Mapping[str, Any], approver_id: str, verdict: str, reason: str) -> dict[str, Any]:
    """Build the statement that an approver signs. It fits one question, one person and one verdict only.

    `question` has the members `CONTENT`, such as the body of `approval.asked`.
    """
    content = {name: question[name] for name in CONTENT}
    return {**content, "approver": approver_id, "verdict": verdict, "reason": reason}


def principal_name(principal: Mapping[str, Any]) -> str:
    """Return a principal as people see it: its kind and id, and the partner to which it belongs, if any."""
    partner = f" of {principal['issuer']}" if principal.get("issuer") else ""
    return f"{principal['kind']}:{principal['id']}{partner}"


def shown_text(binding: Mapping[str, Any], args: Mapping[str, Any], evidence: Any) -> dict[str, Any]:
    """Return what an approver is shown, with every string escaped for display. No model takes part in writing it.

    `evidence` lists {`name`, `subject`, `value`, `ref`, `digest`}, and `volatile` if its numbers can move. In the
    binding, `untrusted` names the arguments whose value no trusted source has, and `secrets` the secret arguments, each
    with the places where it was found, or `planner` if nowhere; `instructions` names content that speaks to an agent.
    Of these three, an empty one is left out.
    """
    marks = {name: escape_all(binding[name]) for name in ("untrusted", "secrets", "instructions") if binding[name]}
    return {
        "capability": binding["capability_id"],
        "mode": binding["mode"],
        "gate": binding["gate_id"],
        "args": escape_all(dict(args)),
        "evidence": [
            escape_all({name: item[name] for name in ("name", "subject", "value", "ref", "volatile") if name in item})
            for item in evidence
        ],
        "until": _utc_text(binding["deadline_us"]),
        "requester": [principal_name(principal) for principal in binding["requester_chain"]],
        **marks,
    }


def _utc_text(at_us: int) -> str:
    """Return a Unix time in microseconds as RFC 3339 writes it, in UTC and to the second."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def escape_all(value: Any) -> Any:
    """Return the JSON value with every string escaped for display, keys included."""
    if isinstance(value, str):
        return escape_for_display(value)
    if isinstance(value, dict):
        return {escape_for_display(str(name)): escape_all(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_all(item) for item in value]
    return value
