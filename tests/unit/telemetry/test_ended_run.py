"""What telemetry reads of a run: since its last end, by name, and never a text that somebody wrote."""

from __future__ import annotations

import pytest

from contextos.errors import Integrity
from contextos.telemetry.ended_run import MAX_VALUE_CHARS, error_type, identifiers
from tests.unit.telemetry import runs


def test_a_run_is_read_since_its_last_end() -> None:
    first, again = runs.first_segment("reopened"), runs.ended("reopened")
    assert (first.end, first.segment) == ("exhausted", 0)
    assert (again.end, again.segment, again.log[0].kind) == ("completed", 1, "run.reopened")
    assert again.first("run.context")["agent_id"] == "agt_support"
    assert first.trace == again.trace
    assert again.spent_before == first.record["budget_usage"]


def test_a_run_that_has_not_ended_has_no_telemetry() -> None:
    for entries in ((), runs.entries("small")[:-1]):
        with pytest.raises(Integrity, match="has not ended"):
            runs.read(entries)


def test_a_run_whose_request_was_erased_has_no_trace() -> None:
    received, *others = runs.entries("small")
    with pytest.raises(Integrity, match="was erased"):
        runs.read([received._replace(body=None, salt=None), *others])


@pytest.mark.parametrize(
    "text", ["two words", "", "a\nb", '{"a":1}', "x" * (MAX_VALUE_CHARS + 1), "naïve", "<b>", "a=b", "'"]
)
def test_a_text_that_is_no_identifier_does_not_leave(text: str) -> None:
    assert identifiers({"one": text, "many": [text, "ok"], "none": [text]}) == {"many": ("ok",)}


def test_numbers_and_truth_values_leave_and_nothing_nested_does() -> None:
    assert identifiers({"n": 1.5, "yes": True, "object": {"a": "b"}, "none": None}) == {"n": 1.5, "yes": True}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("approval_denied", "approval_denied"),
        ("http_404", "http_404"),
        ("http_4045", "tool_error"),
        ("card_4111111111111111", "tool_error"),
        (None, "tool_error"),
    ],
)
def test_the_type_of_an_error_is_of_a_closed_set(code: str | None, told: str) -> None:
    assert error_type(code) == told
