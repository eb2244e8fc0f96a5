"""Patterns of texts that others write: RE2, which searches in linear time and has no look-around."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

import re2  # type: ignore[import-untyped]

MAX_PATTERN_BYTES: Final = 1 << 20
"""Memory limit of one compiled pattern, in bytes; RE2 refuses a larger one."""
MAX_EXAMPLE_CHARS: Final = 64
_EXAMPLE_CHARS: Final = "a1A0_-. /@:"
"""The characters of examples, the plainest first."""


@lru_cache(maxsize=1024)
def safe_pattern(pattern: str) -> Any | None:
    """Return the compiled pattern, or None if RE2 refuses it.

    >>> safe_pattern("(?=a)") is None, safe_pattern("ord_([0-9]+)").groups
    (True, 1)
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return None


@lru_cache(maxsize=256)
def pattern_example(pattern: str) -> str | None:
    """Return a short text that matches a pattern, or None if none can be derived.

    >>> pattern_example(r"^(0|[1-9][0-9]*)[.][0-9]+$"), pattern_example("ord_[0-9]{4}"), pattern_example("(?=a)b")
    ('1.1', 'ord_1111', None)
    """
    compiled = safe_pattern(pattern)
    try:
        with warnings.catch_warnings(action="ignore"):
            example = _build_example(_parser.parse(pattern)) if compiled is not None else ""
    except (re.error, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None
    fits = compiled is not None and 0 < len(example) <= MAX_EXAMPLE_CHARS and compiled.search(example) is not None
    return example if fits and example.isprintable() else None


def _build_example(items: Iterable[tuple[Any, Any]]) -> str:
    text = ""
    for operator, argument in items:
        kind = str(operator)
        if kind == "LITERAL":
            text += chr(argument)
        elif kind == "IN":
            text += next((char for char in _EXAMPLE_CHARS if _is_in_class(char, argument)), "") or _first_char(argument)
        elif kind in ("ANY", "NOT_LITERAL"):
            text += "b" if argument == ord("a") else "a"
        elif kind == "BRANCH":
            text += _build_example(argument[1][-1])
        elif kind == "SUBPATTERN":
            text += _build_example(argument[3])
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            text += _build_example(argument[2]) * min(argument[0], MAX_EXAMPLE_CHARS + 1)
        elif kind != "AT":
            raise KeyError(kind)
    return text


def _first_char(items: Iterable[tuple[Any, Any]]) -> str:
    """Return the first character that a class names, or an empty text."""
    literals = [argument for kind, argument in items if str(kind) in ("LITERAL", "RANGE")]
    codes = [literal if isinstance(literal, int) else literal[0] for literal in literals]
    return chr(codes[0]) if codes else ""


def _is_in_class(character: str, items: Iterable[tuple[Any, Any]]) -> bool:
    kinds = {"CATEGORY_DIGIT": str.isdigit, "CATEGORY_WORD": str.isalnum, "CATEGORY_SPACE": str.isspace}
    negated = matches = False
    for operator, argument in items:
        kind, code = str(operator), ord(character)
        negated |= kind == "NEGATE"
        matches |= kind == "LITERAL" and argument == code
        matches |= kind == "RANGE" and argument[0] <= code <= argument[1]
        matches |= kind == "CATEGORY" and kinds[str(argument)](character)
    return matches is not negated
