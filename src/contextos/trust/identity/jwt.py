"""The parts of verifying a JWT that every kind of token shares: its form, its header, its key, its signature and times.

The caller says which algorithms and header types count and brings the keys; the token chooses a key only by `kid`.
Refuses `none` and every algorithm with a shared secret, so a public key is never used as one. Keys in the header
(`jwk`, `jku`, `x5c`) are never read, and a header with `crit` is refused. `oidc` and `svid` say what the claims of
their tokens have to be.
Source: RFC 7515; RFC 7519; RFC 8725.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.errors import InvalidInput, Problem, SignatureInvalid
from contextos.trust.seal import decode_base64, verify_signature

JWT_ALGORITHMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
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
MAX_JWKS_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048

CheckKeys = Callable[[Any], Mapping[str, Mapping[str, Any]]]
"""Returns the public keys of a set that was fetched, by key id. Raises `InvalidInput` if it is no such set."""

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
_PUBLIC_MEMBERS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}


def token_key_id(token: str) -> str:
    """Return the key id that a token names, without verifying anything. Raises `SignatureInvalid` if it names none."""
    kid = _json_object(_compact(token).partition(".")[0]).get("kid")
    if not isinstance(kid, str) or not kid:
        raise SignatureInvalid("the token names no key (`kid`); have the issuer state one")
    return kid


def token_type_of(token: str) -> str | None:
    """Return the header `typ` that a token states, without verifying anything. Raises `SignatureInvalid`."""
    kind = _json_object(_compact(token).partition(".")[0]).get("typ")
    return kind if isinstance(kind, str) else None


def check_jwks(jwks: Any, *, use: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the public keys of a JWK Set by key id. Keys without an id are left out, because no token can name them.

    With `use`, keys that do not state exactly this use are left out too.

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
        if not isinstance(kid, str) or not kid or use not in (None, one.get("use")):
            continue
        if kid in found:
            detail = f"the JWK Set has the key id `{kid[:80]}` twice"
            raise InvalidInput(Problem("/jwks", "bad_jwks", detail, "have the issuer list each key once"))
        found[kid] = one
    return found


def signed_claims(
    token: str,
    keys: Mapping[str, Mapping[str, Any]],
    *,
    algorithms: Sequence[str],
    types: Sequence[str | None],
    use: str = "sig",
) -> dict[str, Any]:
    """Return the claims of `token` if one of `keys` (JWKs by id) signed it. No claim is checked.

    `types` are the values that the header `typ` can have, in lower case; None: it can be left out. `use` is what a key
    that states a use has to be for.

    Raises:
        SignatureInvalid: the token is refused; the message names why and quotes nothing of the token.
    """
    head, body, _ = _compact(token).split(".")
    header = _json_object(head)
    _check_signed_by(token, header, _key_named(header, keys, algorithms, types, use))
    return _json_object(body)


def check_times(
    claims: Mapping[str, Any], *, leeway_s: int, now_us: int, issued: bool = True
) -> tuple[float, float | None]:
    """Check `exp`, `iat` and `nbf` at `now_us` (Unix µs); return (expires at, issued at) in Unix seconds.

    `leeway_s` is how far the issuer's clock can be off. `issued`: the token has to say when it was issued.

    Raises:
        SignatureInvalid: the token is expired, of the future or valid for too long, or states no time.
    """
    now_s, expires_at_s = now_us / 1e6, number_date(claims, "exp")
    issued_at_s = number_date(claims, "iat") if issued or "iat" in claims else None
    if now_s >= expires_at_s + leeway_s:
        raise SignatureInvalid("the token is expired; ask for a new one")
    if issued_at_s is not None and issued_at_s > now_s + leeway_s:
        raise SignatureInvalid("the token was issued in the future; compare the clocks")
    if "nbf" in claims and number_date(claims, "nbf") > now_s + leeway_s:
        raise SignatureInvalid("the token is not valid yet; compare the clocks")
    begins_s = min(now_s, expires_at_s - 1) if issued_at_s is None else issued_at_s
    if not 0 < expires_at_s - begins_s <= MAX_TOKEN_LIFETIME_S:
        raise SignatureInvalid(f"the token is valid for longer than {MAX_TOKEN_LIFETIME_S} s; have it live shorter")
    return expires_at_s, issued_at_s


def number_date(claims: Mapping[str, Any], name: str) -> float:
    """Return the time (Unix seconds) in a claim. Raises `SignatureInvalid` if it holds none."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise SignatureInvalid(f"the token states no time in `{name}`; it needs Unix seconds")
    return float(value)


def _compact(token: Any) -> str:
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not _COMPACT.fullmatch(token):
        raise SignatureInvalid("this is not a compact JWT; send `header.payload.signature` as the issuer made it")
    return token


def _key_named(
    header: Mapping[str, Any],
    keys: Mapping[str, Mapping[str, Any]],
    algorithms: Sequence[str],
    types: Sequence[str | None],
    use: str,
) -> Mapping[str, Any]:
    """The public key that the header names, if it is one for the algorithm that the header states."""
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise SignatureInvalid(f"the algorithm of the token is not one of {', '.join(algorithms)}")
    if "crit" in header or "b64" in header:
        raise SignatureInvalid("the header of the token has an extension that is not understood (`crit`, `b64`)")
    if (kind.lower() if isinstance(kind, str) else kind) not in types:
        named = ", ".join(f"`{one}`" for one in types if one)
        raise SignatureInvalid(f"the token is not of the type {named}; send the one for this purpose")
    if not isinstance(kid, str) or not kid:
        raise SignatureInvalid("the token names no key (`kid`); have the issuer state one")
    key = keys.get(kid)
    if key is None:
        raise SignatureInvalid("the issuer has no key with the id that the token names; ask for a new token")
    key_type, curves = JWT_ALGORITHMS[algorithm]
    fits = key.get("kty") == key_type and (not curves or key.get("crv") in curves)
    if not fits or key.get("use", use) != use or key.get("alg", algorithm) != algorithm:
        raise SignatureInvalid("the key that the token names is not one for its algorithm and for signatures")
    return key


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


def _json_object(segment: str) -> dict[str, Any]:
    try:
        value = loads(decode_base64(segment))
    except InvalidInput as error:
        raise SignatureInvalid(f"a part of the token is not JSON: {error.problems[0].code}") from None
    if not isinstance(value, dict):
        raise SignatureInvalid("a part of the token is not a JSON object")
    return value
