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
    login counts for `max_auth_age_s` seconds. `is_silent` returns whether its keys could not be fetched lately.
    """

    issuer: TrustedIssuer
    jwks: Callable[[str], Awaitable[Mapping[str, Any]]]
    max_auth_age_s: int
    is_silent: Callable[[], bool]


class RunTelemetry(Protocol):
    """Receives what telemetry reports, after the commit that it is about."""

    def run_ended(self, tenant_id: str, account: RunAccount) -> None:
        """Report that a run has ended; `account` is the sum of all its entries."""

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None:
        """Report that a run was replayed, and whether the replay was `equal` to the record."""


class NoTelemetry:
    """Reports nothing."""

    def run_ended(self, tenant_id: str, account: RunAccount) -> None: ...

    def run_replayed(self, tenant_id: str, *, equal: bool) -> None: ...


async def no_witness(_tenant_id: str) -> None:
    """Check nothing: the deployment has no witness."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The external systems that a deployment uses. `alive` returns whether the process that owns a lease exists.

    `report_fault` receives each exception that an adapter raised and that its port does not allow. `ask_witness` is
    called with the tenant before a run is driven, and raises `Integrity` if its streams lack witnessed entries.
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

    `profile` is `embedded` or `service`, and `environment` the only environment that this deployment serves. `address`
    is the name by which partners know it. `unsafe` names the development stand-ins in use; every record names them too.
    `unsafe_stated_by` names the foreign classes that state themselves whether they are stand-ins. `allow_unsigned`
    accepts packs without a signature. A run is taken over when its lease is older than `lease_ttl_us`, or, in
    `long_running` mode, when its driver sent no heartbeat for `heartbeat_ttl_us` (both in microseconds). `egress`
    lists, by tenant, the endpoints that calls may reach; a tenant without a list reaches none. `redaction` lists, by
    tenant, the rules that redact besides those of its packs. `observed_packs` are the ids of the packs that may observe
    in the profile `service`. Of `pressure` only the limits on open questions and open sessions count here.
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
