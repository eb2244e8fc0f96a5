"""The vocabularies of OpenAI count what is published of them, in pieces too."""

from __future__ import annotations

import pytest

from contextos.adapters.models import tokenizers
from contextos.adapters.models.tokenizers import count_tokens

TEXT = "Refund order 881 to the customer in Zürich, please. "


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        ("o200k_base@1", "hello world", 2),
        ("cl100k_base@1", "tiktoken is great!", 6),
        ("cl100k_base@1", "お誕生日おめでとう", 9),
        ("o200k_base@1", "", 0),
    ],
)
def test_a_text_has_the_tokens_of_the_vocabulary(tokenizer: str, text: str, tokens: int) -> None:
    assert count_tokens(tokenizer, text) == tokens


def test_a_mark_of_the_end_in_a_text_is_text() -> None:
    assert count_tokens("o200k_base@1", "<|endoftext|>") > 1


def test_a_text_of_more_than_a_million_characters_is_counted_in_pieces() -> None:
    pieces = len(TEXT) * 25_000 // tokenizers._PIECE_CHARS + 1
    assert abs(count_tokens("o200k_base@1", TEXT * 25_000) - 12 * 25_000) <= 4 * pieces
