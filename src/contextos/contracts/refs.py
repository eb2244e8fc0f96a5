"""Evidence references: one grammar, one parser, and a constructor for each kind.

A reference names the source of a fact: a graph entity at a snapshot, the result of one tool call, a rule of a bundle, a
session, a revision of an artifact, the bytes of an attachment, or a promoted memory.
Source: docs/design/contracts.md, "Identifiers"; API Contracts, "DecisionRecord", `evidence_refs`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple, cast

from contextos.contracts import ids
from contextos.errors import InvalidEnvelope, Problem

Scheme = Literal["kg", "tool", "policy", "session", "artifact", "attachment", "memory"]

MAX_REF_CHARS: Final = 420


class _Shape(NamedTuple):
    """The form of `<scheme>:<subject>`, and optionally of a separator `mark` and a version after it."""

    subject: ids.Form
    mark: str = ""
    version: ids.Form | None = None


_NAME: Final = ids.Form("name", "art_invoice_881", "[A-Za-z0-9_.:-]{1,128}")
_CALL: Final = ids.Form("tool call id", ids.TOOL_CALL.example, "(?:tool|tc)_[!-~]+", ids.TOOL_CALL.sealed)
"""The specification's examples write `tc_`; the runtime never does."""

_SHAPES: Final[dict[Scheme, _Shape]] = {
    "kg": _Shape(ids.CEID, "#snapshot_", _NAME),
    "tool": _Shape(ids.CAPABILITY, ":", _CALL),
    "policy": _Shape(ids.BUNDLE, "#", ids.RULE),
    "session": _Shape(ids.SESSION),
    "artifact": _Shape(_NAME, "#", _NAME),
    "attachment": _Shape(_NAME, "#", ids.DIGEST),
    "memory": _Shape(_NAME),
}


def _grammar(*, sealed: bool) -> str:
    patterns = []
    for scheme, shape in _SHAPES.items():
        forms = [form.sealed if sealed else form.loose for form in (shape.subject, shape.version) if form]
        patterns.append(f"{scheme}:" + shape.mark.join(forms))
    return "|".join(patterns)


EVIDENCE: Final = ids.Form(
    "evidence ref",
    "kg:order:ord_881#snapshot_kg_2026_05_03_T0930",
    _grammar(sealed=False),
    _grammar(sealed=True),
    max_chars=MAX_REF_CHARS,
)
EvidenceRef = Annotated[str, EVIDENCE]


class Ref(NamedTuple):
    """A reference in its parts; `str()` returns its text.

    `version` is a snapshot id, tool call id, rule id, revision id or digest; it is empty for a session or memory.
    """

    scheme: Scheme
    subject: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.subject}{_SHAPES[self.scheme].mark}{self.version}"


def parse_ref(text: str, *, sealed: bool = False) -> Ref:
    """Parse a reference.

    >>> parse_ref("kg:order:ord_881#snapshot_kg_2026_05_03_T0930")
    Ref(scheme='kg', subject='order:ord_881', version='kg_2026_05_03_T0930')

    Raises:
        InvalidEnvelope: `text` is not an evidence reference; with `sealed`, not one in the sealed form.
    """
    if not EVIDENCE.fits(text, sealed=sealed):
        remedy = f"write it like `{EVIDENCE.example}`"
        raise InvalidEnvelope(Problem("", "evidence_ref", "this is not an evidence ref", remedy))
    name, _, remainder = text.partition(":")
    scheme = cast(Scheme, name)
    mark = _SHAPES[scheme].mark
    subject, _, version = remainder.partition(mark) if mark else (remainder, "", "")
    return Ref(scheme, subject, version)


def kg_ref(ceid: str, snapshot_id: str) -> str:
    """Return the reference of a graph entity at a snapshot.

    Raises:
        InvalidEnvelope: the parts do not make a reference. All constructors below raise it too.
    """
    return _format_checked(Ref("kg", ceid, snapshot_id))


def tool_ref(capability_id: str, tool_call_id: str) -> str:
    """Return the reference of the result of one tool call."""
    return _format_checked(Ref("tool", capability_id, tool_call_id))


def policy_ref(bundle_id: str, rule_id: str) -> str:
    """Return the reference of a rule in a policy bundle."""
    return _format_checked(Ref("policy", bundle_id, rule_id))


def artifact_ref(artifact_id: str, revision_id: str) -> str:
    """Return the reference of a revision of an artifact."""
    return _format_checked(Ref("artifact", artifact_id, revision_id))


def attachment_ref(artifact_id: str, digest: str) -> str:
    """Return the reference of the bytes of an attachment; `digest` is `sha256:` and 64 hex digits."""
    return _format_checked(Ref("attachment", artifact_id, digest))


def memory_ref(memory_id: str) -> str:
    """Return the reference of a promoted memory."""
    return _format_checked(Ref("memory", memory_id))


@lru_cache(1024)
def _format_checked(ref: Ref) -> str:
    text = str(ref)
    # Not `assert`, which `python -O` removes: no later check would find a wrong reference.
    if parse_ref(text) != ref:
        raise AssertionError("a subject never contains the mark that ends it")
    return text
