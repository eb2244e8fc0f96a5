"""The forms of a text, and the limits on how many of them are made."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from contextos.action.content.text_forms import MAX_PARTS, WorkExceeded, WorkLimit, decodings, numbers, parts

ENOUGH = 1 << 30


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz", "the "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.b16encode, base64.urlsafe_b64encode])
def test_encoded_text_is_found_wherever_it_begins_and_beside_other_runs(
    before: str, encode: Callable[[bytes], bytes]
) -> None:
    encoded = encode("mallory@attacker.example ü?>".encode()).decode()
    whole = f"Some-Other-Words {before}{encoded} deadbeef00 {base64.b32encode(bytes(20)).decode()}"
    said = "\n".join(decodings(whole, WorkLimit(ENOUGH)))
    assert "mallory@attacker.example" in said


def test_a_short_text_without_marks_encodes_nothing() -> None:
    assert decodings("Zm9v", WorkLimit(0)) == []


def test_texts_that_say_more_than_is_looked_at_are_given_up() -> None:
    with pytest.raises(WorkExceeded):
        decodings("%41" * 100, WorkLimit(100))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mail.a.example", ["a.example"]),
        ("ana+x@mail.example", ["mail.example"]),
        ("https://evil.example/pay/me?x=1#y", ["evil.example"]),
        ("https://host/shop/report", ["report"]),
        ("plain words", []),
    ],
)
def test_the_parts_that_can_decide_where_something_goes(value: str, expected: list[str]) -> None:
    assert list(parts(value)) == expected


def test_more_parts_than_are_looked_for_are_given_up() -> None:
    value = " ".join(f"host{number}.example" for number in range(MAX_PARTS + 1))
    with pytest.raises(WorkExceeded):
        list(parts(value))


def test_numbers_of_any_script_are_found() -> None:
    assert numbers("é7a42") == b"7 42"


def test_a_text_that_was_decoded_before_costs_the_same_again() -> None:
    """Otherwise a run would get further than its replay."""
    for text in ("%6d%61%6c%6c%6f%72%79", "bWFsbG9yeUBhdHRhY2tlcg", "words in lower case", "x" * 1_000):
        costs, said = [], []
        for _ in range(2):
            work = WorkLimit(ENOUGH)
            said.append(decodings(text, work))
            costs.append(ENOUGH - work.left)
        assert said[0] == said[1]
        assert costs[0] == costs[1] > 0
        with pytest.raises(WorkExceeded):
            decodings(text, WorkLimit(costs[0] - 1))
