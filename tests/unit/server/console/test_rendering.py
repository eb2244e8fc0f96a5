"""What a page shows of a value: hidden characters are visible, HTML is text, and times are exact."""

from __future__ import annotations

import tomllib

import pytest
from jinja2 import UndefinedError

from contextos.server.console.rendering import coded, instant, lasted, package_text, render, value_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("", ""),
        (0, "0"),
        (False, "false"),
        ("pay\u202e1000", "pay\\u202e1000"),
        ({"a": "\u200b"}, '{"a": "\\u200b"}'),
    ],
)
def test_a_value_is_one_line_with_hidden_characters_visible(value: object, expected: str) -> None:
    assert value_text(value) == expected


def test_a_long_value_is_not_cut() -> None:
    assert value_text({"note": "x" * 500}) == '{"note": "' + "x" * 500 + '"}'


def test_text_in_backticks_is_code_and_markup_is_text() -> None:
    assert str(coded("`<b>` is <i> and `open")) == "<code>&lt;b&gt;</code> is &lt;i&gt; and `open"


def test_a_time_has_its_iso_form_and_utc() -> None:
    said = str(instant(1_780_000_000_123_456))
    assert 'datetime="2026-05-28T20:26:40.123+00:00"' in said
    assert 'title="2026-05-28 20:26:40 UTC"' in said
    assert instant(None) == ""


@pytest.mark.parametrize(
    ("duration_us", "expected"),
    [(None, ""), (0, "0 ms"), (999, "0.999 ms"), (1_000_000, "1 s"), (90_061_000_000, "1 d 1 h")],
)
def test_a_duration_has_its_two_largest_units(duration_us: int | None, expected: str) -> None:
    assert lasted(duration_us) == expected


def test_a_page_takes_nothing_from_elsewhere_and_runs_nothing_inline() -> None:
    page = render("login.html", to='/console"><script>', refused=True, asks="token")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = bytes(page.body).decode()
    assert "<script>" not in text
    assert " style=" not in text
    assert "&#34;&gt;&lt;script&gt;" in text


def test_a_template_without_a_value_is_a_defect_and_not_an_empty_place() -> None:
    with pytest.raises(UndefinedError):
        render("login.html")


def test_every_text_of_the_catalogue_is_a_text() -> None:
    for table in tomllib.loads(package_text("strings.toml")).values():
        assert all(isinstance(text, str) and text.strip() for text in table.values())
