"""The table of docs/models.md says what the suite of providers tests."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from contextos.contracts.envelopes.models import FallbackTrigger, ModelOutcome, RoutingRule
from tests.suites.model_provider_suite import FAULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
ELSEWHERE = (
    ("nobody listens, or its certificate is not valid", "unavailable", False),
    ("the connection is lost before the answer begins", "unavailable", True),
    ("no end in time, and nothing was sent yet", "timed_out", False),
    ("400, `context_length_exceeded`", "too_large", False),
    ("400, `content_filter`", "refused", False),
    ("400, `model_not_found`", "unknown_model", False),
    ("an error in a stream, `rate_limit_exceeded`", "overloaded", True),
    ("an error in a stream, without a code that is known", "unavailable", True),
)
"""What the suite tests without an answer of a provider, and the tests of the wires by the codes of their errors."""


def another_attempt(outcome: str) -> str:
    if outcome in RoutingRule.model_fields["fallback_on"].default:
        return "yes"
    return "if the rule lists it" if outcome in get_args(FallbackTrigger) else "never"


def rows() -> list[str]:
    found = [*((fault.name, fault.outcome, fault.billed) for fault in FAULTS), *ELSEWHERE]
    return [
        f"| {name} | `{outcome}` | {'yes' if billed else 'no'} | {another_attempt(outcome)} |"
        for name, outcome, billed in found
    ]


def test_the_table_has_a_row_for_each_fault() -> None:
    page = PAGE.read_text("utf-8")
    section = page[page.index("## What becomes of a call") :]
    stated = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| What")]
    assert stated == rows(), "\n" + "\n".join(rows())


def test_each_outcome_is_in_the_table() -> None:
    assert {row.split("`")[-2] for row in rows()} | {"answered"} == set(get_args(ModelOutcome))
