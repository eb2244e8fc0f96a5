"""The setting `workloads`: the SPIFFE trust domains whose workloads can act, and in which tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contextos.port_settings.checks import bad, check_key_set, check_listed, check_text, fitting, listed_tables, within
from contextos.trust.identity.svid import TrustDomain


@dataclass(frozen=True, slots=True)
class TrustDomainSetting:
    """A SPIFFE trust domain. Its bundle comes from exactly one of `bundle_url` and `bundle_file`; a file is read again
    when it can have changed. A workload is an agent of the directory (`workload_identity`) in one of `tenants`, and of
    no other. `internal`: a person said that `bundle_url` is at a private address.
    """

    name: str
    tenants: tuple[str, ...]
    bundle_url: str = ""
    bundle_file: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60
    internal: bool = False

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_key_set(self, "bundle", at)
        check_listed(self.tenants, f"{at}/tenants")
        check_listed(self.algorithms, f"{at}/algorithms")

    def trusted(self, audience: str) -> TrustDomain:
        """Return the trust domain. Raises `InvalidSettings` for a value that it cannot have."""
        return TrustDomain(self.name, audience, self.algorithms, self.leeway_s)


@dataclass(frozen=True, slots=True)
class WorkloadsSetting:
    """The trust domains whose workloads can act; `audience` is the only one that their tokens (JWT-SVIDs) have."""

    audience: str
    trust_domains: tuple[TrustDomainSetting, ...]

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_text(self.audience, f"{at}/audience")
        if not isinstance(self.trust_domains, tuple) or not self.trust_domains:
            raise bad(f"{at}/trust_domains", "no trust domain is listed", "list one: `[[workloads.trust_domains]]`")
        for number, one in enumerate(self.trust_domains):
            if not isinstance(one, TrustDomainSetting):
                raise bad(f"{at}/trust_domains/{number}", "this is not a trust domain", "give a `TrustDomainSetting`")
            one.check(f"{at}/trust_domains/{number}")
            with within(f"{at}/trust_domains/{number}"):
                one.trusted(self.audience)
        names = [one.name for one in self.trust_domains]
        if len(set(names)) < len(names):
            raise bad(f"{at}/trust_domains", "a trust domain is listed twice", "list each once, with all its tenants")


def read_workloads(value: Any) -> WorkloadsSetting:
    """Return the table `workloads` of `contextos.toml`. Raises `InvalidSettings`."""
    table = fitting(WorkloadsSetting, value, "/workloads")
    table["trust_domains"] = listed_tables(TrustDomainSetting, table["trust_domains"], "/workloads/trust_domains")
    return WorkloadsSetting(**table)


def check_workloads(value: Any) -> None:
    """Check the setting `workloads`, however it was made. Raises `InvalidSettings`."""
    if not isinstance(value, WorkloadsSetting):
        raise bad("/workloads", "this is not a `WorkloadsSetting`", "give one, or None")
    value.check("/workloads")
