"""Escape untrusted text for display: characters that hide, reverse, move or overlay text are replaced by escapes.

A blank other than the space is escaped, and so is a combining character: it is drawn over the one before it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

BIDI: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
TAGS: Final = r"\U000e0000-\U000e007f"
INVISIBLE: Final = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0080-\U000e0fff"
)
BLANK: Final = "\u2800\U0001d159"
"""Symbols that are drawn as nothing although their Unicode category is not that of a blank."""

MAX_UNSEEN: Final = 4
"""The most soft hyphens in a text of prose that count as ordinary; a caller can pass it as `variants` too."""

_SYMBOL: Final = r"[\u00a9\u00ae\u203c\u2049\u2100-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001fbff]"
_SOFT_HYPHEN: Final = re.compile(
    "|".join(
        rf"(?<={script})\u00ad(?={script})"
        for script in (r"[A-Za-z\u00c0-\u024f]", r"[\u0370-\u03ff]", r"[\u0400-\u052f]")
    )
)
_IDEOGRAPH_VARIANT: Final = re.compile(
    r"(?<=[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\ufe00-\ufe02\U000e0100-\U000e01ef]"
)
_WITHOUT_SPACES: Final = (
    r"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1980-\u19ff\u1a20-\u1aad\ua9e0-\ua9ff\uaa60-\uaadf]"
)
_JOINING: Final = r"[\u0620-\u06ff\u0710-\u074f\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3]"
_FLAGS: Final = "|".join("".join(chr(0xE0000 + ord(letter)) for letter in flag) for flag in ("gbeng", "gbsct", "gbwls"))
ORDINARY_WRITING: Final = re.compile(
    rf"(?<={_SYMBOL})(?:[\ufe0e\ufe0f]?\u200d(?={_SYMBOL})|[\ufe0e\ufe0f])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    rf"|(?<={_WITHOUT_SPACES})\u200b(?={_WITHOUT_SPACES})"
    rf"|(?<={_JOINING})[\u200c\u200d](?![{BIDI}{TAGS}{INVISIBLE}{BLANK}])|(?<=[\u1820-\u18aa])[\u180b-\u180f]"
    rf"|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff])|(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f"
)
"""The invisible characters that ordinary writing has in these places: joiners and selectors of emoji, the flags of
England, Scotland and Wales, a break between Thai words, a joiner after an Arabic or Indic letter, a variant of a
Mongolian letter, a blank between Braille cells. They are listed by code point, and not by the tables of the
interpreter, so that every build decides alike.
"""

_MAYBE_ESCAPED: Final = re.compile(r"[\\\x00-\x1f\x7f]|[^\x00-\x7f]")
_ALWAYS_ESCAPED: Final = re.compile(rf"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff{BIDI}{TAGS}{INVISIBLE}{BLANK}]")
_ALWAYS_HIDDEN: Final = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff{BIDI}{TAGS}{INVISIBLE}{BLANK}]")
_SHORT_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def escape_for_display(text: str) -> str:
    r"""Return untrusted text in a form that is safe to show to a person.

    A backslash is doubled, so that two different texts never look the same. A line feed becomes `\n` and a tab `\t`, so
    that one value never looks like two.

    >>> escape_for_display("pay\u202e0001")
    'pay\\u202e0001'
    """
    return _MAYBE_ESCAPED.sub(lambda match: _escape(match[0]) if _is_escaped(match[0]) else match[0], text)


def _is_escaped(character: str) -> bool:
    """Return whether a character is escaped: a mark, a blank, a line end, or unassigned, private or half a character.
    A space is never passed to this function.
    """
    return _ALWAYS_ESCAPED.match(character) is not None or unicodedata.category(character)[0] in "MZC"


def _escape(character: str) -> str:
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def hidden_character(text: str, *, prose: bool = False) -> str:
    r"""Return the first character, escaped, that a reader does not see or that moves others; "" if there is none.

    Line ends, tabs, combining characters and backslashes count as seen; in `prose` also `ORDINARY_WRITING`.

    >>> hidden_character("read\u200b me"), hidden_character("read\tme"), hidden_character("co\u00adop", prose=True)
    ('\\u200b', '', '')
    """
    if text.isascii() and text.isprintable():
        return ""
    scanned = without_ordinary(text) if prose else text
    hidden = next((character for character in scanned if _is_hidden(character)), "")
    return _escape(hidden) if hidden else ""


def without_ordinary(text: str, variants: int = 0) -> str:
    """Return prose without `ORDINARY_WRITING`, without the first `MAX_UNSEEN` soft hyphens within words of one script,
    and without the first `variants` selectors of ideographs. There are 256 such selectors, so each of them can carry a
    byte of hidden text: for a text from outside `variants` is 0.
    """
    text = _IDEOGRAPH_VARIANT.sub("", text, count=variants) if variants else text
    return ORDINARY_WRITING.sub("", _SOFT_HYPHEN.sub("", text, count=MAX_UNSEEN))


def without_hidden(text: str) -> str:
    """Return prose with a space in the place of each character that `hidden_character` finds.

    Soft hyphens and variants of ideographs are left out: a reader sees the same text without them.
    """
    text = _IDEOGRAPH_VARIANT.sub("", text.replace("\u00ad", ""))
    if text.isascii() and text.isprintable():
        return text
    spans = [match.span() for match in ORDINARY_WRITING.finditer(text)]
    parts, position = list[str](), 0
    for start, end in [*spans, (len(text), len(text))]:
        parts += [" " if _is_hidden(character) else character for character in text[position:start]]
        parts.append(text[start:end])
        position = end
    return "".join(parts)


def _is_hidden(character: str) -> bool:
    """Return whether a character is hidden by itself, or unassigned or private, so that its look is not known."""
    return _ALWAYS_HIDDEN.match(character) is not None or unicodedata.category(character) in ("Cn", "Co")


def an(word: str) -> str:
    """Return a word with its indefinite article, by its first letter.

    >>> an("oncall"), an("finance_lead"), an("user_admin")
    ('an oncall', 'a finance_lead', 'a user_admin')
    """
    return f"an {word}" if word[:1].lower() in tuple("aeio") else f"a {word}"


def displayed(text: object) -> str:
    """Return the text of any object, escaped for a terminal."""
    return escape_for_display(str(text))


def displayed_json(value: Any, limit: int | None = 160) -> str:
    """Return a JSON value as one line of text, escaped for a terminal and cut at `limit` characters (None: not cut)."""
    text = displayed(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    )
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."
