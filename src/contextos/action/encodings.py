"""What a text says once the encodings that it can be in are taken off.

The encodings are percent, HTML, `\\u`, quoted-printable, Base64, Base32 and hex, also inside each other.
Source: docs/adr/0040-where-arguments-come-from.md.
"""

from __future__ import annotations

import re
from base64 import b32decode, b64decode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from contextos.contracts.encoding.entities import unescape_html

MAX_DECODINGS: Final = 3
"""How many encodings inside each other are taken off."""
MAX_DECODED: Final = 32
MAX_DECODED_CHARS: Final = 4 << 20
"""How many texts, and how much of them, come out of one text. Content with more counts as if it had every value."""

_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX: Final = re.compile(r"[0-9a-fA-F]{8,}")
_BASE32: Final = re.compile(r"[A-Z2-7]{16,}")
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ufffd]{4,}")
_ESCAPE: Final = re.compile(r"\\[uU]([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_QUOTED: Final = re.compile(r"=(?:\r?\n|([0-9A-F]{2}))")


class TooMuch(Exception):
    """A text has more encodings in it than are taken off."""


def decodings(text: str) -> list[str]:
    """What a text says once the encodings that it can be in are taken off.

    Raises:
        TooMuch: it says more than can be looked at.
    """
    found: dict[str, None] = {}
    layer: Iterable[str] = (text,)
    left = MAX_DECODED_CHARS
    for _ in range(MAX_DECODINGS):
        decoded: list[str] = []
        for one in (one for each in layer for one in _decoded(each)):
            if one == text or one in found:
                continue
            left -= len(one)
            if left < 0 or len(found) >= MAX_DECODED:
                raise TooMuch
            found[one] = None
            decoded.append(one)
        layer = decoded
    return list(found)


def _decoded(text: str) -> Iterator[str]:
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield unescape_html(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    if "=" in text:
        yield _QUOTED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
    # Mail wraps encoded lines, and an author can put blanks between the characters.
    joined = "".join(text.split())
    said = [one for whole in dict.fromkeys((text, joined)) for run in _ENCODED.findall(whole) for one in _runs(run)]
    if said:
        yield "\n".join(dict.fromkeys(said))


def _runs(run: str) -> Iterator[str]:
    """What a run of characters says that could be Base64, Base32 or hex, from wherever it begins."""
    # A word in lower case is a word: Base64 of a few letters has others, and hex has digits.
    if run.isalpha() and run.islower():
        return
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    for start in range(4):
        cut = plain[start:]
        yield from _texts_in(b64decode(cut[: len(cut) - (len(cut) % 4 == 1)] + "=" * (-len(cut) % 4)))
    for digits in _HEX.findall(run):
        for start in range(2):
            cut = digits[start:]
            yield from _texts_in(bytes.fromhex(cut[: len(cut) - len(cut) % 2]))
    for letters in _BASE32.findall(run):
        yield from _texts_in(b32decode(letters[: len(letters) - len(letters) % 8]))


def _texts_in(raw: bytes) -> list[str]:
    """The stretches of bytes that are text."""
    return _TEXT.findall(raw.decode("utf-8", "replace"))
