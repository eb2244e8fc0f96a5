"""Redaction of card numbers, e-mail addresses and secrets by named rules, and a scan for unsafe text.

Both are deterministic and take time linear in the length of the text: patterns run on RE2, and characters are listed
here by code point and not taken from the interpreter's Unicode tables. So a replay redacts exactly what the run did.
Refuses an unknown rule instead of ignoring it.
Source: docs/design/contracts.md, "Run" (unsafe output).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, islice
from typing import Any, Final

import orjson

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.display_escape import (
    BIDI,
    BLANK,
    INVISIBLE,
    MAX_UNSEEN,
    TAGS,
    escape_for_display,
    without_ordinary,
)
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.redacted import REDACTION_TARGETS, unused_name
from contextos.contracts.encoding.secret_shapes import (
    SECRET_MARK,
    SECRET_SIGN,
    is_secret_member,
    linear_pattern,
    without_secrets,
)
from contextos.errors import InvalidArtifact, Problem

MAX_UNSAFE_FINDINGS: Final = 50
SECRET_REMEDY: Final = "name a reference to it; everybody with access to the store can read what is published"
PAN_DIGITS: Final = range(13, 20)

_ORDER: Final = ("secret", "pan", "email")

# Repetitions are unbounded on purpose: RE2 stays linear, and counts over Unicode classes make its tables explode.
# The last part of a host begins with a letter; that of a reference such as `ctxpack.support@5.2.0` does not.
_EMAIL: Final = r"[^\s@<>()\[\],;:\"\\]+@(?:[\p{L}\p{N}-]+\.)+\p{L}[\p{L}\p{N}-]*"
# Digits of any script, with at most three separators or a line break between two of them. A quoted line begins with
# `>`, a line of a list with its mark, and a line of a table with `|`.
_SEPARATORS: Final = (
    r"(?:[ \t.\x{00A0}\x{00AD}\x{2000}-\x{2015}\x{202F}\x{205F}\x{2060}\x{3000}\x{FEFF}-]{0,3}"
    r"|[ \t\x{00A0}\x{3000}|-]*[\r\n\x{000B}\x{000C}\x{0085}\x{2028}\x{2029}]+"
    r"[ \t\x{00A0}\x{3000}>|*+\x{2022}\x{2023}\x{25E6}\x{00B7}\x{2013}\x{2014}-]*)"
)
_DIGITS: Final = rf"\p{{Nd}}(?:{_SEPARATORS}\p{{Nd}}){{12,}}"
_BREAK: Final = re.compile(r"[\r\n\v\f\x85\u2028\u2029]")
# Three characters without a digit or line break: as much as between columns of numbers.
_WIDE_GAP: Final = re.compile(r"[^\d\r\n\v\f\x85\u2028\u2029]{3}")
_MARKED_LINE: Final = re.compile(r"[\r\n\v\f\x85\u2028\u2029][ \t\xa0\u3000]*[|*+\u2022\u2023\u25e6\xb7\u2013\u2014-]")

_CONTROLS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f"
_HIDDEN: Final = {
    "ansi_escape": (re.compile(r"[\x1b\x9b]"), "a terminal escape"),
    "control_character": (re.compile(f"[{_CONTROLS}]"), "a control character"),
    "bidi_control": (re.compile(f"[{BIDI}]"), "a character that changes the reading direction"),
    "tag_character": (re.compile(f"[{TAGS}]"), "an invisible tag character"),
    "hidden_character": (re.compile(f"[{INVISIBLE}{BLANK}]"), "an invisible character"),
}
_LAYOUT: Final = re.compile(r"[\n\r\t]")


def redact(value: JsonValue, rules: Collection[str]) -> tuple[JsonValue, tuple[str, ...]]:
    """Replace what `rules` forbid by `[redacted:<kind>]`; return the new value and the sorted rules that matched.

    Checks every text of a nested value, keys included, and whole numbers that are card numbers. Keys that become equal
    by redaction are numbered, so no entry is lost.

    >>> redact({"note": "card 4111 1111 1111 1111"}, ["pan"])
    ({'note': 'card [redacted:pan]'}, ('pan',))

    Raises:
        InvalidArtifact: a rule is unknown; nothing was redacted.
    """
    kinds = _ordered_kinds(frozenset(rules))
    if not kinds or not _perhaps_contains(value, kinds):
        return value, ()
    matched_kinds: set[str] = set()
    redacted = _redact_value(value, kinds, matched_kinds)
    return redacted, tuple(sorted(rule for rule in set(rules) if REDACTION_TARGETS[rule] in matched_kinds))


@cache
def _ordered_kinds(rules: frozenset[str]) -> tuple[str, ...]:
    """Return the kinds that `rules` redact, in the order in which they are redacted. Raises as `redact`."""
    refuse_unknown_rules(rules)
    targets = {REDACTION_TARGETS[rule] for rule in rules}
    return tuple(kind for kind in _ORDER if kind in targets)


def is_plain(value: JsonValue, rules: Collection[str]) -> bool:
    """Return whether one look shows that `redact` by `rules` and `scan_unsafe` find nothing. False: it is not known."""
    return not _perhaps_contains(value, _ordered_kinds(frozenset((*rules, "secret"))))


def refuse_unknown_rules(rules: Collection[str]) -> None:
    """Raise `InvalidArtifact` if a rule is not in `REDACTION_TARGETS`. Lint calls this too."""
    unknown = sorted(set(rules) - REDACTION_TARGETS.keys())
    if unknown:
        remedy = f"use one of {', '.join(sorted(REDACTION_TARGETS))}"
        raise InvalidArtifact(
            *(
                Problem("/redaction_rules", "unknown_rule", f"there is no redaction rule `{rule}`", remedy)
                for rule in unknown
            )
        )


def find_secrets(value: JsonValue, remedy: str) -> tuple[Problem, ...]:
    """Return a problem for each text of `value` that looks like a secret, with this remedy. No problem shows it."""
    problems = scan_unsafe(value, declared_text=True)
    return tuple(replace(problem, remedy=remedy) for problem in problems if problem.code == "secret")


_RULES: Final = r"(?:/policy_layer/policy_bundles/[0-9]+|/bundle)/policy_dsl/rules/[0-9]+"
_SEARCH_TEXT: Final = re.compile(
    rf"{_RULES}/(?:if|then/arg_constraints)/|/tooling_layer/permissions/[0-9]+/arg_constraints/"
    r"|/policy_layer/guardrails/must_(?:refuse|escalate)/[0-9]+/"
)
"""Where a published document states texts to look for: conditions and bounds."""


def find_unsafe_texts(value: JsonValue) -> tuple[Problem, ...]:
    """Return a problem for each text of a published document that looks like a secret, or has hidden characters or
    terminal escapes (allowed where conditions and bounds look for them). At most 50 problems; none shows the text.
    """
    if not _perhaps_contains(value, ("secret",)):
        return ()
    reported = (
        item
        for item in _unsafe_problems(value, (), True)
        if item.code == "secret" or not _SEARCH_TEXT.match(item.pointer)
    )
    problems = islice(reported, MAX_UNSAFE_FINDINGS)
    return tuple(replace(item, remedy=SECRET_REMEDY) if item.code == "secret" else item for item in problems)


def scan_unsafe(value: JsonValue, *, declared_text: bool) -> tuple[Problem, ...]:
    """Find secrets and hidden characters in every text of `value`, keys included; return at most 50 problems.

    `declared_text` is true for text that people read: line breaks, tabs and the joiners of ordinary writing are then
    allowed. They are problems in ids and codes. A problem never contains the text that was found.
    """
    if not _perhaps_contains(value, ("secret",)):
        return ()
    return tuple(islice(_unsafe_problems(value, (), declared_text), MAX_UNSAFE_FINDINGS))


def _perhaps_contains(value: JsonValue, kinds: tuple[str, ...]) -> bool:
    """Return whether a text or number of `value` could be of one of these kinds, or be hidden or escaped.

    One search over the JSON of a value replaces a search of every text. An escape could hide the start of a match.
    """
    try:
        raw = orjson.dumps(value)
    except TypeError:
        return True
    # A large float can be a card number too, and JSON writes it with an exponent instead of all its digits.
    readable = raw.isascii() and b"\\" not in raw and b"\x7f" not in raw and b"e+" not in raw
    return not readable or _sign_pattern(kinds).search(raw) is not None


@cache
def _sign_pattern(kinds: tuple[str, ...]) -> Any:
    """Return the pattern that an ASCII text, or the JSON of a value, matches if something of these kinds is in it."""
    return linear_pattern("|".join(_SIGNS[kind] for kind in kinds).encode())


def _redact_value(value: JsonValue, kinds: tuple[str, ...], matched_kinds: set[str]) -> JsonValue:
    if isinstance(value, str):
        return _redact_text(value, kinds, matched_kinds)
    if isinstance(value, dict):
        redacted: dict[str, JsonValue] = {}
        numbers: dict[str, int] = {}
        for key, child in value.items():
            new_key = unused_name(_redact_text(key, kinds, matched_kinds), redacted, value, numbers)
            if "secret" in kinds and isinstance(child, str) and is_secret_member(key, child):
                redacted[new_key] = SECRET_MARK
                matched_kinds.add("secret")
                continue
            redacted[new_key] = _redact_value(child, kinds, matched_kinds)
        return redacted
    if isinstance(value, list | tuple):
        return [_redact_value(child, kinds, matched_kinds) for child in value]
    if isinstance(value, int | float) and "pan" in kinds and _is_card_number(value):
        matched_kinds.add("pan")
        return "[redacted:pan]"
    return value


def _redact_text(text: str, kinds: tuple[str, ...], matched_kinds: set[str]) -> str:
    if text.isascii() and _sign_pattern(kinds).search(text.encode()) is None:
        return text
    for kind in kinds:
        redacted = _REDACTIONS[kind](text)
        if redacted != text:
            matched_kinds.add(kind)
            text = redacted
    return text


def _redact_pans(text: str) -> str:
    return linear_pattern(_DIGITS).sub(lambda match: _redact_cards(match.group()), text) if len(text) >= 13 else text


def _redact_cards(run: str) -> str:
    """Replace the card numbers in a run of digits and separators.

    A card number is a sequence of whole digit groups with 13 to 19 digits in all that passes the Luhn check.
    """
    groups = [match.span() for match in re.finditer(r"\d+", run)]
    digits = "".join(str(int(digit)) for start, end in groups for digit in run[start:end])
    sums = _luhn_sums(digits)
    # The number of digits before each group; the last element is the number of all digits.
    digits_before = list(accumulate((end - start for start, end in groups), initial=0))
    parts: list[str] = []
    copied_to, first = 0, 0
    while first < len(groups):
        shortest, too_long = (
            bisect_left(digits_before, digits_before[first] + count) for count in (PAN_DIGITS.start, PAN_DIGITS.stop)
        )
        passing_ends = [
            end
            for end in range(shortest, too_long)
            if _passes_luhn(sums, digits_before[first], digits_before[end]) and _is_one_number(run, groups, first, end)
        ]
        if passing_ends:
            parts += run[copied_to : groups[first][0]], "[redacted:pan]"
            copied_to = groups[passing_ends[-1] - 1][1]
        first = passing_ends[-1] if passing_ends else first + 1
    return "".join([*parts, run[copied_to:]])


def _is_one_number(run: str, groups: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    """Return whether groups of digits that pass the Luhn check can be one number.

    One in ten groups of unrelated numbers passes by chance. So digits that are wide apart or on several lines must
    begin as a card number does. In a list or table they must also be 15 or 16 with one line break alone, and be whole
    lines or groups of four.
    """
    span = (groups[first][0], groups[end - 1][1])
    if not (_BREAK.search(run, *span) or _WIDE_GAP.search(run, *span)):
        return True
    digits = "".join(str(int(digit)) for start, stop in groups[first:end] for digit in run[start:stop])
    marks = len(_MARKED_LINE.findall(run, *span))
    if not marks or not _is_issued(digits):
        return _is_issued(digits)
    if marks > 1 or len(digits) not in (15, 16):
        return False
    starts_line = first == 0 or _BREAK.search(run, groups[first - 1][1], span[0])
    ends_line = end == len(groups) or _BREAK.search(run, span[1], groups[end][0])
    return bool(starts_line and ends_line) or all(stop - start == 4 for start, stop in groups[first:end])


def _luhn_sums(digits: str) -> tuple[list[int], list[int]]:
    """Return two lists of running Luhn sums: with the digits at even, and at odd, positions doubled.

    The Luhn sum of any stretch of digits is then one subtraction.
    """
    numbers = [int(digit) for digit in digits]
    doubled = [2 * number - 9 if number > 4 else 2 * number for number in numbers]
    even = accumulate((numbers[index] if index % 2 else doubled[index] for index in range(len(numbers))), initial=0)
    odd = accumulate((doubled[index] if index % 2 else numbers[index] for index in range(len(numbers))), initial=0)
    return list(even), list(odd)


def _passes_luhn(sums: tuple[list[int], list[int]], start: int, end: int) -> bool:
    prefix_sums = sums[end % 2]
    return (prefix_sums[end] - prefix_sums[start]) % 10 == 0


def _is_card_number(number: int | float) -> bool:
    """Return whether a number is a card number. Its prefix is checked too: Unix microseconds are just as long."""
    if not 10**12 <= number < 10**19 or number != int(number):
        return False
    digits = str(int(number))
    return _is_issued(digits) and _passes_luhn(_luhn_sums(digits), 0, len(digits))


def _is_issued(digits: str) -> bool:
    """Return whether a number begins as the card numbers that the networks issue."""
    return digits[0] in "3456" or "2221" <= digits[:4] <= "2720"


def _redact_emails(text: str) -> str:
    return linear_pattern(_EMAIL).sub("[redacted:email]", text) if "@" in text else text


_SIGNS: Final = {"secret": SECRET_SIGN, "pan": _DIGITS, "email": "@"}
"""Patterns over the JSON of a whole value. Where the pattern of a kind finds nothing, nothing of this kind is there."""

_REDACTIONS: Final[dict[str, Callable[[str], str]]] = {
    "secret": without_secrets,
    "pan": _redact_pans,
    "email": _redact_emails,
}


def _unsafe_problems(value: JsonValue, path: tuple[str | int, ...], declared_text: bool) -> Iterator[Problem]:
    if isinstance(value, str):
        yield from _unsafe_text_problems(value, path, declared_text)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _unsafe_text_problems(key, path, False)
            member = (*path, escape_for_display(without_secrets(key)))
            if isinstance(child, str) and is_secret_member(key, child):
                yield _secret_problem(member)
            yield from _unsafe_problems(child, member, declared_text)
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _unsafe_problems(child, (*path, index), declared_text)


def _secret_problem(path: tuple[str | int, ...]) -> Problem:
    detail = "the text contains what looks like a secret"
    return Problem(pointer(path), "secret", detail, "send a reference to it")


def _unsafe_text_problems(text: str, path: tuple[str | int, ...], declared_text: bool) -> Iterator[Problem]:
    place = pointer(path)
    if without_secrets(text) != text:
        yield _secret_problem(path)
    if not declared_text and _LAYOUT.search(text):
        yield Problem(place, "control_character", "the text contains a line break or tab", "send one line")
    if text.isascii() and text.isprintable():
        return
    scanned = without_ordinary(text, MAX_UNSEEN) if declared_text else text
    for code, (pattern, description) in _HIDDEN.items():
        if match := pattern.search(scanned):
            detail = f"the text contains {description}, U+{ord(match[0]):04X}"
            yield Problem(place, code, detail, "send the text without it")
