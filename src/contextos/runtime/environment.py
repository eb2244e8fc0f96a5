"""The environment of one run: its journal, ports, artifacts and deployment facts, grouped by what belongs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from contextos.action.registry import Registry
from contextos.contracts.journal import SEMANTICS
from contextos.contracts.ports.concurrency import Concurrency, Sequential
from contextos.contracts.ports.outside import Adapter, Clock, Directory, Estimator, Keys
from contextos.contracts.ports.planning import Planner
from contextos.contracts.ports.seams import Journal, Knowledge, Memory, SlotSteps
from contextos.contracts.ports.storage import Store
from contextos.control.catalog import Catalog
from contextos.decision.planners.foreign import planner_name
from contextos.decision.planners.template import PLANNER
from contextos.trust.policy.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The most that a deployment allows each run. A request can only lower a limit."""

    total_tokens: int = 12_000
    max_tool_calls: int = 50
    max_replan_attempts: int = 2
    wall_clock_ms: int = 30_000
    max_cost_cents: float = 100
    max_payload_bytes: int = 1_048_576
    claim_ttl_s: int = 3_600
    max_session_duration_ms: int = 14_400_000


@dataclass(frozen=True, slots=True)
class RunPorts:
    """The external systems that a run uses. `adapters` maps adapter ids to adapters and is empty in a replay."""

    store: Store
    clock: Clock
    keys: Keys
    directory: Directory
    adapters: Mapping[str, Adapter]
    concurrency: Concurrency = field(default_factory=Sequential)


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Where a run's context comes from. Without `slots` a template that declares a slot step is refused."""

    knowledge: Knowledge
    memory: Memory
    slots: SlotSteps | None


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The tenant's governed artifacts, and what is compiled from them. `policies` is a cache by content address."""

    catalog: Catalog
    registry: Registry
    policies: dict[str, PolicySet]
    estimator: Estimator


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """The facts of a deployment that a run records when it begins, and then keeps.

    `unsafe` names the development stand-ins that were in use when the run began, `unsafe_now` those in use now; only
    `unsafe_now` is not recorded. `planner_name` is the planner that the run began with.
    """

    limits: RunLimits
    runtime_version: str
    profile: str
    unsafe: tuple[str, ...]
    unsafe_now: tuple[str, ...]
    semantics: int = SEMANTICS
    planner_name: str = PLANNER


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Everything that one run uses, live or in a replay. In a replay the journal is a tape, and no port answers.

    `planner` is the planner of this process; None is the template planner.
    """

    journal: Journal
    ports: RunPorts
    sources: ContextSources
    artifacts: RunArtifacts
    deployment: DeploymentFacts
    planner: Planner | None = None


def describe_deployment(environment: RunEnvironment) -> dict[str, Any]:
    """Return the facts of the deployment that a run depends on, as they are recorded with its request."""
    facts = environment.deployment
    return {
        "runtime_version": facts.runtime_version,
        "profile": facts.profile,
        "semantics": facts.semantics,
        "planner": planner_name(environment.planner),
        "unsafe": list(facts.unsafe),
        "limits": {limit.name: getattr(facts.limits, limit.name) for limit in fields(facts.limits)},
    }


def with_recorded_deployment(environment: RunEnvironment, recorded: Mapping[str, Any]) -> RunEnvironment:
    """Return the environment with the deployment facts that were recorded when the run began.

    A run that is older than a fact did not record it; the fact then has the value that it implicitly had.
    """
    facts = replace(
        environment.deployment,
        runtime_version=recorded["runtime_version"],
        profile=recorded["profile"],
        semantics=recorded.get("semantics", 1),
        planner_name=recorded.get("planner", PLANNER),
        unsafe=tuple(recorded["unsafe"]),
        limits=RunLimits(**{"max_session_duration_ms": 0, **recorded["limits"]}),
    )
    return replace(environment, deployment=facts)
