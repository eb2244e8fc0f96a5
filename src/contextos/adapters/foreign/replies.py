"""Makes the replies that end a call of a foreign server with an error: the server stated one, a definition changed, or
the answer cannot be used.

The text of a server is bounded, and can be written as UTF-8.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

from contextos.contracts.encoding.secret_shapes import shortened
from contextos.contracts.envelopes.artifacts import ToolArtifact
from contextos.contracts.envelopes.tool import (
    DEFINITION_DRIFT,
    MAX_SAID_CHARS,
    AdapterReply,
    CapabilityDefinition,
    ToolError,
)
from contextos.contracts.model import MAX_NAME_CHARS
from contextos.errors import LostReply, Problem, Unavailable

_QUOTED_VALUE: Final = re.compile(r"^`[^`]*` ")
_LOG: Final = logging.getLogger("contextos.adapters")


def stated_error(code: str, text: str, declared: CapabilityDefinition) -> AdapterReply:
    """Return the business error that a server stated. The caller has redacted `text`."""
    message = shortened(text, MAX_SAID_CHARS) or "the server gives no reason"
    return AdapterReply(error=ToolError(code=code, message=message), cost_cents=declared.cost_cents)


def paused_task(code: str, text: str, declared: CapabilityDefinition) -> AdapterReply:
    """Return the reply of a read whose server waits for something before it goes on. `text` is the runtime's own."""
    return stated_error(code, text, declared).model_copy(update={"paused": True})


def artifact_of(name: Any, media_type: Any, content: Any, redact: Callable[[Any], Any], *, raw: bool) -> ToolArtifact:
    """Return an artifact that a server made beside its output, without the secrets of the connection. `raw`: its
    content is the base64 of bytes. Without a name from the server it is called `artifact`.
    """
    pair = [val if isinstance(val, str) and val else default for val, default in ((name, "artifact"), (media_type, ""))]
    label, kind = (shortened(text, MAX_NAME_CHARS) for text in redact(pair))
    kind = kind or ("application/octet-stream" if raw else "text/plain")
    encoding = {"encoding": "base64"} if raw else {}
    return ToolArtifact.model_validate({"name": label, "media_type": kind, "content": redact(content), **encoding})


def definition_drift(capability_id: str, kind: str) -> AdapterReply:
    """Return the business error of a call that was not sent because the definition has changed, and log it.

    The error has no text of the server. `kind` is the kind of the adapter file. The Tool Gateway keeps the quarantine.
    """
    _LOG.warning("the definition of a capability changed", extra={"capability": capability_id})
    error = ToolError(
        code=DEFINITION_DRIFT,
        message=f"the server does not list `{capability_id}` as it was published; nothing was sent",
        remedy=f"draft the adapter again with `contextos adapters add {kind}`, review the change, and publish it",
    )
    return AdapterReply(error=error, cost_cents=0)


def unreadable_answer(
    problem: Problem, declared: CapabilityDefinition, redact: Callable[[Any], Any], *, final: bool
) -> AdapterReply:
    """Return the reply of a call whose answer came and cannot be used. `problem` says why, and where in the answer.
    `final`: a write was done, whatever else the answer says; another attempt of a read would get the same answer.

    Raises:
        LostReply: a write that is not `final`: it may have happened.
        Unavailable: a read that is not `final`: another attempt can get a whole answer.
    """
    if not final and declared.kind == "write":
        reason = f"its answer cannot be read ({problem.code}); look before it is sent again"
        raise LostReply(f"`{declared.name}` may have happened: {reason}")
    if not final:
        raise Unavailable(declared.name, f"its answer cannot be read ({problem.code})")
    # The value itself is left out, because a pack can declare it secret.
    return withheld_answer(_QUOTED_VALUE.sub("the value ", problem.detail), redact(problem.pointer), declared)


def withheld_answer(detail: str, place: str, declared: CapabilityDefinition) -> AdapterReply:
    """Return the reply of a call that was made, and whose answer cannot be used because of `detail`. The tool chose the
    names in `place`, a JSON Pointer: it is left out if it is too long to be read or not UTF-8.
    """
    message = shortened(f"the answer cannot be taken: {detail}", MAX_SAID_CHARS)
    pointer = place if place and shortened(place, MAX_SAID_CHARS) == place else None
    withheld = ToolError(code="unsafe_output", message=message, pointer=pointer)
    return AdapterReply(withheld=withheld, cost_cents=declared.cost_cents)
