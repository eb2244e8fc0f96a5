"""Conditions as Python objects say the same as their text."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.packs.expressions import compile_condition
from contextos.packs.facts import fact

ARGS, CI = fact.args, fact.evidence["c-i"]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (ARGS.n > 20, "args.n > 20"),
        ((ARGS.n >= 1) & (ARGS.n < 5) | ~(ARGS.m == 2), "(args.n >= 1 and args.n < 5) or not args.m == 2"),
        (ARGS.env.in_(["a", "b"]), 'args.env in ["a", "b"]'),
        (~ARGS.env.in_(["a"]), 'args.env not in ["a"]'),
        (ARGS.n + 1 - 2 * CI.count <= 7, 'args.n + 1 - 2 * evidence["c-i"].count <= 7'),
        (10 - ARGS.n != 1 + ARGS.m, "10 - args.n != 1 + args.m"),
        (CI.green, 'evidence["c-i"].green'),
    ],
    ids=["more", "combined", "in", "not in", "calculated", "from the right", "a fact"],
)  # fmt: skip
def test_an_object_prints_as_its_condition(made: Any, text: str) -> None:
    assert print_and_compile(made) == compile_condition(text)


def print_and_compile(made: Any) -> Any:
    return compile_condition(str(made))


@pytest.mark.parametrize(
    "use",
    [
        lambda: ARGS.a == 1 and ARGS.b == 2,
        lambda: 1 < ARGS.a < 5,
        lambda: not ARGS.a,
        lambda: ARGS.a in [1, 2],
        lambda: {ARGS.a: 1},
        lambda: (ARGS.a == 1).b,
    ],
    ids=["and", "a chain", "not", "in", "a key", "a part of a condition"],
)
def test_what_python_would_evaluate_at_once_is_refused(use: Any) -> None:
    with pytest.raises(TypeError):
        use()
