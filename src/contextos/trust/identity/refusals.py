"""The line of the log about a token that is refused: which claim or header, of which issuer, expected and found.

Every door writes it with `logged_refusal`, and its caller learns no more than that the token does not count. A value of
the token is bounded, without control characters, secrets and addresses of people; the token itself is never in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed_json
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.errors import ContextOSError, NotFound, SignatureInvalid
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.redact import redact

MAX_LOGGED_CHARS: Final = 60
_LOG: Final = logging.getLogger("contextos.identity")


@contextmanager
def logged_refusal(token: Any) -> Iterator[None]:
    """Log why `token` is refused, if what is done within raises `SignatureInvalid` or `NotFound`."""
    try:
        yield
    except (SignatureInvalid, NotFound) as refused:
        _LOG.warning("%s", refusal_line(token, refused))
        raise


def refusal_line(token: Any, refused: ContextOSError) -> str:
    """Return the line of the log about a token and why it is refused. The issuer is the one that the token states."""
    stated = (unverified_payload(token) or {}) if isinstance(token, str) else {}
    issuer = shown(stated.get("iss", stated.get("sub") if str(stated.get("sub")).startswith("spiffe:") else None))
    if not isinstance(refused, SignatureInvalid) or not refused.part:
        return f"a token of {issuer} is refused: {refused}"
    expected = "" if refused.expected is None else f" expected {shown(refused.expected)},"
    return f"a token of {issuer} is refused: {refused.part}:{expected} found {shown(refused.found)}: {refused}"


def shown(value: Any) -> str:
    """Return a value of a token in a form that a log can have: at most 60 characters, and nothing secret.

    >>> shown(None), shown("a" * 99)[-8:]
    ('nothing', 'aaaa...`')
    """
    if value is None:
        return "nothing"
    # Cut after redaction, so that no part of a secret is left before the cut.
    clean, _ = redact(displayed_json(value, None), list(REDACTION_TARGETS))
    return f"`{clean if len(clean) <= MAX_LOGGED_CHARS else f'{clean[: MAX_LOGGED_CHARS - 3]}...'}`"
