"""The parts of verifying a JWT that every kind of token shares: its form, its header, its key, its signature and times.

The caller says which algorithms and header types count and brings the keys; the token chooses a key only by `kid`. Keys
that share an id are distinguished by type, curve, use, operations and algorithm (RFC 7517, 4.5).
Refuses `none` and every algorithm with a shared secret, so a public key is never used as one. Keys in the header
(`jwk`, `jku`, `x5c`, `x5u`) and `cty` are never read, and a header with `crit` is refused. `oidc` and `svid` say what
the claims of their tokens have to be.
Source: RFC 7515; RFC 7517; RFC 7519; RFC 8725.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
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

KeySet = Mapping[str, Sequence[Mapping[str, Any]]]
"""Public keys (JWKs) by their id, which several can share."""
CheckKeys = Callable[[Any], KeySet]
"""Returns the public keys of a set that was fetched. Raises `InvalidInput` if it is not a JWK Set."""

_SAME_ALGORITHM: Final = {"Ed25519": "EdDSA"}
"""By the name of an algorithm in RFC 9864: its name in RFC 8037, for keys of this curve."""
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"})
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
_PUBLIC_MEMBERS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}


def signing_fault(algorithms: Sequence[str], leeway_s: int, known: Collection[str]) -> tuple[str, str, str] | None:
    """Return what is wrong with algorithms or leeway of an issuer: the name, why, and what to write; or None."""
    unknown = [name for name in algorithms if name not in known]
    if unknown or not algorithms:
        detail = f"`{str(unknown[0])[:40]}` is not accepted" if unknown else "no algorithm is listed"
        return "algorithms", detail, f"list some of {', '.join(known)}"
    if type(leeway_s) is not int or not 0 <= leeway_s <= MAX_LEEWAY_S:
        detail = f"`{str(leeway_s)[:40]}` is not a whole number of seconds from 0 to {MAX_LEEWAY_S}"
        return "leeway_s", detail, "give one within these bounds"
    return None


def token_key_id(token: str) -> str:
    """Return the key id that a token names, without verifying anything. Raises `SignatureInvalid` if it names none."""
    return _key_id(_json_object(_require_compact(token).partition(".")[0]))


def token_type_of(token: str) -> str | None:
    """Return the header `typ` that a token states, without verifying anything. Raises `SignatureInvalid`."""
    token_type = _json_object(_require_compact(token).partition(".")[0]).get("typ")
    return token_type if isinstance(token_type, str) else None


def media_type(kind: Any) -> Any:
    """Return a header `typ` as it is compared: in lower case, without `application/` (RFC 7515, 4.1.9).

    >>> media_type("application/AT+JWT")
    'at+jwt'
    """
    return kind.lower().removeprefix("application/") if isinstance(kind, str) else kind


def check_jwks(jwks: Any, *, use: str | None = None) -> KeySet:
    """Return the public keys of a JWK Set by key id. Keys without an id are left out, because no token can name them.
    A key of an unknown type or for another use fits no token, and the other keys count all the same.

    With `use`, keys that do not state exactly this use are left out.

    Raises:
        InvalidInput: it is not a JWK Set, is too long, or publishes a private key or a shared secret.
    """
    jwks_keys = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(jwks_keys, list | tuple) or len(jwks_keys) > MAX_JWKS_KEYS:
        is_discovery = isinstance(jwks, Mapping) and "jwks_uri" in jwks
        description = "the issuer's discovery document, and not its JWK Set" if is_discovery else "not a JWK Set"
        detail = f"this is {description} with at most {MAX_JWKS_KEYS} keys"
        raise InvalidInput(Problem("/jwks", "bad_jwks", detail, "name the issuer's `jwks_uri`"))
    keys_by_id: dict[str, list[Mapping[str, Any]]] = {}
    for number, jwk in enumerate(jwks_keys):
        if not isinstance(jwk, Mapping):
            continue
        if jwk.get("kty") == "oct" or not _PRIVATE_MEMBERS.isdisjoint(jwk):
            detail = "the JWK Set publishes a private key or a shared secret, so anybody can sign with it"
            raise InvalidInput(
                Problem(f"/keys/{number}", "secret_key", detail, "replace that key and list public ones")
            )
        kid = jwk.get("kid")
        if isinstance(kid, str) and kid and use in (None, jwk.get("use")):
            keys_by_id.setdefault(kid, []).append(jwk)
    return keys_by_id


def signed_claims(
    token: str, keys: KeySet, *, algorithms: Sequence[str], types: Sequence[str | None], use: str = "sig"
) -> dict[str, Any]:
    """Return the claims of `token` if one of `keys` signed it. No claim is checked.

    `types` are the values that the header `typ` can have, as `media_type` returns them; None: it can be left out. A key
    that states a use has to state `use`.

    Raises:
        SignatureInvalid: the token is refused; the message names why and quotes nothing of the token.
    """
    header_segment, claims_segment, _ = _require_compact(token).split(".")
    header = _json_object(header_segment)
    fitting_keys = _fitting_keys(header, keys, algorithms, types, use)
    _check_signed_by(token, header["alg"], fitting_keys)
    return _json_object(claims_segment)


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
    latest_s = now_s + leeway_s
    if now_s >= expires_at_s + leeway_s:
        raise wrong_claim("the token is expired; ask for a new one", claims, "exp", f"after {now_s - leeway_s:.0f}")
    if issued_at_s is not None and issued_at_s > latest_s:
        detail = "the token was issued in the future; compare the clocks"
        raise wrong_claim(detail, claims, "iat", f"at most {latest_s:.0f}")
    if "nbf" in claims and number_date(claims, "nbf") > latest_s:
        detail = "the token is not valid yet; compare the clocks"
        raise wrong_claim(detail, claims, "nbf", f"at most {latest_s:.0f}")
    valid_from_s = min(now_s, expires_at_s - 1) if issued_at_s is None else issued_at_s
    if not 0 < expires_at_s - valid_from_s <= MAX_TOKEN_LIFETIME_S:
        detail = f"the token is valid for longer than {MAX_TOKEN_LIFETIME_S} s; have it live shorter"
        raise wrong_claim(detail, claims, "exp", f"at most {valid_from_s + MAX_TOKEN_LIFETIME_S:.0f}")
    return expires_at_s, issued_at_s


def wrong_claim(detail: str, claims: Mapping[str, Any], name: str, expected: Any = None) -> SignatureInvalid:
    """Return the error for a wrong claim: `detail`, which quotes nothing of the token, and the values for the log."""
    return SignatureInvalid(detail, part=f"claim {name}", expected=expected, found=claims.get(name))


def number_date(claims: Mapping[str, Any], name: str) -> float:
    """Return the time (Unix seconds) in a claim. Raises `SignatureInvalid` if the claim holds no time."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        detail = f"the token states no time in `{name}`; it needs Unix seconds"
        raise wrong_claim(detail, claims, name, "Unix seconds")
    return float(value)


def _require_compact(token: Any) -> str:
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not _COMPACT.fullmatch(token):
        detail = "this is not a compact JWT; send `header.payload.signature` as the issuer made it"
        summary = f"a text of {len(token)} characters" if isinstance(token, str) else type(token).__name__
        raise SignatureInvalid(detail, part="token", expected=f"at most {MAX_TOKEN_CHARS} characters", found=summary)
    return token


def _key_id(header: Mapping[str, Any]) -> str:
    kid = header.get("kid")
    if not isinstance(kid, str) or not kid:
        detail = "the token names no key (`kid`); have the issuer state one"
        raise SignatureInvalid(detail, part="header kid", expected="a text", found=kid)
    return kid


def _fitting_keys(
    header: Mapping[str, Any], keys: KeySet, algorithms: Sequence[str], types: Sequence[str | None], use: str
) -> list[Mapping[str, Any]]:
    """Return the public keys that the header names and that are for its algorithm. Raises `SignatureInvalid`."""
    algorithm, token_type = header.get("alg"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        detail = f"the algorithm of the token is not one of {', '.join(algorithms)}"
        raise SignatureInvalid(detail, part="header alg", expected=list(algorithms), found=algorithm)
    if extensions := [name for name in ("crit", "b64") if name in header]:
        detail = "the header of the token has an extension that is not understood (`crit`, `b64`)"
        raise SignatureInvalid(detail, part=f"header {extensions[0]}", found=header[extensions[0]])
    if media_type(token_type) not in types:
        names = ", ".join(f"`{name}`" for name in types if name)
        detail = f"the token is not of the type {names}; send the one for this purpose"
        raise SignatureInvalid(detail, part="header typ", expected=list(types), found=token_type)
    kid = _key_id(header)
    named_keys = keys.get(kid)
    if not named_keys:
        detail = "the issuer has no key with the id that the token names; ask for a new token"
        raise SignatureInvalid(detail, part="header kid", expected=sorted(keys), found=kid)
    fitting_keys = [key for key in named_keys if _fits_algorithm(key, algorithm, use)]
    if not fitting_keys:
        detail = "the key that the token names is not one for its algorithm and for signatures"
        summaries = [{name: key.get(name) for name in ("kty", "use", "alg") if name in key} for key in named_keys]
        raise SignatureInvalid(detail, part="header alg", expected=summaries, found=algorithm)
    return fitting_keys


def _fits_algorithm(key: Mapping[str, Any], algorithm: str, use: str) -> bool:
    key_type, curves = JWT_ALGORITHMS[algorithm]
    operations, key_algorithm = key.get("key_ops", ["verify"]), key.get("alg", algorithm)
    return (
        key.get("kty") == key_type
        and (not curves or key.get("crv") in curves)
        and key.get("use", use) == use
        and isinstance(operations, list)
        and "verify" in operations
        and isinstance(key_algorithm, str)
        and _SAME_ALGORITHM.get(key_algorithm, key_algorithm) == _SAME_ALGORITHM.get(algorithm, algorithm)
    )


def _check_signed_by(token: str, algorithm: str, keys: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a token that none of `keys` signed; an RSA key of fewer than `MIN_RSA_BITS` bits does not count. The
    header was read by other code than the library that verifies.
    """
    signing_input, _, signature = token.rpartition(".")
    weak_keys = [key for key in keys if key["kty"] == "RSA" and _rsa_bits(key) < MIN_RSA_BITS]
    if any(key not in weak_keys and _is_signed(signing_input.encode(), signature, algorithm, key) for key in keys):
        return
    if len(weak_keys) == len(keys):
        raise SignatureInvalid(f"the issuer's RSA key has fewer than {MIN_RSA_BITS} bits", part="signature")
    raise SignatureInvalid("the issuer's key did not sign this token; ask for a new one", part="signature")


def _rsa_bits(key: Mapping[str, Any]) -> int:
    try:
        return int.from_bytes(decode_base64(key.get("n"))).bit_length()
    except SignatureInvalid:
        return 0


def _is_signed(signing_input: bytes, signature: str, algorithm: str, key: Mapping[str, Any]) -> bool:
    # Imported here, because importing `joserfc` takes 120 ms.
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key
    from joserfc.jws import JWSRegistry

    try:
        if key["kty"] == "OKP":
            return verify_signature(decode_base64(key.get("x")), signing_input, decode_base64(signature))
        public: Any = import_key({name: key[name] for name in _PUBLIC_MEMBERS[key["kty"]] if name in key})
        verifier = JWSRegistry(algorithms=[algorithm]).get_alg(algorithm)
        verifier.check_key(public)
        return verifier.verify(signing_input, decode_base64(signature), public)
    except (JoseError, SignatureInvalid, ValueError, TypeError, KeyError):
        return False


def _json_object(segment: str) -> dict[str, Any]:
    try:
        value = loads(decode_base64(segment))
    except InvalidInput as error:
        code = error.problems[0].code
        raise SignatureInvalid(f"a part of the token is not JSON: {code}", part="token", found=code) from None
    if not isinstance(value, dict):
        raise SignatureInvalid("a part of the token is not a JSON object", part="token")
    return value
