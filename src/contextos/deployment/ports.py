"""The ports of a deployment: one for each external system that it uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from contextos.action.foreign_code import ReportFault, ignore_fault
from contextos.action.models.sending import ModelSender
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.facts import ENVIRONMENTS
from contextos.contracts.ports.concurrency import Concurrency, Sequential
from contextos.contracts.ports.credentials import Credentials
from contextos.contracts.ports.outside import (
    Adapter,
    Admission,
    Attachments,
    Clock,
    Code,
    Directory,
    Entropy,
    Estimator,
    Keys,
)
from contextos.contracts.ports.planning import Planner
from contextos.contracts.ports.seams import SlotSteps
from contextos.contracts.ports.storage import Stores
from contextos.runtime.environment import RunLimits
from contextos.trust.identity.hops import Partner
from contextos.trust.identity.oidc import TrustedIssuer


@dataclass(frozen=True, slots=True)
class ApprovalLogins:
    """The OIDC issuer whose logins can answer approvals. `jwks` returns its keys, fresh enough to hold a key id. A
    login counts for `max_auth_age_s` seconds. `is_silent` says whether its keys could not be had lately.
    """

    issuer: TrustedIssuer
    jwks: Callable[[str], Awaitable[Mapping[str, Any]]]
    max_auth_age_s: int
    is_silent: Callable[[], bool]


class RunTelemetry(Protocol):
    """Receives what telemetry reports, after the commit that it is about."""

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """A run has ended; `account` is what all of its entries add up to."""

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """A run was replayed, and the replay was equal to the record or not."""


class NoTelemetry:
    """Reports nothing."""

    def run_ended(self, tenant_id: str, account: RunAccount) -> None: ...

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None: ...


async def no_witness(_tenant_id: str) -> None:
    """Asks nobody."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The external systems that a deployment uses. `alive` returns whether the process that owns a lease exists.

    `report_fault` receives each exception that an adapter raised and that its port does not allow. `ask_witness` is
    called with the tenant before a run is driven, and raises `Integrity` if its streams lack what was witnessed.
    `models` sends the calls of models; without it no run calls one.
    """

    stores: Stores
    clock: Clock
    entropy: Entropy
    keys: Keys
    directory: Directory
    adapters: Callable[[str], Mapping[str, Adapter]]
    code: Code
    estimator: Estimator
    pause: Callable[[int], Awaitable[None]]
    owner: str
    alive: Callable[[str], bool]
    admission: Admission
    slots: Callable[[str], SlotSteps] | None = None
    attachments: Attachments | None = None
    concurrency: Concurrency = field(default_factory=Sequential)
    planner: Planner | None = None
    credentials: Credentials | None = None
    report_fault: ReportFault = ignore_fault
    approval_logins: ApprovalLogins | None = None
    partners: Mapping[str, Partner] = field(default_factory=dict)
    telemetry: RunTelemetry = field(default_factory=NoTelemetry)
    ask_witness: Callable[[str], Awaitable[None]] = no_witness
    models: ModelSender | None = None


@dataclass(frozen=True, slots=True)
class DeploymentConfig:
    """Limits of every run, the version, profile and environment that a run records, and how long leases and heartbeats
    last.

    `profile` is `embedded` or `service`, and `environment` the only one that this deployment serves.
    `address` is the one as which partners know it.
    `unsafe` names the development stand-ins in use; every record names them too,
    and in `unsafe_stated_by` the classes of somebody else that say themselves whether they are one.
    `allow_unsigned` accepts packs without a signature. A run is taken over when its lease is older than `lease_ttl_us`,
    or, in `long_running` mode, when its driver sent no heartbeat for `heartbeat_ttl_us` (both in microseconds).
    `egress` lists, by tenant, the endpoints that calls may reach; a tenant without a list reaches none. `redaction`
    lists, by tenant, the rules that redact besides those of its packs. `observed_packs` are the ids of the packs that
    may observe in the profile `service`. Of `pressure` only the two limits of what is open count here.
    """

    limits: RunLimits
    runtime_version: str
    profile: str = "embedded"
    environment: str = ENVIRONMENTS[0]
    address: str = ""
    unsafe: tuple[str, ...] = ()
    unsafe_stated_by: tuple[str, ...] = ()
    allow_unsigned: bool = False
    lease_ttl_us: int = 180_000_000
    heartbeat_ttl_us: int = 60_000_000
    egress: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    redaction: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    observed_packs: frozenset[str] = frozenset()
    pressure: AdmissionLimits = field(default_factory=AdmissionLimits)
