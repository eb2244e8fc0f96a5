"""The transport of the official SDKs of model providers: it sends one request for each call, over `OutboundClient`.

An SDK gets `ModelTransport` and no network of its own. It sends one request for a call and never a second one, and no
redirect is followed. Nothing that the SDK reads from the environment is sent. Of its headers only `Accept` and
`Content-Type` go out, with the headers of the protocol and of the call; the URL and the key are those of the call. The
SDK sees an answer only if it has the status 200 and the expected media type. `exchange` reports any other answer.

The time limit of the call covers all of it. While a call is made, the SDKs write nothing to logs.
Source: RFC 9110 (statuses, `Retry-After`); docs/design/models.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2
import orjson

from contextos.adapters.outbound import AnswerTooLarge, OutboundClient, OutboundRequest, OutboundStream
from contextos.contracts.envelopes.models import ModelOutcome
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, ProposedCall
from contextos.errors import ContextOSError, InvalidInput, Problem, Unavailable

MAX_REFUSAL_BYTES: Final = 65_536
"""The number of bytes after which the body of a refusal is not read further."""
ANSWER_BYTES: Final = 4_194_304
TOKEN_BYTES: Final = 512
NUMBER_BYTES: Final = 32
"""The limit of an answer is `ANSWER_BYTES`, with `TOKEN_BYTES` for each token and `NUMBER_BYTES` for each number."""
MAX_RETRY_AFTER_MS: Final = 86_400_000
MAX_STATED_NAME_CHARS: Final = 256
"""The most characters of a model's name and of an answer's id. A longer one is left out."""
_GRACE_S: Final = 1.0
"""The connection times out this much later than the call, so that the time limit of the call is reported."""

_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_SDK_HEADERS: Final = frozenset({"accept", "content-type"})
_LOGGERS: Final = ("openai._base_client", "openai._response", "anthropic._base_client", "anthropic._response", "httpx2")

_NO_HEADERS: Final[Mapping[str, str]] = {}
_OUTCOMES_BY_STATUS: Final[Mapping[int, tuple[ModelOutcome, bool, str]]] = {
    401: ("unauthorized", False, "the key is missing or wrong"),
    403: ("unauthorized", False, "the key has no right to this"),
    404: ("unknown_model", False, "there is no such model, or the endpoint is wrong"),
    408: ("unavailable", False, "it did not get the request in time"),
    409: ("unavailable", False, "another request is in the way"),
    410: ("unknown_model", False, "the model was retired"),
    413: ("too_large", False, "the request is too large"),
    429: ("overloaded", False, "it accepts no more calls now"),
    503: ("unavailable", False, "it is not available now"),
    529: ("overloaded", False, "it accepts no more calls now"),
}
"""By the HTTP status of an answer: the outcome, whether the call can be billed, and the text of the detail."""
_DETAILS: Final[Mapping[ModelOutcome, str]] = {
    "refused": "a filter of the provider declined",
    "overloaded": "it accepts no more calls now",
    "unavailable": "it failed",
    "rejected": "it says that the request is wrong",
    "too_large": "the prompt does not fit its context",
    "unauthorized": "the key is missing or wrong, or has no right to this",
    "unknown_model": "there is no such model",
}


class NotTheProtocol(ValueError):
    """The answer does not follow the protocol. The message is a sentence that quotes nothing of the answer."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """The facts about an SDK and its protocol that `exchange` needs.

    `errors` are the exceptions of the SDK. `outcome_of` returns the outcome that the JSON object of an error states,
    from the body of a refusal or from an event; None if the object states none.
    """

    errors: tuple[type[Exception], ...]
    outcome_of: Callable[[Mapping[str, Any]], ModelOutcome | None]


@dataclass(slots=True)
class Answer:
    """The state of an answer while it is read. The reader of a protocol fills it.

    `usage` is the usage of the whole answer, so it is set when the answer has ended and not before.
    """

    on_text: OnText | None
    model: str = ""
    reply_id: str = ""
    usage: ModelUsage | None = None
    usage_fault: str = ""
    began: Callable[[], None] = field(default=lambda: None)
    """Called when the first piece arrives. More calls do no harm."""

    def named(self, model: object, reply_id: object) -> None:
        """Keep the provider's name of its model and its id of this answer, each only if it is a valid name."""
        self.model, self.reply_id = _valid_name(model) or self.model, _valid_name(reply_id) or self.reply_id

    def hand_on(self, piece: str) -> None:
        """Hand a piece of text on. Raises `UnicodeEncodeError` if it is not valid Unicode text."""
        piece.encode()
        self.began()
        if self.on_text is not None and piece:
            self.on_text(piece)

    def answered(self, text: str, calls: tuple[ProposedCall, ...]) -> ModelReply:
        """Return the reply of a whole answer. An answer without text and without calls is `malformed`."""
        if not text and not calls:
            return self.ended("malformed", "the answer is empty")
        text.encode()
        fields = (self.model, self.reply_id, self.usage)
        return ModelReply("answered", text, calls, *fields, detail=self.usage_fault)

    def ended(self, outcome: ModelOutcome, detail: str, *, billed: bool = True, retry_after_ms: int = 0) -> ModelReply:
        """Return the reply of a call that has no answer."""
        fields = (self.model, self.reply_id, self.usage)
        return ModelReply(outcome, "", (), *fields, billed=billed, retry_after_ms=retry_after_ms, detail=detail)


Read = Callable[[Answer], Awaitable[ModelReply]]
"""Sends the request by an SDK and reads its answer, piece by piece where it is streamed."""


async def exchange(
    client: OutboundClient,
    call: ModelCall,
    sdk: Sdk,
    read: Read,
    *,
    path: str,
    headers: Mapping[str, str] = _NO_HEADERS,
    on_text: OnText | None = None,
) -> ModelReply:
    """Make one call by an SDK that has a `ModelTransport`, and return its reply, also if the call failed.

    `path` is added to the endpoint of the profile. `headers` are the headers of the protocol, with names in lower case.
    The key goes out as a bearer token, which all of these providers and Azure take.

    Raises:
        InvalidInput: the endpoint is not allowed, or a header cannot be sent; nothing was sent.
    """
    answer, sending = Answer(on_text), _Sending(client, call, path, headers)
    failures: tuple[type[Exception], ...] = (*sdk.errors, httpx2.HTTPError, ValueError, RecursionError)
    token = _SENDING.set(sending)
    loop = asyncio.get_running_loop()
    end = loop.time() + call.timeout_ms / 1000
    first = min(end, loop.time() + call.first_token_ms / 1000) if streams(call) else end
    try:
        async with asyncio.timeout_at(first) as limit:
            answer.began = lambda: None if limit.expired() else limit.reschedule(end)
            return await read(answer)
    except TimeoutError:
        waited = f"more than {call.timeout_ms} ms" if limit.when() == end else f"no piece in {call.first_token_ms} ms"
        return answer.ended("timed_out", f"the answer took {waited}", billed=sending.sent)
    except failures as error:
        return sending.outcome(answer, sdk, error)
    finally:
        _SENDING.reset(token)
        await sending.aclose()


def parameters(call: ModelCall, known: Mapping[str, Callable[[object], Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the parameters of sampling of a profile as a protocol spells them.

    Raises:
        InvalidInput: the protocol has no such parameter, or the runtime states it.
    """
    fields = dict[str, Any]()
    for name, value in call.profile.parameters.items():
        if name not in known:
            detail = f"the wire `{call.profile.wire}` has no parameter `{name}`"
            raise InvalidInput(
                Problem(f"/parameters/{name}", "unknown_parameter", detail, f"use one of {', '.join(sorted(known))}")
            )
        fields |= known[name](value)
    return fields


def request_json(body: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request.

    Raises:
        InvalidInput: the request has something that JSON cannot express.
    """
    try:
        return orjson.dumps(body, default=dict)
    except TypeError:
        detail = "the call has half a character, a number that is too large, or a value that is not JSON"
        raise InvalidInput(Problem("/messages", "not_json", detail, "send what JSON can express")) from None


def sdk_arguments() -> dict[str, Any]:
    """Return the arguments with which every SDK is made. Its HTTP client sends with a `ModelTransport`, and it sends
    nothing twice.
    """
    http = httpx2.AsyncClient(transport=ModelTransport(), trust_env=False, follow_redirects=False, timeout=None)
    address = "https://endpoint.invalid"
    return {"api_key": "not-sent", "base_url": address, "max_retries": 0, "timeout": None, "http_client": http}


def streams(call: ModelCall) -> bool:
    """Return whether the answer of a call is streamed."""
    return "streaming" in call.profile.capabilities


class ModelTransport(httpx2.AsyncBaseTransport):
    """The transport of an SDK. It sends a request for the `exchange` that made it; one transport serves all calls."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await _SENDING.get().send(request)


class _Sending:
    """The one request of a call, and its answer as HTTP."""

    def __init__(self, client: OutboundClient, call: ModelCall, path: str, headers: Mapping[str, str]) -> None:
        self._client, self._call, self._path, self._headers = client, call, path, headers
        self._stream: OutboundStream | None = None
        self._is_open = self._is_answer = False
        self._failure: ContextOSError | None = None
        self._refusal: bytes | None = None

    @property
    def sent(self) -> bool:
        return self._stream is not None and self._stream.sent

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        assert self._stream is None, "a call is sent once"
        call = self._call
        headers = {name.lower(): value for name, value in call.headers.items()}
        headers |= {name: value for name, value in request.headers.items() if name in _SDK_HEADERS}
        headers.update(self._headers, **({} if call.key is None else {"authorization": f"Bearer {call.key}"}))
        url = call.profile.endpoint.rstrip("/") + self._path
        outbound = OutboundRequest("POST", url, headers, await request.aread())
        try:
            self._stream = self._client.stream(
                outbound,
                egress=call.egress,
                timeout_s=call.timeout_ms / 1000 + _GRACE_S,
                max_bytes=ANSWER_BYTES
                + TOKEN_BYTES * call.max_output_tokens
                + NUMBER_BYTES * len(call.texts) * (call.profile.dimensions or 0),
            )
            await self._stream.__aenter__()
        except ContextOSError as failure:
            self._failure = failure
            raise httpx2.ConnectError("the request failed") from None
        self._is_open = True
        kind = self._stream.headers.get("content-type", "").partition(";")[0].strip().lower()
        expected = kind == "text/event-stream" if streams(call) else kind.endswith("json")
        if self._stream.status != 200 or not expected:
            self._refusal = await _head_of_body(self._stream)
            raise httpx2.ReadError("this is not an answer")
        self._is_answer = True
        return httpx2.Response(200, headers={"content-type": kind}, stream=_Body(self))

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        assert self._stream is not None, "there is an answer"
        try:
            async for part in self._stream:
                yield part
        except ContextOSError as failure:
            self._failure = failure
            raise httpx2.ReadError("the answer ended before its end") from None

    async def aclose(self) -> None:
        """End the connection, if it is open."""
        if self._stream is not None and self._is_open:
            self._is_open = False
            await self._stream.__aexit__()

    def outcome(self, answer: Answer, sdk: Sdk, error: Exception) -> ModelReply:
        """Return the reply of a call that ended with an error in the SDK or in the reader of its answer.

        Raises:
            InvalidInput: the request is not allowed; nothing was sent.
        """
        if isinstance(self._failure, InvalidInput):
            raise self._failure
        if isinstance(self._failure, AnswerTooLarge):
            return answer.ended("malformed", "the answer is larger than one with its most tokens can be")
        if isinstance(self._failure, Unavailable):
            return answer.ended("unavailable", self._failure.detail, billed=False)
        if self._failure is not None:
            outcome: ModelOutcome = "cut" if self._is_answer else "unavailable"
            return answer.ended(outcome, "the connection was lost before the end of the answer")
        if self._refusal is not None:
            return self._refusal_reply(answer, sdk, self._refusal)
        if isinstance(error, sdk.errors):
            event = getattr(error, "body", None)
            outcome = (sdk.outcome_of(event) if isinstance(event, Mapping) else None) or "unavailable"
            return answer.ended(outcome, f"it sent an error instead of an answer: {_DETAILS.get(outcome, 'it failed')}")
        detail = str(error) if isinstance(error, NotTheProtocol) else "what came is not JSON text in events"
        return answer.ended("malformed", detail)

    def _refusal_reply(self, answer: Answer, sdk: Sdk, body: bytes) -> ModelReply:
        """Return the reply for an HTTP answer that is not an answer of a model: by the outcome that its body states, or
        else by its status.
        """
        assert self._stream is not None, "there is an answer"
        status, headers = self._stream.status, self._stream.headers
        stated_outcome = sdk.outcome_of(body_value) if isinstance(body_value := _json(body), Mapping) else None
        if status < 300:
            detail = f"it answers {status} with something that is not an answer of a model"
            return answer.ended(stated_outcome or "malformed", detail)
        if status < 400:
            return answer.ended("rejected", f"it answers {status}, and no redirect is followed", billed=False)
        default: tuple[ModelOutcome, bool, str] = (
            ("unavailable", True, "it failed") if status >= 500 else ("rejected", False, _DETAILS["rejected"])
        )
        outcome, billed, text = _OUTCOMES_BY_STATUS.get(status, default)
        if stated_outcome is not None and stated_outcome != outcome:
            outcome, text = stated_outcome, _DETAILS.get(stated_outcome, text)
        wait = _retry_after_ms(headers) if outcome in ("overloaded", "unavailable") else 0
        return answer.ended(outcome, f"it answers {status}: {text}", billed=billed, retry_after_ms=wait)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer for the SDK."""

    def __init__(self, sending: _Sending) -> None:
        self._sending = sending

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._sending.parts()

    async def aclose(self) -> None:
        await self._sending.aclose()


async def _head_of_body(stream: OutboundStream) -> bytes:
    """Return the beginning of the body of a refusal, until it ends, breaks off or has `MAX_REFUSAL_BYTES`."""
    body = bytearray()
    with suppress(ContextOSError):
        async for part in stream:
            body += part
            if len(body) > MAX_REFUSAL_BYTES:
                break
    return bytes(body)


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _valid_name(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= MAX_STATED_NAME_CHARS and value.isprintable() else ""


def _retry_after_ms(headers: Mapping[str, str]) -> int:
    """Return how long a provider says to wait, in milliseconds; 0 where it does not say.

    A moment is compared with the clock of the provider itself.
    """
    text = headers.get("retry-after", "")
    ms = _number(headers.get("retry-after-ms", ""))
    if ms is None and (seconds := _number(text)) is not None:
        ms = seconds * 1000
    if ms is None and text and "date" in headers:
        try:
            ms = (parsedate_to_datetime(text) - parsedate_to_datetime(headers["date"])).total_seconds() * 1000
        except (ValueError, TypeError):
            ms = None
    return min(max(0, math.ceil(ms)), MAX_RETRY_AFTER_MS) if ms is not None else 0


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


_SENDING: Final[ContextVar[_Sending]] = ContextVar("model_sending")
for _name_of_logger in _LOGGERS:
    # On the level DEBUG some releases print what is asked and what comes.
    logging.getLogger(_name_of_logger).addFilter(lambda _record: _SENDING.get(None) is None)
