"""The simulated world of one seed: processes that start and die over one store, and their surroundings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from contextos import __version__
from contextos.action.breaker import CircuitBreakers
from contextos.action.models.sending import ModelSender
from contextos.context.estimator import BytesDiv4
from contextos.contracts.acts import PackPin
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.documents.operations import BREAKERS, OPERATIONS, OperationDocument
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import Batch
from contextos.contracts.ports.outside import Adapter
from contextos.control.artifacts import POLICY_TYPE, PROFILE_TYPE, ROUTING_TYPE
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.acts.governance import activate_policies, pin_packs, publish_artifact, withdraw_artifact
from contextos.deployment.deployment import Deployment, DeploymentConfig
from contextos.deployment.ports import Ports
from contextos.errors import InvalidInput, Problem
from contextos.runtime.environment import RunLimits
from contextos.trust.seal import seal
from contextos_sim import example, models, scenario
from contextos_sim.faults import Faults
from contextos_sim.invariants import InvariantChecker
from contextos_sim.memory.stores import MemoryStores
from contextos_sim.payments import OrdersAdapter, PaymentsAdapter, Shop
from contextos_sim.ports import (
    Host,
    People,
    SeededEntropy,
    SimulatedCode,
    SimulatedConcurrency,
    SimulatedDirectory,
    SimulatedStores,
    UnboundedAdmission,
)
from contextos_sim.scenario import Scenario
from contextos_sim.scheduler import Scheduler, immediately, pause

START_US = 1_777_800_900_000_000
SIM_UNSAFE = ("unsafe_local_approvals",)
SIM_LIMITS = AdmissionLimits(breaker_failures_in_a_row=2, breaker_cool_down_ms=20_000)


def _no_key(name: str) -> str:
    raise InvalidInput(Problem("/models", "no_key", f"there is no key `{name}`", "the simulated models need none"))


class TrueClock:
    """The clock that is always right, for the store and the payments service; clocks of simulated processes can be
    wrong.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_us(self) -> int:
        return self._scheduler.now_us


class SimulatedWorld:
    """The whole simulated world. `checker` observes it; `changed_at_us` and `cancelled` hold the true time of each
    change.
    """

    def __init__(
        self, seed: int, *, fixed: Scenario | None = None, by_model: str = "", die_at: tuple[str, int] | None = None
    ) -> None:
        """Build the world of a seed, or with `fixed` a scenario without faults. With `by_model` a model plans (`plan`)
        or chooses the calls (`session`).

        `die_at` is the port call or commit at which a process dies: `port`, `before_commit` or `after_commit`, and its
        ordinal number, from 1.
        """
        self.seed = seed
        self.scenario = fixed or scenario.of_seed(seed, by_model)
        self.rng = Random(f"world {seed}")
        self.scheduler = Scheduler(Random(f"order {seed}"), START_US, self._on_death)
        self.faults = Faults(Random(f"faults {seed}"), disabled=fixed is not None)
        self.entropy = SeededEntropy(Random(f"entropy {seed}"))
        self.stores = MemoryStores(clock=TrueClock(self.scheduler))
        self.people = People()
        self.checker = InvariantChecker(self)
        now, dear = (lambda: self.scheduler.now_us), self.scenario.dear_payments
        self.shop = Shop(example.orders(), self.scenario.strategy, now, self.checker.paid, dear=dear)
        self.models = Random(f"answers {seed}")
        self.model_rate = 0.0 if fixed else self.models.choice(models.RATES)
        drawn = self.scenario
        self.definitions = example.definitions(drawn.strategy, drawn.scope, drawn.external_reads)
        self.verified = frozenset(
            edge["src"].removeprefix("customer:")
            for edge in example.graph()["edges"]
            if edge["predicate"] == "identity_verified" and edge.get("value") is True and edge["integrity"] == "trusted"
        )
        self.exercised: Counter[str] = Counter()
        self.changed_at_us: dict[str, int] = {}
        self.cancelled: dict[str, int] = {}
        self.answers: dict[str, str] = {}
        self.contested: set[str] = set()
        self.intruded = False
        self.ended_as: dict[str, str] = {}
        self.moments: Counter[str] = Counter()
        self._die_at = die_at
        self._full_until_us = 0
        self._started_hosts = 0
        self.hosts: dict[str, Host] = {}
        self.on_start: Callable[[Host, Deployment], None] = lambda _host, _deployment: None
        self.on_made: Callable[[str, OperationDocument], None] = lambda _key, _operation: None
        self.slots: list[tuple[Host, Deployment] | None] = [None] * self.scenario.hosts
        self.admin = self._deployment(Host("admin", self), raw=True)
        self._set_up_tenant()

    def up(self) -> list[tuple[Host, Deployment]]:
        """Return the running processes and their deployments."""
        return [slot for slot in self.slots if slot is not None]

    def start(self, slot: int) -> None:
        """Start a new process, with a new id and empty caches, in place `slot` of the fixed number of processes."""
        self._started_hosts += 1
        host = Host(f"host{self._started_hosts}", self, lag_us=self.rng.choice((0, 0, 1_500_000)))
        self.hosts[host.owner] = host
        deployment = self._deployment(host)
        self.slots[slot] = (host, deployment)
        self.on_start(host, deployment)

    def committed(self, owner: str, batch: Batch) -> None:
        """Check a batch that was just stored durably by `owner`, and count circuit-breaker changes in it."""
        self.checker.committed(owner, batch)
        self.exercised.update(f"circuit {circuit.state}" for _, circuit in BREAKERS.written(batch.writes))
        for key, operation in OPERATIONS.written(batch.writes):
            if self.scenario.intruded and not self.intruded and operation.state == "completed":
                self.intruded = True
                self.exercised["altered: payment stated as not made"] += 1
                self.on_made(key, operation)

    def presume_dead(self, host: Host) -> None:
        """Treat this process as dead although it still runs, as a network partition does."""
        host.believed_dead = True
        self._replace(host)

    def alive(self, owner: str) -> bool:
        """Return whether other processes believe that `owner` is alive."""
        host = self.hosts.get(owner)
        return host is not None and host.up and not host.believed_dead

    def zombies(self) -> bool:
        """Return whether a process that was taken for dead still runs tasks."""
        return any(task.host and self.hosts[task.host].believed_dead for task in self.scheduler.tasks)

    def dies_at(self, moment: str) -> bool:
        """Return whether the process dies at this port call or commit, as set in `die_at`."""
        self.moments[moment] += 1
        if self.faults.on and self._die_at == (moment, self.moments[moment]):
            self.faults.struck[f"crash at a chosen {moment}"] += 1
            return True
        return False

    def disk_is_full(self) -> bool:
        """Return whether the disk is full. Once full, it stays full for a while, for every process."""
        if self.faults.strikes("disk_full"):
            self._full_until_us = self.scheduler.now_us + self.faults.between(1, 120_000_000)
        return self.faults.on and self.scheduler.now_us < self._full_until_us

    def change_definitions(self) -> None:
        """Give the payments adapter a new version, which changes the digest of its definition."""
        payments = self.definitions["adp_payments"]
        changed = payments.model_copy(update={"version": payments.version + "-next"})
        self.definitions = {**self.definitions, "adp_payments": changed}

    def activate_policy(self) -> None:
        """Publish the tenant's policy of the scenario and put it in force."""
        assert self.scenario.policy is not None, "only a scenario with a policy activates it"
        tenant_id, by = example.EXAMPLE_TENANT, example.operator()
        envelope = seal(POLICY_TYPE, canonical(self.scenario.policy.bundle()), example.keys(), "pack")
        ref, _ = immediately(publish_artifact(self.admin, tenant_id, envelope, by=by))
        expected = immediately(self.admin.catalog(tenant_id).active()).version
        immediately(activate_policies(self.admin, tenant_id, (("tenant", ref),), expected=expected, by=by))
        self.changed_at_us["policy"] = self.scheduler.now_us

    def withdraw_pack(self) -> None:
        """Withdraw the pack, as the operator."""
        expected = immediately(self.admin.catalog(example.EXAMPLE_TENANT).active()).version
        act = withdraw_artifact(
            self.admin,
            example.EXAMPLE_TENANT,
            example.EXAMPLE_PACK,
            reason="recalled",
            expected=expected,
            by=example.operator(),
        )
        immediately(act)

    def _on_death(self, owner: str) -> None:
        host = self.hosts[owner]
        host.up = False
        self.exercised["crashes"] += 1
        self.scheduler.kill(owner)
        self._replace(host)

    def _replace(self, host: Host) -> None:
        for number, slot in enumerate(self.slots):
            if slot is not None and slot[0] is host:
                self.slots[number] = None
                self.scheduler.spawn("restart", self._restart(number), delay_us=self.faults.between(0, 30_000_000))

    async def _restart(self, slot: int) -> None:
        self.start(slot)

    def _set_up_tenant(self) -> None:
        """Publish the pack and fill the graph, before any fault."""
        by, tenant_id = example.operator(), example.EXAMPLE_TENANT
        pin = PackPin(
            refs=(example.EXAMPLE_PACK,), intents=(example.INTENT,), environment=self.admin.config.environment
        )
        for envelope in self._envelopes():
            immediately(publish_artifact(self.admin, tenant_id, envelope, by=by))
        immediately(activate_policies(self.admin, tenant_id, (), expected=0, by=by))
        immediately(pin_packs(self.admin, tenant_id, pin, expected=1, by=by))
        graph = example.graph()
        immediately(write_facts(self.admin, tenant_id, graph["nodes"], graph["edges"], by=by))
        if self.scenario.policy and not self.scenario.policy.at_us:
            self.activate_policy()

    def _envelopes(self) -> list[dict[str, Any]]:
        """The signed artifacts of the scenario; the pack is the last."""
        if not self.scenario.by_model:
            return [example.envelope("agent" if self.scenario.by_agent else "template")]
        *profiles, rules = models.artifacts()
        kinds = [*((PROFILE_TYPE, one) for one in profiles), (ROUTING_TYPE, rules)]
        sealed = [seal(kind, canonical(one), example.keys(), "pack") for kind, one in kinds]
        chosen_by = "model" if self.scenario.by_model == "session" else "template"
        return [*sealed, example.envelope(chosen_by, models.ROUTING)]

    def _deployment(self, host: Host, *, raw: bool = False) -> Deployment:
        stores = self.stores if raw else SimulatedStores(host)
        breakers, concurrency = CircuitBreakers(SIM_LIMITS), SimulatedConcurrency(host)
        provider = models.SimulatedModels(host, self.faults, self.models, self.model_rate, self.checker)
        sender = ModelSender({"scripted": provider}, _no_key, host, breakers, concurrency, pause)
        ports = Ports(
            stores=stores,
            clock=host,
            entropy=self.entropy,
            keys=example.keys(),
            directory=SimulatedDirectory(host, steady=raw),
            adapters=lambda _tenant: self._adapters(host),
            code=SimulatedCode(),
            estimator=BytesDiv4(),
            pause=pause,
            owner=host.owner,
            alive=self.alive,
            admission=UnboundedAdmission(),
            concurrency=concurrency,
            models=None if raw else sender,
        )
        return Deployment(
            ports=ports,
            config=DeploymentConfig(
                RunLimits(), __version__, unsafe=SIM_UNSAFE, egress={example.EXAMPLE_TENANT: (example.SHOP_ENDPOINT,)}
            ),
            breakers=breakers,
        )

    def _adapters(self, host: Host) -> dict[str, Adapter]:
        found: dict[str, Adapter] = {}
        for name in self.definitions:
            if name == "adp_payments":
                found[name] = PaymentsAdapter(self._describe(name), self.shop, self.faults, host, self.scheduler)
            else:
                found[name] = OrdersAdapter(self._describe(name), self.shop, self.faults, host)
        return found

    def _describe(self, name: str) -> Any:
        def describe() -> AdapterDefinition:
            return self.definitions[name]

        return describe


__all__ = ["START_US", "SimulatedWorld"]
