"""Makes the issuers of tokens beside the directory's own: logins that approve, and partners whose agents call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextos.contracts.ports.outside import Clock
from contextos.deployment.ports import ApprovalLogins
from contextos.trust.identity.hops import Partner
from contextos.trust.identity.jwt import CheckKeys, check_jwks
from contextos.workspace.given import extra_named
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import within

if TYPE_CHECKING:
    from contextos.adapters.jwks import Jwks


def approval_logins_of(settings: Settings, clock: Clock) -> ApprovalLogins | None:
    """Return the issuer of the logins that can answer approvals, or None.

    Raises:
        InvalidSettings: the address of its keys is not a URL, or the extra `http` is not installed.
    """
    setting = settings.approval_logins
    if setting is None:
        return None
    jwks = key_set("/approval_logins", setting, settings.workspace, clock, setting.issuer)
    return ApprovalLogins(setting.trusted(), jwks.with_key, setting.max_auth_age_s, jwks.is_silent)


def partners_of(settings: Settings, clock: Clock) -> dict[str, Partner]:
    """Return the partners whose hop claims count, by issuer.

    Raises:
        InvalidSettings: the address of the keys is not a URL, or the extra `http` is not installed.
    """
    if settings.hops is None:
        return {}
    partners = {}
    for number, hop in enumerate(settings.hops.issuers):
        jwks = key_set(f"/hops/issuers/{number}", hop, settings.workspace, clock, hop.issuer)
        partners[hop.issuer] = Partner(hop.trusted(settings.hops.address), hop.tenants, jwks.with_key, jwks.is_silent)
    return partners


def key_set(
    at: str, named: Any, root: Path, clock: Clock, issuer: str, *, kind: str = "jwks", check: CheckKeys = check_jwks
) -> Jwks:
    """Return the keys at the `<kind>_url` of a setting, or, if that is empty, in its `<kind>_file`. The file is read
    again when it can have changed. `at` is the place of the setting. Raises `InvalidSettings`.
    """
    with extra_named("http", at):
        from contextos.adapters.jwks import FileJwks, HttpJwks
    if url := getattr(named, f"{kind}_url"):
        with within(at, f"{kind}_url"):
            return HttpJwks(url, clock, issuer=issuer, internal=named.internal, check=check)
    return FileJwks(root / getattr(named, f"{kind}_file"), clock, issuer=issuer, check=check)
