"""G88: values that nobody was seen to send, and that a mined bound lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.packs.mining.bounds import bound_of
from contextos.trust.policy.constraints import check_args


def _passes(seen: list[Any], value: Any) -> bool:
    bound = bound_of(seen)
    return bound is not None and not check_args({"x": (bound,)}, {"x": value}, approved=False)


REPORTS = [f"reports/2026/{name}{number}.pdf" for number in range(10) for name in ("sales", "costs")]


@pytest.mark.parametrize(
    "value",
    [
        "reports/../../x.y",
        "reports/../../../.pdf",
        "reports/2026/../x.pdf",
        "reports/2026/sales/1.pdf",
        "reports/2026/sales1..pdf",
        "reports/2026/.sales.pdf",
        "reports/2026/sales1.pdf/",
        "reports/2026/sales1pdf",
        "reports\\..\\x.pdf",
        "/reports/2026/sales1.pdf",
    ],
)
def test_no_path_leaves_the_folders_that_were_seen(value: str) -> None:
    assert all(_passes(REPORTS, one) for one in REPORTS)
    assert not _passes(REPORTS, value)


def test_addresses_have_paths_of_the_shapes_that_were_seen() -> None:
    seen = [f"https://a.example/in/{number}/file.txt" for number in range(100, 120)]
    assert all(_passes(seen, one) for one in seen)
    for value in (
        "https://a.example/in/../file.txt",
        "https://a.example/in/1/2/3.txt",
        "https://a.example/../../x.txt",
    ):
        assert not _passes(seen, value), value


def test_texts_of_many_shapes_have_no_bound() -> None:
    assert bound_of(["/".join("abc" * depth) for depth in range(1, 20)]) is None
