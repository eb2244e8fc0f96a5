"""Verify an OpenID Connect token: a JWT of a trusted issuer, about a person.

`verify_oidc_token` is the only place where such a token is verified. The OIDC directory takes users from it, and an
answer to an approval with an OIDC token goes through it too: with `nonce` (the digest of the question) and with
`max_auth_age_s` (the longest time since the person logged in).

The caller names the issuer, its keys (a JWK Set) and the algorithms; `jwt` refuses what no token can be. Fetching the
JWK Set is the adapter's part (`adapters.jwks`), so this module is a pure function of its arguments and can verify a
recorded token again.
Source: OpenID Connect Core 1.0, section 3.1.3.7; RFC 9068.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.contracts.encoding.jcs import digest
from contextos.errors import InvalidInput, InvalidSettings, Problem
from contextos.trust.identity.jwt import (
    JWT_ALGORITHMS,
    check_jwks,
    check_times,
    media_type,
    number_date,
    signed_claims,
    signing_fault,
    wrong_claim,
)

MAX_AUTH_AGE_S: Final = 86_400
MAX_SUBJECT_CHARS: Final = 255


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer whose tokens count, and for whom they must be made.

    `issuer` and `audience` are compared exactly with `iss` and `aud`. The issuer signs with one of `algorithms`.
    `leeway_s` is how far the issuer's clock can be off, in seconds. `token_type` is the header `typ`: `JWT` for an ID
    token (a token without `typ` is one too), `at+jwt` for an access token (RFC 9068). Tokens are issued to one of
    `clients`, which a token has to state (`azp` or `client_id`, else `cid` or `appid`); if `clients` is empty, an `azp`
    has to be the audience itself, as in an ID token.

    Raises:
        InvalidSettings: a value is missing, out of bounds or not an asymmetric algorithm.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60
    token_type: str = "JWT"
    clients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "token_type"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise _bad_setting(name, f"`{name}` is not a text", "give a text that is not empty")
        if fault := signing_fault(self.algorithms, self.leeway_s, JWT_ALGORITHMS):
            raise _bad_setting(*fault)
        if not isinstance(self.clients, tuple) or not all(isinstance(item, str) and item for item in self.clients):
            raise _bad_setting("clients", "this is not a list of clients", "list the `azp` or `client_id` of each")


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The content of a verified token. Times are Unix seconds; `auth_time_s` is when the person logged in.

    `token_digest` is the `sha256:` digest of the token, for records; the token itself is a secret and is not kept.
    """

    issuer: str
    subject: str
    audience: str
    issued_at_s: float
    expires_at_s: float
    auth_time_s: float | None
    nonce: str | None
    token_digest: str
    claims: Mapping[str, Any] = field(repr=False)


def verify_oidc_token(
    token: str,
    issuer: TrustedIssuer,
    jwks: Mapping[str, Any],
    *,
    now_us: int,
    nonce: str | None = None,
    max_auth_age_s: int | None = None,
) -> VerifiedToken:
    """Return the content of `token` if `issuer` made it for the audience, and it is valid at `now_us` (Unix µs).

    `jwks` is the issuer's JWK Set. With `nonce` the token must state exactly this nonce. With `max_auth_age_s`
    (seconds) it must state an `auth_time` that is not longer ago. Neither claim is optional then.

    Raises:
        SignatureInvalid: the token is refused, for any reason; the message names it and quotes nothing of the token.
        InvalidInput: `max_auth_age_s` is out of bounds, or `jwks` is not a JWK Set.
    """
    if max_auth_age_s is not None and not 0 < max_auth_age_s <= MAX_AUTH_AGE_S:
        detail = f"the age of a login is limited to 1 to {MAX_AUTH_AGE_S} s"
        raise InvalidInput(Problem("/max_auth_age_s", "out_of_bounds", detail, "give one within these bounds"))
    claims = signed_claims(token, check_jwks(jwks), algorithms=issuer.algorithms, types=_types(issuer.token_type))
    expires_at_s, issued_at_s = check_times(claims, leeway_s=issuer.leeway_s, now_us=now_us)
    assert issued_at_s is not None, "it has to be stated"
    _check_parties(claims, issuer)
    if nonce is not None and (not nonce or claims.get("nonce") != nonce):
        raise wrong_claim("the token has another `nonce`; it was not made for this question", claims, "nonce", nonce)
    auth_time_s = number_date(claims, "auth_time") if "auth_time" in claims else None
    if max_auth_age_s is not None:
        _check_login(claims, auth_time_s, max_auth_age_s, issuer.leeway_s, now_us)
    return VerifiedToken(
        issuer=issuer.issuer,
        subject=claims["sub"],
        audience=issuer.audience,
        issued_at_s=issued_at_s,
        expires_at_s=expires_at_s,
        auth_time_s=auth_time_s,
        nonce=claims["nonce"] if isinstance(claims.get("nonce"), str) else None,
        token_digest=digest(token.encode()),
        claims=claims,
    )


def _types(token_type: str) -> tuple[str | None, ...]:
    header_type = media_type(token_type)
    return (None, header_type) if header_type == "jwt" else (header_type,)


def _check_parties(claims: Mapping[str, Any], issuer: TrustedIssuer) -> None:
    subject, audience = claims.get("sub"), claims.get("aud")
    if claims.get("iss") != issuer.issuer:
        raise wrong_claim("the token is of another issuer", claims, "iss", issuer.issuer)
    audiences = audience if isinstance(audience, list) else [audience]
    if issuer.audience not in audiences or not all(isinstance(value, str) for value in audiences):
        raise wrong_claim("the token is for another audience", claims, "aud", issuer.audience)
    has_other_audience = any(value != issuer.audience for value in audiences)
    # Okta writes `cid`, and Entra ID `appid` in tokens of version 1.
    clients = [name for name in ("azp", "client_id") if name in claims] or [
        name for name in ("cid", "appid") if name in claims
    ]
    if issuer.clients:
        wrong_name = next((name for name in clients if claims[name] not in issuer.clients), None if clients else "azp")
        if wrong_name is not None:
            detail = "the token was issued to another client (`azp`, `client_id`)"
            raise wrong_claim(detail, claims, wrong_name, list(issuer.clients))
    elif "azp" in claims and claims["azp"] != issuer.audience:
        raise wrong_claim("the token was issued to another party (`azp`)", claims, "azp", issuer.audience)
    elif has_other_audience and "azp" not in claims:
        detail = "the token has several audiences and does not say to which it was issued (`azp`)"
        raise wrong_claim(detail, claims, "azp", issuer.audience)
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        raise wrong_claim("the token names no subject (`sub`)", claims, "sub", f"1 to {MAX_SUBJECT_CHARS} characters")


def _check_login(
    claims: Mapping[str, Any], auth_time_s: float | None, max_age_s: int, leeway_s: int, now_us: int
) -> None:
    latest_s, oldest_s = now_us / 1e6 + leeway_s, now_us / 1e6 - max_age_s - leeway_s
    if auth_time_s is None:
        detail = "the token does not say when the person logged in (`auth_time`); ask for it"
        raise wrong_claim(detail, claims, "auth_time", "Unix seconds")
    if auth_time_s > latest_s:
        detail = "the person logged in in the future; compare the clocks"
        raise wrong_claim(detail, claims, "auth_time", f"at most {latest_s:.0f}")
    if auth_time_s < oldest_s:
        detail = f"the person logged in more than {max_age_s} s ago; have them log in again"
        raise wrong_claim(detail, claims, "auth_time", f"at least {oldest_s:.0f}")


def _bad_setting(name: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(f"/oidc/{name}", "bad_setting", detail, remedy))
