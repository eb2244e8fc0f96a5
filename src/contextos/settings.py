"""`Settings`: what a deployment is told at start. Everything in it is checked there, and nothing per request.

Refuses names that are not known, values of another type or out of bounds, and any development stand-in under the
profile `service`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.envelopes.policy import LEVELS, Level
from contextos.contracts.model import MAX_CENTS, MAX_COUNT
from contextos.errors import InvalidSettings, Problem
from contextos.runtime.wiring import RunLimits
from contextos.trust.identity.claims import MAX_TTL_S

SETTINGS_FILE: Final = "contextos.toml"
PROFILES: Final = ("embedded", "service")
UNSAFE_SETTINGS: Final = (
    "unsafe_local_directory",
    "unsafe_local_keys",
    "unsafe_local_approvals",
    "unsafe_unsigned_packs",
)
LEASE_TTL_S: Final = (1, 86_400)
HEARTBEAT_TTL_S: Final = (3, 86_400)

LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "total_tokens": (1, MAX_COUNT),
    "max_tool_calls": (0, MAX_COUNT),
    "max_replan_attempts": (0, MAX_COUNT),
    "wall_clock_ms": (1, MAX_COUNT),
    "max_cost_cents": (0, MAX_CENTS),
    "max_payload_bytes": (1, MAX_BYTES),
    "claim_ttl_s": (1, MAX_TTL_S),
    "max_session_duration_ms": (1, MAX_COUNT),
}
"""The least and the most of each limit; 0 where a deployment may allow none at all."""

DRIVING: Final[Mapping[str, tuple[int, int]]] = {
    "max_drives": (1, 1000),
    "max_drives_per_tenant": (1, 1000),
    "max_drives_per_tenant_in_all": (0, MAX_COUNT),
    "rate_per_tenant": (0, MAX_COUNT),
    "rate_period_ms": (1, MAX_COUNT),
}

LIMIT_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "max_callers": (1, 1_000_000),
    "max_callers_per_tenant": (1, 1_000_000),
    "max_turns": (1, 1_024),
    "max_turns_per_tenant": (1, 1_024),
    "max_new_runs_per_minute_per_tenant": (1, 60_000_000),
    "breaker_failures_in_a_row": (1, 1_000_000),
    "breaker_cool_down_ms": (1, 86_400_000),
}
"""The least and the most of each bound of a process; none of them can be taken off."""


@dataclass(frozen=True, slots=True)
class AdapterSetting:
    """A trusted function adapter: `module.py:attribute`, and the sha256 that its source must have."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class Driving:
    """How much a worker drives at once, in all and of one tenant.

    The other three need a `queue`: how many drives of a tenant there may be over all workers, and how many may start
    within a period; 0 is no bound.
    """

    max_drives: int = 32
    max_drives_per_tenant: int = 8
    max_drives_per_tenant_in_all: int = 0
    rate_per_tenant: int = 0
    rate_period_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    """One deployment, fixed at start. Paths are relative to `workspace`.

    `store` is a file of SQLite, or the URL of a PostgreSQL database that `contextos migrate` has prepared.
    `queue` is the URL of a PostgreSQL database of its own in which workers on any number of machines share what is due
    (empty: each worker finds it in the store by itself).
    `packs` are directories of signed artifacts; `policies` are (level, ref) of the platform and tenant policies in
    force; `unsafe` names the development stand-ins that are allowed; `witness` is a file or the URL of a sink outside
    the reach of who owns the store, told where each tenant's index and control streams stand (empty: a cut of them is
    not provable).
    """

    workspace: Path
    store: str = "contextos.db"
    directory: str = "directory.json"
    keys: str = "keys"
    profile: str = "embedded"
    packs: tuple[str, ...] = ("packs",)
    policies: tuple[tuple[Level, str], ...] = ()
    adapters: tuple[AdapterSetting, ...] = ()
    unsafe: tuple[str, ...] = ()
    lease_ttl_s: int = 180
    heartbeat_ttl_s: int = 60
    witness: str = ""
    queue: str = ""
    driving: Driving = field(default_factory=Driving)
    limits: RunLimits = field(default_factory=RunLimits)
    pressure: AdmissionLimits = field(default_factory=AdmissionLimits)

    @classmethod
    def read(cls, workspace: Path) -> Settings:
        """The settings of a workspace. Raises `InvalidSettings` with a pointer to what is wrong."""
        try:
            table = tomllib.loads((workspace / SETTINGS_FILE).read_text("utf-8"))
        except FileNotFoundError:
            detail = f"`{workspace}` is no workspace: it has no `{SETTINGS_FILE}`"
            raise refused("", "missing", detail, "make one with `contextos demo --keep DIR`") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise refused("", "unreadable", f"`{SETTINGS_FILE}` cannot be read: {error}", "mend the file") from None
        made = _named(cls, table, "")
        for name in ("packs", "policies", "adapters", "unsafe"):
            if name in made:
                made[name] = _list(made[name], f"/{name}")
        if "policies" in made:
            made["policies"] = tuple(_list(one, f"/policies/{at}") for at, one in enumerate(made["policies"]))
        if "adapters" in made:
            tables = [_named(AdapterSetting, one, f"/adapters/{at}") for at, one in enumerate(made["adapters"])]
            made["adapters"] = tuple(AdapterSetting(**one) for one in tables)
        for name, kind in (("limits", RunLimits), ("driving", Driving), ("pressure", AdmissionLimits)):
            if name in made:
                made[name] = kind(**_named(kind, made[name], f"/{name}"))
        settings = cls(workspace=workspace, **made)
        check(settings)
        return settings


def is_url(store: str) -> bool:
    """Whether `store` names a PostgreSQL database, and not a file of SQLite."""
    return store.startswith(("postgresql://", "postgres://"))


def check(settings: Settings) -> None:
    """Hold settings to their types and bounds, however they were made.

    Raises:
        InvalidSettings: with a pointer to the first that does not fit, and the mend.
    """
    if not isinstance(settings.workspace, Path):
        raise refused("/workspace", "bad_setting", "`/workspace` is not a path", "give a `pathlib.Path`")
    for name in ("store", "directory", "keys", "profile"):
        _text(getattr(settings, name), f"/{name}")
    if "://" in settings.store and not is_url(settings.store):
        detail = "the URL in `/store` is not one of PostgreSQL"
        raise refused("/store", "bad_setting", detail, "write `postgresql://…`, or name a file for SQLite")
    if settings.witness != "":
        _text(settings.witness, "/witness")
        check_witness(settings.witness)
    for name in ("packs", "unsafe"):
        for at, one in enumerate(_list(getattr(settings, name), f"/{name}")):
            _text(one, f"/{name}/{at}")
    for at, pair in enumerate(_list(settings.policies, "/policies")):
        _check_policy(pair, f"/policies/{at}")
    for at, adapter in enumerate(_list(settings.adapters, "/adapters")):
        _text(getattr(adapter, "path", None), f"/adapters/{at}/path")
        _text(getattr(adapter, "digest", None), f"/adapters/{at}/digest")
    _number(settings.lease_ttl_s, LEASE_TTL_S, "/lease_ttl_s")
    _number(settings.heartbeat_ttl_s, HEARTBEAT_TTL_S, "/heartbeat_ttl_s")
    check_limits(settings.limits)
    _check_driving(settings)
    check_pressure(settings.pressure)
    if settings.profile not in PROFILES:
        detail = f"`{settings.profile[:40]}` is no profile"
        raise refused("/profile", "bad_setting", detail, f"use one of {', '.join(PROFILES)}")
    _check_unsafe(settings)


def check_limits(limits: RunLimits) -> None:
    """Every limit is a number within its bounds. Raises `InvalidSettings`."""
    if not isinstance(limits, RunLimits):
        raise refused("/limits", "bad_setting", "`/limits` are no limits", "give a `Limits`")
    for name, bounds in LIMITS.items():
        _number(getattr(limits, name), bounds, f"/limits/{name}", whole=name != "max_cost_cents")
    if round(limits.max_cost_cents, 4) != limits.max_cost_cents:
        detail = f"`{limits.max_cost_cents}` has more than 4 decimals"
        raise refused("/limits/max_cost_cents", "bad_setting", detail, "give US cents in steps of 1/10,000 cent")


def check_pressure(pressure: AdmissionLimits) -> None:
    """Every bound is a whole number within its own. Raises `InvalidSettings`."""
    if not isinstance(pressure, AdmissionLimits):
        raise refused("/pressure", "bad_setting", "`/pressure` are no bounds", "give a `Pressure`")
    for name, bounds in LIMIT_BOUNDS.items():
        _number(getattr(pressure, name), bounds, f"/pressure/{name}")


def refused(pointer: str, code: str, detail: str, remedy: str) -> InvalidSettings:
    """The error for one setting."""
    return InvalidSettings(Problem(pointer, code, detail, remedy))


def is_sink(witness: str) -> bool:
    """Whether `witness` is the URL of a sink, and not a file."""
    return witness.startswith(("https://", "http://"))


def check_witness(witness: str) -> None:
    """A file, or a URL whose answers nobody between can change. Raises `InvalidSettings`."""
    if "\0" in witness:
        raise refused("/witness", "bad_setting", "`/witness` is no path", "name a file")
    if "://" not in witness:
        return
    try:
        parts = urlsplit(witness)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or not is_sink(witness) or parts.query or parts.fragment:
        detail = "the URL in `/witness` is not one of a sink"
        raise refused("/witness", "bad_setting", detail, "write `https://host/path` without a query, or name a file")
    if parts.scheme == "http" and not _is_loopback(host):
        detail = "the witness would be asked in the clear, so anybody between could answer for it"
        raise refused("/witness", "bad_setting", detail, "write `https://`")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_policy(pair: Any, at: str) -> None:
    fits = isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[1], str)
    if not fits or pair[0] not in LEVELS[:2]:
        detail = "a policy is a level (`platform` or `tenant`) and a ref"
        raise refused(at, "bad_setting", detail, 'write it like `["tenant", "POLICY_X@1.0.0"]`')


def _check_driving(settings: Settings) -> None:
    if not isinstance(settings.queue, str) or (settings.queue and not is_url(settings.queue)):
        detail = "`/queue` is not the URL of a PostgreSQL database"
        raise refused("/queue", "bad_setting", detail, "write `postgresql://…`, or leave it out")
    if settings.queue and not is_url(settings.store):
        detail = "workers that share a queue cannot share a file"
        raise refused("/queue", "bad_setting", detail, "name a PostgreSQL database in `store`, or leave `queue` out")
    if not isinstance(settings.driving, Driving):
        raise refused("/driving", "bad_setting", "`/driving` is no table", "give a `Driving`")
    for name, bounds in DRIVING.items():
        _number(getattr(settings.driving, name), bounds, f"/driving/{name}")
    for name in ("max_drives_per_tenant_in_all", "rate_per_tenant"):
        if getattr(settings.driving, name) and not settings.queue:
            detail = f"`/driving/{name}` counts over all workers"
            raise refused(f"/driving/{name}", "bad_setting", detail, "name a `queue`, or leave it out")


def _check_unsafe(settings: Settings) -> None:
    stray = sorted(set(settings.unsafe) - set(UNSAFE_SETTINGS))
    if stray:
        detail = f"`{stray[0][:40]}` is no unsafe setting"
        raise refused("/unsafe", "unknown_setting", detail, f"use one of {', '.join(UNSAFE_SETTINGS)}")
    if settings.unsafe and settings.profile == "service":
        detail = f"`{settings.unsafe[0]}` is a development stand-in, and this deployment is a service"
        raise refused("/unsafe", "unsafe_not_allowed", detail, "take it out, or set `profile` to `embedded`")


def _named(kind: type, table: Any, where: str) -> dict[str, Any]:
    """A table of the settings with no key but the fields of `kind`, and with all that have no default."""
    known = {one.name: one for one in fields(kind) if one.name != "workspace"}
    if not isinstance(table, dict):
        raise refused(where, "bad_setting", f"`{where}` is not a table", f"give a table of {', '.join(sorted(known))}")
    for name in sorted(table.keys() - known):
        detail = f"`{name[:80]}` is no setting{' here' if where else ''}"
        raise refused(f"{where}/{name[:80]}", "unknown_setting", detail, f"use one of {', '.join(sorted(known))}")
    if kind is AdapterSetting:
        for name in sorted(known.keys() - table):
            raise refused(f"{where}/{name}", "missing", f"`{name}` is missing", "name the module and its digest")
    return dict(table)


def _list(value: Any, at: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise refused(at, "bad_setting", f"`{at}` is not a list", "give a list")
    return tuple(value)


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str) or not value:
        raise refused(at, "bad_setting", f"`{at}` is not a text", "give a text that is not empty")


def _number(value: Any, bounds: tuple[int, int], at: str, *, whole: bool = True) -> None:
    """A bool is no number, and neither is what is not finite."""
    kind = "a whole number" if whole else "a number"
    fits = type(value) is int or (not whole and type(value) is float and math.isfinite(value))
    if not fits or not bounds[0] <= value <= bounds[1]:
        detail = f"`{str(value)[:40]}` is not {kind} from {bounds[0]} to {bounds[1]}"
        raise refused(at, "bad_setting", detail, "give one within these bounds")
