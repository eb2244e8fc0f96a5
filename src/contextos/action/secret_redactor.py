"""Take the secrets of a connection out of whatever its server answers (`SecretRedactor`)."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from contextos.action.content.text_forms import joined_hex, unescaped
from contextos.contracts.encoding.entities import unescape_html
from contextos.contracts.encoding.redacted import unused_name

REDACTED: Final = "[credential]"
MIN_SECRET_CHARS: Final = 8
"""A shorter secret is not redacted: it occurs in other texts by chance. `min_chars` of a `SecretRedactor` can be lower.
A secret of a length between the two is found in its usual forms only, and not if it is split or disguised.
"""
MIN_BEGINNING_CHARS: Final = 4
"""The fewest characters of a secret that are removed at the end of a cut text; fewer occur in other texts by chance."""

_MARKS: Final = re.compile(r"[\W_]+")
_PERHAPS_ENCODED: Final = re.compile(r"[^\x00-\x7f]|[\[%&\\]|0[xX]")
"""Characters in the JSON of a value that has an encoded text, or a list (whose joined texts are searched too)."""
_URL_SAFE: Final = str.maketrans("+/", "-_")


class SecretRedactor:
    """Redacts secrets, in each of the forms in which a server can send them back.

    No representation of this object shows the secrets.
    """

    def __init__(self, secrets: Iterable[str], min_chars: int = MIN_SECRET_CHARS) -> None:
        texts = {form for secret in secrets if len(secret) >= min_chars for form in _secret_forms(secret)}
        forms = {form.casefold() for form in texts if len(form) >= min_chars}
        # The longest forms come first, because one form can be a part of another.
        self._forms = sorted(forms, key=len, reverse=True)
        self._bare_forms = {bare for form in forms if len(bare := _without_marks(form)) >= MIN_SECRET_CHARS}

    def redact(self, value: Any) -> Any:
        """Return a JSON value or text without any of the secrets, also in the names of members. If the texts of a list
        contain a secret only when they are joined, all texts of the list are redacted.
        """
        return value if not self._forms or self._lacks_all(value) else self._redact_value(value)

    def _lacks_all(self, value: Any) -> bool:
        """Return whether one look at the JSON of a value shows that no secret is in it. False: it is not known."""
        if isinstance(value, str):
            return False
        try:
            raw = json.dumps(value).replace("\\n", "\n").replace('\\"', '"')
        except (TypeError, ValueError, RecursionError):
            return False
        return _PERHAPS_ENCODED.search(raw) is None and self._redact_text(raw) == raw

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, dict):
            return self._redact_members(value)
        if isinstance(value, list):
            redacted = [self._redact_value(item) for item in value]
            together = "".join(text for text in redacted if isinstance(text, str))
            if self._redact_text(together) == together:
                return redacted
            return [REDACTED if isinstance(item, str) else item for item in redacted]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            digits = str(value)
            # A short secret occurs in many numbers by chance, such as times: it is redacted only as a whole number.
            hit = any(form == digits or (len(form) >= MIN_SECRET_CHARS and form in digits) for form in self._forms)
            return REDACTED if hit or any(form in digits for form in self._bare_forms) else value
        return value

    def without_part_at_end(self, text: str) -> str:
        """Return a redacted text without the beginning of a secret at its end, where it can have been cut."""
        folded = text.casefold()
        parts = (form[:size] for form in self._forms for size in range(MIN_BEGINNING_CHARS, len(form)))
        size = max((len(part) for part in parts if folded.endswith(part)), default=0)
        return text[:-size] if size else text

    def _redact_members(self, value: dict[str, Any]) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, member in value.items():
            redacted[unused_name(self._redact_value(name), redacted, value, numbers)] = self._redact_value(member)
        return redacted

    def _redact_text(self, text: str) -> str:
        folded = text.casefold()
        patterns = [re.escape(form) for form in self._forms if form in folded]
        redacted = re.sub("|".join(patterns), REDACTED, text, flags=re.IGNORECASE) if patterns else text
        # A secret can be escaped, split or encoded in a way that no form covers: then nothing of the text is kept.
        bare = _without_marks(redacted)
        return REDACTED if any(form in bare for form in self._bare_forms) else redacted


def _secret_forms(secret: str) -> set[str]:
    """Return the ways to write a secret, and the encodings of each, alone or within a longer text that was encoded."""
    quoted, raw = quote(secret, safe=""), secret.encode()
    spellings = {secret, secret[::-1], quoted, quote(secret), json.dumps(secret)[1:-1], raw.hex(), raw.hex().upper()}
    once = {*spellings, *_base64(raw)}
    twice = {form for text in once for form in (*_base64(text.encode()), text.encode().hex())}
    wide = (*_base64(secret.encode("utf-16-le")), *_base64(secret.encode("utf-16-be")))
    alone = base64.b64encode(raw).decode()
    return {*once, *twice, *wide, *_encodings_within(base64.b32encode, raw, 5, 5), alone, alone.rstrip("=")}


def _base64(raw: bytes) -> Iterator[str]:
    for encoded in _encodings_within(base64.b64encode, raw, 3, 6):
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _encodings_within(encode: Callable[[bytes], bytes], raw: bytes, group: int, bits: int) -> Iterator[str]:
    """Yield the characters that `raw` has within an encoded longer text, for each place in a group where it can begin.

    `group` is the number of bytes that are encoded together, and `bits` the number of bits in one encoded character.
    """
    for offset in range(group):
        encoded = encode(b"\0" * offset + raw).decode()
        yield encoded[-(-8 * offset // bits) : 8 * (offset + len(raw)) // bits]


def _without_marks(text: str) -> str:
    """Return the letters and digits of a text, without the escapes of JSON, HTML and URLs."""
    if text.isalnum() and text.isascii() and "0x" not in text.lower():
        return text.lower()
    plain = unicodedata.normalize("NFKC", joined_hex(unescaped(text)))
    return _MARKS.sub("", unquote(unquote(unescape_html(plain)))).casefold()
