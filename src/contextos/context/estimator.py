"""The default token estimator: deterministic, offline, and pinned by its name.

A replay must count as the run counted, so another way of counting is another name and never a change of this one.
Source: shared/design/contracts.md, "Compile".
"""

from __future__ import annotations

from typing import Final

BYTES_DIV_4: Final = "bytes_div_4@1"


class BytesDiv4:
    """One token per four UTF-8 bytes, rounded up; an `Estimator`.

    >>> BytesDiv4().count("refund"), BytesDiv4().count("")
    (2, 0)
    """

    name: str = BYTES_DIV_4

    def count(self, text: str) -> int:
        """Estimated tokens of `text`."""
        length = len(text) if text.isascii() else len(text.encode())
        return (length + 3) // 4
