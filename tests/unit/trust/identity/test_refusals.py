"""The line of the log about a refused token: bounded, without secrets, and never the token."""

from __future__ import annotations

import logging

import pytest

from contextos.errors import NotFound, SignatureInvalid
from contextos.trust.identity.refusals import MAX_LOGGED_CHARS, logged_refusal, refusal_line, shown
from tests.issuer import token


def test_the_line_names_issuer_claim_and_both_values() -> None:
    line = refusal_line(token(), SignatureInvalid("the audience is another one", part="aud", expected="a", found="b"))
    assert line.endswith("is refused: aud: expected `a`, found `b`: the audience is another one")
    assert line.startswith("a token of `https://")


def test_a_value_is_cut_and_shows_no_line_break_and_no_secret() -> None:
    assert len(shown("x" * 10_000)) == MAX_LOGGED_CHARS + 2
    assert "\n" not in shown("a\nforged line")
    secret = "ghp_" + "a1B2" * 9
    assert secret not in shown(secret)
    assert "ghp_" not in shown("y" * (MAX_LOGGED_CHARS - 9) + " " + secret)


def test_what_is_no_token_has_a_line_too() -> None:
    assert refusal_line(None, NotFound("nobody")) == "a token of nothing is refused: nobody"
    assert refusal_line("x.y.z", NotFound("nobody")) == "a token of nothing is refused: nobody"


def test_a_refusal_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    presented = token()
    caplog.set_level(logging.WARNING, "contextos.identity")
    with pytest.raises(SignatureInvalid), logged_refusal(presented):
        raise SignatureInvalid("it is over", part="exp", expected="later", found=1)
    [record] = caplog.records
    assert "exp: expected `later`, found `1`" in record.getMessage()
    assert presented not in record.getMessage()


def test_neither_part_nor_reason_forges_a_line() -> None:
    forged = "token \n\x1b[2JWARNING all is well " + "x" * 900
    for refused in (SignatureInvalid("no", part=forged), SignatureInvalid(forged, part="a"), NotFound(forged)):
        line = refusal_line(None, refused)
        assert line.isprintable()
        assert len(line) < 300
    assert "found `x', expected 'y`" in refusal_line(None, SignatureInvalid("no", part="a", found="x`, expected `y"))


def test_what_a_cut_leaves_of_a_card_number_or_an_address_is_not_shown() -> None:
    card = "4111 1111 1111 1111 "
    for said in (f"{'4' * 500} and {card}", f"{'a' * 490}@acme.example ana@acme.example", f"{'a' * 500} {card}"):
        assert not any(one in shown(said) for one in ("4111", "ana@", "and 4"))
    inner = token(x="y" * 900)
    assert "eyJ" not in shown(inner) + shown("z" * 480 + " " + inner)


def test_what_follows_a_long_secret_is_shown_only_where_all_of_the_value_was_read() -> None:
    assert shown("ana@acme.example said no").endswith(" said no`")
    for length in range(420, 500):
        said = f"https://u:{'p' * length}@h.example 4111 1111 1111 1111"
        assert not any(one in shown(said) for one in ("41", "p@", "ppp")), length


def test_only_a_token_that_can_count_is_read_for_its_issuer() -> None:
    assert refusal_line(token(x="y" * 20_000), NotFound("nobody")).startswith("a token of nothing is")
