"""The settings of ports: which implementation, and what it needs.

Refuses an unknown kind or name, a missing or mistyped value, and a secret in the settings: a passphrase or token is
named by its file or environment variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from contextos.contracts.model import MAX_NAME_CHARS
from contextos.port_settings.browser_logins import check_browser_logins, read_browser_logins
from contextos.port_settings.checks import (
    bad,
    check_https,
    check_internal,
    check_key_set,
    check_made,
    check_public_key,
    check_text,
    check_timeout,
    fitting,
    kind_of,
    listed_tables,
    made_of,
    one_source,
    within,
)
from contextos.port_settings.hops import check_hops, read_hops
from contextos.port_settings.workloads import check_workloads, read_workloads
from contextos.trust.identity.oidc import MAX_AUTH_AGE_S, TrustedIssuer
from contextos.trust.seal import PURPOSES


@dataclass(frozen=True, slots=True)
class Pkcs8KeysSetting:
    """Keys in the directory `path`, encrypted with a passphrase that is in a file or an environment variable."""

    kind: ClassVar[str] = "pkcs8"

    path: str = "keys"
    passphrase_file: str = ""
    passphrase_env: str = ""

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_text(self.path, f"{at}/path")
        one_source(self.passphrase_file, self.passphrase_env, at, "passphrase")


@dataclass(frozen=True, slots=True)
class RemoteKeySetting:
    """A key of a key service: its resource name there, and its public key (hex), which is pinned. `retired_at_us` is
    the time (Unix microseconds) after which nothing that it signs counts; 0 while it signs.
    """

    purpose: str
    name: str
    public_key: str
    retired_at_us: int = 0

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        if self.purpose not in PURPOSES:
            raise bad(f"{at}/purpose", "this is not a purpose", f"use one of {', '.join(PURPOSES)}")
        check_text(self.name, f"{at}/name")
        if self.name.startswith("/") or ".." in self.name.split("/") or set(self.name) & set("?#\\"):
            raise bad(f"{at}/name", "this is not a resource below the URL", "name it as the key service does")
        check_public_key(self.public_key, f"{at}/public_key")
        if type(self.retired_at_us) is not int or self.retired_at_us < 0:
            raise bad(f"{at}/retired_at_us", "this is not a time", "give Unix microseconds, or leave it out")


@dataclass(frozen=True, slots=True)
class RemoteKeysSetting:
    """Keys of a key service over HTTP. `token_file` is read for each request, so that a fresh token can be put there;
    without `token_file` and `token_env` no token is sent. `timeout_s` bounds each request, in seconds.
    """

    kind: ClassVar[str] = "remote"

    url: str
    keys: tuple[RemoteKeySetting, ...]
    token_file: str = ""
    token_env: str = ""
    timeout_s: int = 5

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_https(self.url, f"{at}/url")
        if self.token_file or self.token_env:
            one_source(self.token_file, self.token_env, at, "token")
        check_timeout(self.timeout_s, at)
        if not isinstance(self.keys, tuple) or not self.keys:
            raise bad(f"{at}/keys", "no key is listed", "list the keys with `[[keys.keys]]`")
        for number, one in enumerate(self.keys):
            if not isinstance(one, RemoteKeySetting):
                raise bad(f"{at}/keys/{number}", "this is not a key", "give a `RemoteKeySetting`")
            one.check(f"{at}/keys/{number}")


@dataclass(frozen=True, slots=True)
class SignedDirectorySetting:
    """A directory in the signed file `path`. `signers` are the public keys (hex) of who may sign it."""

    kind: ClassVar[str] = "signed"

    path: str
    signers: tuple[str, ...]

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_text(self.path, f"{at}/path")
        if not isinstance(self.signers, tuple) or not self.signers:
            raise bad(f"{at}/signers", "nobody is listed who may sign it", "list the public keys")
        for number, one in enumerate(self.signers):
            check_public_key(one, f"{at}/signers/{number}")


@dataclass(frozen=True, slots=True)
class OidcDirectorySetting:
    """Users from the tokens of an OIDC issuer; agents, approvers and limits from the signed file `path`.

    Exactly one of `jwks_url` and `jwks_file` names the issuer's keys. `roles` maps values of the claim `roles_claim` to
    roles here, the user's own role first; a user without one is unknown. `scopes` are those that a user can delegate,
    as far as the claim `scopes_claim` has them. `tenant_claim` lists the tenants of a user; a file with several tenants
    needs it. `agent_claim` names the only agent to which a token delegates; empty: the request does. `clients` are
    those to which tokens are issued (`azp`, `client_id`). `internal`: a person said that `jwks_url` is at a private
    address.
    """

    kind: ClassVar[str] = "oidc"

    path: str
    signers: tuple[str, ...]
    issuer: str
    audience: str
    roles: Mapping[str, str]
    jwks_url: str = ""
    jwks_file: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60
    token_type: str = "JWT"
    user_claim: str = "sub"
    roles_claim: str = "groups"
    scopes: tuple[str, ...] = ()
    scopes_claim: str = "scope"
    organization_claim: str = ""
    tenant_claim: str = ""
    agent_claim: str = ""
    clients: tuple[str, ...] = ()
    internal: bool = False

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        SignedDirectorySetting(self.path, self.signers).check(at)
        for name in ("user_claim", "roles_claim", "scopes_claim"):
            check_text(getattr(self, name), f"{at}/{name}")
        for name in ("organization_claim", "tenant_claim", "agent_claim"):
            if not isinstance(getattr(self, name), str):
                raise bad(f"{at}/{name}", "this is not a text", "name a claim, or leave it out")
        check_key_set(self, "jwks", at)
        if not isinstance(self.roles, Mapping) or not self.roles:
            raise bad(f"{at}/roles", "no role is listed", "map values of the claim to roles")
        for name, role in self.roles.items():
            check_text(name, f"{at}/roles")
            check_text(role, f"{at}/roles/{name}")
        for name in ("scopes", "algorithms", "clients"):
            listed = getattr(self, name)
            if not isinstance(listed, tuple) or not all(isinstance(one, str) and one for one in listed):
                raise bad(f"{at}/{name}", "this is not a list of texts", "give a list")
        with within(at):
            self.trusted()

    def trusted(self) -> TrustedIssuer:
        """Return the issuer. Raises `InvalidSettings` for a value that it cannot have."""
        return TrustedIssuer(self.issuer, self.audience, self.algorithms, self.leeway_s, self.token_type, self.clients)


DirectorySetting: TypeAlias = "str | SignedDirectorySetting | OidcDirectorySetting"
_DIRECTORIES: Final = {one.kind: one for one in (SignedDirectorySetting, OidcDirectorySetting)}


def _read_kind(kinds: Mapping[str, type], at: str, value: Any) -> Any:
    """Return a setting that is a text or a table of one of `kinds`. Raises `InvalidSettings`."""
    if not isinstance(value, dict):
        return value
    table = kind_of(value, kinds, at)
    return kinds[value["kind"]](**table)


def _check_kind(kinds: Mapping[str, Any], at: str, value: Any) -> None:
    """Check a setting that is a text or of one of `kinds`, however it was made. Raises `InvalidSettings`."""
    value.check(at) if type(value) in kinds.values() else check_text(value, at)


read_directory: Final = partial(_read_kind, _DIRECTORIES, "/directory")
check_directory: Final = partial(_check_kind, _DIRECTORIES, "/directory")


@dataclass(frozen=True, slots=True)
class ApprovalLoginsSetting:
    """The OIDC issuer whose logins can answer approvals, and how old a login can be (`max_auth_age_s`, in seconds).

    `internal`: a person said that `jwks_url` is at a private address.
    """

    issuer: str
    audience: str
    jwks_url: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: int = 60
    max_auth_age_s: int = 300
    internal: bool = False

    def trusted(self) -> TrustedIssuer:
        """Return the issuer as tokens are verified with. Raises `InvalidSettings`."""
        return TrustedIssuer(self.issuer, self.audience, self.algorithms, self.leeway_s)

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        if not isinstance(self.algorithms, tuple) or not all(isinstance(one, str) for one in self.algorithms):
            raise bad(f"{at}/algorithms", "this is not a list of names", "list those that the issuer signs with")
        with within(at):
            self.trusted()
        check_https(self.jwks_url, f"{at}/jwks_url")
        check_internal(self.internal, at)
        if type(self.max_auth_age_s) is not int or not 1 <= self.max_auth_age_s <= MAX_AUTH_AGE_S:
            detail = f"this is not a whole number of seconds from 1 to {MAX_AUTH_AGE_S}"
            raise bad(f"{at}/max_auth_age_s", detail, "give one within these bounds")


read_approval_logins: Final = partial(made_of, ApprovalLoginsSetting, at="/approval_logins")
check_approval_logins: Final = partial(check_made, ApprovalLoginsSetting, "/approval_logins")


@dataclass(frozen=True, slots=True)
class TokenExchangeSetting:
    """The authorization server that issues credentials for calls (RFC 8693): the `url` of its token endpoint.

    `issuer` is its identifier, if that is not the URL. `internal`: a person said that it is at a loopback or private
    address. `timeout_s` bounds each request, in seconds.
    """

    kind: ClassVar[str] = "token_exchange"

    url: str
    client_id: str
    secret_file: str = ""
    secret_env: str = ""
    issuer: str = ""
    internal: bool = False
    timeout_s: int = 5

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        check_https(self.url, f"{at}/url")
        check_text(self.client_id, f"{at}/client_id")
        one_source(self.secret_file, self.secret_env, at, "secret")
        if self.issuer != "":
            check_text(self.issuer, f"{at}/issuer")
        if len(self.issuer or self.url) > MAX_NAME_CHARS:
            raise bad(f"{at}/issuer", "the identifier is too long", f"give one of at most {MAX_NAME_CHARS} characters")
        check_internal(self.internal, at)
        check_timeout(self.timeout_s, at)


def read_credentials(value: Any) -> TokenExchangeSetting:
    """Return the table `credentials` of `contextos.toml`. Raises `InvalidSettings`."""
    if not isinstance(value, dict):
        raise bad("/credentials", "this is not a table", "write `[credentials]`")
    return TokenExchangeSetting(**kind_of(value, {TokenExchangeSetting.kind: TokenExchangeSetting}, "/credentials"))


check_credentials: Final = partial(check_made, TokenExchangeSetting, "/credentials")


@dataclass(frozen=True, slots=True)
class AttachmentsSetting:
    """Where the files are that requests can name: by tenant, the beginnings of their URLs, each with a `/` at its end.

    `internal`: a person said that their hosts are at loopback or private addresses.
    """

    places: Mapping[str, tuple[str, ...]]
    internal: bool = False

    def check(self, at: str) -> None:
        """Refuse wrong values. Raises `InvalidSettings`."""
        remedy = 'write `<tenant> = ["https://files.acme.example/acme/"]`'
        if not isinstance(self.places, Mapping) or not self.places:
            raise bad(f"{at}/places", "no tenant is listed", remedy)
        if not isinstance(self.internal, bool):
            raise bad(f"{at}/internal", "this is not `true` or `false`", "write one of both")
        for tenant, places in self.places.items():
            check_text(tenant, f"{at}/places")
            if not isinstance(places, tuple) or not places:
                raise bad(f"{at}/places/{tenant}", "this is not a list of places", remedy)
            for number, place in enumerate(places):
                check_https(place, f"{at}/places/{tenant}/{number}")
                if not place.endswith("/") or (place.startswith("http://") and not self.internal):
                    detail = "a place ends with `/`, and only `internal` ones are without encryption"
                    raise bad(f"{at}/places/{tenant}/{number}", detail, remedy)


def read_attachments(value: Any) -> AttachmentsSetting:
    """Return the table `attachments` of `contextos.toml`. Raises `InvalidSettings`."""
    table = fitting(AttachmentsSetting, value, "/attachments")
    if isinstance(table["places"], dict):
        listed = table["places"].items()
        table["places"] = {name: tuple(one) if isinstance(one, list) else one for name, one in listed}
    return AttachmentsSetting(**table)


check_attachments: Final = partial(check_made, AttachmentsSetting, "/attachments")


KeysSetting: TypeAlias = "str | Pkcs8KeysSetting | RemoteKeysSetting"
_KEYS: Final = {one.kind: one for one in (Pkcs8KeysSetting, RemoteKeysSetting)}


def read_keys(value: Any) -> Any:
    """Return the setting `keys` as `contextos.toml` has it: a text or a table. Raises `InvalidSettings`."""
    if isinstance(value, dict) and value.get("kind") == RemoteKeysSetting.kind and "keys" in value:
        value = {**value, "keys": listed_tables(RemoteKeySetting, value["keys"], "/keys/keys")}
    return _read_kind(_KEYS, "/keys", value)


check_keys: Final = partial(_check_kind, _KEYS, "/keys")


class PortSetting(NamedTuple):
    """How a setting is read from `contextos.toml` and checked. An optional one can be None."""

    read: Callable[[Any], Any]
    check: Callable[[Any], None]
    is_optional: bool = False


PORT_SETTINGS: Final[Mapping[str, PortSetting]] = {
    "directory": PortSetting(read_directory, check_directory),
    "keys": PortSetting(read_keys, check_keys),
    "approval_logins": PortSetting(read_approval_logins, check_approval_logins, is_optional=True),
    "credentials": PortSetting(read_credentials, check_credentials, is_optional=True),
    "attachments": PortSetting(read_attachments, check_attachments, is_optional=True),
    "browser_logins": PortSetting(read_browser_logins, check_browser_logins, is_optional=True),
    "workloads": PortSetting(read_workloads, check_workloads, is_optional=True),
    "hops": PortSetting(read_hops, check_hops, is_optional=True),
}
"""The settings of ports, by name."""
