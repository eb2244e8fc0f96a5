"""Texts and regular expressions of foreign documents, made such that they can be shown and checked.

A pattern is checked in time proportional to the text. Look-aheads at its begin, or after plain letters there, are
patterns of their own: `^/(?!A)B` is `^/B`, and not `^/A`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from contextos.contracts.encoding.display_escape import BIDI, BLANK, INVISIBLE, TAGS

_HIDDEN: Final = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff{BIDI}{TAGS}{INVISIBLE}{BLANK}]+")
_REPEATED: Final = frozenset("?*+{")
_LITERAL_BEGIN: Final = re.compile(r"\^(?:\\[/.-]|[A-Za-z0-9/_-])*(?=\(|$)")
"""The begin of a pattern whose look-aheads come after letters that are there as they are written."""


def plain_text(text: Any, max_chars: int) -> str:
    """Return a text of a document on one line: without control and hidden characters, and cut."""
    if not isinstance(text, str):
        return ""
    seen = _HIDDEN.sub(" ", text[: max_chars * 4])
    if not seen.isascii():
        # Not assigned, or private: nobody knows what it looks like.
        seen = "".join(" " if unicodedata.category(one) in ("Cn", "Co") else one for one in seen)
    return " ".join(seen.split())[:max_chars].rstrip()


@lru_cache(4096)
def is_linear(pattern: Any) -> bool:
    """Return whether a regular expression can be checked in time proportional to the text."""
    try:
        jsonschema_rs.Draft202012Validator(
            {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError):
        return False
    return isinstance(pattern, str)


def written_out(pattern: Any) -> tuple[str, list[dict[str, Any]]] | None:
    """Return a pattern without the look-aheads at its begin, and for each of these a schema that says the same; None
    where the pattern cannot be said so in linear time.

    >>> written_out("^(?!x)[a-z]+$")
    ('^[a-z]+$', [{'not': {'type': 'string', 'pattern': '^(?:x)'}}])
    """
    if not isinstance(pattern, str):
        return None
    if is_linear(pattern):
        return pattern, []
    begin = _LITERAL_BEGIN.match(pattern)
    if begin is None:
        return None
    before, rest, parts = begin[0], pattern[begin.end() :], list[dict[str, Any]]()
    while rest.startswith(("(?!", "(?=")):
        end, _ = _scanned(rest)
        if end is None or rest[end : end + 1] in _REPEATED:
            return None
        ahead = {"type": "string", "pattern": f"{before}(?:{rest[3 : end - 1]})"}
        if not is_linear(ahead["pattern"]):
            return None
        parts.append({"not": ahead} if rest[2] == "!" else {"pattern": ahead["pattern"]})
        rest = rest[end:]
    _, has_choice = _scanned(f"({rest})")
    # `^` binds closer than `|`, so the look-aheads would be those of the first alternative alone.
    return (f"{before}{rest}", parts) if not has_choice and is_linear(f"{before}{rest}") else None


def _scanned(text: str) -> tuple[int | None, bool]:
    """Return where the group that `text` begins with ends, and whether it has alternatives of its own."""
    depth, in_class, at, has_choice = 0, False, 0, False
    while at < len(text):
        one = text[at]
        if one == "\\":
            at += 1
        elif in_class:
            in_class = one != "]"
        elif one == "[":
            in_class = True
        elif one == "(":
            depth += 1
        elif one == ")":
            depth -= 1
            if not depth:
                return at + 1, has_choice
        elif one == "|" and depth == 1:
            has_choice = True
        at += 1
    return None, has_choice
