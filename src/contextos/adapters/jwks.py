"""`HttpJwks`: the public keys of an OIDC issuer, fetched over HTTPS, for `trust.identity.oidc`.

The keys are fetched when a token needs them and kept for five minutes. A key id that is not there is looked up again,
at most every thirty seconds, so that invented ids cause no requests. Old keys are never used because the issuer does
not answer. Redirects, other statuses, and answers that are too large or no JWK Set are refused.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Protocol

import httpx

from contextos.contracts.encoding.codec import loads
from contextos.contracts.ports.outside import Clock
from contextos.errors import InvalidInput, InvalidSettings, Problem, Unavailable
from contextos.trust.identity.oidc import check_jwks

KEEP_US: Final = 300_000_000
AGAIN_US: Final = 30_000_000
MAX_JWKS_BYTES: Final = 262_144
JWKS_TIMEOUT_S: Final = 5.0


class Jwks(Protocol):
    """The keys of one issuer."""

    async def with_key(self, kid: str) -> Mapping[str, Any]:
        """Return the issuer's JWK Set, as fresh as it has to be to hold the key `kid` if there is one.

        Raises:
            Unavailable: the issuer does not answer with a JWK Set.
        """
        ...


class PinnedJwks:
    """A JWK Set that the settings pin. Raises `InvalidInput` if it is none."""

    def __init__(self, jwks: Mapping[str, Any]) -> None:
        check_jwks(jwks)
        self._jwks = jwks

    async def with_key(self, _kid: str) -> Mapping[str, Any]:
        return self._jwks


@cache
def _tls() -> ssl.SSLContext:
    """The TLS settings, cached: reading the trusted certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


class HttpJwks:
    """The JWK Set at `url`, which is `https://`, or `http://` on the loopback."""

    def __init__(self, url: str, clock: Clock, *, timeout_s: float = JWKS_TIMEOUT_S) -> None:
        self._url, self._clock, self._timeout_s = url, clock, timeout_s
        self._jwks: Mapping[str, Any] | None = None
        self._fetched_us = self._tried_us = 0
        try:
            httpx.Request("GET", url)
        except (httpx.InvalidURL, UnicodeError):
            problem = Problem("/jwks_url", "bad_setting", "this is not a URL", "give the issuer's `jwks_uri`")
            raise InvalidSettings(problem) from None

    async def with_key(self, kid: str) -> Mapping[str, Any]:
        now_us = self._clock.now_us()
        fresh = self._jwks is not None and 0 <= now_us - self._fetched_us < KEEP_US
        if fresh and (kid in check_jwks(self._jwks) or 0 <= now_us - self._tried_us < AGAIN_US):
            assert self._jwks is not None
            return self._jwks
        self._tried_us = now_us
        self._jwks, self._fetched_us = await self._fetch(), now_us
        return self._jwks

    async def _fetch(self) -> Mapping[str, Any]:
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(
                    verify=_tls(), trust_env=False, follow_redirects=False, timeout=self._timeout_s
                ) as client,
                client.stream("GET", self._url, headers={"Accept-Encoding": "identity"}) as response,
            ):
                if response.status_code != 200:
                    raise _unavailable(f"it answers {response.status_code}")
                raw = b""
                async for part in response.aiter_raw():
                    raw += part
                    if len(raw) > MAX_JWKS_BYTES:
                        raise _unavailable(f"its answer has more than {MAX_JWKS_BYTES} bytes")
        except TimeoutError:
            raise _unavailable(f"it took more than {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise _unavailable(str(error).rstrip(".").lower() or type(error).__name__) from None
        try:
            jwks = loads(raw, max_bytes=MAX_JWKS_BYTES)
            check_jwks(jwks)
        except InvalidInput as error:
            raise _unavailable(f"its answer is no JWK Set ({error.problems[0].code})") from None
        assert isinstance(jwks, dict)
        return jwks


def _unavailable(detail: str) -> Unavailable:
    return Unavailable("oidc issuer", f"its keys cannot be fetched: {detail}")
