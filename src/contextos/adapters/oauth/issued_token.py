"""Reads a credential from the answer of a token endpoint, and accepts what was asked for, or less, and never more.

A token is opaque to a client. But if it is a JWT, its audience, scope and lifetime must not contradict the request. The
service that gets the token checks its signature.
Source: RFC 8693, section 2.2; RFC 6749, section 5.1; RFC 6750, section 2.1; RFC 9068 (access tokens that are JWTs).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_plus

from pydantic import Field

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.model import Model
from contextos.contracts.ports.credentials import Credential, CredentialRequest
from contextos.errors import InvalidInput, InvalidSettings, Problem, Unavailable
from contextos.trust.identity.jws import unverified_payload

ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
MAX_TOKEN_ANSWER_BYTES: Final = 65_536
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]{16,8000}=*")
"""A bearer token that a header can carry, long enough to be found in answers."""


class TokenAnswer(Model):
    """The members of an answer that count. Other members are dropped before it is read (RFC 6749, section 5.1)."""

    access_token: str = Field(max_length=8_192)
    issued_token_type: str = Field(max_length=256)
    token_type: str = Field(max_length=64)
    expires_in: int = Field(ge=1, le=1 << 31)
    scope: str | None = Field(default=None, max_length=4_096)


def basic_authorization(client_id: str, secret: Callable[[], bytes], section: str) -> str:
    """Return the header by which a client authenticates (`client_secret_basic`; RFC 6749, section 2.3.1).

    Raises:
        Unavailable: the secret, which the part `section` of the settings names, cannot be read now.
    """
    try:
        pair = f"{quote_plus(client_id)}:{quote_plus(secret())}"
    except InvalidSettings as error:
        # The secret could be read when the process started, so a person is replacing it now.
        raise Unavailable(f"the secret in `[{section}]`", error.problems[0].detail) from None
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def answered_object(body: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object of an answer of a token endpoint, or an empty one where it is not an object."""
    try:
        value = loads(body, max_bytes=max_bytes)
    except InvalidInput:
        return {}
    return value if isinstance(value, dict) else {}


def issued_credential(body: bytes, request: CredentialRequest, now_us: int) -> Credential:
    """Return the credential that a successful answer holds. `now_us` is when the request was sent (Unix microseconds).

    Raises:
        InvalidInput: the answer is malformed, or is more or other than was asked for. The error quotes nothing of it.
    """
    answer = _read_answer(body)
    if answer.issued_token_type != ACCESS_TOKEN or answer.token_type.lower() != "bearer":
        raise _refusal("another_token_type", "it is not a bearer access token", "have the issuer issue one")
    if not _TOKEN.fullmatch(answer.access_token):
        raise _refusal("bad_token", "its token is short, or no header can carry it", "have it issue longer ones")
    if answer.expires_in > request.ttl_s:
        remedy = "shorten the lifetime of its access tokens at the issuer, or raise `credential_ttl_s`"
        raise _refusal("long_lived", f"its token lives longer than {request.ttl_s} s", remedy)
    scopes = tuple(request.scopes) if answer.scope is None else tuple(answer.scope.split(" "))
    _check_scopes(scopes, request)
    expires_at_us = now_us + answer.expires_in * 1_000_000
    reference, claims = _hash_reference("token_hash", answer.access_token), unverified_payload(answer.access_token)
    if claims is not None:
        _check_claims(claims, request, now_us)
        if isinstance(claims.get("jti"), str):
            reference = _hash_reference("jti_hash", claims["jti"])
    return Credential(answer.access_token, scopes, expires_at_us, reference)


def _read_answer(body: bytes) -> TokenAnswer:
    value = _parse_json(body)
    if not isinstance(value, dict):
        raise _refusal("bad_answer", "it is no JSON object", "check the URL of the token endpoint")
    if "refresh_token" in value:
        raise _refusal("long_lived", "it brings a refresh token", "have the issuer issue none for this client")
    fields = {name: item for name, item in value.items() if name in TokenAnswer.model_fields}
    try:
        return parse(TokenAnswer, fields)
    except InvalidInput as error:
        # Only the name of a member is shown, because a message could quote the token.
        member = error.problems[0].pointer.strip("/")
        raise _refusal("bad_answer", f"its `{member}` is missing or wrong", "have the issuer state it") from None


def _parse_json(body: bytes) -> Any:
    try:
        return loads(body, max_bytes=MAX_TOKEN_ANSWER_BYTES)
    except InvalidInput as error:
        code = error.problems[0].code
        raise _refusal("bad_answer", f"it is no JSON ({code})", "check the URL of the token endpoint") from None


def _check_scopes(scopes: tuple[str, ...], request: CredentialRequest) -> None:
    if not scopes or not set(scopes) <= set(request.scopes):
        raise _refusal("other_scopes", "its token has scopes that nobody asked for", "correct them at the issuer")


def _check_claims(claims: dict[str, Any], request: CredentialRequest, now_us: int) -> None:
    """Raise `InvalidInput` for a JWT whose claims contradict the request. An absent claim contradicts nothing."""
    audience, exp_s, scope = claims.get("aud", request.audience), claims.get("exp"), claims.get("scope")
    audiences = audience if isinstance(audience, list) else [audience]
    if audiences != [request.audience]:
        raise _refusal("another_audience", "its token is for another service", "correct the audience at the issuer")
    latest_s = now_us // 1_000_000 + request.ttl_s + 1
    if exp_s is not None and (isinstance(exp_s, bool) or not isinstance(exp_s, int | float) or exp_s > latest_s):
        remedy = "shorten the lifetime of its access tokens at the issuer, or raise `credential_ttl_s`"
        raise _refusal("long_lived", f"its token lives longer than {request.ttl_s} s", remedy)
    if scope is not None:
        _check_scopes(tuple(scope.split(" ")) if isinstance(scope, str) else (), request)


def _hash_reference(kind: str, value: str) -> str:
    return f"{kind}:{digest(value.encode())}"


def _refusal(code: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("", code, f"the answer of the token endpoint is refused: {detail}", remedy))
