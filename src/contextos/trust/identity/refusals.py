"""The line of the log about a token that is refused: which claim or header, of which issuer, expected and found.

Every door writes it with `logged_refusal`, and its caller learns no more than that the token does not count. A value of
the token is bounded, without control characters, secrets and addresses of people; the token itself is never in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.errors import ContextOSError, NotFound, SignatureInvalid
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.redact import redact

MAX_LOGGED_CHARS: Final = 60
MAX_LOGGED_REASON_CHARS: Final = 200
MAX_CLEANSED_CHARS: Final = 512
"""The most characters of a value that are searched for secrets, because the sender of a token proved nothing."""
_END_OF_SECRETS: Final = ".aaaaaaaa.a@"
"""Appended, so that `redact` finds the beginning of a cut secret: a JSON Web Token, a password in a URL."""
_LOG: Final = logging.getLogger("contextos.identity")


@contextmanager
def logged_refusal(token: Any) -> Iterator[None]:
    """Log why `token` is refused, if the code within raises `SignatureInvalid` or `NotFound`."""
    try:
        yield
    except (SignatureInvalid, NotFound) as error:
        _LOG.warning("%s", refusal_line(token, error))
        raise


def refusal_line(token: Any, refused: ContextOSError) -> str:
    """Return the line of the log about a token and why it is refused. It names the issuer that the token states."""
    is_readable = isinstance(token, str) and len(token) <= MAX_TOKEN_CHARS
    payload = (unverified_payload(token) or {}) if is_readable else {}
    issuer = shown(payload.get("iss", payload.get("sub") if str(payload.get("sub")).startswith("spiffe:") else None))
    reason = _clean_text(str(refused), MAX_LOGGED_REASON_CHARS)
    if not isinstance(refused, SignatureInvalid) or not refused.part:
        return f"a token of {issuer} is refused: {reason}"
    part = _clean_text(refused.part, MAX_LOGGED_CHARS)
    expected = "" if refused.expected is None else f" expected {shown(refused.expected)},"
    return f"a token of {issuer} is refused: {part}:{expected} found {shown(refused.found)}: {reason}"


def shown(value: Any) -> str:
    """Return a value of a token in a form that a log can have: at most 60 characters, and nothing secret.

    >>> shown(None), shown("a" * 99)[-8:], shown("a`, found `b")
    ('nothing', 'aaaa...`', "`a', found 'b`")
    """
    if value is None:
        return "nothing"
    # A value that ends itself would forge the rest of the line.
    return f"`{_clean_text(value, MAX_LOGGED_CHARS).replace('`', chr(39))}`"


def _clean_text(value: Any, limit: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    was_cut = len(text) > MAX_CLEANSED_CHARS
    text = displayed(text[:MAX_CLEANSED_CHARS]) + (_END_OF_SECRETS if was_cut else "")
    cleaned, kinds = redact(text, list(REDACTION_TARGETS))
    if was_cut and kinds:
        # Text after the last mark can be a part of a secret that was cut off.
        cleaned = f"{cleaned[: cleaned.rfind(']') + 1]}..."
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 3]}..."
