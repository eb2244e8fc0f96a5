"""Output that is absent, too large, unsafe or of another form is withheld: its reason, size and digest are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.action.gateway.result_validation import MAX_OUTPUT_BYTES, validate_reply
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.errors import Problem

WRITE: Any = SimpleNamespace(definition=SimpleNamespace(kind="write", output_repeats={}))
READ: Any = SimpleNamespace(definition=SimpleNamespace(kind="read", output_repeats={}))
UNSAFE = Problem("/x", "secret", "it holds a key")


class Schema:
    """A registry whose schema accepts objects with the field `id`."""

    def check(self, _capability: Any, _direction: str, value: Any) -> Problem | None:
        return None if isinstance(value, dict) and "id" in value else Problem("/id", "missing", "it is required")


def clean(value: Any) -> tuple[Any, tuple[str, ...], tuple[Problem, ...]]:
    return value, (), (UNSAFE,) if "SECRET" in str(value) else ()


def validated(reply: AdapterReply | None, capability: Any = WRITE, outcome: str = "done") -> Any:
    registry: Any = Schema()
    return validate_reply(registry, clean, capability, {}, reply, outcome, "the line was cut", "tool_failed")


BAD = [None, {}, {"id": "x" * MAX_OUTPUT_BYTES}, {"id": "SECRET"}, {"id": float("nan")}, {"id": object()}]


@pytest.mark.parametrize("output", BAD)
def test_a_write_whose_output_is_withheld_is_completed_and_its_output_not_kept(output: Any) -> None:
    made = validated(AdapterReply.model_construct(output=output, error=None))
    assert (made.status, made.output, made.error) == ("completed", None, None)
    assert made.withheld.code == "unsafe_output"
    assert "SECRET" not in made.withheld.detail


@pytest.mark.parametrize("output", BAD)
def test_a_read_whose_output_is_withheld_fails_and_its_output_is_not_kept(output: Any) -> None:
    made = validated(AdapterReply.model_construct(output=output, error=None), READ)
    assert (made.status, made.output, made.error.code) == ("failed", None, "unsafe_output")
    assert made.error.message == made.withheld.detail
    assert "SECRET" not in made.error.message


def test_of_a_withheld_output_size_and_digest_are_known_unless_a_digest_tells_a_secret() -> None:
    def said(output: Any) -> Any:
        return validated(AdapterReply.model_construct(output=output, error=None)).withheld

    assert (said({"x": 1}).size, said({"x": 1}).digest) == (7, content_address({"x": 1}))
    assert (said({"id": "SECRET"}).size, said({"id": "SECRET"}).digest) == (15, None)
    assert said({"id": "x" * MAX_OUTPUT_BYTES}).size > MAX_OUTPUT_BYTES
    assert (said(None).size, said(None).digest) == (None, None)


def test_where_an_output_does_not_fit_is_said_without_the_names_of_secrets() -> None:
    def redacted(value: Any) -> tuple[Any, tuple[str, ...], tuple[Problem, ...]]:
        return (value, (), ()) if "SECRET" not in str(value) else ([], ("secret",), ())

    registry: Any = SimpleNamespace(
        check=lambda _capability, _side, value: Problem(f"/{next(iter(value))}", "type", "is not a text")
    )
    reply = AdapterReply.model_construct(output={"SECRET": 1}, error=None)
    refused = validate_reply(registry, redacted, WRITE, {}, reply, "done", "", "tool_failed")
    assert refused.withheld is not None
    assert (refused.withheld.detail, refused.redacted) == ("is not a text", ("secret",))
    named = AdapterReply.model_construct(output={"a/b": 1}, error=None)
    refused = validate_reply(registry, redacted, WRITE, {}, named, "done", "", "tool_failed")
    assert refused.withheld is not None
    assert refused.withheld.detail == "is not a text at `/a/b`"
    refused = validate_reply(registry, clean, WRITE, {}, reply, "done", "", "tool_failed")
    assert refused.withheld is not None
    assert refused.withheld.detail == "is not a text"


def test_a_good_output_completes_a_write_and_answers_a_read() -> None:
    reply = AdapterReply.model_construct(output={"id": 1}, error=None)
    for capability, status in ((WRITE, "completed"), (READ, "ok")):
        made = validated(reply, capability)
        assert (made.status, made.output, made.error, made.withheld) == (status, {"id": 1}, None, None)


def test_an_unknown_outcome_pauses_and_a_call_that_was_not_sent_fails() -> None:
    paused, failed = validated(None, outcome="unknown"), validated(None, outcome="not_sent")
    assert (paused.status, paused.error.code) == ("paused", "effect_uncertain")
    assert (failed.status, failed.error.code) == ("failed", "tool_failed")


@pytest.mark.parametrize(("message", "status"), [("sold out", "error"), ("SECRET", "failed")])
def test_an_adapters_error_is_kept_only_if_it_is_safe(message: str, status: str) -> None:
    error = ToolError(code="sold_out", message=message, retryable=False)
    made = validated(AdapterReply.model_construct(output=None, error=error))
    assert made.status == status
    assert "SECRET" not in made.error.message
