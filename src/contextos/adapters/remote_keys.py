"""`RemoteKeys`: the keys of the runtime in a key service, which signs over HTTP. No private key is ever here.

The protocol has the shape of the cloud key services; each key is a resource below the URL of the settings:

- `GET URL/<name>/publicKey` returns `{"algorithm": "EC_SIGN_ED25519", "pem": …}`;
- `POST URL/<name>:asymmetricSign` with `{"data": <Base64>}` returns `{"name": …, "signature": <Base64>}`.

The settings pin each public key. At the start the service has to present the same keys. Each signature is verified with
the pinned key before it is used, so a service that answers with another key's signature is found at once. A request is
sent once: the caller decides whether it tries again, and a signature that nobody used does no harm.

A signature is one request, during which the event loop waits; `timeout_s` bounds all of it, also where the service
sends its answer byte by byte. The token is in no message.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any, Final, Protocol
from urllib.parse import quote

import httpx

from contextos.adapters.loop_thread import LoopThread
from contextos.contracts.encoding.codec import loads
from contextos.errors import InvalidInput, InvalidSettings, Problem, SignatureInvalid, Unavailable
from contextos.trust.seal import KEY_BYTES, KeyRing, decode_base64, kid_of

ALGORITHM_NAME: Final = "EC_SIGN_ED25519"
MAX_ANSWER_BYTES: Final = 16_384
MAX_MESSAGE_BYTES: Final = 65_536
"""The most bytes of a message that is sent to be signed. Key services accept no longer messages."""
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A token as RFC 6750 spells it. The HTTP client would quote any other text in its error."""


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings, cached: reading the trusted certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


class PinnedKey(Protocol):
    """A key as the settings pin it: its name below the URL, and its public half (hex)."""

    @property
    def purpose(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def public_key(self) -> str: ...
    @property
    def retired_at_us(self) -> int: ...


class RemoteKeys:
    """The `Keys` port over the key service at `url`.

    `keys` are the pinned keys. For each purpose, the first key that is not retired signs. `token` is called for each
    request and returns the bearer token, or "" for none.

    Raises:
        InvalidSettings: from the constructor: a pinned key or the token is not valid, a key is listed twice, or the
            service presents another key.
        Unavailable: from the constructor and from `sign`: the service does not answer, or refuses; from `sign`, also if
            there is no token now.
        SignatureInvalid: from `sign`: what the service returned is not a signature of the pinned key.
    """

    unsafe: tuple[str, ...] = ()

    def __init__(self, url: str, keys: Sequence[PinnedKey], token: Callable[[], str], *, timeout_s: float) -> None:
        self._url, self._token, self._timeout_s = url.rstrip("/"), token, timeout_s
        public_keys: dict[str, list[bytes]] = {}
        for key in keys:
            if (public := bytes.fromhex(key.public_key)) in public_keys.setdefault(key.purpose, []):
                detail = f"the settings pin the key `{key.name}` for `{key.purpose}` twice"
                problem = Problem(f"/keys/{key.purpose}", "duplicate", detail, "list each key once, retired or not")
                raise InvalidSettings(problem)
            public_keys[key.purpose].append(public)
        kids = {key: kid_of(bytes.fromhex(key.public_key)) for key in keys}
        retired_at = {kids[key]: key.retired_at_us for key in keys if key.retired_at_us}
        self._ring = KeyRing({}, public_keys, retired_at)
        signing = [key for key in keys if not key.retired_at_us]
        self._signing_keys = {key.purpose: (kids[key], key) for key in reversed(signing)}
        with ExitStack() as on_failure:
            self._thread = LoopThread()
            on_failure.callback(self._thread.close)
            self._client = httpx.AsyncClient(verify=_tls(), trust_env=False, follow_redirects=False, timeout=timeout_s)
            on_failure.callback(self._thread.call, self._client.aclose)
            for _, key in self._signing_keys.values():
                self._check_public_key(key)
            self._exit_stack = on_failure.pop_all()

    def kids(self, purpose: str) -> Sequence[str]:
        """Return the ids of the keys trusted for `purpose`, the signing key first."""
        current_kid = self._signing_keys.get(purpose, ("", None))[0]
        return sorted(self._ring.kids(purpose), key=lambda kid: kid != current_kid)

    def public_key(self, purpose: str, kid: str) -> bytes | None:
        """Return the 32 raw bytes of the public key `kid`, or None if there is no such key for `purpose`."""
        return self._ring.public_key(purpose, kid)

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """Have the service sign `payload`; return the key id and the signature (64 bytes).

        Raises:
            InvalidSettings: the settings pin no key that signs for `purpose`.
            InvalidInput: the payload is larger than `MAX_MESSAGE_BYTES`.
            Unavailable: the service does not answer in time, or refuses.
            SignatureInvalid: the answer is not a signature of the pinned key over these bytes.
        """
        if purpose not in self._signing_keys:
            detail = f"there is no key to sign `{purpose[:40]}` with"
            raise InvalidSettings(Problem(f"/keys/{purpose[:40]}", "no_signing_key", detail, "pin one in the settings"))
        if len(payload) > MAX_MESSAGE_BYTES:
            detail = f"the key service signs at most {MAX_MESSAGE_BYTES} bytes, and this is {len(payload)}"
            raise InvalidInput(Problem("", "too_large", detail, "sign it where the keys are files"))
        kid, key = self._signing_keys[purpose]
        try:
            answer = self._request("POST", f"{key.name}:asymmetricSign", {"data": base64.b64encode(payload).decode()})
        except InvalidSettings as error:
            # The token could be read at the start, and can become readable again soon.
            raise _unavailable(error.problems[0].detail) from None
        try:
            signature = decode_base64(answer.get("signature"))
        except SignatureInvalid:
            raise SignatureInvalid(f"the key service returned no signature for `{key.name}`; ask who runs it") from None
        if not self._ring.verify(purpose, kid, payload, signature):
            detail = f"the key service did not sign with the pinned key `{key.name}`"
            raise SignatureInvalid(f"{detail}; stop, and find out who answers there")
        return kid, signature

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes, *, at_us: int | None = None) -> bool:
        """Return whether the key `kid` is trusted for `purpose` and made this signature, before it was retired."""
        return self._ring.verify(purpose, kid, payload, signature, at_us=at_us)

    def close(self) -> None:
        """Close the connections."""
        self._exit_stack.close()

    def _check_public_key(self, key: PinnedKey) -> None:
        """Refuse a service that presents another public key than the settings pin."""
        answer = self._request("GET", f"{key.name}/publicKey", None)
        if answer.get("algorithm") != ALGORITHM_NAME or _raw_key(answer.get("pem")) != bytes.fromhex(key.public_key):
            detail = f"the key service presents another public key for `{key.name}` than the settings pin"
            remedy = "find out which is right, and pin that one"
            raise InvalidSettings(Problem(f"/keys/{key.purpose}", "other_key", detail, remedy))

    def _read_token(self) -> str:
        """Return the current token, or "". Raises `InvalidSettings`, which does not quote the token."""
        token = self._token()
        if token and not _BEARER.fullmatch(token):
            problem = Problem("/keys", "bad_token", "the token for the key service is not valid", "put one there")
            raise InvalidSettings(problem)
        return token

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        token = self._read_token()
        headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            raw = self._thread.call(self._exchange, method, f"{self._url}/{quote(path, safe='/:')}", body, headers)
        except (TimeoutError, httpx.TimeoutException):
            raise _unavailable(f"it took more than {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _unavailable(str(error).rstrip(".").lower() or type(error).__name__) from None
        try:
            answer = loads(raw, max_bytes=MAX_ANSWER_BYTES)
        except InvalidInput:
            answer = None
        if not isinstance(answer, dict):
            raise _unavailable("its answer is not a JSON object")
        return answer

    async def _exchange(
        self, method: str, url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Send one request and return the body of its answer. `timeout_s` covers everything from resolving the name to
        the last byte.
        """
        raw = b""
        async with (
            asyncio.timeout(self._timeout_s),
            self._client.stream(method, url, json=body, headers=headers) as response,
        ):
            if response.status_code != 200:
                raise _unavailable(f"it answers {response.status_code}")
            async for part in response.aiter_raw():
                raw += part
                if len(raw) > MAX_ANSWER_BYTES:
                    raise _unavailable(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
        return raw


def _raw_key(pem: Any) -> bytes | None:
    """Return the 32 raw bytes of an Ed25519 public key in PEM; None for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem.encode()) if isinstance(pem, str) else None
    except (ValueError, UnsupportedAlgorithm):
        return None
    raw = key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else b""
    return raw if len(raw) == KEY_BYTES else None


def _unavailable(detail: str) -> Unavailable:
    return Unavailable("key service", detail)
