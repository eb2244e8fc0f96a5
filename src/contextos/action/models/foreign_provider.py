"""Turn whatever a provider of models does into a `ModelReply` that fits into the journal: a provider is foreign code.

It can raise anything, answer something that is not a reply, or state impossible usage. An answer that cannot be
recorded unchanged is `malformed`. Usage that is not believed counts as unknown, so the reserved cost is settled. A
server can repeat the key that it was sent, so the key is redacted from everything that the server states.
Source: docs/design/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from struct import pack, unpack
from types import TracebackType
from typing import Any, Final, get_args

from orjson import loads

from contextos.action.foreign_code import ReportFault
from contextos.action.secret_redactor import SecretRedactor
from contextos.contracts.encoding.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, check_size, own_copy
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.secret_shapes import without_secrets
from contextos.contracts.envelopes.models import TOKEN_KINDS, ModelOutcome, ModelProfile
from contextos.contracts.model import MAX_NAME_CHARS, MAX_TEXT_CHARS, changed
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
    redact = _redactor(call.key).redact
    with (caught := _Caught()):
        reply = await provider.complete(_copy_call(call), on_text)
    if caught.error is None:
        return _check_reply(reply, call, redact)
    if type(caught.error) is InvalidInput:
        (detail,) = _redacted_texts([str(caught.error.problems[0])], redact)
        return ModelReply("rejected", billed=False, detail=detail)
    report(caught.error)
    return ModelReply("unavailable", detail=f"its provider has a defect: it raised `{type(caught.error).__name__}`")


@lru_cache(maxsize=64)
def _redactor(key: str | None) -> SecretRedactor:
    """Return the redactor of a key, cached: the forms of a key take longer to make than to look for."""
    return SecretRedactor(() if key is None else (key,))


def _copy_call(call: ModelCall) -> ModelCall:
    """Return the call with copies of its objects: a provider can change its arguments, and the run uses them again."""
    schema = call.output_schema
    return changed(
        call,
        profile=call.profile.model_copy(deep=True),
        messages=tuple(changed(message, calls=tuple(map(_copy_proposed, message.calls))) for message in call.messages),
        tools=tuple(changed(tool, input_schema=own_copy(dict(tool.input_schema))) for tool in call.tools),
        output_schema=None if schema is None else own_copy(dict(schema)),
        headers=dict(call.headers),
    )


def _copy_proposed(proposed: Proposed) -> Proposed:
    return changed(proposed, args=own_copy(dict(proposed.args)))


def reporter(report: ReportFault, tenant: str, profile: ModelProfile) -> Callable[[BaseException], None]:
    """Return a function that reports an exception of a provider with the tenant and the profile that was called."""

    def report_fault(error: BaseException) -> None:
        # A handler of the embedding application is foreign code too.
        with suppress(Exception):
            report(error, {"tenant": tenant, "profile": profile.pin})

    return report_fault


def _check_reply(reply: object, call: ModelCall, redact: _Redact) -> ModelReply:
    checked = ModelReply("malformed", detail=f"its provider answered a `{type(reply).__name__}`, not a reply")
    if not isinstance(reply, ModelReply):
        return checked
    usage = None
    with _Caught():
        usage = _believed_usage(reply.usage, redact)
    checked = ModelReply("malformed", usage=usage, detail="its answer cannot be on record")
    with _Caught():
        checked = _recordable_reply(reply, usage, call, redact)
    return checked


def _recordable_reply(reply: ModelReply, usage: ModelUsage | None, call: ModelCall, redact: _Redact) -> ModelReply:
    model, reply_id, detail = _redacted_texts((reply.model, reply.reply_id, reply.detail), redact)
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
            vectors = tuple(unpack(f"<{len(vector)}f", pack(f"<{len(vector)}f", *vector)) for vector in vectors)
            if not all(map(any, vectors)):
                fault = "one of its vectors has no direction: each of its numbers is 0 in float32"
    elif outcome == "answered":
        original = reply.text, tuple(reply.calls)
        fault, text, calls = _answer_copy(*original, redact)
        if not fault and (text, calls) != original:
            # Redaction can make a text longer.
            fault, text, calls = _answer_copy(text, calls, redact)
    if fault:
        outcome, text, calls, vectors, detail = "malformed", "", (), (), fault
    return ModelReply(
        outcome,
        text,
        calls,
        model=model,
        reply_id=reply_id,
        usage=usage,
        billed=reply.billed is not False,
        retry_after_ms=min(max(retry, 0), MAX_RETRY_MS),
        detail=detail,
        vectors=vectors,
    )


def _answer_copy(text: str, calls: tuple[Proposed, ...], redact: _Redact) -> tuple[str, str, tuple[Proposed, ...]]:
    """Return ("", text, calls) of an answer as copies without the key, or (why it cannot be recorded, "", ()). Raises
    if the answer cannot even be read.
    """
    if fault := _answer_fault(text, calls):
        return fault, "", ()
    bodies = ({"args": dict(call.args), "call_id": call.call_id, "tool": call.tool} for call in calls)
    raw = canonical({"text": text, **{str(index): body for index, body in enumerate(bodies)}})
    if len(raw) > MAX_BYTES:
        return f"it has more than {MAX_BYTES} bytes", "", ()
    check_size(raw, MAX_DEPTH, MAX_NODES)
    # One value, so that one look finds whether the key is in it. A name of a member could be the key.
    document = loads(raw)
    redacted = dict(zip(document, redact(document).values(), strict=True))
    fields = (tuple(redacted[str(index)].values()) for index in range(len(calls)))
    return "", redacted["text"], tuple(Proposed(call_id, tool, args) for args, call_id, tool in fields)


def _answer_fault(text: object, calls: tuple[Proposed, ...]) -> str:
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        return f"its text is not a text of at most {MAX_TEXT_CHARS} characters"
    if len(calls) > MAX_PROPOSED_CALLS:
        return f"it calls {len(calls)} tools at once, and {MAX_PROPOSED_CALLS} are the most"
    for call in calls:
        if not isinstance(call.call_id, str) or not _CALL_ID.fullmatch(call.call_id):
            return "the id of a call of a tool is not a text of printable ASCII"
        if not isinstance(call.tool, str) or len(call.tool) > MAX_NAME_CHARS:
            return f"the name of a tool is not a text of at most {MAX_NAME_CHARS} characters"
        if not isinstance(call.args, Mapping):
            return "the arguments of a call of a tool are not an object"
    return ""


def _vector_fault(vectors: tuple[Vector, ...], call: ModelCall) -> str:
    """Return why vectors do not fit the texts of a call, or an empty text if they do."""
    size = call.profile.dimensions
    if len(vectors) != len(call.texts):
        return f"it has {len(vectors)} vectors, and {len(call.texts)} texts were sent"
    if any(len(vector) != size for vector in vectors):
        return f"one of its vectors has not {size} numbers, which are the `dimensions` of its profile"
    # NaN is refused too: no comparison with it is true.
    if not all(type(number) is float and abs(number) <= MAX_FLOAT32 for vector in vectors for number in vector):
        return "one of its vectors has a number that float32 cannot hold"
    return ""


def _believed_usage(usage: object, redact: _Redact) -> ModelUsage | None:
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
        if len(raw) <= MAX_REPORTED_BYTES:
            document = loads(raw)
            redacted = redact(document)
            reported = redacted if redacted == document or len(canonical(redacted)) <= MAX_REPORTED_BYTES else {}
    tier = redact(usage.tier.encode(errors="replace").decode())[:MAX_NAME_CHARS] if usage.tier else ""
    return ModelUsage(counts, tier, reported)


def _redacted_texts(texts: Iterable[object], redact: _Redact) -> Iterator[str]:
    """Yield each text that a provider states beside its answer, or "" for what is not a text. A text is redacted before
    it is cut, so no secret is halved.
    """
    valid = (text if isinstance(text, str) and len(text) <= MAX_TEXT_CHARS else "" for text in texts)
    redacted = redact({str(index): text.encode(errors="replace").decode() for index, text in enumerate(valid)})
    return (without_secrets(text)[:MAX_STATED_CHARS] if text else "" for text in redacted.values())
