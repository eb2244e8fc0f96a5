"""Verify a SPIFFE JWT-SVID: the short-lived token by which a workload proves its SPIFFE id.

The trust domain in `sub` names the only bundle whose keys count, so one trust domain cannot vouch for a workload of
another. A bundle is a JWK Set in the SPIFFE format, of which only keys with `use: jwt-svid` are read. A token has
exactly one audience, because any other audience could send it on. This module is a pure function of its arguments;
fetching the bundle is the adapter's part (`adapters.jwks`).
Source: SPIFFE, "JWT-SVID", "SPIFFE-ID" and "Trust Domain and Bundle"; RFC 8725.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.jcs import digest
from contextos.contracts.ids import SPIFFE
from contextos.errors import InvalidSettings, Problem
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.identity.jwt import (
    JWT_ALGORITHMS,
    CheckKeys,
    check_jwks,
    check_times,
    signed_claims,
    signing_fault,
    wrong_claim,
)

SVID_ALGORITHMS: Final = tuple(name for name in JWT_ALGORITHMS if name.startswith(("RS", "PS", "ES")))
"""The algorithms of the SPIFFE specification."""
SVID_USE: Final = "jwt-svid"

check_bundle: Final[CheckKeys] = partial(check_jwks, use=SVID_USE)
"""Returns the keys of a SPIFFE bundle that sign JWT-SVIDs, by key id. Raises `InvalidInput` if it is not a bundle."""

_SCHEME: Final = "spiffe://"
_TYPES: Final = (None, "jwt", "jose")


@dataclass(frozen=True, slots=True)
class TrustDomain:
    """A trust domain whose workloads count, and for whom their tokens must be made.

    `name` is the name of the domain (`acme.example`), and `audience` the only audience of a token. The domain signs
    with `algorithms`. `leeway_s` is how far its clock can be off, in seconds.

    Raises:
        InvalidSettings: a value is missing, out of bounds or not an algorithm of SPIFFE.
    """

    name: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or "/" in self.name or not SPIFFE.fits(f"{_SCHEME}{self.name}"):
            raise _bad_setting("name", "this is not a trust domain", "write it as in `spiffe://acme.example/…`")
        if not isinstance(self.audience, str) or not self.audience:
            raise _bad_setting("audience", "`audience` is not a text", "name for whom the tokens are made")
        if fault := signing_fault(self.algorithms, self.leeway_s, SVID_ALGORITHMS):
            raise _bad_setting(*fault)


@dataclass(frozen=True, slots=True)
class VerifiedSvid:
    """The content of a verified JWT-SVID. `expires_at_s` is Unix time in seconds; `token_digest` is for records."""

    spiffe_id: str
    expires_at_s: float
    token_digest: str


def trust_domain_of(token: str) -> str | None:
    """Return the trust domain of the workload that a token names, or None if it names none. Nothing is verified: the
    result says only with whose keys to verify.
    """
    subject = (unverified_payload(token) or {}).get("sub")
    if not isinstance(subject, str) or not SPIFFE.fits(subject):
        return None
    return subject.removeprefix(_SCHEME).partition("/")[0]


def verify_svid(token: str, domain: TrustDomain, bundle: Mapping[str, Any], *, now_us: int) -> VerifiedSvid:
    """Return the content of `token` if a key of the domain's `bundle` signed it for our audience, and it is valid at
    `now_us` (Unix µs).

    Raises:
        SignatureInvalid: the token is refused, for any reason; the message names it and quotes nothing of the token.
        InvalidInput: `bundle` is not a SPIFFE bundle.
    """
    claims = signed_claims(token, check_bundle(bundle), algorithms=domain.algorithms, types=_TYPES, use=SVID_USE)
    expires_at_s, _ = check_times(claims, leeway_s=domain.leeway_s, now_us=now_us, issued=False)
    subject, audience = claims.get("sub"), claims.get("aud")
    if not isinstance(subject, str) or not SPIFFE.fits(subject) or not subject.startswith(f"{_SCHEME}{domain.name}/"):
        detail, expected = "the token names no workload of this trust domain in `sub`", f"{_SCHEME}{domain.name}/…"
        raise wrong_claim(detail, claims, "sub", expected)
    if audience not in (domain.audience, [domain.audience]):
        detail = "the token is for another audience, or for several; ask for one for this audience alone"
        raise wrong_claim(detail, claims, "aud", domain.audience)
    return VerifiedSvid(subject, expires_at_s, digest(token.encode()))


def _bad_setting(name: str, detail: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(Problem(f"/workloads/{name}", "bad_setting", detail, remedy))
