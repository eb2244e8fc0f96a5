"""HTML character references in texts of others, decoded within bounds."""

from __future__ import annotations

import html
import re
from typing import Final

_REFERENCE: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")


def unescape_html(text: str) -> str:
    """Return a text with its HTML character references decoded, as `html.unescape` does.

    That function raises `ValueError` for a number of more than 4,300 digits. Such a reference stays as it is.

    >>> unescape_html("a&#64;b &amp; c")
    'a@b & c'
    """
    return _REFERENCE.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text
