"""Turn whatever a provider of models does into a `ModelReply` that fits into the journal: a provider is foreign code.

It can raise anything, answer something that is not a reply, or state impossible usage. An answer that cannot be
recorded unchanged is `malformed`. Usage that is not believed counts as unknown, so the reserved cost is settled. A
server can repeat the key that it was sent, so the key is redacted from everything that the server states.
Source: docs/design/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from struct import pack, unpack
from types import TracebackType
from typing import Any, Final, get_args

from contextos.action.foreign_code import ReportFault
from contextos.action.secret_redactor import SecretRedactor
from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, check_size, own_copy
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.secret_shapes import without_secrets
from contextos.contracts.envelopes.models import TOKEN_KINDS, ModelOutcome, ModelProfile
from contextos.contracts.model import MAX_NAME_CHARS, MAX_TEXT_CHARS
from contextos.contracts.ports.models import (
    MAX_PROPOSED_CALLS,
    MAX_USAGE_COUNT,
    ModelCall,
    ModelProvider,
    ModelReply,
    ModelUsage,
    OnText,
    Vector,
)
from contextos.contracts.ports.models import ProposedCall as Proposed
from contextos.errors import InvalidInput

MAX_REPORTED_BYTES: Final = 16_384
"""The most bytes of a provider's own object of usage that are kept."""
MAX_RETRY_MS: Final = 86_400_000
MAX_FLOAT32: Final = (2 - 2**-23) * 2.0**127
MAX_STATED_CHARS: Final = 8_000
_CALL_ID: Final = re.compile(r"[!-~]{0,256}")
"""The permitted form of a tool call's id, which becomes a part of keys in the journal."""
_Redact = Callable[[Any], Any]
"""Returns a JSON value without the key of a call."""
_OUTCOMES: Final[frozenset[Any]] = frozenset(get_args(ModelOutcome))


class _Caught(AbstractContextManager[None]):
    """A context manager that ends a block of foreign code at any exception and keeps the exception in `error`."""

    error: BaseException | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return kind is not None and issubclass(kind, Exception)


async def provider_reply(
    provider: ModelProvider, call: ModelCall, on_text: OnText | None, report: Callable[[BaseException], None]
) -> ModelReply:
    """Call a provider once; return a reply that is safe to record. `report` gets each exception but `InvalidInput`."""
    reply: object = None
    redact = SecretRedactor(() if call.key is None else (call.key,)).redact
    with (caught := _Caught()):
        reply = await provider.complete(_own(call), on_text)
    if caught.error is None:
        return _checked(reply, call, redact)
    if type(caught.error) is InvalidInput:
        return ModelReply("rejected", billed=False, detail=_stated(str(caught.error.problems[0]), redact))
    report(caught.error)
    return ModelReply("unavailable", detail=f"its provider has a defect: it raised `{type(caught.error).__name__}`")


def _own(call: ModelCall) -> ModelCall:
    """Return the call with copies of its objects: a provider can change its arguments, and the run uses them again."""
    schema = call.output_schema
    return replace(
        call,
        profile=call.profile.model_copy(deep=True),
        messages=tuple(replace(one, calls=tuple(map(_own_call, one.calls))) for one in call.messages),
        tools=tuple(replace(one, input_schema=own_copy(dict(one.input_schema))) for one in call.tools),
        output_schema=None if schema is None else own_copy(dict(schema)),
        headers=dict(call.headers),
    )


def _own_call(made: Proposed) -> Proposed:
    return replace(made, args=own_copy(dict(made.args)))


def reporter(report: ReportFault, tenant: str, profile: ModelProfile) -> Callable[[BaseException], None]:
    """Return a function that reports an exception of a provider with the tenant and the profile that was called."""

    def reported(error: BaseException) -> None:
        # A handler of the embedding application is foreign code too.
        with suppress(Exception):
            report(error, {"tenant": tenant, "profile": profile.pin})

    return reported


def _checked(reply: object, call: ModelCall, redact: _Redact) -> ModelReply:
    checked = ModelReply("malformed", detail=f"its provider answered a `{type(reply).__name__}`, not a reply")
    if not isinstance(reply, ModelReply):
        return checked
    usage = None
    with _Caught():
        usage = _usage(reply.usage, redact)
    checked = ModelReply("malformed", usage=usage, detail="its answer cannot be on record")
    with _Caught():
        checked = _as_recorded(reply, usage, call, redact)
    return checked


def _as_recorded(reply: ModelReply, usage: ModelUsage | None, call: ModelCall, redact: _Redact) -> ModelReply:
    said = {"model": reply.model, "reply_id": reply.reply_id, "detail": reply.detail}
    stated = {name: _stated(text, redact) for name, text in said.items()}
    retry = reply.retry_after_ms if type(reply.retry_after_ms) is int else 0
    outcome, text, calls, fault = reply.outcome, "", tuple[Proposed, ...](), ""
    vectors = tuple[Vector, ...]()
    if outcome not in _OUTCOMES:
        outcome, fault = "malformed", "its outcome is not one of the protocol"
    elif outcome == "answered" and call.texts:
        vectors = tuple(map(tuple, reply.vectors))
        fault = _vector_fault(vectors, call)
        if not fault:
            # One value: the caller gets the numbers of which the digest is on record.
            vectors = tuple(unpack(f"<{len(one)}f", pack(f"<{len(one)}f", *one)) for one in vectors)
            if not all(map(any, vectors)):
                fault = "one of its vectors has no direction: each of its numbers is 0 in float32"
    elif outcome == "answered":
        text, calls = reply.text, tuple(reply.calls)
        fault = _fault(text, calls)
        if not fault:
            text, calls = redact(text), tuple(_redacted(one, redact) for one in calls)
            # Redaction can make a text longer.
            fault = _fault(text, calls)
    if fault:
        outcome, text, calls, stated = "malformed", "", (), {**stated, "detail": fault}
        vectors = ()
    return ModelReply(
        outcome,
        text,
        calls,
        usage=usage,
        billed=reply.billed is not False,
        retry_after_ms=min(max(retry, 0), MAX_RETRY_MS),
        vectors=vectors,
        **stated,
    )


def _redacted(made: Proposed, redact: _Redact) -> Proposed:
    return Proposed(redact(made.call_id), redact(made.tool), redact(own_copy(dict(made.args))))


def _fault(text: object, calls: tuple[Proposed, ...]) -> str:
    """Return why an answer cannot be recorded, or an empty text. Raises if the answer cannot even be read."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        return f"its text is not a text of at most {MAX_TEXT_CHARS} characters"
    if len(calls) > MAX_PROPOSED_CALLS:
        return f"it calls {len(calls)} tools at once, and {MAX_PROPOSED_CALLS} are the most"
    for one in calls:
        if not isinstance(one.call_id, str) or not _CALL_ID.fullmatch(one.call_id):
            return "the id of a call of a tool is not a text of printable ASCII"
        if not isinstance(one.tool, str) or len(one.tool) > MAX_NAME_CHARS:
            return f"the name of a tool is not a text of at most {MAX_NAME_CHARS} characters"
        if not isinstance(one.args, Mapping):
            return "the arguments of a call of a tool are not an object"
    raw = canonical([text, *([one.call_id, one.tool, dict(one.args)] for one in calls)])
    if len(raw) > MAX_BYTES:
        return f"it has more than {MAX_BYTES} bytes"
    check_size(raw, MAX_DEPTH, MAX_NODES)
    return ""


def _vector_fault(vectors: tuple[Vector, ...], call: ModelCall) -> str:
    """Return why vectors do not fit the texts of a call, or an empty text if they do."""
    size = call.profile.dimensions
    if len(vectors) != len(call.texts):
        return f"it has {len(vectors)} vectors, and {len(call.texts)} texts were sent"
    if any(len(one) != size for one in vectors):
        return f"one of its vectors has not {size} numbers, which are the `dimensions` of its profile"
    # NaN is refused too: no comparison with it is true.
    if not all(type(number) is float and abs(number) <= MAX_FLOAT32 for one in vectors for number in one):
        return "one of its vectors has a number that float32 cannot hold"
    return ""


def _usage(usage: object, redact: _Redact) -> ModelUsage | None:
    """Return the stated usage if it is believed, or None. The counts must be whole numbers of known kinds, with counts
    of the prompt (`input`) and the answer (`output`), and the tier must be a short text.
    """
    if not isinstance(usage, ModelUsage) or not isinstance(usage.tier, str) or len(usage.tier) > MAX_NAME_CHARS:
        return None
    counts = dict(usage.counts)
    if not {"input", "output"} <= counts.keys():
        return None
    for kind, count in counts.items():
        if kind not in TOKEN_KINDS or type(count) is not int or not 0 <= count <= MAX_USAGE_COUNT:
            return None
    reported: Any = {}
    with _Caught():
        raw = canonical(dict(usage.reported))
        check_size(raw, MAX_DEPTH, MAX_NODES)
        kept = redact(own_copy(dict(usage.reported))) if len(raw) <= MAX_REPORTED_BYTES else {}
        reported = kept if len(canonical(kept)) <= MAX_REPORTED_BYTES else {}
    return ModelUsage(counts, redact(usage.tier.encode(errors="replace").decode())[:MAX_NAME_CHARS], reported)


def _stated(text: object, redact: _Redact) -> str:
    """Return a text that a provider states beside its answer: redacted before it is cut, so no secret is halved."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        return ""
    return without_secrets(redact(text.encode(errors="replace").decode()))[:MAX_STATED_CHARS]
