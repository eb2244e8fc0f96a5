"""Sends one request to the server that the program named, within time limits, and reads a bounded answer.

A request is repeated where a repeat has no second effect: a read, and a write with a name (`request_id`, `call_id`).
The waits grow, follow `Retry-After`, and their sum is limited. Any other request is sent once, and raises `LostReply`
where nobody knows whether it arrived.
Refuses redirects, proxies and cookies, and a connection without TLS to another machine: each would give the token away.
"""

from __future__ import annotations

import inspect
import re
import secrets
import ssl
from asyncio import sleep, timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from contextos.client.refusals import MAX_PROBLEM_BYTES, refusal_of
from contextos.contracts.encoding.codec import MAX_DEPTH, loads, problems_of
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.errors import ContextOSError, InvalidInput, LostReply, MalformedJson, Problem, Unavailable, UnfitAnswer
from contextos.service.views import JSON, PROBLEM_JSON

ModelT = TypeVar("ModelT", bound=BaseModel)
BearerToken = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that is called before each request and returns the current token."""

CONNECT_S: Final = 10
FIRST_PAUSE_S: Final = 0.25
MAX_PAUSE_S: Final = 8
"""The longest wait between two tries in seconds, if `Retry-After` does not ask for a longer one."""
MAX_API_ANSWER_BYTES: Final = 33_554_432
MAX_API_ANSWER_NODES: Final = 2_000_000
MAX_API_ANSWER_DEPTH: Final = MAX_DEPTH + 16
"""Deeper than `MAX_DEPTH`, because a document can hold a value that is itself `MAX_DEPTH` levels deep."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_TOKEN: Final = re.compile(r"[!-~]+")


class Sender:
    """Sends requests to the API at `url`. `timeout_s` limits one answer, from the lookup of the host to the last byte.
    `patience_s` limits the sum of the waits between the tries of one request.
    """

    def __init__(
        self, url: str, token: BearerToken, *, timeout_s: float, patience_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self._base, self._token = checked_url(url) + "/v1", token
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._http = httpx.AsyncClient(
            verify=True if tls is None else tls,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def document(
        self,
        model: type[ModelT],
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        repeats: bool = False,
        held_s: int = 0,
    ) -> ModelT:
        """Send a request and return the document of its answer. `repeats`: sending it again has no second effect.
        `held_s`: the server was asked to hold the request for this many seconds; they extend the time limit.

        Raises:
            ContextOSError: the server refused the request, with the class that it raised; or it does not answer
                (`Unavailable`, `LostReply`); or its answer is not one of the API (`UnfitAnswer`).
        """
        content = None if body is None else _encode_json(body)
        fields = {**(headers or {}), **({} if content is None else {"Content-Type": JSON})}
        is_repeatable, limit_s = repeats or method == "GET", self._timeout_s + held_s

        async def send_once() -> bytes:
            try:
                async with timeout(limit_s), self._open_answer(method, path, content, query, fields, limit_s) as answer:
                    _check_media_type(answer, JSON)
                    return await _read_body(answer, MAX_API_ANSWER_BYTES)
            except TimeoutError:
                raise LostReply(f"no whole answer came within {limit_s:g} s") from None

        return fitting_document(model, await self.again(send_once) if is_repeatable else await send_once())

    async def again(self, once: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the result of `once`; repeat it after `Unavailable` and `LostReply` as long as `Patience` allows."""
        patience = self.patience()
        while True:
            try:
                return await once()
            except (Unavailable, LostReply) as error:
                await patience.wait(error)

    def patience(self) -> Patience:
        """Return the patience for one request."""
        return Patience(self._patience_s)

    @asynccontextmanager
    async def stream(
        self, path: str, media_type: str, headers: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[httpx.Response]:
        """Open a stream, whose body the caller reads; an answer 204 has no body. Raises as `document`, and `LostReply`
        if the stream does not open within `timeout_s`, or is silent for `silence_s` seconds.
        """
        async with AsyncExitStack() as stack:
            request = self._open_answer("GET", path, None, None, {**headers, "Accept": media_type}, silence_s)
            try:
                async with timeout(self._timeout_s):
                    answer = await stack.enter_async_context(request)
            except TimeoutError:
                raise LostReply(f"no answer came within {self._timeout_s:g} s") from None
            if answer.status_code != 204:
                _check_media_type(answer, media_type)
            yield answer

    @asynccontextmanager
    async def _open_answer(
        self,
        method: str,
        path: str,
        content: bytes | None,
        query: Mapping[str, str | int] | None,
        headers: Mapping[str, str],
        limit_s: float,
    ) -> AsyncIterator[httpx.Response]:
        """Yield the answer to one request, before its body is read. Raise the error of a status that is not 2xx."""
        token = await self._current_token()
        fields = {"Accept": f"{JSON}, {PROBLEM_JSON}", **headers}
        fields |= {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        url, limit = self._base + path, httpx.Timeout(limit_s, connect=CONNECT_S)
        try:
            async with self._http.stream(
                method, url, params=query, content=content, headers=fields, timeout=limit
            ) as answer:
                if "content-encoding" in answer.headers:
                    raise UnfitAnswer("the server sent a compressed answer, which was not asked for")
                if not answer.is_success:
                    raise await _refusal(answer)
                yield answer
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unavailable("server", f"no connection ({type(error).__name__})") from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise LostReply(f"the connection ended without an answer ({type(error).__name__})") from None

    async def _current_token(self) -> str:
        value = self._token() if callable(self._token) else self._token
        token = await value if inspect.isawaitable(value) else value
        if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            detail = f"the token is not a bearer token: a text without spaces, of at most {MAX_TOKEN_CHARS} characters"
            raise InvalidInput(Problem("/token", "no_token", detail, "give the access token itself"))
        return token


class Patience:
    """Limits the repeats of a request: the waits grow, and their sum is at most `limit_s` seconds."""

    def __init__(self, limit_s: float) -> None:
        self._remaining_s = limit_s
        self._next_s = FIRST_PAUSE_S

    async def wait(self, error: Unavailable | LostReply) -> None:
        """Wait before the next try, at least for `Retry-After`. Raises `Unavailable` if the wait exceeds the limit."""
        wait_s = self._next_s
        if isinstance(error, Unavailable):
            wait_s = max(wait_s, error.retry_after_ms / 1_000)
        if wait_s > self._remaining_s:
            raise error if isinstance(error, Unavailable) else Unavailable("server", str(error))
        self._remaining_s -= wait_s
        self._next_s = min(2 * self._next_s, MAX_PAUSE_S)
        # Up to 250 ms more, so that clients that failed together do not come back together.
        await sleep(wait_s + secrets.randbelow(250) / 1_000)


def fitting_document(model: type[ModelT], value: Any) -> ModelT:
    """Return `value`, bytes or parsed JSON, as a `model`. A member that this version does not know is left out.

    Raises:
        UnfitAnswer: the value is not JSON or does not fit the model.
    """
    try:
        if isinstance(value, bytes):
            value = loads(
                value, max_bytes=MAX_API_ANSWER_BYTES, max_depth=MAX_API_ANSWER_DEPTH, max_nodes=MAX_API_ANSWER_NODES
            )
        return model.model_validate(value, extra="ignore")
    except MalformedJson as error:
        raise UnfitAnswer(f"the answer of the server is not JSON: {error}") from None
    except ValidationError as error:
        problem = problems_of(error)[0]
        detail = f"the answer of the server is not a `{model.__name__}` (at `{problem.pointer[:200]}`: {problem.code})"
        raise UnfitAnswer(f"{detail}; use the version of `contextos` that the server has") from None


def named(name: str) -> str:
    """Return a name that can be part of an address. Raises `InvalidInput` if it cannot name a run or a session."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.strip("."):
        detail = f"`{str(name)[:80]}` is not a name of a run or a session"
        raise InvalidInput(Problem("/name", "bad_name", detail, "use the id that the server gave"))
    return name


def checked_url(url: str) -> str:
    """Return the address of a server without `/v1` and a slash at its end.

    Raises:
        InvalidInput: `url` is neither an `https://` URL of a server nor an `http://` URL of this machine.
    """
    address = urlsplit(url) if isinstance(url, str) and url.isascii() and url.isprintable() else urlsplit("")
    try:
        host, _ = address.hostname or "", address.port
    except ValueError:
        host = ""
    if not host or address.query or address.fragment or "@" in address.netloc or "\\" in url:
        detail = "this is not an address of a server"
        raise InvalidInput(Problem("/url", "bad_url", detail, "give it like `https://contextos.acme.example`"))
    if address.scheme != "https" and not (address.scheme == "http" and _is_loopback(host)):
        detail = "the token would be sent without TLS"
        raise InvalidInput(Problem("/url", "no_tls", detail, "use `https://`; `http://` is for this machine alone"))
    return url.rstrip("/").removesuffix("/v1")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _encode_json(body: Mapping[str, Any]) -> bytes:
    try:
        return canonical(dict(body))
    except (MalformedJson, RecursionError) as error:
        raise InvalidInput(Problem("", "no_json", f"the body is not JSON: {error}", "send JSON values")) from None


def _media_type(answer: httpx.Response) -> str:
    header: str = answer.headers.get("content-type", "")
    return header.partition(";")[0].strip().lower()


def _check_media_type(answer: httpx.Response, expected: str) -> None:
    if _media_type(answer) != expected:
        raise UnfitAnswer(f"the server answered with another media type than `{expected}`; check its address")


async def _refusal(answer: httpx.Response) -> ContextOSError:
    if answer.is_redirect or 300 <= answer.status_code < 400:
        detail = f"the server answered with the redirect {answer.status_code}, which is not followed"
        return UnfitAnswer(f"{detail}; give the address of the API itself")
    kind = _media_type(answer)
    raw = await _read_body(answer, MAX_PROBLEM_BYTES) if kind == PROBLEM_JSON else b""
    return refusal_of(answer.status_code, kind, answer.headers.get("retry-after"), raw)


async def _read_body(answer: httpx.Response, max_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > max_bytes:
            raise UnfitAnswer(f"the answer of the server has more than {max_bytes} bytes")
    return bytes(content)
