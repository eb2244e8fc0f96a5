"""The errors that end a call of a foreign server: what it states itself, and that its definition changed.

The text of a server is bounded, and can be written as UTF-8.
"""

from __future__ import annotations

import logging
from typing import Final

from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.tool import DEFINITION_DRIFT, AdapterReply, CapabilityDefinition, ToolError

MAX_SAID_CHARS: Final = 2_000

_LOG: Final = logging.getLogger("contextos.adapters")


def stated_error(code: str, text: str, declared: CapabilityDefinition) -> AdapterReply:
    """Return the business error that a server stated. The caller has redacted `text`."""
    said = shortened(text, MAX_SAID_CHARS) or "the server gives no reason"
    return AdapterReply(error=ToolError(code=code, message=said), cost_cents=declared.cost_cents)


def definition_drift(capability_id: str, kind: str) -> AdapterReply:
    """Return the business error of a call that was not sent, because the definition is not the published one; log it.

    It has no text of the server. `kind` is the kind of the adapter file. The Tool Gateway keeps the quarantine.
    """
    _LOG.warning("the definition of a capability changed", extra={"capability": capability_id})
    error = ToolError(
        code=DEFINITION_DRIFT,
        message=f"the server does not list `{capability_id}` as it was published; nothing was sent",
        remedy=f"draft the adapter again with `contextos adapters add {kind}`, review the change, and publish it",
    )
    return AdapterReply(error=error, cost_cents=0)
