"""What a server answers has none of the secrets of its connection in it."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.action.secret_redactor import REDACTED, SecretRedactor

SECRET = "sk+live/9a8b7c"
LONG = "x" * 90


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


DISGUISES: dict[str, Callable[[str], str]] = {
    "base64 of a header": lambda it: base64_of(f"Bearer {it}"),
    "base64 of a longer text": lambda it: base64_of(f"{LONG}{it}{LONG}"),
    "url-safe base64": lambda it: base64.urlsafe_b64encode(f"~~{it}~~".encode()).decode(),
    "base64 in lines": lambda it: "\n".join(textwrap.wrap(base64_of(LONG + it + LONG), 17)),
    "base64 with blanks": lambda it: " ".join(base64_of(f"Bearer {it}")),
    "base64 twice": lambda it: base64_of(base64_of(f"Bearer {it}")),
    "base64 of hex": lambda it: base64_of(it.encode().hex().upper()),
    "base64 of percent signs": lambda it: base64_of(quote(it, safe="")),
    "base64 of it reversed": lambda it: base64_of(it[::-1]),
    "base64 of UTF-16": lambda it: base64.b64encode(f"x{it}".encode("utf-16-le")).decode(),
    "base64 of UTF-16, big end first": lambda it: base64.b64encode(f"x{it}".encode("utf-16-be")).decode(),
    "base64 in JSON": lambda it: base64_of(f"Bearer {it}").replace("/", "\\/"),
    "base32": lambda it: base64.b32encode(f"Bearer {it}".encode()).decode().lower(),
    "hex": lambda it: it.encode().hex(),
    "hex in capitals": lambda it: f"0x{it.encode().hex().upper()}",
    "hex with colons": lambda it: it.encode().hex(":"),
    "hex as code": lambda it: ", ".join(f"0x{one:02x}" for one in it.encode()),
    "hex as code without marks": lambda it: "".join(f"0x{one:02X}" for one in it.encode()),
    "full width": lambda it: "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in it),
    "escapes in braces": lambda it: "".join(f"\\u{{{ord(one):x}}}" for one in it),
    "escapes of eight digits": lambda it: "".join(f"\\U{ord(one):08x}" for one in it),
    "hex of base64": lambda it: base64_of(f"Bearer {it}").encode().hex(),
    "reversed": lambda it: it[::-1],
    "escapes": lambda it: "".join(f"\\x{ord(one):02x}" for one in it),
    "percent signs twice": lambda it: it.replace("+", "%252B").replace("/", "%252F"),
    "full stops": lambda it: ".".join(it),
}


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


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("before", ["", "a", "ab", "abc ", "token: "])
@pytest.mark.parametrize("secret", [SECRET, "8charact", "0123456789abcdef" * 4, "Pa55 with=+ünï"])
def test_a_secret_is_found_however_it_was_encoded(disguise: str, before: str, secret: str) -> None:
    hidden = DISGUISES[disguise](secret)
    redactor = SecretRedactor([secret])
    for text in (before + hidden, DISGUISES[disguise](before + secret) if disguise.startswith("base64") else hidden):
        kept = redactor.redact({"a": [text], text: 1})
        assert REDACTED in kept["a"][0]
        assert hidden not in str(kept)
        assert text not in str(kept)


def test_what_only_looks_encoded_is_kept() -> None:
    redactor = SecretRedactor([SECRET, "0123456789abcdef" * 4])
    for text in (base64_of(LONG * 40), (LONG * 40).encode().hex(), "sha256:" + "ab" * 32, "sk live 9a8b7"):
        assert redactor.redact(text) == text


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


def test_of_texts_that_say_a_secret_together_nothing_is_kept() -> None:
    redact = SecretRedactor([SECRET]).redact
    assert redact([SECRET[:5], SECRET[5:]]) == [REDACTED, REDACTED]
    assert redact({"a": [1, *SECRET]}) == {"a": [1, *[REDACTED] * len(SECRET)]}
    assert redact(["one", "two"]) == ["one", "two"]


def test_names_that_become_one_lose_no_value() -> None:
    kept = SecretRedactor([SECRET]).redact({SECRET: 1, SECRET.upper(): 2, f"{REDACTED}~2": 3})
    assert kept == {REDACTED: 1, f"{REDACTED}~3": 2, f"{REDACTED}~2": 3}


def test_a_short_secret_is_redacted_from_a_number_only_where_it_is_the_whole_number() -> None:
    redact = SecretRedactor(["1000"], 4).redact
    assert redact([1000, 51000, 1795617124327, {"id": 10001}]) == [REDACTED, 51000, 1795617124327, {"id": 10001}]
    assert SecretRedactor(["48210077"]).redact({"id": 9482100771}) == {"id": REDACTED}


PIECES = [SECRET, SECRET[:6], SECRET[6:], SECRET.encode().hex(), *(f"0x{one:02x}" for one in SECRET.encode())]
PIECES += ["0", "x736b", "\n", "\\", '"', "[", "%2B", "&#43;", "ü", "plain", " ", "", "12345678"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.sampled_from([None, True, 1e16, 0.5, 12345678, 9_123_456_780]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([[SECRET], ["12345678"], [SECRET, "1000"]]), st.sampled_from([4, 8]))
@settings(max_examples=400)
def test_one_look_at_a_value_finds_what_a_look_at_each_text_finds(value: Any, secrets: list[str], least: int) -> None:
    redactor = SecretRedactor(secrets, least)
    assert redactor.redact(value) == redactor._redact_value(value)
