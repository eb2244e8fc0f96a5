"""The default token estimator: deterministic, offline, and pinned by its name.

A replay must count tokens exactly as the run did, so a different way of counting gets a new name and never changes
this one.
Source: docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from typing import Final

BYTES_DIV_4: Final = "bytes_div_4@1"


class BytesDiv4:
    """A token estimator that counts one token per four UTF-8 bytes, rounded up. Implements the port `Estimator`.

    >>> BytesDiv4().count("refund"), BytesDiv4().count("")
    (2, 0)
    """

    name: str = BYTES_DIV_4

    def count(self, text: str) -> int:
        """Return the estimated number of tokens in `text`."""
        length = len(text) if text.isascii() else len(text.encode())
        return (length + 3) // 4
