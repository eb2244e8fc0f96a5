"""Computes the upper bound of a range of keys, for stores that sort by code point."""

from __future__ import annotations


def after_prefix(prefix: str) -> str | None:
    """Return the first key after all keys that start with `prefix`, or None if there is no such key.

    >>> after_prefix("run_a"), after_prefix("")
    ('run_b', None)
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Lone surrogates are not valid text, so U+E000 follows U+D7FF.
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)
