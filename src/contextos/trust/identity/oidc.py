"""Verify an OpenID Connect token: a JWT of a trusted issuer, about a person.

`verify_oidc_token` is the only place where such a token is verified. The OIDC directory takes users from it, and an
answer to an approval with an OIDC token goes through it too: with `nonce` (the digest of the question) and with
`max_auth_age_s` (how long ago the person logged in at most).

The caller names the issuer, its keys (a JWK Set) and the algorithms; the token chooses a key only by `kid`. Refuses
`none` and every algorithm with a shared secret, so a public key is never used as one. Keys in the header (`jwk`, `jku`,
`x5c`) are never read, and a header with `crit` is refused. Fetching the JWK Set is the adapter's part
(`adapters.jwks`), so this module is a pure function of its arguments and can verify a recorded token again.
Source: OpenID Connect Core 1.0, section 3.1.3.7; RFC 7515; RFC 7519; RFC 8725.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.errors import InvalidInput, InvalidSettings, Problem, SignatureInvalid
from contextos.trust.seal import decode_base64, verify_signature

OIDC_ALGORITHMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "RS256": ("RSA", ()),
    "RS384": ("RSA", ()),
    "RS512": ("RSA", ()),
    "PS256": ("RSA", ()),
    "PS384": ("RSA", ()),
    "PS512": ("RSA", ()),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519",)),
    "Ed25519": ("OKP", ("Ed25519",)),
}
"""The algorithms that an issuer can be trusted with: the type of the key, and its curves. All are asymmetric."""
MAX_LEEWAY_S: Final = 300
MAX_TOKEN_LIFETIME_S: Final = 86_400
MAX_AUTH_AGE_S: Final = 86_400
MAX_JWKS_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
MAX_SUBJECT_CHARS: Final = 255

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
_PUBLIC_MEMBERS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer whose tokens count, and for whom they must be made.

    `issuer` and `audience` are compared exactly with `iss` and `aud`. `algorithms` are those that the issuer signs
    with. `leeway_s` is how far the issuer's clock can be off, in seconds. `token_type` is the header `typ`: `JWT` for
    an ID token (a token without `typ` is one too), `at+jwt` for an access token (RFC 9068).

    Raises:
        InvalidSettings: a value is missing, out of bounds or not an asymmetric algorithm.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60
    token_type: str = "JWT"

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "token_type"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise _setting(name, f"`{name}` is not a text", "give a text that is not empty")
        stray = [one for one in self.algorithms if one not in OIDC_ALGORITHMS]
        if stray or not self.algorithms:
            detail = f"`{str(stray[0])[:40]}` is not accepted" if stray else "no algorithm is listed"
            raise _setting("algorithms", detail, f"list some of {', '.join(OIDC_ALGORITHMS)}")
        if type(self.leeway_s) is not int or not 0 <= self.leeway_s <= MAX_LEEWAY_S:
            detail = f"`{str(self.leeway_s)[:40]}` is not a whole number of seconds from 0 to {MAX_LEEWAY_S}"
            raise _setting("leeway_s", detail, "give one within these bounds")


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

    `jwks` is the issuer's JWK Set. With `nonce` the token must state exactly this one. With `max_auth_age_s` (seconds)
    it must state an `auth_time` that is no longer ago; a nonce and a login time are never optional then.

    Raises:
        SignatureInvalid: the token is refused, for any reason; the message names it and quotes nothing of the token.
        InvalidInput: `max_auth_age_s` is out of bounds, or `jwks` is not a JWK Set.
    """
    if max_auth_age_s is not None and not 0 < max_auth_age_s <= MAX_AUTH_AGE_S:
        detail = f"the age of a login is limited to 1 to {MAX_AUTH_AGE_S} s"
        raise InvalidInput(Problem("/max_auth_age_s", "out_of_bounds", detail, "give one within these bounds"))
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not _COMPACT.fullmatch(token):
        raise SignatureInvalid("this is not a compact JWT; send `header.payload.signature` as the issuer made it")
    head, body, _ = token.split(".")
    header = _json_object(head)
    _check_signed_by(token, header, _key_named(header, issuer, jwks))
    claims = _json_object(body)
    expires_at_s, issued_at_s = _check_times(claims, issuer, now_us)
    _check_parties(claims, issuer)
    if nonce is not None and (not nonce or claims.get("nonce") != nonce):
        raise SignatureInvalid("the token has another `nonce`; it was not made for this question")
    auth_time_s = _number_date(claims, "auth_time") if "auth_time" in claims else None
    if max_auth_age_s is not None:
        _check_login(auth_time_s, max_auth_age_s, issuer, now_us)
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


def token_key_id(token: str) -> str:
    """Return the key id that a token names, without verifying anything. Raises `SignatureInvalid` if it names none."""
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not _COMPACT.fullmatch(token):
        raise SignatureInvalid("this is not a compact JWT; send `header.payload.signature` as the issuer made it")
    kid = _json_object(token.partition(".")[0]).get("kid")
    if not isinstance(kid, str) or not kid:
        raise SignatureInvalid("the token names no key (`kid`); have the issuer state one")
    return kid


def check_jwks(jwks: Any) -> dict[str, Mapping[str, Any]]:
    """Return the public keys of a JWK Set by key id. Keys without an id are left out, because no token can name them.

    Raises:
        InvalidInput: it is not a JWK Set, is too long, or has one key id twice.
    """
    listed = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(listed, list | tuple) or len(listed) > MAX_JWKS_KEYS:
        detail = f"this is not a JWK Set with at most {MAX_JWKS_KEYS} keys"
        raise InvalidInput(Problem("/jwks", "bad_jwks", detail, "name the issuer's `jwks_uri`"))
    found: dict[str, Mapping[str, Any]] = {}
    for one in listed:
        kid = one.get("kid") if isinstance(one, Mapping) else None
        if not isinstance(kid, str) or not kid:
            continue
        if kid in found:
            detail = f"the JWK Set has the key id `{kid[:80]}` twice"
            raise InvalidInput(Problem("/jwks", "bad_jwks", detail, "have the issuer list each key once"))
        found[kid] = one
    return found


def _key_named(header: Mapping[str, Any], issuer: TrustedIssuer, jwks: Mapping[str, Any]) -> Mapping[str, Any]:
    """The public key that the header names, if it is one for the algorithm that the header states."""
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise SignatureInvalid(f"the algorithm of the token is not one of {', '.join(issuer.algorithms)}")
    if "crit" in header or "b64" in header:
        raise SignatureInvalid("the header of the token has an extension that is not understood (`crit`, `b64`)")
    if (kind.lower() if isinstance(kind, str) else kind) not in _types(issuer.token_type):
        raise SignatureInvalid(f"the token is not of the type `{issuer.token_type}`; send the one for this purpose")
    if not isinstance(kid, str) or not kid:
        raise SignatureInvalid("the token names no key (`kid`); have the issuer state one")
    key = check_jwks(jwks).get(kid)
    if key is None:
        raise SignatureInvalid("the issuer has no key with the id that the token names; ask for a new token")
    key_type, curves = OIDC_ALGORITHMS[algorithm]
    fits = key.get("kty") == key_type and (not curves or key.get("crv") in curves)
    if not fits or key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        raise SignatureInvalid("the key that the token names is not one for its algorithm and for signatures")
    return key


def _types(token_type: str) -> tuple[str | None, ...]:
    return (None, "jwt") if token_type.lower() == "jwt" else (token_type.lower(), f"application/{token_type.lower()}")


def _check_signed_by(token: str, header: Mapping[str, Any], key: Mapping[str, Any]) -> None:
    if key["kty"] == "OKP":
        signed, _, signature = token.rpartition(".")
        if not verify_signature(decode_base64(key.get("x")), signed.encode(), decode_base64(signature)):
            raise SignatureInvalid("the issuer's key did not sign this token; ask for a new one")
        return
    if key["kty"] == "RSA" and int.from_bytes(decode_base64(key.get("n"))).bit_length() < MIN_RSA_BITS:
        raise SignatureInvalid(f"the issuer's RSA key has fewer than {MIN_RSA_BITS} bits")
    # Imported here, because importing `joserfc` takes 120 ms.
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key
    from joserfc.jws import JWSRegistry, deserialize_compact

    algorithm, parameters = header["alg"], {name: key[name] for name in _PUBLIC_MEMBERS[key["kty"]] if name in key}
    try:
        public = import_key(parameters)
        registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        deserialize_compact(token, public, algorithms=[algorithm], registry=registry)
    except (JoseError, ValueError, TypeError, KeyError):
        raise SignatureInvalid("the issuer's key did not sign this token; ask for a new one") from None


def _check_times(claims: Mapping[str, Any], issuer: TrustedIssuer, now_us: int) -> tuple[float, float]:
    """Check `exp`, `iat` and `nbf`; return (expires at, issued at)."""
    now_s, expires_at_s, issued_at_s = now_us / 1e6, _number_date(claims, "exp"), _number_date(claims, "iat")
    if now_s >= expires_at_s + issuer.leeway_s:
        raise SignatureInvalid("the token is expired; ask for a new one")
    if issued_at_s > now_s + issuer.leeway_s:
        raise SignatureInvalid("the token was issued in the future; compare the clocks")
    if "nbf" in claims and _number_date(claims, "nbf") > now_s + issuer.leeway_s:
        raise SignatureInvalid("the token is not valid yet; compare the clocks")
    if not 0 < expires_at_s - issued_at_s <= MAX_TOKEN_LIFETIME_S:
        raise SignatureInvalid(f"the token is valid for longer than {MAX_TOKEN_LIFETIME_S} s; have it live shorter")
    return expires_at_s, issued_at_s


def _check_parties(claims: Mapping[str, Any], issuer: TrustedIssuer) -> None:
    subject, audience = claims.get("sub"), claims.get("aud")
    if claims.get("iss") != issuer.issuer:
        raise SignatureInvalid("the token is of another issuer")
    audiences = audience if isinstance(audience, list) else [audience]
    if issuer.audience not in audiences:
        raise SignatureInvalid("the token is for another audience")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp", issuer.audience) != issuer.audience:
        raise SignatureInvalid("the token was issued to another party (`azp`)")
    if len(audiences) > 1 and "azp" not in claims:
        raise SignatureInvalid("the token has several audiences and does not say to which it was issued (`azp`)")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        raise SignatureInvalid("the token names no subject (`sub`)")


def _check_login(auth_time_s: float | None, max_age_s: int, issuer: TrustedIssuer, now_us: int) -> None:
    if auth_time_s is None:
        raise SignatureInvalid("the token does not say when the person logged in (`auth_time`); ask for it")
    if auth_time_s > now_us / 1e6 + issuer.leeway_s:
        raise SignatureInvalid("the person logged in in the future; compare the clocks")
    if now_us / 1e6 - auth_time_s > max_age_s + issuer.leeway_s:
        raise SignatureInvalid(f"the person logged in more than {max_age_s} s ago; have them log in again")


def _number_date(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise SignatureInvalid(f"the token states no time in `{name}`; it needs Unix seconds")
    return float(value)


def _json_object(segment: str) -> dict[str, Any]:
    try:
        value = loads(decode_base64(segment))
    except InvalidInput as error:
        raise SignatureInvalid(f"a part of the token is not JSON: {error.problems[0].code}") from None
    if not isinstance(value, dict):
        raise SignatureInvalid("a part of the token is not a JSON object")
    return value


def _setting(name: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(f"/oidc/{name}", "bad_setting", detail, remedy))
