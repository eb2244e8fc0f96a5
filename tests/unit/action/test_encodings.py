"""What a text says once its encodings are taken off."""

from __future__ import annotations

import base64

import pytest

from contextos.action import encodings
from contextos.action.encodings import TooMuch, decodings

SECRET = "pay DE89370400440532013000"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"%{ord(one):02x}" for one in SECRET),
        "".join(f"&#{ord(one)};" for one in SECRET),
        "".join(f"\\u{ord(one):04x}" for one in SECRET),
        "".join(f"={ord(one):02X}" for one in SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b32encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        " ".join(base64.b64encode(SECRET.encode()).decode()),
        base64.b64encode(SECRET.encode().hex().encode()).decode(),
    ],
    ids=["percent", "html", "escapes", "quoted-printable", "base64", "base32", "hex", "blanks", "hex in base64"],
)
def test_an_encoding_is_taken_off_also_inside_another(text: str) -> None:
    # Base32 is read in whole groups of eight letters, so the end can be missing.
    assert any(SECRET[:20] in one for one in decodings(text))


def test_plain_words_have_no_encoding() -> None:
    assert decodings("please pay the rent on monday") == []


def test_a_text_with_more_encodings_than_are_taken_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "MAX_DECODED_CHARS", 10)
    with pytest.raises(TooMuch):
        decodings(SECRET.encode().hex())
