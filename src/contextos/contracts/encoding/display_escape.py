"""Text of others as it may be shown: everything that hides, turns or moves text stands there as an escape."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    pass

BIDI: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
TAGS: Final = r"\U000e0000-\U000e007f"
INVISIBLE: Final = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff"
)
_SHOWN: Final = re.compile(rf"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff{BIDI}{TAGS}{INVISIBLE}]")
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def escape_for_display(text: str) -> str:
    r"""Text as a person may be shown it.

    A backslash is doubled, so that an escape that was typed is told from one that was made, and no two texts look the
    same. Lines and tabs become `\n` and `\t`: one value cannot pose as two.

    >>> escape_for_display("pay\u202e0001")
    'pay\\u202e0001'
    """
    return _SHOWN.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}")


def displayed(text: object) -> str:
    """Text from outside, as it may be shown on a terminal."""
    return escape_for_display(str(text))


def displayed_json(value: Any, limit: int | None = 160) -> str:
    """A JSON value on one displayed line, cut at `limit` characters; None shows all of it."""
    text = displayed(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    )
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."
