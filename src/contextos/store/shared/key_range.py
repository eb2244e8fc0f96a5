"""Where a range of keys ends, for stores that sort by code point."""

from __future__ import annotations


def after_prefix(prefix: str) -> str | None:
    """The first key after all those that start with `prefix`; None where there is none.

    >>> after_prefix("run_a"), after_prefix("")
    ('run_b', None)
    """
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Lone surrogates are not text, so the code point after U+D7FF is U+E000.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)
