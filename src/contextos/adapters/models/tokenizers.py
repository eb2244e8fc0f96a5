"""Counts the tokens of a text by the published vocabularies of OpenAI, which the extra has in its package.

A text is counted in pieces of `_PIECE_CHARS` characters, because the package refuses longer texts. The count of the
whole text can differ by the tokens at the ends of pieces.
Source: bpe-openai 0.1.4; docs/design/models.md.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import bpe_openai

_PIECE_CHARS: Final = 50_000
"""The characters of a piece. A character has at most four tokens, and the package counts at most 200,000 tokens."""


def count_tokens(tokenizer: str, text: str) -> int:
    """Return the number of tokens of a text by a vocabulary, such as `o200k_base@1`."""
    encoding = _encoding(tokenizer.partition("@")[0])
    pieces = (text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS))
    return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)


@cache
def _encoding(name: str) -> bpe_openai.Encoding:
    return bpe_openai.get_encoding(name)
