"""The tables of `directory`: a signed file, and users from the tokens of an OIDC issuer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from contextos.contracts.setting_types import (
    AnyServiceUrl,
    AnyText,
    Fault,
    Fits,
    Flag,
    ListOf,
    PublicKeyHex,
    SettingTable,
    SomeOf,
    SomeText,
    String,
    TableKey,
    key_set_faults,
    means,
    whole,
)
from contextos.trust.identity.jwt import JWT_ALGORITHMS, MAX_LEEWAY_S
from contextos.trust.identity.oidc import TrustedIssuer

ISSUER_ALGORITHMS: Final = ("RS256", "ES256")
Leeway = Annotated[int, whole(0, MAX_LEEWAY_S, f"seconds by which its clock can be off (at most {MAX_LEEWAY_S})")]


def algorithm_of(known: tuple[str, ...]) -> Fits:
    """Return the annotation of an algorithm that is one of `known`."""
    remedy = f"list some of {', '.join(known)}"
    return Fits("this algorithm is not accepted", remedy, lambda algorithm: algorithm in known)


Algorithms = Annotated[
    SomeOf[Annotated[String, algorithm_of(JWT_ALGORITHMS)]],
    means("the algorithms that the issuer signs with; none with a shared secret"),
]
Signers = Annotated[SomeOf[PublicKeyHex], means("the public keys (hex) of who may sign it")]


@dataclass(frozen=True, slots=True)
class SignedDirectorySetting(SettingTable):
    """A directory in a signed file."""

    kind: ClassVar[str] = "signed"

    path: Annotated[SomeText, means("the signed file")]
    signers: Signers


@dataclass(frozen=True, slots=True)
class OidcDirectorySetting(SettingTable):
    """Users from the tokens of an OIDC issuer; agents, approvers and limits from a signed file."""

    kind: ClassVar[str] = "oidc"

    path: Annotated[SomeText, means("the signed file with agents, approvers and limits; users are not listed in it")]
    signers: Signers
    issuer: Annotated[SomeText, means("the issuer, exactly as in `iss`")]
    audience: Annotated[SomeText, means("for whom tokens are made, exactly as in `aud`")]
    roles: Annotated[
        Mapping[TableKey, SomeText],
        Fits("this is not a table, or no role is listed", "map values of the claim to roles", lambda roles: roles),
        means("a table: value of the claim `roles_claim` to role; the first is the user's own"),
    ]
    jwks_url: Annotated[AnyServiceUrl, means("the issuer's `jwks_uri`; `https://`, or `http://` on this machine")] = ""
    jwks_file: Annotated[AnyText, means("a file with its JWK Set; exactly one of the two is given")] = ""
    algorithms: Algorithms = ISSUER_ALGORITHMS
    leeway_s: Leeway = 60
    token_type: Annotated[SomeText, means("the header `typ`: `JWT` for ID tokens, `at+jwt` for access tokens")] = "JWT"
    user_claim: Annotated[SomeText, means("the claim that is the user's id here")] = "sub"
    roles_claim: Annotated[SomeText, means("the claim that lists groups or roles")] = "groups"
    scopes: Annotated[
        ListOf[SomeText], means("the scopes that a user can delegate, as far as their token has them")
    ] = ()
    scopes_claim: Annotated[SomeText, means("the claim that lists scopes, or has them with spaces between")] = "scope"
    organization_claim: Annotated[AnyText, means("the claim that is the user's organisation; empty: none")] = ""
    tenant_claim: Annotated[AnyText, means("the claim that lists the user's tenants; a file with several needs it")] = (
        ""
    )
    agent_claim: Annotated[
        AnyText, means("the claim that is the only agent to which a token delegates; empty: the request names it")
    ] = ""
    clients: Annotated[
        ListOf[SomeText],
        means(
            "the clients to which tokens are issued (`azp`, `client_id`), of which each token then states one; "
            "empty: an `azp` has to be the audience"
        ),
    ] = ()
    internal: Annotated[Flag, means("true: `jwks_url` is at a private address")] = False

    def faults(self) -> Iterator[Fault]:
        return key_set_faults(self, "jwks")

    def trusted(self) -> TrustedIssuer:
        """Return the issuer as tokens are verified with."""
        return TrustedIssuer(self.issuer, self.audience, self.algorithms, self.leeway_s, self.token_type, self.clients)
