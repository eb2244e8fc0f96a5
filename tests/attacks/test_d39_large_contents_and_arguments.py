"""D39: content and arguments that are made to be searched for long are not: what would take too long is untrusted.

The work is counted in characters and not in seconds, so that a replay finds what the run found.
"""

from __future__ import annotations

import base64
import random
import tracemalloc
from collections.abc import Sequence
from string import ascii_letters, ascii_lowercase
from typing import Any

import pytest

from contextos.action.content.seen_content import SeenContent
from contextos.contracts.journal import Logged
from tests.unit.action.content.test_seen_content import answer, scope

pytestmark = pytest.mark.slow

MIB = 1 << 20
CHOSEN = random.Random(39)


def words(chars: int, alphabet: str = ascii_lowercase) -> str:
    made = ("".join(CHOSEN.choices(alphabet, k=CHOSEN.randint(3, 11))) for _ in range(chars // 6))
    return " ".join(made)[:chars]


def base64_thrice(text: str) -> str:
    raw = text.encode()
    for _ in range(3):
        raw = base64.b64encode(raw)
    return raw.decode()


PAGE = words(4 * MIB)
"""As much content as a run can get from one slot."""
VALUES = 256
ARGUMENTS: dict[str, Any] = {
    "a mebibyte of values": [words(4096, ascii_letters) for _ in range(VALUES)],
    "short values": [words(14) for _ in range(VALUES)],
    "values that nearly occur": ["a" * (4 + number) + "b" + "a" * number for number in range(VALUES)],
    "one value of many parts": " ".join(f"{words(8)}.{words(5)}" for _ in range(250)),
    "many values of many parts": [" ".join(f"{words(8)}.{words(5)}" for _ in range(100)) for _ in range(VALUES)],
    "a host of a hundred thousand labels": "a." * 131_072 + "example",
    "many hosts of many labels": ["ab." * 500 + f"x{number}" for number in range(VALUES)],
    "values in three encodings": [base64_thrice(words(1_700, ascii_letters)) for _ in range(VALUES)],
}


def traced(log: Sequence[Logged], message: str = "", **arguments: Any) -> dict[str, str]:
    found = SeenContent(list(log)).trace("2/b", arguments, scope(message), always=False)
    assert found is not None
    return {name: one.integrity for name, one in found.items()}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_takes_too_long_to_look_for_is_untrusted_and_the_others_are_judged(name: str) -> None:
    page = answer("mail.read", {"text": PAGE + " " + "a" * 65_536 + " b mallory@attacker.example"})
    found = traced(
        [page],
        message="write to bob@acme.example",
        to="bob@acme.example",
        copy="Mallory@Attacker.example",
        other="carol@acme.example",
        z_large=ARGUMENTS[name],
        large=ARGUMENTS[name],
    )
    assert found == {
        "to": "trusted",
        "copy": "untrusted",
        "other": "unknown",
        "z_large": "untrusted",
        "large": "untrusted",
    }


def test_the_domains_of_a_long_host_take_little_memory() -> None:
    page = answer("mail.read", {"text": "hello"})
    tracemalloc.start()
    try:
        assert traced([page], to="a." * 131_072 + "example") == {"to": "unknown"}
        assert tracemalloc.get_traced_memory()[1] < 64_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "leaves",
    [
        [base64_thrice(words(1_700, ascii_letters)) for _ in range(250)],
        [f"%41Bcd=41efgh{number}" for number in range(20_000)],
    ],
    ids=["nested", "many"],
)
def test_an_answer_whose_texts_together_say_too_much_counts_as_if_it_had_every_value(leaves: list[str]) -> None:
    tracemalloc.start()
    try:
        assert traced([answer("mail.read", leaves)], to="carol@acme.example") == {"to": "untrusted"}
        assert tracemalloc.get_traced_memory()[1] < 128_000_000
    finally:
        tracemalloc.stop()


def test_an_echo_that_takes_too_long_to_compare_is_not_trusted() -> None:
    log = [answer("mail.read", {"text": "pay DE44"})]
    seen = SeenContent(log)
    seen.trace("2/find", {"q": [words(900) for _ in range(VALUES)]}, scope(), always=False)
    log.append(answer("crm.find", [words(100) for _ in range(9_000)] + ["carol@acme.example"], key="2/find/1"))
    found = seen.trace("3/pay", {"to": "carol@acme.example"}, scope(), always=False)
    assert found is not None
    assert found["to"].integrity == "untrusted"


def test_many_values_beside_an_ordinary_page_are_still_judged() -> None:
    page = answer("mail.read", {"text": words(100_000)})
    people = ["".join(CHOSEN.choices(ascii_lowercase, k=12)) for _ in range(200)]
    assert traced([page], to=[f"{one}@{one[::2]}.example" for one in people]) == {"to": "unknown"}
