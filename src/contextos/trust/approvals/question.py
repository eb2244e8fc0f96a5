"""Proves that a stored question is the question that the runtime asked.

Every digest of a question is computed from its content before anybody signs it, and its statements about the run are
compared with the verified journal.
Source: docs/adr/0058-a-signature-is-over-what-was-shown.md; docs/design/contracts.md, "Approval modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from contextos.contracts.encoding.instructions import instructing
from contextos.contracts.encoding.redacted import is_secret_argument
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.statements.questions import question_disagreement

REPEATED: Final = ("gate_id", "required_role", "deadline_us")
"""The fields of a question that its binding repeats."""

_ANSWERED: Final = ("tool.returned", "attachment.fetched")
"""The kinds of entries whose content a question says something of."""


def rests_on_erased(entries: Sequence[Entry], asked: Entry) -> bool:
    """Return whether content that the question `asked` says something of was erased, so that nobody can check it."""
    return any(one.body is None for one in entries if one.seq < asked.seq and one.kind in _ANSWERED)


def question_fault(tenant_id: str, run_id: str, entries: Sequence[Entry], asked: Entry) -> str | None:
    """Return why the stored question `asked` cannot be answered, or None if everything in it agrees.

    `entries` is the verified journal of the run. The digests, and the text that is shown, are computed from the
    content, and the evidence is compared with the evidence that the run froze for this call.
    """
    question = read_body(asked)
    binding, args = question["binding"], question["args"]
    if (binding["tenant_id"], binding["run_id"]) != (tenant_id, run_id):
        return "it is bound to another run"
    if fault := question_disagreement(question):
        return fault
    if any(question[name] != binding[name] for name in REPEATED):
        return "it differs from its binding"
    traced = (_body_at(entries, "arguments.traced", asked.key) or {"arguments": {}})["arguments"]
    untrusted = {name: one["origins"] for name, one in traced.items() if one["integrity"] != "trusted"}
    secrets = {name: one["origins"] for name, one in traced.items() if is_secret_argument(args.get(name))}
    if (binding["untrusted"], binding["secrets"]) != (untrusted, secrets):
        return "it says of its arguments what the run did not find"
    before = (one for one in entries if one.seq < asked.seq and one.kind in _ANSWERED)
    seen = ((one.kind, read_body(one)) for one in before)
    if binding["instructions"] != instructing(seen):
        return "it says of the content what the run did not find"
    frozen = _body_at(entries, "evidence.frozen", asked.key)
    if [(one["name"], one["ref"], one["digest"]) for one in question["evidence"]] != [
        (one["name"], one["evidence_ref"], one["digest"]) for one in (frozen["items"] if frozen else ())
    ]:
        return "its evidence is not what the run froze"
    return None


def _body_at(entries: Sequence[Entry], kind: str, key: str) -> Any:
    """Return the parsed body of the last entry of this kind and key, or None."""
    found = next((one for one in reversed(entries) if (one.kind, one.key) == (kind, key)), None)
    return read_body(found) if found is not None else None
