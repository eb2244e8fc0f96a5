"""`SecretRedactor`: takes the secrets of a connection out of whatever its server answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

from contextos.contracts.encoding.entities import unescape_html

REDACTED: Final = "[credential]"
MIN_SECRET_CHARS: Final = 8
"""A shorter text is not redacted: it occurs in other texts by chance."""

_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_MARKS: Final = re.compile(r"[\W_]+")


class SecretRedactor:
    """Redacts secrets, in each of the forms in which a server has seen them and can send them back.

    The secrets are in no representation of this object.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= MIN_SECRET_CHARS for form in _forms(secret)}
        self._bare = {bare for form in forms if len(bare := _bare(form)) >= MIN_SECRET_CHARS}
        # The longest first: one can be a part of another.
        ordered = sorted(forms, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE) if ordered else None

    def redact(self, value: Any) -> Any:
        """Return a JSON value or text without any of the secrets, also in the names of members."""
        if self._found is None:
            return value
        if isinstance(value, str):
            # Escaped, split or encoded in a way that no pattern foresees: then nothing of the text is kept.
            kept = self._found.sub(REDACTED, value)
            bare = _bare(kept)
            return REDACTED if any(one in bare for one in self._bare) else kept
        if isinstance(value, dict):
            return {self.redact(name): self.redact(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.redact(one) for one in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return REDACTED if self.redact(str(value)) != str(value) else value
        return value


def _forms(secret: str) -> set[str]:
    encoded = base64.b64encode(secret.encode()).decode()
    return {secret, quote(secret, safe=""), quote(secret), encoded, encoded.rstrip("=")}


def _bare(text: str) -> str:
    """The letters and digits of a text, without the escapes of JSON, HTML and URLs."""
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return _MARKS.sub("", unquote(unescape_html(plain))).lower()
