"""`Settings`: the configuration of one deployment. It is checked once, at start.

Refuses an unknown name, a value of a wrong type or out of bounds, and a development stand-in under the profile
`service`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.envelopes.policy import LEVELS, Level
from contextos.contracts.facts import ENVIRONMENTS, PROFILES, name_remedy
from contextos.contracts.ids import EGRESS
from contextos.contracts.model import MAX_CENTS, MAX_COUNT
from contextos.errors import InvalidSettings, Problem
from contextos.files import read_regular_file, why
from contextos.port_settings import (
    PORT_SETTINGS,
    ApprovalLoginsSetting,
    AttachmentsSetting,
    DirectorySetting,
    KeysSetting,
    OidcDirectorySetting,
    PortSetting,
    TokenExchangeSetting,
)
from contextos.port_settings.adapters import AdapterSetting, check_adapters
from contextos.port_settings.browser_logins import BrowserLoginsSetting
from contextos.port_settings.faults import read_whole
from contextos.port_settings.hops import HopsSetting
from contextos.port_settings.witness import check_witness
from contextos.port_settings.workloads import WorkloadsSetting
from contextos.runtime.environment import RunLimits
from contextos.service.outbox.setting import OutboxSetting, check_outbox, read_outbox
from contextos.telemetry.setting import TelemetrySetting, check_telemetry, read_telemetry
from contextos.trust.identity.claims import MAX_TTL_S

SETTINGS_FILE: Final = "contextos.toml"
NO_WITNESS: Final = "off"
"""The value of `witness` of a deployment that has none."""
MAX_SETTINGS_BYTES: Final = 262_144
MAX_DOTS_PER_LINE: Final = 256
UNSAFE_PORTS: Final[Mapping[str, str]] = {
    "unsafe_local_directory": "a directory file",
    "unsafe_local_keys": "a key file",
}
"""The stand-ins that are ports; records name those in use."""
DEFAULT_PACKS: Final = ("packs",)
UNSAFE_SETTINGS: Final = (*UNSAFE_PORTS, "unsafe_local_approvals", "unsafe_local_operators", "unsafe_unsigned_packs")
TRACES_FROM: Final = ("callers", "workloads")
EGRESS_REMEDY: Final = f'write `<tenant> = ["{EGRESS.example}"]`'
REDACTION_REMEDY: Final = f"write `<tenant> = [...]` with rules of {', '.join(sorted(REDACTION_TARGETS))}"
LEASE_TTL_BOUNDS_S: Final = (1, 86_400)
HEARTBEAT_TTL_BOUNDS_S: Final = (3, 86_400)

_TABLES: Final = {
    **PORT_SETTINGS,
    "telemetry": PortSetting(read_telemetry, check_telemetry, is_optional=True),
    "outbox": PortSetting(read_outbox, check_outbox, is_optional=True),
}
"""The settings that read and check themselves."""

RUN_LIMIT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "total_tokens": (1, MAX_COUNT),
    "max_tool_calls": (0, MAX_COUNT),
    "max_replan_attempts": (0, MAX_COUNT),
    "wall_clock_ms": (1, MAX_COUNT),
    "max_cost_cents": (0, MAX_CENTS),
    "max_payload_bytes": (1, MAX_BYTES),
    "claim_ttl_s": (1, MAX_TTL_S),
    "credential_ttl_s": (1, MAX_TTL_S),
    "max_session_duration_ms": (1, MAX_COUNT),
}
"""The smallest and largest value of each field of `RunLimits`."""

DRIVING_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "max_drives": (1, 1000),
    "max_drives_per_tenant": (1, 1000),
    "max_drives_per_tenant_in_all": (0, MAX_COUNT),
    "rate_per_tenant": (0, MAX_COUNT),
    "rate_period_ms": (1, MAX_COUNT),
}

ADMISSION_LIMIT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "max_callers": (1, 1_000_000),
    "max_callers_per_tenant": (1, 1_000_000),
    "max_turns": (1, 1_024),
    "max_turns_per_tenant": (1, 1_024),
    "max_new_runs_per_minute_per_tenant": (1, 60_000_000),
    "max_http_requests_per_minute_per_tenant": (1, 60_000_000),
    "max_http_requests_per_minute_per_caller": (1, 60_000_000),
    "max_http_percent_per_address": (1, 100),
    "max_open_sessions_per_agent": (1, 20_000),
    "max_open_questions_per_role": (1, 20_000),
    "breaker_failures_in_a_row": (1, 1_000_000),
    "breaker_cool_down_ms": (1, 86_400_000),
}
"""The smallest and largest value of each field of `AdmissionLimits`; none can be switched off."""


@dataclass(frozen=True, slots=True)
class Driving:
    """How many runs a worker drives at the same time, in total and for one tenant.

    The other three fields need a PostgreSQL store and count over all workers: the most runs of one tenant that are
    driven at the same time (`max_drives_per_tenant_in_all`), and the most that start within `rate_period_ms`
    (`rate_per_tenant`). In these 0 means no limit.
    """

    max_drives: int = 32
    max_drives_per_tenant: int = 8
    max_drives_per_tenant_in_all: int = 0
    rate_per_tenant: int = 0
    rate_period_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one deployment, fixed at start. Paths are relative to `workspace`.

    `store` is a SQLite file, or the URL of a PostgreSQL database that `contextos store migrate` has prepared. URLs
    can hold a password, so `store` and `witness` are not in the representation.
    `directory` is the file with users, agents and approvers, and `keys` the directory with plain key files, unless they
    are tables that say what is used instead (`port_settings`).
    `profile` is `embedded` or `service`. `environment` is the one that the deployment serves: `dev`, `staging` or
    `prod`; empty is `dev` of an embedded deployment, and refused of a service. `packs` are directories of signed
    artifacts and of short forms of packs; `contextos apply` publishes them.
    `policies` are the platform and tenant policies that must be in force, as pairs (level, ref): a start changes none,
    and is refused where the store has others; None accepts those of the store. `adapters` are pinned by digest.
    `unsafe` names the development stand-ins that are allowed. `lease_ttl_s` and `heartbeat_ttl_s` are in seconds.

    `witness` is a file or the URL of a sink that the owner of the store cannot write. It keeps the newest signed head
    of each tenant's index and control streams. Without a witness nobody can prove that these streams were cut. Empty:
    a file in the user's state folder, if the profile is `embedded` and `store` a file; else none. `off`: none.

    `observed_packs` are the ids of the packs that may observe in the profile `service`: such a pack stops no call.
    `adapter_authors` are the public keys (hex) one of which has to have signed each adapter file; empty: none need be.

    `egress` lists, by tenant, the endpoints that calls may reach, and `redaction` the rules that redact
    besides those of its packs. `approval_logins` names the OIDC issuer whose logins can answer approvals; None: only
    keys can. `credentials` names who issues the credentials of calls; None: no adapter can have the auth mode
    `exchange`. `attachments` says where the files of each tenant are that a request can name; None: none can.
    `telemetry` says what is reported to OpenTelemetry; None: nothing is.
    `traces_from` says whose trace is that of the run: of `callers`, or only of `workloads`.
    `workloads` names the SPIFFE trust domains whose workloads can act over HTTP; None: none can.
    `hops` names the partners whose agents can call with a hop claim; None: a request with one is refused.
    `browser_logins` says how people log in with a browser, at the issuer of the directory; None: nobody does.
    `outbox` says where notices of runs are sent; None: nowhere.
    """

    workspace: Path
    store: str = field(default="contextos.db", repr=False)
    directory: DirectorySetting = "directory.json"
    keys: KeysSetting = "keys"
    profile: str = "embedded"
    environment: str = ""
    packs: tuple[str, ...] = DEFAULT_PACKS
    policies: tuple[tuple[Level, str], ...] | None = None
    adapters: tuple[AdapterSetting, ...] = ()
    unsafe: tuple[str, ...] = ()
    lease_ttl_s: int = 180
    heartbeat_ttl_s: int = 60
    witness: str = field(default="", repr=False)
    driving: Driving = field(default_factory=Driving)
    limits: RunLimits = field(default_factory=RunLimits)
    pressure: AdmissionLimits = field(default_factory=AdmissionLimits)
    observed_packs: tuple[str, ...] = ()
    adapter_authors: tuple[str, ...] = ()
    egress: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    redaction: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    approval_logins: ApprovalLoginsSetting | None = None
    credentials: TokenExchangeSetting | None = None
    attachments: AttachmentsSetting | None = None
    telemetry: TelemetrySetting | None = None
    traces_from: str = TRACES_FROM[0]
    workloads: WorkloadsSetting | None = None
    hops: HopsSetting | None = None
    browser_logins: BrowserLoginsSetting | None = None
    outbox: OutboxSetting | None = None

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
        return read_whole(text, table, partial(_made, workspace))


def is_postgres_url(store: str) -> bool:
    """Return whether `store` is the URL of a PostgreSQL database and not a file."""
    return store.startswith(("postgresql://", "postgres://"))


def check_settings(settings: Settings) -> None:
    """Check the type and bounds of every setting, however the settings were made.

    Raises:
        InvalidSettings: names the first invalid setting and the remedy.
    """
    if not isinstance(settings.workspace, Path):
        raise invalid_setting("/workspace", "bad_setting", "`/workspace` is not a path", "give a `pathlib.Path`")
    for name in ("store", "profile"):
        _text(getattr(settings, name), f"/{name}")
    for name, port in _TABLES.items():
        if not (port.is_optional and getattr(settings, name) is None):
            port.check(getattr(settings, name))
    if "://" in settings.store and not is_postgres_url(settings.store):
        detail = "the URL in `/store` is not a PostgreSQL URL"
        raise invalid_setting("/store", "bad_setting", detail, "write `postgresql://…`, or name a file for SQLite")
    if settings.witness != "":
        _text(settings.witness, "/witness")
        check_witness(settings.witness)
    for name in ("packs", "unsafe", "observed_packs", "adapter_authors"):
        for at, one in enumerate(_list(getattr(settings, name), f"/{name}")):
            _text(one, f"/{name}/{at}")
    for at, pair in enumerate(_list(() if settings.policies is None else settings.policies, "/policies")):
        _check_policy(pair, f"/policies/{at}")
    check_adapters(_list(settings.adapters, "/adapters"), settings.adapter_authors)
    _number(settings.lease_ttl_s, LEASE_TTL_BOUNDS_S, "/lease_ttl_s")
    _number(settings.heartbeat_ttl_s, HEARTBEAT_TTL_BOUNDS_S, "/heartbeat_ttl_s")
    check_limits(settings.limits)
    _check_driving(settings)
    check_pressure(settings.pressure)
    for name, known in (("profile", PROFILES), ("traces_from", TRACES_FROM)):
        if (stated := getattr(settings, name)) not in known:
            detail = f"`{str(stated)[:40]}` is not a value of `{name}`"
            raise invalid_setting(f"/{name}", "bad_setting", detail, f"use one of {', '.join(known)}")
    _check_unsafe(settings)
    _check_environment(settings)
    _check_browser_logins(settings)
    for where, endpoint in _by_tenant(settings.egress, "/egress", EGRESS_REMEDY):
        if not isinstance(endpoint, str) or not EGRESS.fits(endpoint):
            raise invalid_setting(where, "bad_setting", f"`{str(endpoint)[:80]}` is not an endpoint", EGRESS_REMEDY)
    for where, rule in _by_tenant(settings.redaction, "/redaction", REDACTION_REMEDY):
        if not isinstance(rule, str) or rule not in REDACTION_TARGETS:
            raise invalid_setting(where, "bad_setting", f"`{str(rule)[:80]}` is not a redaction rule", REDACTION_REMEDY)


def check_limits(limits: RunLimits) -> None:
    """Check that every run limit is a number within its bounds. Raises `InvalidSettings`."""
    if not isinstance(limits, RunLimits):
        raise invalid_setting("/limits", "bad_setting", "`/limits` is not a `RunLimits`", "give a `RunLimits`")
    for name, bounds in RUN_LIMIT_BOUNDS.items():
        _number(getattr(limits, name), bounds, f"/limits/{name}", whole=name != "max_cost_cents")
    if round(limits.max_cost_cents, 4) != limits.max_cost_cents:
        detail = f"`{limits.max_cost_cents}` has more than 4 decimals"
        raise invalid_setting(
            "/limits/max_cost_cents", "bad_setting", detail, "give US cents in steps of 1/10,000 cent"
        )


def check_pressure(pressure: AdmissionLimits) -> None:
    """Check that every admission limit is a whole number within its bounds. Raises `InvalidSettings`."""
    if not isinstance(pressure, AdmissionLimits):
        raise invalid_setting(
            "/pressure", "bad_setting", "`/pressure` is not an `AdmissionLimits`", "give an `AdmissionLimits`"
        )
    for name, bounds in ADMISSION_LIMIT_BOUNDS.items():
        _number(getattr(pressure, name), bounds, f"/pressure/{name}")


def invalid_setting(pointer: str, code: str, detail: str, remedy: str) -> InvalidSettings:
    """Return the error for one setting; `pointer` names it."""
    return InvalidSettings(Problem(pointer, code, detail, remedy))


def has_default_witness(settings: Settings) -> bool:
    """Return whether the witness is the file in the user's state folder. A store that machines share has none there."""
    return settings.witness == "" and settings.profile == "embedded" and not is_postgres_url(settings.store)


def _made(workspace: Path, table: dict[str, Any]) -> Settings:
    """The settings of a table. Raises `InvalidSettings` for the first that is wrong."""
    if "queue" in table:
        detail = "workers share the due runs of a PostgreSQL store, and use no queue beside it"
        raise invalid_setting("/queue", "unknown_setting", detail, "remove `queue`")
    made = _named(Settings, table, "")
    for name in ("packs", "policies", "adapters", "unsafe", "observed_packs", "adapter_authors"):
        if name in made:
            made[name] = _list(made[name], f"/{name}")
    if "policies" in made:
        made["policies"] = tuple(_list(one, f"/policies/{at}") for at, one in enumerate(made["policies"]))
    if "adapters" in made:
        tables = [_named(AdapterSetting, one, f"/adapters/{at}") for at, one in enumerate(made["adapters"])]
        made["adapters"] = tuple(AdapterSetting(**one) for one in tables)
    for name, remedy in (("egress", EGRESS_REMEDY), ("redaction", REDACTION_REMEDY)):
        if name not in made:
            continue
        if not isinstance(made[name], dict):
            raise invalid_setting(f"/{name}", "bad_setting", f"`/{name}` is not a table", remedy)
        made[name] = {tenant: _list(one, f"/{name}/{tenant}") for tenant, one in made[name].items()}
    made |= {name: port.read(made[name]) for name, port in _TABLES.items() if name in made}
    for name, kind in (("limits", RunLimits), ("driving", Driving), ("pressure", AdmissionLimits)):
        if name in made:
            made[name] = kind(**_named(kind, made[name], f"/{name}"))
    settings = Settings(workspace=workspace, **made)
    check_settings(settings)
    return settings


def _by_tenant(table: Any, at: str, remedy: str) -> Iterator[tuple[str, Any]]:
    """Yield each value of a table of lists by tenant, with its place. Raises `InvalidSettings`."""
    if not isinstance(table, Mapping):
        raise invalid_setting(at, "bad_setting", f"`{at}` is not a table", remedy)
    for tenant, listed in table.items():
        _text(tenant, at)
        for number, one in enumerate(_list(listed, f"{at}/{tenant}")):
            yield f"{at}/{tenant}/{number}", one


def _check_policy(pair: Any, at: str) -> None:
    fits = isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[1], str)
    if not fits or pair[0] not in LEVELS[:2]:
        detail = "a policy is a level (`platform` or `tenant`) and a ref"
        raise invalid_setting(at, "bad_setting", detail, 'write it like `["tenant", "POLICY_X@1.0.0"]`')


def _check_driving(settings: Settings) -> None:
    if not isinstance(settings.driving, Driving):
        raise invalid_setting("/driving", "bad_setting", "`/driving` is not a table", "give a `Driving`")
    for name, bounds in DRIVING_BOUNDS.items():
        _number(getattr(settings.driving, name), bounds, f"/driving/{name}")
    for name in ("max_drives_per_tenant_in_all", "rate_per_tenant"):
        if getattr(settings.driving, name) and not is_postgres_url(settings.store):
            detail = f"`/driving/{name}` counts over all workers, and those of a file do not share their runs"
            remedy = "name a PostgreSQL database in `store`, or leave it out"
            raise invalid_setting(f"/driving/{name}", "bad_setting", detail, remedy)


def _check_environment(settings: Settings) -> None:
    if settings.environment == "" and settings.profile == "service":
        detail = "a service names the environment that it serves: rules and pins are for one"
        raise invalid_setting("/environment", "missing", detail, f"write one of {', '.join(ENVIRONMENTS)}")
    if settings.environment not in ("", *ENVIRONMENTS):
        stated = str(settings.environment)[:40]
        detail = f"`{stated}` is not an environment"
        raise invalid_setting("/environment", "bad_setting", detail, name_remedy(stated, ENVIRONMENTS))


def _check_unsafe(settings: Settings) -> None:
    stray = sorted(set(settings.unsafe) - set(UNSAFE_SETTINGS))
    if stray:
        detail = f"`{stray[0][:40]}` is not an unsafe setting"
        raise invalid_setting("/unsafe", "unknown_setting", detail, f"use one of {', '.join(UNSAFE_SETTINGS)}")
    if settings.unsafe and settings.profile == "service":
        detail = f"`{settings.unsafe[0]}` is a development stand-in, and this deployment is a service"
        raise invalid_setting("/unsafe", "unsafe_not_allowed", detail, "remove it, or set `profile` to `embedded`")


def _check_browser_logins(settings: Settings) -> None:
    named = settings.browser_logins
    if named is not None and not isinstance(settings.directory, OidcDirectorySetting):
        detail = "the directory knows no users of an issuer, so nobody could log in"
        raise invalid_setting("/browser_logins", "no_issuer", detail, 'write `kind = "oidc"` in `[directory]`')
    if named is not None and not named.is_secure and settings.profile == "service":
        detail = "a service is reached over TLS: without it anybody on the way reads the cookie of a session"
        raise invalid_setting("/browser_logins/origin", "unencrypted", detail, "write `https://`")


def _named(kind: type, table: Any, where: str) -> dict[str, Any]:
    """Check that `table` has only fields of `kind` as keys, and every field of an adapter; return a copy."""
    known = {one.name: one for one in fields(kind) if one.name != "workspace"}
    if not isinstance(table, dict):
        remedy = f"give a table of {', '.join(sorted(known))}"
        raise invalid_setting(where, "bad_setting", f"`{where}` is not a table", remedy)
    for name in sorted(table.keys() - known):
        detail = f"`{name[:80]}` is not a setting{' here' if where else ''}"
        raise invalid_setting(f"{where}/{name[:80]}", "unknown_setting", detail, name_remedy(name, sorted(known)))
    if kind is AdapterSetting:
        for name in sorted({"path", "digest"} - table.keys()):
            raise invalid_setting(f"{where}/{name}", "missing", f"`{name}` is missing", "name the module and digest")
    return dict(table)


def _list(value: Any, at: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise invalid_setting(at, "bad_setting", f"`{at}` is not a list", "give a list")
    return tuple(value)


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str) or not value:
        raise invalid_setting(at, "bad_setting", f"`{at}` is not a text", "give a text that is not empty")


def _number(value: Any, bounds: tuple[int, int], at: str, *, whole: bool = True) -> None:
    """Check a number. A bool is not a number, and neither is NaN or infinity."""
    kind = "a whole number" if whole else "a number"
    fits = type(value) is int or (not whole and type(value) is float and math.isfinite(value))
    if not fits or not bounds[0] <= value <= bounds[1]:
        detail = f"`{str(value)[:40]}` is not {kind} from {bounds[0]} to {bounds[1]}"
        raise invalid_setting(at, "bad_setting", detail, "give one within these bounds")
