"""The question to an approver: its content, its digests, and the proof that a stored one is what the runtime asked.

A question names the call with its final arguments, the frozen evidence, and the text that a person is shown. Every
digest in it is computed from that content by `question_fault` before anybody signs it.
Source: docs/design/contracts.md, "Approval modes"; docs/design/standards.md, "Approvals".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.redacted import is_secret_argument
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry

REPEATED: Final = ("gate_id", "required_role", "deadline_us", "evidence_snapshot_hash")
"""The fields of a question that its binding repeats."""


def shown_text(
    *,
    capability: str,
    mode: str,
    gate: str,
    args: Mapping[str, Any],
    evidence: Sequence[Mapping[str, Any]],
    requester: Sequence[Mapping[str, Any]],
    untrusted: Mapping[str, Sequence[str]],
    secrets: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return what an approver is shown, with every string escaped for display. No model takes part in writing it.

    `evidence` lists {`name`, `subject`, `value`, `ref`}; `requester` is the chain of principals {`kind`, `id`}.
    `untrusted` names the arguments that nothing trusted has, and `secrets` those that are secret, each with where it
    was found, or `planner` if nowhere; without one nothing is shown.
    """
    return {
        "capability": capability,
        "mode": mode,
        "gate": gate,
        "args": escape_all(dict(args)),
        "evidence": [escape_all(dict(one)) for one in evidence],
        "requester": [f"{principal['kind']}:{principal['id']}" for principal in requester],
        **({"untrusted": escape_all({name: list(found) for name, found in untrusted.items()})} if untrusted else {}),
        **({"secrets": escape_all({name: list(found) for name, found in secrets.items()})} if secrets else {}),
    }


def question_fault(tenant_id: str, run_id: str, entries: Sequence[Entry], asked: Entry) -> str | None:
    """Return why the stored question `asked` cannot be answered, or None if everything in it agrees.

    `entries` is the verified journal of the run. The digests of the shown text, of the binding and of the arguments
    are computed from their content, and the evidence is compared with what the run froze for this call.
    """
    question = read_body(asked)
    binding, shown, args = question["binding"], question["shown"], question["args"]
    if (binding["tenant_id"], binding["run_id"]) != (tenant_id, run_id):
        return "it is bound to another run"
    if content_address(shown) != binding["shown_digest"] or question["shown_digest"] != binding["shown_digest"]:
        return "the text that is shown is not the text that it is bound to"
    if content_address(binding) != question["binding_digest"]:
        return "its binding has another digest"
    if content_address(args) != binding["args_digest"]:
        return "its arguments have another digest"
    traced = (_body_at(entries, "arguments.traced", asked.key) or {"arguments": {}})["arguments"]
    expected = shown_text(
        capability=binding["capability_id"],
        mode=question["approval_mode_effective"],
        gate=binding["gate_id"],
        args=args,
        evidence=(),
        requester=binding["requester_chain"],
        untrusted={name: one["origins"] for name, one in traced.items() if one["integrity"] != "trusted"},
        secrets={name: one["origins"] for name, one in traced.items() if is_secret_argument(args.get(name))},
    )
    if {**shown, "evidence": []} != expected:
        return "the text that is shown does not describe the call that it is bound to"
    if any(question[name] != binding[name] for name in REPEATED):
        return "it differs from its binding"
    frozen = _body_at(entries, "evidence.frozen", asked.key)
    items = frozen["items"] if frozen else []
    if content_address(items) != binding["evidence_snapshot_hash"]:
        return "its evidence is not what the run froze"
    if [(one["name"], one["ref"]) for one in shown["evidence"]] != [
        (escape_for_display(one["name"]), escape_for_display(one["evidence_ref"])) for one in items
    ]:
        return "the evidence that is shown is not what the run froze"
    return None


def escape_all(value: Any) -> Any:
    """Return the JSON value with every string escaped for display, keys included."""
    if isinstance(value, str):
        return escape_for_display(value)
    if isinstance(value, dict):
        return {escape_for_display(str(name)): escape_all(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_all(item) for item in value]
    return value


def _body_at(entries: Sequence[Entry], kind: str, key: str) -> Any:
    """Return the parsed body of the last entry of this kind and key, or None."""
    found = next((one for one in reversed(entries) if (one.kind, one.key) == (kind, key)), None)
    return read_body(found) if found is not None else None
