"""What a server answers has none of the secrets of its connection in it."""

from __future__ import annotations

import pytest

from contextos.action.secret_redactor import REDACTED, SecretRedactor

SECRET = "sk+live/9a8b7c"


@pytest.mark.parametrize(
    "text", [SECRET, SECRET.upper(), "sk%2Blive%2F9a8b7c", "c2srbGl2ZS85YThiN2M=", "c2srbGl2ZS85YThiN2M"]
)
def test_a_secret_is_cut_out_in_each_form_in_which_it_was_sent(text: str) -> None:
    assert SecretRedactor([SECRET]).redact([f"token={text}!"]) == [f"token={REDACTED}!"]


@pytest.mark.parametrize(
    "text", ["sk\\u002blive\\u002f9a8b7c", "sk&#43;live&#47;9a8b7c", "s k + l i v e / 9 a 8 b 7 c"]
)
def test_of_a_text_with_a_disguised_secret_nothing_is_kept(text: str) -> None:
    assert SecretRedactor([SECRET]).redact(f"token={text}!") == REDACTED


def test_a_secret_that_is_a_number_is_no_number_of_an_answer() -> None:
    redactor = SecretRedactor(["4711471147"])
    assert redactor.redact({"a": 4711471147, "b": 12, "c": True, "d": None}) == {
        "a": REDACTED,
        "b": 12,
        "c": True,
        "d": None,
    }


def test_a_text_that_python_cannot_unescape_stops_nothing() -> None:
    hostile = "&#" + "1" * 5_000 + ";"
    assert SecretRedactor([SECRET]).redact(hostile) == hostile


def test_a_short_text_is_no_secret_and_no_object_shows_one() -> None:
    assert SecretRedactor(["short"]).redact("a short text") == "a short text"
    assert SECRET not in repr(SecretRedactor([SECRET])) + str(vars(SecretRedactor([SECRET])).keys())
