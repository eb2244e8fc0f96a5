"""Derives the bound of an argument from the values that were seen: a range, the values themselves, or a pattern.

A bound allows each value that it was made from, and as few other values as possible. Texts are data: they are escaped
in a pattern.

>>> bound_of(["eu", "us", "eu"])
ArgConstraint(min=None, max=None, whole=False, enum=('eu', 'us'), required=None, pattern=None, unless_approved=False)
>>> bound_of([5, 480]).max
480
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.contracts.model import MAX_COUNT
from contextos.trust.policy.constraints import check_args

MAX_LISTED_VALUES: Final = 12
"""The most distinct values that are listed one by one, however long they are together."""
MAX_LISTED_BYTES: Final = 200
"""The largest size of a listed value as JSON, in bytes."""
MAX_BOUNDED_CHARS: Final = 1_000
"""The most characters of a text that a pattern can describe: RE2 counts no further."""
MAX_PATTERN_CHARS: Final = 512
MAX_OTHER_CHARACTERS: Final = 32

_HOST: Final = re.compile(r"([a-z][a-z0-9+.-]{0,20}://[A-Za-z0-9.:-]{1,253})(?:([/?#].*)|)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"([/\\]|\.+)")
_EMAIL: Final = re.compile(r"([^@\s]{1,200})@([A-Za-z0-9.-]{1,253})")
_CLASSES: Final = (("a-z", "abcdefghijklmnopqrstuvwxyz"), ("A-Z", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), ("0-9", "0123456789"))


def bound_of(values: Sequence[Any]) -> ArgConstraint | None:
    """Return the bound of an argument that had these values, or None if no bound can describe them."""
    distinct = list({canonical(value): value for value in values}.items())
    bound: ArgConstraint | None = None
    if not values or any(value is None for value in values):
        return None
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if max(map(abs, values)) <= MAX_COUNT:
            whole = all(value % 1 == 0 for value in values)
            bound = ArgConstraint(min=min(values), max=max(values), whole=whole)
    elif _is_enumerable(distinct):
        bound = ArgConstraint(enum=tuple(value for _, value in sorted(distinct)))
    elif all(isinstance(value, str) for value in values):
        pattern = _text_pattern([value for _, value in distinct])
        bound = None if pattern is None else ArgConstraint(pattern=pattern)
    # A pattern that RE2 understands differently is not a bound.
    allows = bound and not any(check_args({"x": (bound,)}, {"x": value}, approved=False) for _, value in distinct)
    return bound if allows else None


def _is_enumerable(distinct: Sequence[tuple[bytes, Any]]) -> bool:
    """Return whether values are listed one by one, so that no similar value fits: few values, or short texts."""
    sizes = [len(raw) for raw, _ in distinct]
    if len(sizes) <= MAX_LISTED_VALUES:
        return max(sizes) <= MAX_LISTED_BYTES
    return sum(sizes) <= MAX_PATTERN_CHARS and all(isinstance(value, str) for _, value in distinct)


def _text_pattern(texts: Sequence[str]) -> str | None:
    """Return a pattern that the texts fit, or None. It has the addresses or domains that they name, or their common
    beginning with the characters that follow. A text that is not an address does not make other hosts fit.
    """
    addresses: list[str] = []
    mails: list[str] = []
    others: list[str] = []
    for text in texts:
        (addresses if _HOST.fullmatch(text) else mails if _EMAIL.fullmatch(text) else others).append(text)
    kinds = ((_address_pattern, addresses), (_mail_pattern, mails), (_shape_pattern, others))
    patterns = [describe(group) or _shape_pattern(group) for describe, group in kinds if group]
    pattern = "|".join(f"(?:{part})" if len(patterns) > 1 else part for part in patterns if part is not None)
    return pattern if None not in patterns and len(pattern) <= MAX_PATTERN_CHARS else None


def _address_pattern(texts: Sequence[str]) -> str | None:
    matches = [_HOST.fullmatch(text) for text in texts]
    if not all(matches):
        return None
    origins = sorted({match[1] for match in matches if match})
    paths = [match[2] or "" for match in matches if match]
    if len(origins) > MAX_LISTED_VALUES:
        return None
    # A path begins with a character that no host has, so no host fits that is longer than those that were seen.
    rest = _shape_pattern([path[1:] for path in paths if path] or [""])
    firsts = "".join(sorted({path[0] for path in paths if path}))
    if rest is None:
        return None
    tail = f"[{_class(firsts)}]{rest}" if firsts else ""
    if tail and "" in paths:
        tail = f"(?:{tail})?"
    return f"(?:{'|'.join(map(_literal, origins))}){tail}"


def _mail_pattern(texts: Sequence[str]) -> str | None:
    matches = [_EMAIL.fullmatch(text) for text in texts]
    if not all(matches):
        return None
    domains = sorted({match[2] for match in matches if match})
    names = _shape_pattern([match[1] for match in matches if match])
    if names is None or len(domains) > MAX_LISTED_VALUES:
        return None
    return f"{names}@(?:{'|'.join(map(_literal, domains))})"


def _shape_pattern(texts: Sequence[str]) -> str | None:
    """Return a pattern of the texts, part by part between equal separators, or None. No part allows a `/`, or two dots
    side by side, where none of the texts had them.
    """
    if max(map(len, texts)) > MAX_BOUNDED_CHARS:
        return None
    shapes: dict[tuple[str, ...], list[list[str]]] = {}
    for text in texts:
        parts = _SEPARATOR.split(text)
        shapes.setdefault(tuple(parts[1::2]), []).append(parts[::2])
    if len(shapes) > MAX_LISTED_VALUES:
        return None
    patterns = []
    for separators, rows in sorted(shapes.items()):
        cells = [_part_pattern(column) for column in zip(*rows, strict=True)]
        if None in cells:
            return None
        marks = [*map(_literal, separators), ""]
        patterns.append("".join(f"{part}{mark}" for part, mark in zip(cells, marks, strict=True)))
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"


def _part_pattern(texts: Sequence[str]) -> str | None:
    prefix = "".join(row[0] for row in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False)))
    endings = [text[len(prefix) :] for text in texts]
    characters = set("".join(endings))
    if not characters:
        return _literal(prefix)
    parts = [name for name, members in _CLASSES if characters.intersection(members)]
    others = sorted(characters.difference(*(members for _, members in _CLASSES)))
    if len(others) > MAX_OTHER_CHARACTERS:
        return None
    shortest, longest = min(map(len, endings)), max(map(len, endings))
    quantifier = f"{{{shortest},{longest}}}" if shortest < longest else f"{{{shortest}}}"
    return f"{_literal(prefix)}[{''.join(parts)}{_class(''.join(others))}]{quantifier}"


def _literal(text: str) -> str:
    return _escape(text, ".+*?()[]{}|^$\\")


def _class(characters: str) -> str:
    return _escape(characters, "-^[]\\")


def _escape(text: str, special: str) -> str:
    """Return the text as RE2 reads it literally; what is special gets a backslash, what is not plain ASCII a number."""
    return "".join(
        f"\\{char}" if char in special else char if char.isascii() and char.isprintable() else f"\\x{{{ord(char):x}}}"
        for char in text
    )
