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
    elif _are_listed(distinct):
        bound = ArgConstraint(enum=tuple(value for _, value in sorted(distinct)))
    elif all(isinstance(value, str) for value in values):
        pattern = _pattern([value for _, value in distinct])
        bound = None if pattern is None else ArgConstraint(pattern=pattern)
    # A pattern that RE2 understands differently is not a bound.
    allows = bound and not any(check_args({"x": (bound,)}, {"x": value}, approved=False) for _, value in distinct)
    return bound if allows else None


def _are_listed(distinct: Sequence[tuple[bytes, Any]]) -> bool:
    """Return whether values are listed one by one, so that no similar value fits: few values, or short texts."""
    sizes = [len(raw) for raw, _ in distinct]
    if len(sizes) <= MAX_LISTED_VALUES:
        return max(sizes) <= MAX_LISTED_BYTES
    return sum(sizes) <= MAX_PATTERN_CHARS and all(isinstance(value, str) for _, value in distinct)


def _pattern(texts: Sequence[str]) -> str | None:
    """Return a pattern of texts: the addresses or domains that they name, or their common beginning, and which
    characters and how many follow. A text that is not an address does not make other hosts fit.
    """
    addresses: list[str] = []
    mails: list[str] = []
    others: list[str] = []
    for text in texts:
        (addresses if _HOST.fullmatch(text) else mails if _EMAIL.fullmatch(text) else others).append(text)
    kinds = ((_of_addresses, addresses), (_of_mails, mails), (_of_texts, others))
    patterns = [describe(some) or _of_texts(some) for describe, some in kinds if some]
    pattern = "|".join(f"(?:{one})" if len(patterns) > 1 else one for one in patterns if one is not None)
    return pattern if None not in patterns and len(pattern) <= MAX_PATTERN_CHARS else None


def _of_addresses(texts: Sequence[str]) -> str | None:
    found = [_HOST.fullmatch(text) for text in texts]
    if not all(found):
        return None
    origins = sorted({one[1] for one in found if one})
    paths = [one[2] or "" for one in found if one]
    if len(origins) > MAX_LISTED_VALUES:
        return None
    # A path begins with a character that no host has, so no host fits that is longer than those that were seen.
    rest = _of_texts([path[1:] for path in paths if path] or [""])
    firsts = "".join(sorted({path[0] for path in paths if path}))
    if rest is None:
        return None
    tail = f"[{_class(firsts)}]{rest}" if firsts else ""
    if tail and "" in paths:
        tail = f"(?:{tail})?"
    return f"(?:{'|'.join(map(_literal, origins))}){tail}"


def _of_mails(texts: Sequence[str]) -> str | None:
    found = [_EMAIL.fullmatch(text) for text in texts]
    if not all(found):
        return None
    domains = sorted({one[2] for one in found if one})
    names = _of_texts([one[1] for one in found if one])
    if names is None or len(domains) > MAX_LISTED_VALUES:
        return None
    return f"{names}@(?:{'|'.join(map(_literal, domains))})"


def _of_texts(texts: Sequence[str]) -> str | None:
    """Return a pattern of the texts, part by part between equal separators: no part allows a `/`, or two dots side by
    side, where none of the texts had it.
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
    for separators, found in sorted(shapes.items()):
        described = [_of_parts(column) for column in zip(*found, strict=True)]
        if None in described:
            return None
        between = [*map(_literal, separators), ""]
        patterns.append("".join(f"{part}{mark}" for part, mark in zip(described, between, strict=True)))
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"


def _of_parts(texts: Sequence[str]) -> str | None:
    same = "".join(one[0] for one in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False)))
    rests = [text[len(same) :] for text in texts]
    characters = set("".join(rests))
    if not characters:
        return _literal(same)
    parts = [name for name, members in _CLASSES if characters.intersection(members)]
    others = sorted(characters.difference(*(members for _, members in _CLASSES)))
    if len(others) > MAX_OTHER_CHARACTERS:
        return None
    least, most = min(map(len, rests)), max(map(len, rests))
    times = f"{{{least},{most}}}" if least < most else f"{{{least}}}"
    return f"{_literal(same)}[{''.join(parts)}{_class(''.join(others))}]{times}"


def _literal(text: str) -> str:
    return _escaped(text, ".+*?()[]{}|^$\\")


def _class(characters: str) -> str:
    return _escaped(characters, "-^[]\\")


def _escaped(text: str, special: str) -> str:
    """Return the text as RE2 reads it literally; what is special gets a backslash, what is not plain ASCII a number."""
    return "".join(
        f"\\{one}" if one in special else one if one.isascii() and one.isprintable() else f"\\x{{{ord(one):x}}}"
        for one in text
    )
