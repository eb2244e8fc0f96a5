"""What must not leave: redaction by named rules, and a scan for what nobody can see.

All of it is deterministic and linear in the length of the text: the patterns run on RE2, the characters are listed
here by number and not by the interpreter's Unicode version, so a replay redacts what the run redacted.
A rule that is not known is refused and never passed over.
Source: contextos-facts.md, "Redaction"; shared/design/contracts.md, "Run" (unsafe output).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import accumulate, islice
from typing import Any, Final

import orjson

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.encoding.display_escape import BIDI, INVISIBLE, TAGS, escape_for_display
from contextos.contracts.encoding.pointer import pointer
from contextos.errors import InvalidArtifact, Problem

MAX_UNSAFE_FINDINGS: Final = 50
PAN_DIGITS: Final = range(13, 20)

REDACTION_TARGETS: Final = {"pan": "pan", "credit_card": "pan", "email": "email", "secret": "secret"}
"""Rule names, and which redaction each stands for: `credit_card` is another name of `pan`."""

_ORDER: Final = ("secret", "pan", "email")

# Repetitions are unbounded on purpose: RE2 stays linear, and counts over Unicode classes make its tables explode.
_EMAIL: Final = r"[^\s@<>()\[\],;:\"\\]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+"
_SECRET: Final = "|".join(
    [
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[^-]|-[^-])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        r"(?i:\bbearer)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,}=*",
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
        r"\bgithub_pat_[A-Za-z0-9_]{22,}",
        r"\bglpat-[A-Za-z0-9_-]{20,}",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"\bsk-[A-Za-z0-9_-]{20,}",
        r"\bAIza[A-Za-z0-9_-]{35}",
        r"\bnpm_[A-Za-z0-9]{36}",
        r"\bwhsec_[A-Za-z0-9+/=]{24,}",
        r"\b[a-z][a-z0-9+.-]+://[^\s/:@]+:[^\s/@]+@",
    ]
)
# Digits of any script, and between two of them at most two characters that a reader passes over.
_DIGITS: Final = r"\p{Nd}(?:[ .\x{00A0}\x{00AD}\x{2000}-\x{2015}\x{202F}\x{2060}\x{FEFF}-]{0,2}\p{Nd}){12,}"

_CONTROLS: Final = r"\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f"
_HIDDEN: Final = {
    "ansi_escape": (re.compile(r"[\x1b\x9b]"), "a terminal escape"),
    "control_character": (re.compile(f"[{_CONTROLS}]"), "a control character"),
    "bidi_control": (re.compile(f"[{BIDI}]"), "a character that turns the reading direction"),
    "tag_character": (re.compile(f"[{TAGS}]"), "a tag character, which nobody can see"),
    "hidden_character": (re.compile(f"[{INVISIBLE}]"), "a character that nobody can see"),
}
_LAYOUT: Final = re.compile(r"[\n\r\t]")
# What ordinary writing needs: a variation selector after, one joiner between, seen characters beyond ASCII.
_SEEN: Final = rf"[^\x00-\x7f{BIDI}{TAGS}{INVISIBLE}]"
_WRITING: Final = re.compile(
    rf"(?<={_SEEN})(?:[\ufe0e\ufe0f]?[\u200c\u200d](?={_SEEN})|[\ufe0e\ufe0f])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)


@cache
def _pattern(source: str) -> Any:
    """Compiled once, and only where redaction is used: RE2 costs 17 ms to import."""
    import re2  # type: ignore[import-untyped]

    return re2.compile(source)


def redact(value: JsonValue, rules: Collection[str]) -> tuple[JsonValue, tuple[str, ...]]:
    """The value with everything that `rules` forbid replaced by `[redacted:<what>]`, and the rules that did so, sorted.

    Looks into every text of a nested value, keys included, and at whole numbers that are a card's. What is redacted is
    never given back in any part. Two keys that become equal are numbered.

    >>> redact({"note": "card 4111 1111 1111 1111"}, ["pan"])
    ({'note': 'card [redacted:pan]'}, ('pan',))

    Raises:
        InvalidArtifact: a rule is not known; nothing was redacted.
    """
    refuse_unknown(rules)
    wanted = [what for what in _ORDER if what in {REDACTION_TARGETS[rule] for rule in rules}]
    plain = _plain_text(value)
    if plain is not None and not any(_SIGNS[what](plain) for what in wanted):
        return value, ()
    hit: set[str] = set()
    redacted = _walk(value, wanted, hit)
    return redacted, tuple(sorted(rule for rule in set(rules) if REDACTION_TARGETS[rule] in hit))


def refuse_unknown(rules: Collection[str]) -> None:
    """For lint: raises `InvalidArtifact` where a rule is not one of `REDACTION_TARGETS`."""
    unknown = sorted(set(rules) - REDACTION_TARGETS.keys())
    if unknown:
        remedy = f"use one of {', '.join(sorted(REDACTION_TARGETS))}"
        raise InvalidArtifact(
            *(
                Problem("/redaction_rules", "unknown_rule", f"no redaction is called `{rule}`", remedy)
                for rule in unknown
            )
        )


def scan_unsafe(value: JsonValue, *, declared_text: bool) -> tuple[Problem, ...]:
    """Hidden characters and secrets in every text of `value`, keys included; at most 50, one per place and kind.

    `declared_text` says that text for people was declared here: lines, tabs, and joiners as ordinary writing has them
    are then allowed. Elsewhere, in ids and codes, none of it is. Never echoes what it found.
    """
    plain = _plain_text(value)
    if plain is not None and not _pattern(_SECRET).search(plain):
        return ()
    return tuple(islice(_unsafe(value, (), declared_text), MAX_UNSAFE_FINDINGS))


def _plain_text(value: JsonValue) -> str | None:
    """The JSON of a value whose texts are printable ASCII as they stand, to look for signs in all of it at once.

    None where a text has anything that JSON escapes: then a sign could stand right behind what is not there.
    """
    try:
        raw = orjson.dumps(value)
    except TypeError:
        return None
    # A large float is a card number too, and its digits do not stand there.
    readable = raw.isascii() and b"\\" not in raw and b"\x7f" not in raw and b"e+" not in raw
    return raw.decode() if readable else None


def _walk(value: JsonValue, wanted: Collection[str], hit: set[str]) -> JsonValue:
    if isinstance(value, str):
        return _text(value, wanted, hit)
    if isinstance(value, dict):
        made: dict[str, JsonValue] = {}
        for key, child in value.items():
            made[_free(_text(key, wanted, hit), made, value)] = _walk(child, wanted, hit)
        return made
    if isinstance(value, list | tuple):
        return [_walk(child, wanted, hit) for child in value]
    if isinstance(value, int | float) and "pan" in wanted and _is_card_number(value):
        hit.add("pan")
        return "[redacted:pan]"
    return value


def _free(key: str, made: dict[str, JsonValue], original: dict[str, JsonValue]) -> str:
    """The key, or with a number if it is taken: nothing is lost because two keys were redacted to one."""
    number, free = 1, key
    while free in made or (free != key and free in original):
        number += 1
        free = f"{key}~{number}"
    return free


def _text(text: str, wanted: Collection[str], hit: set[str]) -> str:
    for what in wanted:
        made = _REDACTIONS[what](text)
        if made != text:
            hit.add(what)
            text = made
    return text


def _without_pans(text: str) -> str:
    return _pattern(_DIGITS).sub(lambda found: _without_cards(found.group()), text) if len(text) >= 13 else text


def _without_cards(run: str) -> str:
    """A run of digits and separators without its cards: whole groups, 13 to 19 digits together, that pass Luhn."""
    groups = [found.span() for found in re.finditer(r"\d+", run)]
    sums = _luhn_sums("".join(run[start:end] for start, end in groups))
    # How many digits stand before each group, and in all.
    before = list(accumulate((end - start for start, end in groups), initial=0))
    made: list[str] = []
    kept, first = 0, 0
    while first < len(groups):
        shortest, too_long = (
            bisect_left(before, before[first] + count) for count in (PAN_DIGITS.start, PAN_DIGITS.stop)
        )
        passing = [end for end in range(shortest, too_long) if _passes_luhn(sums, before[first], before[end])]
        if passing:
            made += run[kept : groups[first][0]], "[redacted:pan]"
            kept = groups[passing[-1] - 1][1]
        first = passing[-1] if passing else first + 1
    return "".join([*made, run[kept:]])


def _luhn_sums(digits: str) -> tuple[list[int], list[int]]:
    """Running sums with every digit at an even, and at an odd, position doubled; so any stretch is summed at once."""
    numbers = [int(digit) for digit in digits]
    doubled = [2 * number - 9 if number > 4 else 2 * number for number in numbers]
    even = accumulate((numbers[at] if at % 2 else doubled[at] for at in range(len(numbers))), initial=0)
    odd = accumulate((doubled[at] if at % 2 else numbers[at] for at in range(len(numbers))), initial=0)
    return list(even), list(odd)


def _passes_luhn(sums: tuple[list[int], list[int]], start: int, end: int) -> bool:
    running = sums[end % 2]
    return (running[end] - running[start]) % 10 == 0


def _is_card_number(number: int | float) -> bool:
    """Only numbers that begin as cards do: times in microseconds are as long."""
    if not 10**12 <= number < 10**19 or number != int(number):
        return False
    digits = str(int(number))
    return (digits[0] in "3456" or "2221" <= digits[:4] <= "2720") and _passes_luhn(_luhn_sums(digits), 0, len(digits))


def _without_secrets(text: str) -> str:
    return str(_pattern(_SECRET).sub("[redacted:secret]", text))


def _without_emails(text: str) -> str:
    return _pattern(_EMAIL).sub("[redacted:email]", text) if "@" in text else text


_SIGNS: Final[dict[str, Callable[[str], Any]]] = {
    "secret": lambda text: _pattern(_SECRET).search(text),
    "pan": lambda text: _pattern(_DIGITS).search(text),
    "email": lambda text: "@" in text,
}
"""What any redaction of this kind needs to be there, somewhere in the JSON of a value; quotes and names only add."""

_REDACTIONS: Final[dict[str, Callable[[str], str]]] = {
    "secret": _without_secrets,
    "pan": _without_pans,
    "email": _without_emails,
}


def _unsafe(value: JsonValue, path: tuple[str | int, ...], declared_text: bool) -> Iterator[Problem]:
    if isinstance(value, str):
        yield from _unsafe_text(value, path, declared_text)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _unsafe_text(key, path, False)
            yield from _unsafe(child, (*path, escape_for_display(_without_secrets(key))), declared_text)
    elif isinstance(value, list | tuple):
        for at, child in enumerate(value):
            yield from _unsafe(child, (*path, at), declared_text)


def _unsafe_text(text: str, path: tuple[str | int, ...], declared_text: bool) -> Iterator[Problem]:
    where = pointer(path)
    if _pattern(_SECRET).search(text):
        yield Problem(where, "secret", "the text holds what looks like a secret", "send a reference to it")
    if not declared_text and _LAYOUT.search(text):
        yield Problem(where, "control_character", "the text holds a line break or tab", "send one line")
    if text.isascii() and text.isprintable():
        return
    scanned = _WRITING.sub("", text) if declared_text else text
    for code, (pattern, what) in _HIDDEN.items():
        if pattern.search(scanned):
            yield Problem(where, code, f"the text holds {what}", "send the text without it")
