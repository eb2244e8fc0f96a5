"""The setting `hops`: the partners whose agents can call with a hop claim, and in which tenants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contextos.port_settings.checks import bad, check_https, check_internal, check_text, fitting
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
        if bool(self.jwks_url) == bool(self.jwks_file):
            detail = "the partner's keys come from exactly one of `jwks_url` and `jwks_file`"
            raise bad(at, detail, "name where it serves them, or a file with what it sent")
        if self.jwks_url:
            check_https(self.jwks_url, f"{at}/jwks_url")
        else:
            check_text(self.jwks_file, f"{at}/jwks_file")
        check_internal(self.internal, at)
        for name in ("tenants", "algorithms"):
            listed = getattr(self, name)
            if not isinstance(listed, tuple) or not listed or not all(isinstance(one, str) and one for one in listed):
                raise bad(f"{at}/{name}", "this is not a list of texts, or it is empty", "list at least one")

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
        names = [one.issuer if isinstance(one, HopIssuerSetting) else None for one in self.issuers]
        for number, one in enumerate(self.issuers):
            if not isinstance(one, HopIssuerSetting):
                raise bad(f"{at}/issuers/{number}", "this is no partner", "give a `HopIssuerSetting`")
            one.check(f"{at}/issuers/{number}")
            one.trusted(self.address)
        if len(set(names)) < len(names) or self.address in names:
            detail = "a partner is listed twice, or this deployment is listed as its own"
            raise bad(f"{at}/issuers", detail, "list each partner once; each needs an `address` of its own")


def read_hops(value: Any) -> HopsSetting:
    """Return the table `hops` of `contextos.toml`. Raises `InvalidSettings`."""
    table = fitting(HopsSetting, value, "/hops")
    listed = table.get("issuers")
    if isinstance(listed, list):
        table["issuers"] = tuple(_issuer(one, number) for number, one in enumerate(listed))
    return HopsSetting(**table)


def check_hops(value: Any) -> None:
    """Check the setting `hops`, however it was made. Raises `InvalidSettings`."""
    if not isinstance(value, HopsSetting) or not isinstance(value.issuers, tuple):
        raise bad("/hops", "this is not a `HopsSetting`, or its issuers are no list", "give one, or None")
    value.check("/hops")


def _issuer(value: Any, number: int) -> HopIssuerSetting:
    table = fitting(HopIssuerSetting, value, f"/hops/issuers/{number}")
    for name in ("tenants", "algorithms"):
        if isinstance(table.get(name), list):
            table[name] = tuple(table[name])
    return HopIssuerSetting(**table)
