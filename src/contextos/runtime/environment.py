"""The environment of one run: its journal, ports, artifacts and deployment facts, grouped by what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from operator import attrgetter
from typing import Annotated, Any, Final

from contextos.action.barrier import Barrier
from contextos.action.breaker_adapter import SharedYield, no_turn
from contextos.action.cancellation import find_cancel
from contextos.action.content.seen_content import SeenContent
from contextos.action.gateway.guarded_call import Guard
from contextos.action.models.sending import ModelSender
from contextos.action.registry import Registry
from contextos.action.secret_arguments import SecretArguments, SecretValues
from contextos.context.basis import Basis
from contextos.contracts.bindings import ParsedStep
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.entries.account import Usage
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import SEMANTICS
from contextos.contracts.model import MAX_CENTS, MAX_COUNT, final_fields
from contextos.contracts.ports.concurrency import Concurrency, Sequential
from contextos.contracts.ports.credentials import Credentials
from contextos.contracts.ports.outside import Adapter, Attachments, Clock, Directory, Estimator, Keys, Signer
from contextos.contracts.ports.planning import Planner
from contextos.contracts.ports.seams import Journal, Knowledge, Memory, ProvedCancels, SlotSteps
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import Capability
from contextos.contracts.setting_types import AnyNumber, Fits, SettingTable, means, whole
from contextos.control.catalog import Catalog
from contextos.decision.planners.foreign import planner_name
from contextos.decision.planners.template import PLANNER
from contextos.trust.approvals.cancel_requests import proved_cancels
from contextos.trust.approvals.gate_approvals import CheckQuestion
from contextos.trust.identity.claims import MAX_TTL_S
from contextos.trust.policy.policy_set import PolicySet
from contextos.trust.rows.open_places import OpenPlacesOf


@dataclass(frozen=True, slots=True)
class RunLimits(SettingTable):
    """The upper limits that a deployment sets for each run. A request can only lower a limit."""

    total_tokens: Annotated[int, whole(1, MAX_COUNT, "tokens of a run")] = 12_000
    max_tool_calls: Annotated[int, whole(0, MAX_COUNT, "dispatched tool calls of a run")] = 50
    max_replan_attempts: Annotated[int, whole(0, MAX_COUNT, "plans after the first")] = 2
    wall_clock_ms: Annotated[
        int, whole(1, MAX_COUNT, "milliseconds of a run; time spent waiting for a person or for a turn does not count")
    ] = 30_000
    max_cost_cents: Annotated[
        AnyNumber,
        Fits(
            f"this is not a number from 0 to {MAX_CENTS} with at most 4 decimals",
            "give US cents within these bounds, in steps of 1/10,000 cent",
            lambda cents: 0 <= cents <= MAX_CENTS and round(cents, 4) == cents,
        ),
        means("US cents of a run"),
    ] = 100
    max_payload_bytes: Annotated[int, whole(1, MAX_BYTES, "bytes of a request")] = 1_048_576
    claim_ttl_s: Annotated[
        int, whole(1, MAX_TTL_S, "seconds for which the identity claim of a run or of one call is valid")
    ] = 60
    credential_ttl_s: Annotated[
        int, whole(1, MAX_TTL_S, "the longest life of a credential that is issued for a call, in seconds")
    ] = 3_600
    max_session_duration_ms: Annotated[
        int, whole(1, MAX_COUNT, "milliseconds from the receipt of a run to its end, including waiting")
    ] = 14_400_000


COMPILED_KEPT: Final = 64
"""The most combinations of policy decisions and permissions whose results are kept, for each set of pins."""
_LIMITS: Final = tuple(limit.name for limit in fields(RunLimits))
_limits_of: Final = attrgetter(*_LIMITS)


@final_fields
class RunPorts:
    """The external systems that a run uses. `adapters` maps adapter ids to adapters, `code` the pins of code
    (`runtime`, `code:<adapter id>`) to the digests of the code that this process runs, and `packages` the pins of the
    packages that this code imports (`packages:<adapter id>`) to functions that read their current digest. All are empty
    in a replay. `credentials` exchanges identities for credentials; None if the deployment has no issuer. `models`
    sends the calls of models. `turn` is the run's right to be driven, which the run gives up while a model is asked.
    """

    store: Store
    clock: Clock
    keys: Keys
    directory: Directory
    signer: Signer
    adapters: Mapping[str, Adapter]
    code: Mapping[str, str | None]
    packages: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    credentials: Credentials | None = None
    concurrency: Concurrency = field(default_factory=Sequential)
    models: ModelSender | None = None
    turn: SharedYield = field(default_factory=no_turn)


@final_fields
class ContextSources:
    """Where a run's context comes from: graph, memory, slots and attachments. Without `slots`, a template that uses a
    slot is refused; without `attachments`, a request with attachments is refused.
    """

    knowledge: Knowledge
    memory: Memory
    slots: SlotSteps | None
    attachments: Attachments | None = None


@final_fields
class Prepared:
    """What follows from a set of pins: the tools by id, with what the pack permits, the compiled rules, the guards that
    can refuse a call of each tool, and the steps of each template by its id. `compiled` keeps what compiles have in
    common, by policy decisions and permissions; `surfaces` keeps the tools as people with certain rights see them, by
    these rights. `pack` is the pack as bindings read it, and is never changed.
    """

    capabilities: Mapping[str, Capability]
    policy: PolicySet
    guards: Mapping[str, tuple[Guard, ...]]
    templates: Mapping[str, tuple[ParsedStep, ...]]
    pack: Mapping[str, Any]
    compiled: RecentlyUsed[Basis] = field(default_factory=partial(RecentlyUsed, COMPILED_KEPT))
    surfaces: RecentlyUsed[tuple[SurfaceCapability, ...]] = field(default_factory=partial(RecentlyUsed, COMPILED_KEPT))


@final_fields
class RunArtifacts:
    """The tenant's published artifacts (packs, policies, catalogs). `prepared` keeps what follows from a pin set,
    by its digest.
    """

    catalog: Catalog
    registry: Registry
    prepared: RecentlyUsed[Prepared]
    estimator: Estimator


@final_fields
class DeploymentFacts:
    """Facts about a deployment that a run records when it begins, and that stay fixed for the run.

    `unsafe` lists the unsafe development settings when the run began, and `unsafe_now` the current ones. `unsafe_now`
    and `address` (the name by which partners know the deployment) are not recorded. `planner_name` is the planner that
    the run began with. Without `attachments` the attachments of the request are not fetched. `environment` is the
    environment that the deployment serves.
    """

    limits: RunLimits
    runtime_version: str
    profile: str
    environment: str
    unsafe: tuple[str, ...]
    unsafe_now: tuple[str, ...]
    semantics: int = SEMANTICS
    planner_name: str = PLANNER
    attachments: bool = True
    unsafe_stated_by: tuple[str, ...] = ()
    address: str = ""


@dataclass
class RunEnvironment:
    """Everything that one run uses, live or in a replay. In a replay the journal returns recorded answers and no port
    is called.

    `planner` is the planner of this process; None means the template planner. `secret_values` are the secret arguments
    that this process has in memory; None in a replay. `at_question` is called with the check of whether the open
    question still holds, before the run waits for its answer. `at_compiled` is called with each context in full and the
    key of its entry, after the entry. `places` limits open questions and sessions; None: nothing is counted. `looked`
    has, for each function of `RunPorts.packages`, the time of its last call and the digest.
    """

    journal: Journal
    ports: RunPorts
    sources: ContextSources
    artifacts: RunArtifacts
    deployment: DeploymentFacts
    barrier: Barrier
    planner: Planner | None = None
    secret_values: SecretValues | None = None
    at_question: Callable[[CheckQuestion], None] | None = None
    at_compiled: Callable[[str, dict[str, Any]], None] | None = None
    places: OpenPlacesOf | None = None
    looked: dict[Callable[[], str | None], tuple[int, str | None]] = field(default_factory=dict)

    @cached_property
    def secrets(self) -> SecretArguments:
        """Return the secret arguments of the run."""
        return SecretArguments(self.journal.account, self.secret_values)

    @cached_property
    def seen(self) -> SeenContent:
        """Return the content that the run has seen so far."""
        return SeenContent(self.journal.log())

    def used(self) -> Usage:
        """Return what the run has used so far, up to the last entry of its journal."""
        return self.journal.account.used()


def cancels_of(environment: RunEnvironment) -> ProvedCancels:
    """Return the function that reads the proved cancel requests of the run."""
    return partial(proved_cancels, environment.ports.store, environment.ports.keys, environment.journal.run_id)


async def look_for_cancel(environment: RunEnvironment, before: str, *, again: bool = True) -> Failure | None:
    """Look for a cancel request of the run, as `find_cancel` does. Without `again`, use what was found a moment ago."""
    if again:
        environment.barrier.forget()
    cancel = await find_cancel(environment.journal, environment.barrier, cancels_of(environment), before)
    environment.barrier.forget()
    return cancel


def describe_deployment(environment: RunEnvironment) -> dict[str, Any]:
    """Return the facts of the deployment that a run records with its request, as JSON."""
    facts = environment.deployment
    return {
        "runtime_version": facts.runtime_version,
        "profile": facts.profile,
        "environment": facts.environment,
        "semantics": facts.semantics,
        "planner": planner_name(environment.planner),
        "attachments": facts.attachments,
        "unsafe": list(facts.unsafe),
        **({"unsafe_stated_by": list(facts.unsafe_stated_by)} if facts.unsafe_stated_by else {}),
        "limits": dict(zip(_LIMITS, _limits_of(facts.limits), strict=True)),
    }


def use_recorded_deployment(environment: RunEnvironment, recorded: Mapping[str, Any]) -> None:
    """Let the environment have the deployment facts that the run recorded when it began."""
    environment.deployment = DeploymentFacts(
        runtime_version=recorded["runtime_version"],
        profile=recorded["profile"],
        environment=recorded["environment"],
        semantics=recorded["semantics"],
        planner_name=recorded["planner"],
        attachments=recorded["attachments"],
        unsafe=tuple(recorded["unsafe"]),
        unsafe_now=environment.deployment.unsafe_now,
        address=environment.deployment.address,
        unsafe_stated_by=tuple(recorded.get("unsafe_stated_by", ())),
        limits=RunLimits(**recorded["limits"]),
    )
