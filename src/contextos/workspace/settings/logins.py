"""The tables of logins: of people who answer approvals, and of people with a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    Flag,
    ListOf,
    ServiceUrl,
    SettingTable,
    SomeText,
    Variable,
    means,
    secret_faults,
    whole,
)
from contextos.trust.identity.oidc import MAX_AUTH_AGE_S, TrustedIssuer
from contextos.workspace.settings.directory import ISSUER_ALGORITHMS, Algorithms, Leeway

MAX_SESSION_S: Final = 86_400
_ORIGIN_REMEDY: Final = "write `https://host[:port]`, in lower case, without a path"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[1-9][0-9]{0,4})?")


def _is_origin(url: str) -> bool:
    default_port = ":443" if url.startswith("https://") else ":80"
    return _ORIGIN.fullmatch(url) is not None and not url.endswith(default_port)


def _has_openid(scopes: tuple[str, ...]) -> bool:
    return "openid" in scopes and not any(" " in scope for scope in scopes)


@dataclass(frozen=True, slots=True)
class ApprovalLoginsSetting(SettingTable):
    """The OIDC issuer whose logins can answer approvals."""

    issuer: Annotated[SomeText, means("the `iss` of its tokens")]
    audience: Annotated[SomeText, means("the `aud` that its tokens have for this deployment")]
    jwks_url: Annotated[ServiceUrl, means("where its keys are (`jwks_uri`); `https://`, or `http://` on this machine")]
    algorithms: Algorithms = ISSUER_ALGORITHMS
    leeway_s: Leeway = 60
    max_auth_age_s: Annotated[
        int, whole(1, MAX_AUTH_AGE_S, "seconds since the login (`auth_time`) for which it counts")
    ] = 300
    internal: Annotated[Flag, means("true: `jwks_url` is at a private address")] = False

    def trusted(self) -> TrustedIssuer:
        """Return the issuer as tokens are verified with."""
        return TrustedIssuer(self.issuer, self.audience, self.algorithms, self.leeway_s)


@dataclass(frozen=True, slots=True)
class BrowserLoginsSetting(SettingTable):
    """Login sessions of browsers, at the issuer that `[directory]` names."""

    origin: Annotated[
        ServiceUrl,
        Fits("this is not an origin as browsers write it", _ORIGIN_REMEDY, _is_origin),
        means("where browsers see the service; `http://` only on this machine, and not in the profile `service`"),
    ]
    client_id: Annotated[SomeText, means("as whom the issuer knows it; its redirect URI there is `ORIGIN/callback`")]
    authorization_url: Annotated[ServiceUrl, means("the issuer's authorization endpoint")]
    token_url: Annotated[ServiceUrl, means("the issuer's token endpoint; `https://`, or `http://` on this machine")]
    secret_file: Annotated[AnyText, means("the file with the client's secret, read for each login")] = ""
    secret_env: Annotated[
        Variable, means("the environment variable that holds it; without both the client is public")
    ] = ""
    scopes: Annotated[
        ListOf[SomeText],
        Fits("this is not a list of scopes with `openid` in it", "list `openid` and others", _has_openid),
        means("what is asked for at login; `openid` is among them"),
    ] = ("openid",)
    max_session_s: Annotated[
        int, whole(1, MAX_SESSION_S, "seconds after which a session ends, if its token has not before")
    ] = 28_800
    internal: Annotated[Flag, means("true: `token_url` is at a private address")] = False

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the service over TLS. Without it, only this machine can."""
        return self.origin.startswith("https://")

    def faults(self) -> Iterator[Fault]:
        return secret_faults(self, "secret", required=False)
