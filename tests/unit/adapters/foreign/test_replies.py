"""The error of a server is bounded, never empty, and can be written; that of a changed definition has ids only."""

from __future__ import annotations

import logging

import pytest

from contextos.adapters.foreign.drafting import drafted_capability
from contextos.adapters.foreign.replies import definition_drift, stated_error
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import MAX_SAID_CHARS, CapabilityDefinition
from tests.planted import planted

SAY = CapabilityDefinition.model_validate(
    drafted_capability("say", reads=False, leaves=True, input_schema={}, output_schema={}, description="")
    | {"cost_cents": 2}
)


def test_the_text_of_a_server_is_cut_and_can_be_written() -> None:
    reply = stated_error("tool_error", "e\ud800" * MAX_SAID_CHARS, SAY)
    assert reply.error is not None
    assert (len(reply.error.message), reply.error.code, reply.cost_cents) == (MAX_SAID_CHARS, "tool_error", 2)
    canonical(reply.to_json())


def test_a_server_that_gives_no_reason_is_quoted_as_such() -> None:
    reply = stated_error("tool_error", "", SAY)
    assert reply.error is not None
    assert reply.error.message == "the server gives no reason"


def test_no_secret_is_cut_in_two() -> None:
    secret = planted()["aws access key"].secret
    reply = stated_error("tool_error", f"{'x ' * (MAX_SAID_CHARS // 2 - 8)}{secret}", SAY)
    assert reply.error is not None
    assert secret[:12] not in reply.error.message


def test_a_changed_definition_says_that_nothing_was_sent_and_how_to_go_on(caplog: pytest.LogCaptureFixture) -> None:
    error = definition_drift("lab.say", "a2a").error
    assert error is not None
    assert (error.code, error.retryable, "nothing was sent" in error.message) == ("definition_drift", False, True)
    assert "`contextos adapters add a2a`" in str(error.remedy)
    [record] = caplog.records
    assert (record.levelno, record.__dict__["capability"]) == (logging.WARNING, "lab.say")
