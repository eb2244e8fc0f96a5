"""The error that a foreign server states, as a reply: its text is bounded, and can be written as UTF-8."""

from __future__ import annotations

from typing import Final

from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.tool import AdapterReply, CapabilityDefinition, ToolError

MAX_SAID_CHARS: Final = 2_000


def stated_error(code: str, text: str, declared: CapabilityDefinition) -> AdapterReply:
    """Return the business error that a server stated. The caller has redacted `text`."""
    said = shortened(text, MAX_SAID_CHARS).encode(errors="replace").decode() or "the server gives no reason"
    return AdapterReply(error=ToolError(code=code, message=said), cost_cents=declared.cost_cents)
