"""Evidence references: one grammar, one parser, and a maker for each kind.

A reference says where a fact can be found again: a graph entity at a snapshot, the result of one tool call, a rule of a
bundle, a session, a revision of an artifact, the bytes of an attachment, a promoted memory.
Source: shared/design/contracts.md, "Identifiers"; seeds, DecisionRecord `evidence_refs`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple, cast

from contextos.contracts import ids
from contextos.errors import InvalidEnvelope, Problem

Scheme = Literal["kg", "tool", "policy", "session", "artifact", "attachment", "memory"]

MAX_REF_CHARS: Final = 420


class _Shape(NamedTuple):
    """`<scheme>:<subject>`, and where there is more: the mark between and the form of the rest."""

    subject: ids.Form
    mark: str = ""
    version: ids.Form | None = None


_NAME: Final = ids.Form("name", "art_invoice_881", "[A-Za-z0-9_.:-]{1,128}")
_CALL: Final = ids.Form("tool call id", ids.TOOL_CALL.example, "(?:tool|tc)_[!-~]+", ids.TOOL_CALL.sealed)
"""The seeds' examples write `tc_`; the runtime never does."""

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
    kinds = []
    for scheme, shape in _SHAPES.items():
        forms = [form.sealed if sealed else form.loose for form in (shape.subject, shape.version) if form]
        kinds.append(f"{scheme}:" + shape.mark.join(forms))
    return "|".join(kinds)


EVIDENCE: Final = ids.Form(
    "evidence ref",
    "kg:order:ord_881#snapshot_kg_2026_05_03_T0930",
    _grammar(sealed=False),
    _grammar(sealed=True),
    max_chars=MAX_REF_CHARS,
)
EvidenceRef = Annotated[str, EVIDENCE]


class Ref(NamedTuple):
    """A reference in its parts; `str()` gives the text again.

    `version` is what pins it: snapshot id, tool call id, rule id, revision id or digest; empty for a session or memory.
    """

    scheme: Scheme
    subject: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.subject}{_SHAPES[self.scheme].mark}{self.version}"


def parse_ref(text: str, *, sealed: bool = False) -> Ref:
    """Take a reference apart.

    >>> parse_ref("kg:order:ord_881#snapshot_kg_2026_05_03_T0930")
    Ref(scheme='kg', subject='order:ord_881', version='kg_2026_05_03_T0930')

    Raises:
        InvalidEnvelope: it is no evidence reference; with `sealed`, not one that the runtime writes.
    """
    if not EVIDENCE.fits(text, sealed=sealed):
        remedy = f"write it like `{EVIDENCE.example}`"
        raise InvalidEnvelope(Problem("", "evidence_ref", "this is not an evidence ref", remedy))
    name, _, rest = text.partition(":")
    scheme = cast(Scheme, name)
    mark = _SHAPES[scheme].mark
    subject, _, version = rest.partition(mark) if mark else (rest, "", "")
    return Ref(scheme, subject, version)


def kg_ref(ceid: str, snapshot_id: str) -> str:
    """A graph entity at a snapshot. Raises InvalidEnvelope, as all makers here do, where the parts make no ref."""
    return _text(Ref("kg", ceid, snapshot_id))


def tool_ref(capability_id: str, tool_call_id: str) -> str:
    """The result of one call."""
    return _text(Ref("tool", capability_id, tool_call_id))


def policy_ref(bundle_id: str, rule_id: str) -> str:
    """A rule of a bundle."""
    return _text(Ref("policy", bundle_id, rule_id))


def session_ref(session_id: str) -> str:
    """A session."""
    return _text(Ref("session", session_id))


def artifact_ref(artifact_id: str, revision_id: str) -> str:
    """A revision of an artifact."""
    return _text(Ref("artifact", artifact_id, revision_id))


def attachment_ref(artifact_id: str, digest: str) -> str:
    """The bytes of an attachment; `digest` as in `sha256:<hex>`."""
    return _text(Ref("attachment", artifact_id, digest))


def memory_ref(memory_id: str) -> str:
    """A promoted memory."""
    return _text(Ref("memory", memory_id))


def _text(ref: Ref) -> str:
    text = str(ref)
    # Not `assert`, which an option of Python leaves out: nobody asks again what is made here.
    if parse_ref(text) != ref:
        raise AssertionError("no subject can hold the mark that ends it")
    return text
