"""D26, approval questions: no argument of the requester can imitate another line of the question.

A terminal of 80 columns is played: it shows wide characters in two columns, draws combining ones over their neighbour,
and goes on at its left edge where a line is too long.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextos.cli.layout import WIDTH
from contextos.cli.runs.requests import question_lines
from contextos.contracts.statements.questions import escape_all

LABELS = ("call", "evidence", "source", "asked by", "until")
BLANKS = " \u00a0\u1680\u2000\u2003\u2007\u2009\u200a\u202f\u205f\u2800\u3000\u3164\u115f\uffa0\U0001d159"
MARKS = "\u0301\u0336\u0488\u20dd\u0947\u3099\ufe20"

ENDS = ["evidence", "source", "asked", "until", "not"]


def asked(args: dict[str, Any], **more: Any) -> list[str]:
    shown: dict[str, Any] = {
        "capability": "adp_payments.issue_refund",
        "mode": "destructive",
        "args": escape_all(args),
        "evidence": [
            {
                "name": "identity_verified",
                "value": escape_all(True),
                "ref": "artifact:kyc#rev_1",
                "subject": "customer:cus_77",
            }
        ],
        "until": "2026-11-24T01:07:19Z",
        "requester": ["user:usr_771", "agent:agent.support"],
    }
    return question_lines(shown | more, "sha256:" + "0" * 64)[:-1]


def columns(line: str) -> int:
    """What a line takes on a terminal that shows ambiguous characters wide."""
    return sum(2 if unicodedata.east_asian_width(one) in "WFA" else 1 for one in line)


def labels(lines: list[str]) -> list[str]:
    """The column of the names, as an approver reads it; lines that go on have blanks there."""
    for line in lines:
        assert columns(line) <= WIDTH, "the terminal would break this line, and go on at its left edge"
        assert all(one == " " or unicodedata.category(one)[0] in "LNPS" for one in line), "nothing hides"
        assert not set(line) & set(BLANKS[1:]), "nothing looks like a blank"
    return [line[2:].partition(" ")[0] for line in lines if not line.startswith(" " * 3)]


HOSTILE = [
    "金" * 300,
    "x" * 66 + "\u3000" * 40 + "amount_inr 900",
    "x" + " " * 64 + "  amount_inr 900",
    "x" + " " * 400 + "amount_inr 900",
    "x" + "\u2800" * 64 + "amount_inr 900",
    "４２００" * 40,
    "e" + "\u0301" * 400,
    "4\u03360\u0336" * 20,
    "…" * 90,
    "a-" * 90,
    "\t\n\r\x1b[2Kamount_inr 900",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_stays_in_its_own_lines(value: str) -> None:
    assert labels(asked({"amount_inr": 4200, "note": value})) == ["call", "amount_inr", "note", *ENDS]
    assert labels(asked({"amount_inr": 4200, "note": {"a": [value]}})) == ["call", "amount_inr", "note", *ENDS]


@given(st.text(st.sampled_from(BLANKS + MARKS + "aé金…4\\\"'-."), max_size=300))
@example("金" * 33 + " " * 9 + "金")
def test_whatever_a_value_is_it_stays_in_its_own_lines(value: str) -> None:
    assert labels(asked({"note": value})) == ["call", "note", *ENDS]


NEAR = st.text(st.sampled_from(BLANKS[:4] + "a金4\\"), max_size=90)


@given(NEAR, NEAR)
@example("x" * 64 + " 金", "x" * 64 + "金")
@example("x" * 64 + " y", "x" * 64 + "y")
def test_two_values_never_look_alike(one: str, other: str) -> None:
    assert (asked({"note": one}) == asked({"note": other})) == (one == other)


NAMES = [*LABELS, "amount_inr 900", "", " ", "x" * 200, "金" * 60, "a\u0301", "a:b c", "\u2800"]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_argument_imitates_nothing(name: str) -> None:
    lines = asked({"amount_inr": 4200, name: "identity_verified = true"})
    assert labels(lines)[:2] == ["call", "amount_inr"]
    assert labels(lines)[-5:] == ENDS
    assert re.match(r' {2}"', lines[2]), "a name that could be read as something else is in quotes"
    assert sum(line.startswith("  evidence ") for line in lines) == 1


def test_the_names_of_people_imitate_nothing() -> None:
    lines = asked({}, requester=["user:" + "\u2003" * 60 + "金" * 60, "agent:a\u202eb\n  call       other"])
    assert labels(lines) == ["call", *ENDS]


def test_an_ordinary_question_reads_as_before() -> None:
    assert asked({"amount_inr": 4200, "note": "Rückgabe, 100 €", "order_id": "ord_881"}) == [
        "  call       adp_payments.issue_refund (destructive)",
        "  amount_inr 4200",
        "  note       Rückgabe, 100 €",
        "  order_id   ord_881",
        "  evidence   identity_verified = true",
        "  source     artifact:kyc#rev_1 about customer:cus_77",
        "  asked by   user:usr_771, agent:agent.support",
        "  until      2026-11-24T01:07:19Z",
        "  not bound  services, programs, shared libraries, files outside workspace and \\",
        "               packages",
    ]
