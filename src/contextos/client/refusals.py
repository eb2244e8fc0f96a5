"""Turns an error of the server into an exception: the class that the server raised, where `contextos.errors` has it.

Texts of a server are cut and escaped, because they are shown to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.envelopes.memory import RefusalReason
from contextos.errors import (
    ApprovalRefused,
    Conflict,
    ConflictingRequest,
    ContextOSError,
    Integrity,
    InvalidArtifact,
    InvalidEnvelope,
    InvalidInput,
    LostReply,
    MalformedJson,
    NotFound,
    Overloaded,
    Problem,
    RequestRefused,
    SignatureInvalid,
    Unavailable,
    UnfitAnswer,
    UnknownSemantics,
    Untimely,
)
from contextos.service.views import PROBLEM_JSON, ProblemDocument

MAX_PROBLEM_BYTES: Final = 262_144
MAX_PROBLEM_TEXT_CHARS: Final = 1_000
MAX_PROBLEM_PARTS: Final = 50
DEFAULT_RETRY_S: Final = 1
MAX_RETRY_S: Final = 86_400

_INVALID_INPUTS: Final[Mapping[str, type[InvalidInput]]] = {
    kind.code: kind for kind in (InvalidInput, MalformedJson, InvalidEnvelope, ConflictingRequest, InvalidArtifact)
}
_MESSAGE_ONLY: Final[Mapping[str, type[ContextOSError]]] = {
    kind.code: kind for kind in (NotFound, Integrity, SignatureInvalid, UnknownSemantics, LostReply, ContextOSError)
} | {"defect": ContextOSError}
"""The classes that are made from a sentence alone."""

APPROVAL_REASONS: Final = frozenset(
    {
        "act_used",
        "already_answered",
        "approval_void",
        "assertion_expired",
        "assertion_invalid",
        "expired",
        "identity_refused",
        "not_approver",
        "not_asked",
        "not_granted",
        "not_operator",
        "not_void",
        "not_waiting",
        "other_binding",
        "other_person",
        "self_approval",
        "self_granted",
        "self_review",
        "self_settlement",
        "unknown_actor",
        "unsafe_not_allowed",
        *get_args(RefusalReason),
    }
)
"""The reasons for which the server raises `ApprovalRefused`. `not_allowed` is left out, because routes without an
approval also give it for a missing role.
"""


def refusal_of(status: int, media_type: str, retry_after: str | None, raw: bytes) -> ContextOSError:
    """Return the exception for an answer whose status is not 2xx. `raw` is its body."""
    retry_ms = _retry_ms(retry_after)
    if media_type != PROBLEM_JSON:
        # Something in front of the server answered.
        if status in (429, 503):
            return Unavailable("server", f"it answered with {status}", retry_after_ms=retry_ms)
        if status in (502, 504):
            return LostReply(f"what is in front of the server answered with {status}, so the outcome is unknown")
        return UnfitAnswer(f"the server answered with {status} and no problem document; check its address")
    try:
        document = parse(ProblemDocument, raw, max_bytes=MAX_PROBLEM_BYTES)
    except InvalidInput as error:
        return UnfitAnswer(f"the server answered with {status} and a problem document that does not fit: {error}")
    return _error_from(status, document, retry_ms)


def _error_from(status: int, document: ProblemDocument, retry_ms: int) -> ContextOSError:
    code, detail = _clean(document.code), _clean(document.detail)
    if status == 429:
        return Overloaded("server", detail, retry_after_ms=retry_ms)
    if status == 503:
        return Unavailable("server", detail, retry_after_ms=retry_ms)
    if document.code in _INVALID_INPUTS:
        problems = [
            Problem(_clean(error.pointer), _clean(error.code), _clean(error.detail), _clean(error.remedy))
            for error in document.errors[:MAX_PROBLEM_PARTS]
        ]
        return _INVALID_INPUTS[document.code](*(problems or [Problem("", code, detail)]))
    if document.code in _MESSAGE_ONLY:
        return _MESSAGE_ONLY[document.code](detail)
    if document.code in (Conflict.code, Untimely.code):
        return Conflict("run", "read it, then send the request again")
    if document.code in APPROVAL_REASONS and status in (403, 409):
        return ApprovalRefused(code, detail)
    if status == 500:
        return Integrity(detail)
    return RequestRefused(status, code, _clean(document.type), _clean(document.title), detail)


def _clean(text: str) -> str:
    shortened = text if len(text) <= MAX_PROBLEM_TEXT_CHARS else text[:MAX_PROBLEM_TEXT_CHARS] + "…"
    return escape_for_display(shortened)


def _retry_ms(header: str | None) -> int:
    """Return `Retry-After` in milliseconds. A date counts as 1 s, because the API sends only seconds."""
    seconds = int(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 8 else None
    return min(DEFAULT_RETRY_S if seconds is None else seconds, MAX_RETRY_S) * 1_000
