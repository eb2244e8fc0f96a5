"""Prepares texts and regular expressions of foreign documents, so that they can be shown and checked.

A pattern is checked in time proportional to the text. The patterns of a draft are bounded together, since compiling a
short pattern can take a second and ten megabytes (`^\\p{L}{1,189}$`). A long pattern takes as much before the engine
looks at the size, so its length is limited first. Look-aheads at the start of a pattern, or after plain letters there,
become patterns of their own: `^/(?!A)B` is `^/B`, and not `^/A`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from contextos.contracts.encoding.display_escape import without_hidden

SIZES: Final = (1 << 9, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22)
"""Sizes of compiled patterns, in bytes. A pattern counts as the first size that it fits; the last is the limit."""
MAX_FOREIGN_PATTERN_CHARS: Final = 1 << 12
"""The most characters of a pattern that is given to the engine."""
SMALL: Final = 1 << 15
"""The most bytes of a pattern that counts as small."""
MAX_DRAFT_PATTERN_BYTES: Final = 1 << 24
"""The most bytes of the small patterns of one draft, and of its other patterns, each counted per compilation."""
NOT_LINEAR: Final = "a pattern cannot be checked in linear time"
LONG_PATTERN: Final = f"a pattern has more than {MAX_FOREIGN_PATTERN_CHARS} characters"
LARGE_PATTERN: Final = f"a pattern has more than {SIZES[-1]} bytes when it is compiled"
MANY_PATTERNS: Final = f"compiled, the patterns of the draft have more than {MAX_DRAFT_PATTERN_BYTES} bytes in all"

_COUNT: Final = re.compile(
    r"(\\[uxpP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z))|\{[0-9]+(?:,[0-9]*)?\}", re.DOTALL
)
"""A count in a pattern (`{2,5}`), or, as group 1, an escape or a class, whose braces are not a count."""
_SHORTHAND: Final = re.compile(r"\\[dDsSwW]")
"""The shorthands that are expanded to classes before the engine reads a pattern, in time quadratic in their number."""
_TRIED_PER_CHAR: Final = 1_024
"""The bytes per character that count for a pattern that does not compile at any size."""
_REPEATED: Final = frozenset("?*+{")
_LITERAL_START: Final = re.compile(r"\^(?:\\[/.-]|[A-Za-z0-9/_-])*(?=\(|$)")
"""The start of a pattern up to its first group, if it consists of literal characters only."""


def plain_text(text: Any, max_chars: int) -> str:
    """Return a text of a document on one line: without control and hidden characters, and cut."""
    if not isinstance(text, str):
        return ""
    return " ".join(without_hidden(text[: max_chars * 4]).split())[:max_chars].rstrip()


class Patterns:
    """The patterns of one draft, and the part of `MAX_DRAFT_PATTERN_BYTES` that they have used so far."""

    def __init__(self) -> None:
        # One budget for small patterns (False) and one for the others, so that large ones take nothing from small ones.
        self._remaining = {False: MAX_DRAFT_PATTERN_BYTES, True: MAX_DRAFT_PATTERN_BYTES}
        self._measures: dict[str, int | str] = {}

    def fault(self, pattern: Any) -> str | None:
        """Return why a pattern cannot be checked, or None."""
        measure = self._measure(pattern)
        return measure if isinstance(measure, str) else None

    def written_out(self, pattern: Any) -> tuple[str, list[dict[str, Any]]] | None:
        """Return a pattern without the look-aheads at its start, and for each look-ahead a schema that means the same.
        None if the result cannot be checked in linear time.

        >>> Patterns().written_out("^(?!x)[a-z]+$")
        ('^[a-z]+$', [{'not': {'type': 'string', 'pattern': '^(?:x)'}}])
        """
        if not isinstance(pattern, str):
            return None
        if (fault := self.fault(pattern)) is None:
            return pattern, []
        if fault == LONG_PATTERN:
            return None
        start = _LITERAL_START.match(pattern)
        if start is None:
            return None
        prefix, rest, parts = start[0], pattern[start.end() :], list[dict[str, Any]]()
        while rest.startswith(("(?!", "(?=")):
            end, _ = _scan_group(rest)
            if end is None or rest[end : end + 1] in _REPEATED:
                return None
            look_ahead = {"type": "string", "pattern": f"{prefix}(?:{rest[3 : end - 1]})"}
            if self.fault(look_ahead["pattern"]) is not None:
                return None
            parts.append({"not": look_ahead} if rest[2] == "!" else {"pattern": look_ahead["pattern"]})
            rest = rest[end:]
        _, has_choice = _scan_group(f"({rest})")
        # `^` binds closer than `|`, so the look-aheads would apply to the first alternative alone.
        whole = f"{prefix}{rest}"
        return (whole, parts) if parts and not has_choice and self.fault(whole) is None else None

    def take(self, patterns: Iterable[str], times: int) -> bool:
        """Count patterns that are compiled `times` times more. Return False, and count none, if too little is left."""
        sizes = [(pattern, size) for pattern in patterns if isinstance(size := self._measure(pattern), int)]
        costs = {kind: times * sum(size for _, size in sizes if (size > SMALL) is kind) for kind in (False, True)}
        costs[False] += times * sum(_read_cost(pattern) for pattern, _ in sizes)
        remaining = {kind: self._remaining[kind] - costs[kind] for kind in costs}
        if min(remaining.values()) < 0:
            return False
        self._remaining = remaining
        return True

    def _measure(self, pattern: Any) -> int | str:
        """Return the size of a compiled pattern in bytes, or the reason why the pattern cannot be used."""
        if not isinstance(pattern, str):
            return NOT_LINEAR
        if len(pattern) > MAX_FOREIGN_PATTERN_CHARS:
            return LONG_PATTERN
        if pattern not in self._measures:
            self._measures[pattern] = self._try_sizes(pattern)
        return self._measures[pattern]

    def _try_sizes(self, pattern: str) -> int | str:
        is_pattern = False
        # A pattern of n characters does not compile to less than 4n bytes.
        for size in (limit for limit in SIZES if limit >= 4 * len(pattern)):
            if size > SMALL and not is_pattern:
                # Without its counts a pattern is small, so a text that is not a pattern is found at little cost.
                if not self._spend(_read_cost(pattern)):
                    return MANY_PATTERNS
                is_pattern = _compiles(_COUNT.sub(r"\1", pattern), SIZES[-1])
                if not is_pattern:
                    self._remaining[False] -= min(len(pattern) * _TRIED_PER_CHAR, SIZES[-1])
                    return NOT_LINEAR
            if size > self._remaining[size > SMALL] or not self._spend(_read_cost(pattern)):
                return MANY_PATTERNS
            if _compiles(pattern, size):
                self._remaining[size > SMALL] -= size
                return size
        self._remaining[True] -= SIZES[-1]
        return LARGE_PATTERN

    def _spend(self, work: int) -> bool:
        """Count the coming work of the engine. Return False, and count nothing, if too little is left."""
        if work > self._remaining[False]:
            return False
        self._remaining[False] -= work
        return True


def _read_cost(pattern: str) -> int:
    """Return the bytes that count for reading a pattern, whatever its compiled size is."""
    return len(pattern) ** 2 // 4 + 64 * len(_SHORTHAND.findall(pattern)) ** 2


@lru_cache(4096)
def _compiles(pattern: str, size: int) -> bool:
    """Return whether the engine accepts a pattern and compiles it to at most `size` bytes."""
    options = jsonschema_rs.RegexOptions(size_limit=size)
    try:
        jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=options)
    except (ValueError, TypeError):
        return False
    return True


def _scan_group(text: str) -> tuple[int | None, bool]:
    """Return where the group that begins `text` ends (None: nowhere), and whether it has alternatives of its own."""
    depth, in_class, position, has_choice = 0, False, 0, False
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                return position + 1, has_choice
        elif char == "|" and depth == 1:
            has_choice = True
        position += 1
    return None, has_choice
