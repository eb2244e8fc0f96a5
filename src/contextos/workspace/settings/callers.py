"""The tables of callers that are programs: the workloads of SPIFFE trust domains, and the agents of partners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from contextos.contracts.ids import SPIFFE
from contextos.contracts.setting_types import (
    AnyServiceUrl,
    AnyText,
    Fault,
    Fits,
    Flag,
    SettingTable,
    SomeOf,
    SomeText,
    String,
    key_set_faults,
    means,
    tables,
)
from contextos.trust.identity.oidc import TrustedIssuer
from contextos.trust.identity.svid import SVID_ALGORITHMS, TrustDomain
from contextos.workspace.settings.directory import ISSUER_ALGORITHMS, Algorithms, Leeway, algorithm_of

_NAME_REMEDY: Final = "write it as in `spiffe://acme.example/…`"


def _is_trust_domain(name: str) -> bool:
    return "/" not in name and SPIFFE.fits(f"spiffe://{name}")


@dataclass(frozen=True, slots=True)
class TrustDomainSetting(SettingTable):
    """A SPIFFE trust domain. A workload is an agent of the directory (`workload_identity`) in one of its tenants."""

    name: Annotated[
        String,
        Fits("this is not a trust domain", _NAME_REMEDY, _is_trust_domain),
        means("its name, as in `spiffe://acme.example/…`"),
    ]
    tenants: Annotated[SomeOf[SomeText], means("the tenants in which its workloads can be agents")]
    bundle_url: Annotated[
        AnyServiceUrl, means("its bundle endpoint (profile `https_web`); `https://`, or `http://` on this machine")
    ] = ""
    bundle_file: Annotated[
        AnyText, means("a file with its bundle, read again when a key is not in it; exactly one of the two is given")
    ] = ""
    algorithms: Annotated[
        SomeOf[Annotated[String, algorithm_of(SVID_ALGORITHMS)]], means("those that it signs with")
    ] = ISSUER_ALGORITHMS
    leeway_s: Leeway = 60
    internal: Annotated[Flag, means("true: `bundle_url` is at a private address")] = False

    def faults(self) -> Iterator[Fault]:
        return key_set_faults(self, "bundle")

    def trusted(self, audience: str) -> TrustDomain:
        """Return the trust domain as tokens are verified with."""
        return TrustDomain(self.name, audience, self.algorithms, self.leeway_s)


@dataclass(frozen=True, slots=True)
class WorkloadsSetting(SettingTable):
    """The trust domains whose workloads can act over HTTP."""

    audience: Annotated[SomeText, means("for whom JWT-SVIDs are made: exactly this one, and no second")]
    trust_domains: Annotated[
        tuple[TrustDomainSetting, ...], tables("workloads.trust_domains", "the trust domains; no other counts", least=1)
    ]

    def faults(self) -> Iterator[Fault]:
        names = [domain.name for domain in self.trust_domains]
        if len(set(names)) < len(names):
            yield Fault(("trust_domains",), "a trust domain is listed twice", "list each once, with all its tenants")


@dataclass(frozen=True, slots=True)
class HopIssuerSetting(SettingTable):
    """A partner whose hop claims count in some tenants."""

    issuer: Annotated[SomeText, means("the `iss` of its claims: the `address` in its own `[hops]`")]
    tenants: Annotated[SomeOf[SomeText], means("the tenants in which its agents can call")]
    jwks_url: Annotated[AnyServiceUrl, means("where its keys are; `https://`, or `http://` on this machine")] = ""
    jwks_file: Annotated[
        AnyText, means("a file with them (`contextos key list --jwks claim`); exactly one of the two is given")
    ] = ""
    algorithms: Algorithms = ("Ed25519", "EdDSA")
    leeway_s: Leeway = 60
    internal: Annotated[Flag, means("true: `jwks_url` is at a private address")] = False

    def faults(self) -> Iterator[Fault]:
        return key_set_faults(self, "jwks")

    def trusted(self, address: str) -> TrustedIssuer:
        """Return the issuer of claims for `address`."""
        return TrustedIssuer(self.issuer, address, self.algorithms, self.leeway_s, "ctxhop+jwt")


@dataclass(frozen=True, slots=True)
class HopsSetting(SettingTable):
    """The partners whose agents can call with a hop claim."""

    address: Annotated[
        SomeText, means("as whom partners know this deployment: `aud` of their claims, `iss` of its own")
    ]
    issuers: Annotated[tuple[HopIssuerSetting, ...], tables("hops.issuers", "the partners; no other counts")] = ()

    def faults(self) -> Iterator[Fault]:
        names = [partner.issuer for partner in self.issuers]
        if len(set(names)) < len(names) or self.address in names:
            detail = "a partner is listed twice, or this deployment is listed as its own"
            yield Fault(("issuers",), detail, "list each partner once; each needs an `address` of its own")
