"""The setting `hops`: the partners whose agents can call with a hop claim, and in which tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contextos.port_settings.checks import bad, check_key_set, check_listed, check_text, fitting, listed_tables, within
from contextos.trust.identity.oidc import TrustedIssuer


@dataclass(frozen=True, slots=True)
class HopIssuerSetting:
    """A partner whose hop claims count in `tenants`. Its keys come from exactly one of `jwks_url` and `jwks_file`; a
    file is read again when it can have changed. `internal`: a person said that `jwks_url` is at a private address.
    """

    issuer: str
    tenants: tuple[str, ...]
    jwks_url: str = ""
    jwks_file: str = ""
    algorithms: tuple[str, ...] = ("Ed25519", "EdDSA")
    leeway_s: int = 60
    internal: bool = False

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_key_set(self, "jwks", at)
        check_listed(self.tenants, f"{at}/tenants")
        check_listed(self.algorithms, f"{at}/algorithms")

    def trusted(self, address: str) -> TrustedIssuer:
        """Return the issuer. Raises `InvalidSettings` for a value that it cannot have."""
        return TrustedIssuer(self.issuer, address, self.algorithms, self.leeway_s, "ctxhop+jwt")


@dataclass(frozen=True, slots=True)
class HopsSetting:
    """The partners whose claims count. `address` is as whom they know this deployment: the only audience of their
    claims, and the issuer of those that it signs.
    """

    address: str
    issuers: tuple[HopIssuerSetting, ...] = ()

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_text(self.address, f"{at}/address")
        if not isinstance(self.issuers, tuple) or not all(isinstance(one, HopIssuerSetting) for one in self.issuers):
            raise bad(f"{at}/issuers", "this is not a list of partners", "list each: `[[hops.issuers]]`")
        for number, one in enumerate(self.issuers):
            one.check(f"{at}/issuers/{number}")
            with within(f"{at}/issuers/{number}"):
                one.trusted(self.address)
        names = [one.issuer for one in self.issuers]
        if len(set(names)) < len(names) or self.address in names:
            detail = "a partner is listed twice, or this deployment is listed as its own"
            raise bad(f"{at}/issuers", detail, "list each partner once; each needs an `address` of its own")


def read_hops(value: Any) -> HopsSetting:
    """Return the table `hops` of `contextos.toml`. Raises `InvalidSettings`."""
    table = fitting(HopsSetting, value, "/hops")
    return HopsSetting(table["address"], listed_tables(HopIssuerSetting, table.get("issuers", []), "/hops/issuers"))


def check_hops(value: Any) -> None:
    """Check the setting `hops`, however it was made. Raises `InvalidSettings`."""
    if not isinstance(value, HopsSetting):
        raise bad("/hops", "this is not a `HopsSetting`", "give one, or None")
    value.check("/hops")
