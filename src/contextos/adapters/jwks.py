"""The public keys of an issuer of tokens: fetched over HTTPS, read from a file, or pinned by the settings.

Keys are fetched when a token needs them and kept for five minutes; no header of the answer (`Cache-Control`) changes
that. A key id that is not there is looked up again, at most every thirty seconds, so that invented ids cause no
requests. A source that failed is asked again after a second at the earliest; until it answers, nobody knows whether a
missing key id exists. Keys older than five minutes are not used, even if the issuer does not answer. Over HTTP the
rules of `outbound` hold. Redirects, other statuses than 200, large answers and answers without keys are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from contextos.adapters.outbound import (
    AnswerTooLarge,
    OutboundClient,
    OutboundRequest,
    destination,
    internal_address_fault,
)
from contextos.contracts.encoding.codec import loads
from contextos.contracts.ports.outside import Clock
from contextos.contracts.urls import is_loopback
from contextos.errors import InvalidInput, InvalidSettings, LostReply, Problem, Unavailable
from contextos.files import read_regular_file
from contextos.trust.identity.jwt import CheckKeys, check_jwks

KEEP_US: Final = 300_000_000
AGAIN_US: Final = 30_000_000
FAILED_US: Final = 1_000_000
MAX_JWKS_BYTES: Final = 262_144
JWKS_TIMEOUT_S: Final = 5.0
_LOG: Final = logging.getLogger("contextos.adapters")


class Jwks(Protocol):
    """The keys of one issuer."""

    async def with_key(self, kid: str) -> Mapping[str, Any]:
        """Return the issuer's JWK Set, which is fetched anew if `kid` is missing in the kept set, as this module says.

        Raises:
            Unavailable: the issuer does not answer with a JWK Set.
        """
        ...

    def is_silent(self) -> bool:
        """Return whether the last attempt to get the keys failed, is less than five minutes old, and no kept keys are
        still valid.
        """
        ...


class PinnedJwks:
    """A JWK Set that the settings pin. Raises `InvalidInput` if it is not a JWK Set."""

    def __init__(self, jwks: Mapping[str, Any]) -> None:
        check_jwks(jwks)
        self._jwks = jwks

    async def with_key(self, _kid: str) -> Mapping[str, Any]:
        return self._jwks

    def is_silent(self) -> bool:
        return False


class KeptJwks:
    """A JWK Set that `fetch` returns as bytes, kept as this module says. `check` returns the valid keys of the set, or
    raises `InvalidInput`. `issuer` is its name in messages.

    `fetch` raises `Unavailable`.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], clock: Clock, *, issuer: str = "", check: CheckKeys = check_jwks
    ) -> None:
        self._fetch, self._clock, self._issuer, self._check = fetch, clock, issuer, check
        self._jwks: Mapping[str, Any] | None = None
        self._failure: Unavailable | None = None
        self._fetched_at_us = self._tried_at_us = 0
        self._fetch_lock = asyncio.Lock()

    async def with_key(self, kid: str) -> Mapping[str, Any]:
        if (jwks := self._usable_keys(kid)) is not None:
            return jwks
        async with self._fetch_lock:
            # A caller that waited for the fetch of another caller uses its result.
            if (jwks := self._usable_keys(kid)) is not None:
                return jwks
            now_us = self._clock.now_us()
            if self._failure is not None and 0 <= now_us - self._tried_at_us < FAILED_US:
                raise self._failure.with_traceback(None)
            self._tried_at_us, self._failure = now_us, None
            try:
                self._jwks, self._fetched_at_us = self._read_keys(await self._fetch()), now_us
            except asyncio.CancelledError:
                self._failure = self._unavailable("nobody waited for its answer")
                raise
            except Unavailable as fault:
                self._failure = self._unavailable(fault.detail)
                _LOG.warning("%s", self._failure)
                raise self._failure from None
            return self._jwks

    def is_silent(self) -> bool:
        is_recent = 0 <= self._clock.now_us() - self._tried_at_us < KEEP_US
        return self._failure is not None and is_recent and not self._is_fresh()

    def _is_fresh(self) -> bool:
        return self._jwks is not None and 0 <= self._clock.now_us() - self._fetched_at_us < KEEP_US

    def _usable_keys(self, kid: str) -> Mapping[str, Any] | None:
        """Return the kept set if it is fresh, and has the key or was fetched within thirty seconds; else None."""
        if self._jwks is None or not self._is_fresh():
            return None
        is_recent = self._failure is None and 0 <= self._clock.now_us() - self._tried_at_us < AGAIN_US
        return self._jwks if is_recent or kid in self._check(self._jwks) else None

    def _unavailable(self, detail: str) -> Unavailable:
        return Unavailable(f"issuer {self._issuer}".rstrip(), detail)

    def _read_keys(self, raw: bytes) -> Mapping[str, Any]:
        try:
            jwks = loads(raw, max_bytes=MAX_JWKS_BYTES)
            keys = self._check(jwks)
        except InvalidInput as error:
            raise _unavailable(f"its answer does not count: {error.problems[0].detail}") from None
        if not keys:
            raise _unavailable("its JWK Set has no key")
        assert isinstance(jwks, dict)
        return jwks


class HttpJwks(KeptJwks):
    """The JWK Set at `url`, which begins with `https://`, or with `http://` on the loopback. `internal`: a person
    stated that it is at a private address.

    Raises:
        InvalidSettings: `url` is not valid, or its address is not allowed.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        issuer: str = "",
        internal: bool = False,
        check: CheckKeys = check_jwks,
        timeout_s: float = JWKS_TIMEOUT_S,
    ) -> None:
        try:
            dest = destination(url)
        except InvalidInput as error:
            raise _bad_url(error.problems[0].detail, error.problems[0].remedy) from None
        # A URL with a loopback host says by itself that it is internal.
        internal = internal or is_loopback(dest.host)
        if fault := internal_address_fault(dest.host, internal=internal):
            raise _bad_url(*fault)
        client = OutboundClient(internal=(dest.endpoint,) if internal else (), max_response_bytes=MAX_JWKS_BYTES)
        super().__init__(partial(_fetch_http, client, url, dest.endpoint, timeout_s), clock, issuer=issuer, check=check)


class FileJwks(KeptJwks):
    """The JWK Set in a file that another program renews, such as the bundle of a SPIFFE agent."""

    def __init__(self, path: Path, clock: Clock, *, issuer: str = "", check: CheckKeys = check_jwks) -> None:
        super().__init__(partial(_fetch_file, path), clock, issuer=issuer, check=check)


async def _fetch_http(client: OutboundClient, url: str, endpoint: str, timeout_s: float) -> bytes:
    try:
        answer = await client.send(OutboundRequest("GET", url), egress=(endpoint,), timeout_s=timeout_s)
    except AnswerTooLarge:
        raise _unavailable(f"its answer has more than {MAX_JWKS_BYTES} bytes") from None
    except InvalidInput as error:
        raise _unavailable(error.problems[0].detail) from None
    except LostReply:
        raise _unavailable(f"it gave no whole answer within {timeout_s:g} s") from None
    except Unavailable as error:
        raise _unavailable(str(error).partition("; ")[0]) from None
    if answer.status != 200:
        raise _unavailable(f"it answers {answer.status}")
    return answer.body


async def _fetch_file(path: Path) -> bytes:
    try:
        return read_regular_file(path, MAX_JWKS_BYTES)
    except OSError as error:
        raise _unavailable(f"`{path.name}` cannot be read ({error.strerror})") from None


def _bad_url(detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem("/jwks_url", "bad_setting", detail, remedy))


def _unavailable(detail: str) -> Unavailable:
    return Unavailable("issuer", f"its keys cannot be fetched: {detail}")
