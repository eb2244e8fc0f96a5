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

_CONTENT_KINDS: Final = ("tool.returned", "attachment.fetched")
"""The kinds of entries whose content a question says something of."""


def rests_on_erased(entries: Sequence[Entry], asked: Entry) -> bool:
    """Return whether content that the question `asked` says something of was erased, so that nobody can check it."""
    return any(entry.body is None for entry in entries if entry.seq < asked.seq and entry.kind in _CONTENT_KINDS)


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
    traced = (_last_body(entries, "arguments.traced", asked.key) or {"arguments": {}})["arguments"]
    untrusted = {name: argument["origins"] for name, argument in traced.items() if argument["integrity"] != "trusted"}
    secrets = {name: argument["origins"] for name, argument in traced.items() if is_secret_argument(args.get(name))}
    if (binding["untrusted"], binding["secrets"]) != (untrusted, secrets):
        return "it says of its arguments what the run did not find"
    earlier = (entry for entry in entries if entry.seq < asked.seq and entry.kind in _CONTENT_KINDS)
    contents = ((entry.kind, read_body(entry)) for entry in earlier)
    if binding["instructions"] != instructing(contents):
        return "it says of the content what the run did not find"
    frozen = _last_body(entries, "evidence.frozen", asked.key)
    if [(item["name"], item["ref"], item["digest"]) for item in question["evidence"]] != [
        (item["name"], item["evidence_ref"], item["digest"]) for item in (frozen["items"] if frozen else ())
    ]:
        return "its evidence is not what the run froze"
    return None


def _last_body(entries: Sequence[Entry], kind: str, key: str) -> Any:
    """Return the parsed body of the last entry of this kind and key, or None."""
    entry = next((candidate for candidate in reversed(entries) if (candidate.kind, candidate.key) == (kind, key)), None)
    return read_body(entry) if entry is not None else None
