"""The marks that redaction leaves in place of removed content, and the search for such marks in a JSON value."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.pointer import pointer, texts_in

REDACTION_TARGETS: Final = {"pan": "pan", "credit_card": "pan", "email": "email", "secret": "secret"}
"""Maps each rule name to the kind of redaction it applies. `credit_card` is another name for `pan`."""

REDACTION_MARK: Final = re.compile(r"\[redacted:([a-z_]{1,32})(?::[a-p]{32})?\]")
SECRET_ARGUMENT: Final = re.compile(r"\[redacted:argument:[a-p]{32}\]")
"""The mark that replaces a secret argument of a call."""
_HEX_TO_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
MARK_BEGINS: Final = b"[redacted:"
"""The bytes that begin every mark: the canonical JSON of a redacted value contains them."""


def unused_name(name: str, used: Container[str], original: Container[str], numbers: dict[str, int]) -> str:
    """Return the name of a member after redaction, with a number if another name was redacted to the same text.

    `used` are the names so far, and `original` the names before redaction. `numbers` has the last number of each name,
    so that no number is tried twice.

    >>> unused_name("[credential]", {"[credential]"}, (), {})
    '[credential]~2'
    """
    unused = name
    while unused in used or (unused != name and unused in original):
        numbers[name] = numbers.get(name, 1) + 1
        unused = f"{name}~{numbers[name]}"
    return unused


def redacted_places(value: Any) -> dict[str, list[str]]:
    """Return the JSON Pointer of each redacted text in `value`, with the kinds of the removed content.

    >>> redacted_places({"note": "card [redacted:pan]"})
    {'/note': ['pan']}
    """
    if MARK_BEGINS not in canonical(value):
        return {}
    kinds_by_place: dict[str, set[str]] = {}
    for path, text in texts_in(value):
        for kind in REDACTION_MARK.findall(text):
            kinds_by_place.setdefault(pointer(path), set()).add(kind)
    return {place: sorted(kinds) for place, kinds in sorted(kinds_by_place.items())}


def secret_argument_mark(digest: bytes) -> str:
    """Return the mark of a secret argument with this keyed digest, of which the first 128 bits count.

    It writes the digest in letters only: digits could look like a card number, which is redacted.
    """
    return f"[redacted:argument:{digest[:16].hex().translate(_HEX_TO_LETTERS)}]"


def is_secret_argument(value: Any) -> bool:
    """Return whether a value has the form of the mark of a secret argument."""
    return isinstance(value, str) and SECRET_ARGUMENT.fullmatch(value) is not None


def without_secret_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that are not secret."""
    match_mark = SECRET_ARGUMENT.fullmatch
    return {name: value for name, value in args.items() if not isinstance(value, str) or match_mark(value) is None}
