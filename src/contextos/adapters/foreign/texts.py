"""Texts and regular expressions of foreign documents, made such that they can be shown and checked.

A pattern is checked in time proportional to the text. All patterns of a draft together are bounded, since to compile a
short one can take a second and ten megabytes (`^\\p{L}{1,189}$`). A long one takes as much before the engine looks at
the size, so its length counts first. Look-aheads at the begin of a pattern, or after plain
letters there, are patterns of their own: `^/(?!A)B` is `^/B`, and not `^/A`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from contextos.contracts.encoding.display_escape import without_hidden

SIZES: Final = (1 << 9, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22)
"""Sizes of compiled patterns, in bytes: a pattern counts as the first that it fits into, and the last is the most."""
MAX_FOREIGN_PATTERN_CHARS: Final = 1 << 12
"""How long a pattern is at most that the engine reads at all."""
SMALL: Final = 1 << 15
"""What a small pattern has at most."""
MAX_DRAFT_PATTERN_BYTES: Final = 1 << 24
"""The most that the small patterns of one draft have in all, and the others, with each as often as it is compiled."""
NOT_LINEAR: Final = "a pattern cannot be checked in linear time"
LONG_PATTERN: Final = f"a pattern has more than {MAX_FOREIGN_PATTERN_CHARS} characters"
LARGE_PATTERN: Final = f"a pattern has more than {SIZES[-1]} bytes when it is compiled"
MANY_PATTERNS: Final = f"compiled, the patterns of the draft have more than {MAX_DRAFT_PATTERN_BYTES} bytes in all"

_COUNT: Final = re.compile(
    r"(\\[uxpP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z))|\{[0-9]+(?:,[0-9]*)?\}", re.DOTALL
)
"""A count of a pattern, or (1) what can have braces that count nothing: an escape, and a class."""
_SHORTHAND: Final = re.compile(r"\\[dDsSwW]")
"""What is written out as a class before the engine reads a pattern, in time that grows with the square of how many."""
_TRIED_PER_CHAR: Final = 1_024
"""What a pattern counts, for each of its characters, that does not compile whatever its size."""
_REPEATED: Final = frozenset("?*+{")
_LITERAL_BEGIN: Final = re.compile(r"\^(?:\\[/.-]|[A-Za-z0-9/_-])*(?=\(|$)")
"""The begin of a pattern whose look-aheads come after letters that are there as they are written."""


def plain_text(text: Any, max_chars: int) -> str:
    """Return a text of a document on one line: without control and hidden characters, and cut."""
    if not isinstance(text, str):
        return ""
    return " ".join(without_hidden(text[: max_chars * 4]).split())[:max_chars].rstrip()


class Patterns:
    """What the patterns of one draft have taken so far of `MAX_DRAFT_PATTERN_BYTES`."""

    def __init__(self) -> None:
        # Of the small ones and of the others: a few that are large cost the small ones nothing.
        self._left = {False: MAX_DRAFT_PATTERN_BYTES, True: MAX_DRAFT_PATTERN_BYTES}
        self._known: dict[str, int | str] = {}

    def fault(self, pattern: Any) -> str | None:
        """Return why a pattern cannot be checked, or None."""
        found = self._measured(pattern)
        return found if isinstance(found, str) else None

    def written_out(self, pattern: Any) -> tuple[str, list[dict[str, Any]]] | None:
        """Return a pattern without the look-aheads at its begin, and for each of these a schema that says the same;
        None where the pattern cannot be said so in linear time.

        >>> Patterns().written_out("^(?!x)[a-z]+$")
        ('^[a-z]+$', [{'not': {'type': 'string', 'pattern': '^(?:x)'}}])
        """
        if not isinstance(pattern, str):
            return None
        if (why := self.fault(pattern)) is None:
            return pattern, []
        if why == LONG_PATTERN:
            return None
        begin = _LITERAL_BEGIN.match(pattern)
        if begin is None:
            return None
        before, rest, parts = begin[0], pattern[begin.end() :], list[dict[str, Any]]()
        while rest.startswith(("(?!", "(?=")):
            end, _ = _scanned(rest)
            if end is None or rest[end : end + 1] in _REPEATED:
                return None
            ahead = {"type": "string", "pattern": f"{before}(?:{rest[3 : end - 1]})"}
            if self.fault(ahead["pattern"]) is not None:
                return None
            parts.append({"not": ahead} if rest[2] == "!" else {"pattern": ahead["pattern"]})
            rest = rest[end:]
        _, has_choice = _scanned(f"({rest})")
        # `^` binds closer than `|`, so the look-aheads would be those of the first alternative alone.
        whole = f"{before}{rest}"
        return (whole, parts) if parts and not has_choice and self.fault(whole) is None else None

    def take(self, patterns: Iterable[str], times: int) -> bool:
        """Count patterns that are compiled `times` times more, if so much is left. Returns whether it is."""
        taken = [(one, size) for one in patterns if isinstance(size := self._measured(one), int)]
        used = {kind: times * sum(size for _, size in taken if (size > SMALL) is kind) for kind in (False, True)}
        used[False] += times * sum(_work(one) for one, _ in taken)
        left = {kind: self._left[kind] - used[kind] for kind in used}
        if min(left.values()) < 0:
            return False
        self._left = left
        return True

    def _measured(self, pattern: Any) -> int | str:
        """The size of a pattern, or why it has none."""
        if not isinstance(pattern, str):
            return NOT_LINEAR
        if len(pattern) > MAX_FOREIGN_PATTERN_CHARS:
            return LONG_PATTERN
        if pattern not in self._known:
            self._known[pattern] = self._tried(pattern)
        return self._known[pattern]

    def _tried(self, pattern: str) -> int | str:
        is_pattern = False
        # What is as long does not compile to less.
        for size in (one for one in SIZES if one >= 4 * len(pattern)):
            if size > SMALL and not is_pattern:
                # Without its counts a pattern is small, so what is not a pattern is found at little cost.
                if not self._spend(_work(pattern)):
                    return MANY_PATTERNS
                is_pattern = _compiles(_COUNT.sub(r"\1", pattern), SIZES[-1])
                if not is_pattern:
                    self._left[False] -= min(len(pattern) * _TRIED_PER_CHAR, SIZES[-1])
                    return NOT_LINEAR
            if size > self._left[size > SMALL] or not self._spend(_work(pattern)):
                return MANY_PATTERNS
            if _compiles(pattern, size):
                self._left[size > SMALL] -= size
                return size
        self._left[True] -= SIZES[-1]
        return LARGE_PATTERN

    def _spend(self, work: int) -> bool:
        """Count what the engine is about to do, if so much is left. Returns whether it is."""
        if work > self._left[False]:
            return False
        self._left[False] -= work
        return True


def _work(pattern: str) -> int:
    """What it counts that the engine reads a pattern, whatever its size becomes."""
    return len(pattern) ** 2 // 4 + 64 * len(_SHORTHAND.findall(pattern)) ** 2


@lru_cache(4096)
def _compiles(pattern: str, size: int) -> bool:
    """Whether a pattern is one of the engine, with at most this many bytes."""
    options = jsonschema_rs.RegexOptions(size_limit=size)
    try:
        jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=options)
    except (ValueError, TypeError):
        return False
    return True


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
