"""The error of a server is bounded, never empty, and can be written."""

from __future__ import annotations

from contextos.adapters.foreign.drafting import drafted_capability
from contextos.adapters.foreign.replies import MAX_SAID_CHARS, stated_error
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import CapabilityDefinition

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
