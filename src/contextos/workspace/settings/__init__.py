"""`Settings`: the configuration of one deployment, and its tables. It is checked once, at start.

A field of a table has a type that says which values are accepted, and what the setting means. An unknown name, a wrong
value, a secret in place of the name of its file, and a development stand-in under the profile `service` are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import PlainValidator, Strict

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.envelopes.policy import LEVELS, Level
from contextos.contracts.facts import ENVIRONMENTS, PROFILES
from contextos.contracts.ids import EGRESS
from contextos.contracts.model import MAX_COUNT
from contextos.contracts.setting_types import (
    AnyText,
    Fault,
    Fits,
    ListOf,
    OneOfKinds,
    PublicKeyHex,
    SettingTable,
    SomeText,
    String,
    TableKey,
    means,
    one_of,
    table_by,
    tables,
    whole,
)
from contextos.contracts.urls import is_private_connection, url_parts
from contextos.files import read_regular_file, why
from contextos.runtime.environment import RunLimits
from contextos.workspace.settings.callers import HopsSetting, WorkloadsSetting
from contextos.workspace.settings.calls import AdapterSetting, AttachmentsSetting, TokenExchangeSetting
from contextos.workspace.settings.directory import OidcDirectorySetting, SignedDirectorySetting
from contextos.workspace.settings.keys import Pkcs8KeysSetting, RemoteKeysSetting
from contextos.workspace.settings.logins import ApprovalLoginsSetting, BrowserLoginsSetting
from contextos.workspace.settings.models import ModelsSetting
from contextos.workspace.settings.outbox import OutboxSetting
from contextos.workspace.settings.reading import check_value, invalid_setting, read_table
from contextos.workspace.settings.telemetry import TelemetrySetting

SETTINGS_FILE: Final = "contextos.toml"
NO_WITNESS: Final = "off"
"""The value of the setting `witness` for a deployment without a witness."""
MAX_SETTINGS_BYTES: Final = 262_144
MAX_DOTS_PER_LINE: Final = 256
UNSAFE_PORTS: Final[Mapping[str, str]] = {
    "unsafe_local_directory": "a directory file",
    "unsafe_local_keys": "a key file",
    "unsafe_scripted_models": "a script in place of models",
}
"""The stand-ins that are ports, each with a description; records name the stand-ins in use."""
DEFAULT_PACKS: Final = ("packs",)
UNSAFE_SETTINGS: Final = (*UNSAFE_PORTS, "unsafe_local_approvals", "unsafe_local_operators", "unsafe_unsigned_packs")
TRACES_FROM: Final = ("callers", "workloads")
_EGRESS: Final = f'write `<tenant> = ["{EGRESS.example}"]`'
_REDACTION: Final = f"write `<tenant> = [...]` with rules of {', '.join(sorted(REDACTION_TARGETS))}"

DirectorySetting: TypeAlias = "str | SignedDirectorySetting | OidcDirectorySetting"
KeysSetting: TypeAlias = "str | Pkcs8KeysSetting | RemoteKeysSetting"


def is_postgres_url(store: str) -> bool:
    """Return whether `store` is the URL of a PostgreSQL database and not a file."""
    return store.startswith(("postgresql://", "postgres://"))


def is_sink_url(witness: str) -> bool:
    """Return whether the setting `witness` is a URL and not a file."""
    return witness.startswith(("https://", "http://"))


WitnessPlace = Annotated[
    AnyText,
    Fits(
        "this is not the URL of a sink",
        "write `https://host/path` without a query, or name a file",
        lambda witness: "://" not in witness or (is_sink_url(witness) and url_parts(witness).hostname),
    ),
    Fits(
        "the connection to the witness is not encrypted, so anybody on the way could answer for it",
        "write `https://`",
        lambda witness: "://" not in witness or is_private_connection(witness),
    ),
]
"""The type of `witness`."""

_Store = Annotated[
    SomeText,
    Fits(
        "this is not a PostgreSQL URL",
        "write `postgresql://…`, or name a file for SQLite",
        lambda store: "://" not in store or is_postgres_url(store),
    ),
]


def _checked_policy(pair: Any) -> Any:
    fits = isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[1], str)
    if not fits or pair[0] not in LEVELS[:2]:
        raise ValueError
    return tuple(pair)


_Policy = Annotated[
    tuple[Level, str],
    PlainValidator(_checked_policy),
    Fits("a policy is a level (`platform` or `tenant`) and a ref", 'write it like `["tenant", "POLICY_X@1.0.0"]`'),
]


@dataclass(frozen=True, slots=True)
class Driving(SettingTable):
    """How many runs a worker drives at the same time, in total and for one tenant."""

    max_drives: Annotated[int, whole(1, 1000, "runs that a worker drives at once")] = 32
    max_drives_per_tenant: Annotated[int, whole(1, 1000, "runs of one tenant that a worker drives at once")] = 8
    max_drives_per_tenant_in_all: Annotated[
        int, whole(0, MAX_COUNT, "runs of one tenant that all workers drive at once (0: no limit; needs PostgreSQL)")
    ] = 0
    rate_per_tenant: Annotated[
        int,
        whole(0, MAX_COUNT, "drives of a tenant that all workers start in a period (0: no limit; needs PostgreSQL)"),
    ] = 0
    rate_period_ms: Annotated[int, whole(1, MAX_COUNT, "the period of `rate_per_tenant`, in milliseconds")] = 1000


@dataclass(frozen=True, slots=True)
class Settings(SettingTable):
    """The settings of one deployment, fixed at start. Paths are relative to `workspace`.

    A start never changes policies. It is refused if the store has other policies in force than `policies`; None accepts
    any. URLs can hold a password, so `store` and `witness` are not in the representation (`repr`).
    """

    given: ClassVar[tuple[str, ...]] = ("workspace",)

    workspace: Annotated[Path, Strict(), Fits("this is not a path", "give a `pathlib.Path`")]
    store: Annotated[
        _Store, means("a SQLite file, or a URL of PostgreSQL (extra `postgres`) on which `contextos store migrate` ran")
    ] = field(default="contextos.db", repr=False)
    directory: Annotated[
        DirectorySetting,
        OneOfKinds(SignedDirectorySetting, OidcDirectorySetting, text=SomeText),
        means("the file of users, agents and approvers by tenant (needs `unsafe_local_directory`); or a table"),
    ] = "directory.json"
    keys: Annotated[
        KeysSetting,
        OneOfKinds(Pkcs8KeysSetting, RemoteKeysSetting, text=SomeText),
        means(
            "the directory of plain key files: `runtime.json` lists the public keys, and each private one is beside it "
            "(needs `unsafe_local_keys`); or a table"
        ),
    ] = "keys"
    profile: Annotated[
        String, one_of(PROFILES, "a profile"), means("`embedded` or `service`; recorded in every run")
    ] = "embedded"
    environment: Annotated[
        String,
        one_of(ENVIRONMENTS, "an environment").or_empty(),
        means("what is served: `dev`, `staging` or `prod`; recorded in every run. Empty: `dev`; refused of a service"),
    ] = ""
    packs: Annotated[
        ListOf[SomeText],
        means(
            "directories of what `contextos apply` publishes: signed artifacts (`*.json`), and short forms of packs "
            "(`*.yaml`), which the runtime signs"
        ),
    ] = DEFAULT_PACKS
    policies: Annotated[
        ListOf[_Policy] | None,
        means("pairs of level (`platform`, `tenant`) and ref: the policies that have to be in force above every pack"),
    ] = None
    adapters: Annotated[tuple[AdapterSetting, ...], tables("adapters", "the adapters, pinned by digest")] = ()
    unsafe: Annotated[
        ListOf[Annotated[String, one_of(UNSAFE_SETTINGS, "an unsafe setting")]],
        means("the development stand-ins in use"),
    ] = ()
    lease_ttl_s: Annotated[
        int, whole(1, 86_400, "seconds after which a run is taken over from a driver that may no longer exist")
    ] = 180
    heartbeat_ttl_s: Annotated[
        int, whole(3, 86_400, "seconds without a heartbeat after which a `long_running` run is taken over")
    ] = 60
    witness: Annotated[
        WitnessPlace,
        means(
            "a file, or the URL of a sink (extra `http`), where the owner of the store cannot write: it receives the "
            "signed heads of `index` and `control`, and `verify` compares with them (empty: a file in "
            "`$XDG_STATE_HOME/contextos` for the profile `embedded` with a SQLite file, else none; `off`: none, and a "
            "cut cannot be proved)"
        ),
    ] = field(default="", repr=False)
    driving: Annotated[Driving, means("limits of workers")] = field(default_factory=Driving)
    limits: Annotated[RunLimits, means("limits of every run")] = field(default_factory=RunLimits)
    pressure: Annotated[AdmissionLimits, means("limits of this process")] = field(default_factory=AdmissionLimits)
    observed_packs: Annotated[
        ListOf[SomeText], means("the ids of the packs that may observe in the profile `service`: they stop no call")
    ] = ()
    adapter_authors: Annotated[
        ListOf[PublicKeyHex],
        means("the public keys (hex) one of which has to have signed each adapter file; empty: none has to"),
    ] = ()
    egress: Annotated[
        Mapping[TableKey, ListOf[Annotated[String, Fits("this is not an endpoint", _EGRESS, EGRESS.fits)]]],
        table_by(_EGRESS),
        means("by tenant, the endpoints (`host` or `host:port`) that calls may reach"),
    ] = field(default_factory=dict)
    redaction: Annotated[
        Mapping[
            TableKey,
            ListOf[Annotated[String, Fits("this is not a redaction rule", _REDACTION, REDACTION_TARGETS.__contains__)]],
        ],
        table_by(_REDACTION),
        means("by tenant, the rules that redact besides those of its packs"),
    ] = field(default_factory=dict)
    approval_logins: Annotated[
        ApprovalLoginsSetting | None, means("the OIDC issuer whose logins can answer approvals")
    ] = None
    credentials: Annotated[
        Annotated[TokenExchangeSetting, OneOfKinds(TokenExchangeSetting)] | None,
        means("who issues the credentials of calls whose auth mode is `exchange`"),
    ] = None
    models: Annotated[ModelsSetting | None, means("how the models of published profiles are reached")] = None
    attachments: Annotated[AttachmentsSetting | None, means("where the files are that a request can name")] = None
    telemetry: Annotated[
        TelemetrySetting | None, means("what is reported to OpenTelemetry and Prometheus (extra `telemetry`)")
    ] = None
    traces_from: Annotated[
        String,
        one_of(TRACES_FROM, "whose trace it can be"),
        means(
            "whose W3C trace a run over HTTP or MCP goes on with: of every caller (`callers`), or of workloads only, "
            "so that a run of a person begins a trace of its own (`workloads`)"
        ),
    ] = TRACES_FROM[0]
    workloads: Annotated[
        WorkloadsSetting | None, means("the SPIFFE trust domains whose workloads can act over HTTP")
    ] = None
    hops: Annotated[HopsSetting | None, means("the partners whose agents can call with a hop claim")] = None
    browser_logins: Annotated[BrowserLoginsSetting | None, means("how people log in with a browser")] = None
    outbox: Annotated[OutboxSetting | None, means("where notices of runs are sent, as webhooks and mails")] = None

    @classmethod
    def read(cls, workspace: Path) -> Settings:
        """Read `contextos.toml` in the directory `workspace`.

        Raises:
            InvalidSettings: the file is missing, not TOML, or settings in it are invalid; names each, with its line.
        """
        try:
            text = read_regular_file(workspace / SETTINGS_FILE, MAX_SETTINGS_BYTES).decode()
            # Each part of a dotted key is a table, and the reader takes quadratic time in their number.
            if max(line.count(".") for line in text.split("\n")) > MAX_DOTS_PER_LINE:
                raise ValueError(f"a line has more than {MAX_DOTS_PER_LINE} dots")
            table = tomllib.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            detail = f"`{workspace}` is not a workspace: it has no `{SETTINGS_FILE}`"
            raise invalid_setting("", "missing", detail, "make one with `contextos init DIR`") from None
        except (OSError, ValueError, RecursionError) as error:
            detail = f"`{SETTINGS_FILE}` cannot be read: {why(error).splitlines()[0][:200]}"
            remedy = "correct it there; write a text in quotes" if isinstance(error, ValueError) else "see to the file"
            raise invalid_setting("", "unreadable", detail, remedy) from None
        settings: Settings = read_table(cls, text, table, {"workspace": workspace})
        return settings

    def faults(self) -> Iterator[Fault]:
        for name in ("max_drives_per_tenant_in_all", "rate_per_tenant"):
            if getattr(self.driving, name) and not is_postgres_url(self.store):
                detail = f"`{name}` counts over all workers, and those of a file do not share their runs"
                yield Fault(("driving", name), detail, "name a PostgreSQL database in `store`, or leave it out")
        if self.browser_logins and not isinstance(self.directory, OidcDirectorySetting):
            detail = "the directory knows no users of an issuer, so nobody could log in"
            yield Fault(("browser_logins",), detail, 'write `kind = "oidc"` in `[directory]`', "no_issuer")
        if self.profile != "service":
            return
        if not self.environment:
            detail = "a service names the environment that it serves: rules and pins are for one"
            yield Fault(("environment",), detail, f"write one of {', '.join(ENVIRONMENTS)}", "missing")
        if self.unsafe:
            detail = f"`{self.unsafe[0]}` is a development stand-in, and this deployment is a service"
            yield Fault(("unsafe",), detail, "remove it, or set `profile` to `embedded`", "unsafe_not_allowed")
        if self.browser_logins and not self.browser_logins.is_secure:
            detail = "a service is reached over TLS: without it anybody on the way reads the cookie of a session"
            yield Fault(("browser_logins", "origin"), detail, "write `https://`", "unencrypted")


def check_settings(settings: Settings) -> Settings:
    """Check the type and bounds of every setting, however the settings were made, and return them with tuples for
    lists.

    Raises:
        InvalidSettings: names each invalid setting and the remedy.
    """
    checked: Settings = check_value(Settings, settings)
    return checked


def has_default_witness(settings: Settings) -> bool:
    """Return whether the witness is the file in the user's state folder. A store shared by machines has none there."""
    return settings.witness == "" and settings.profile == "embedded" and not is_postgres_url(settings.store)
