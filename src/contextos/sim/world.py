"""The simulated world of one seed: processes that start and die over one store, and their surroundings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from contextos import __version__
from contextos.action.breaker import CircuitBreakers
from contextos.context.estimator import BytesDiv4
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.documents.operations import BREAKERS
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import Batch
from contextos.contracts.ports.outside import Adapter
from contextos.operations.deployment import Deployment, DeploymentConfig
from contextos.operations.ports import Ports
from contextos.runtime.environment import RunLimits
from contextos.sim import example, scenario
from contextos.sim.faults import Faults
from contextos.sim.invariants import InvariantChecker
from contextos.sim.payments import OrdersAdapter, PaymentsAdapter, Shop
from contextos.sim.ports import Host, People, SeededEntropy, SimulatedConcurrency, SimulatedDirectory, SimulatedStores
from contextos.sim.scenario import Scenario
from contextos.sim.scheduler import Scheduler, immediately, pause
from contextos.store.memory.stores import MemoryStores

START_US = 1_777_800_000_000_000
SIM_UNSAFE = ("unsafe_local_approvals",)
SIM_LIMITS = AdmissionLimits(breaker_failures_in_a_row=2, breaker_cool_down_ms=20_000)


class TrueClock:
    """The true time, which the store and the payments service use."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_us(self) -> int:
        return self._scheduler.now_us


class SimulatedWorld:
    """The whole world. `checker` observes it; `changed_at_us` and `cancelled` hold the true time of each change."""

    def __init__(self, seed: int, *, fixed: Scenario | None = None, die_at: tuple[str, int] | None = None) -> None:
        """Build the world of a seed, or with `fixed` a scenario without faults.

        `die_at` is the port call or commit at which a process dies: `port`, `before_commit` or `after_commit`, and its
        ordinal number, from 1.
        """
        self.seed = seed
        self.scenario = fixed or scenario.draw(Random(f"scenario {seed}"))
        self.rng = Random(f"world {seed}")
        self.scheduler = Scheduler(Random(f"order {seed}"), START_US, self._on_death)
        self.faults = Faults(Random(f"faults {seed}"), disabled=fixed is not None)
        self.entropy = SeededEntropy(Random(f"entropy {seed}"))
        self.stores = MemoryStores(clock=TrueClock(self.scheduler))
        self.people = People()
        self.checker = InvariantChecker(self)
        self.shop = Shop(example.orders(), self.scenario.strategy, lambda: self.scheduler.now_us, self.checker.paid)
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
        self.ended_as: dict[str, str] = {}
        self.moments: Counter[str] = Counter()
        self._die_at = die_at
        self._full_until_us = 0
        self._started_hosts = 0
        self.hosts: dict[str, Host] = {}
        self.on_start: Callable[[Host, Deployment], None] = lambda _host, _deployment: None
        self.slots: list[tuple[Host, Deployment] | None] = [None] * self.scenario.hosts
        self.admin = self._deployment(Host("admin", self), raw=True)
        self._set_up_tenant()

    def up(self) -> list[tuple[Host, Deployment]]:
        """Return the running processes and their deployments."""
        return [slot for slot in self.slots if slot is not None]

    def start(self, slot: int) -> None:
        """Start a new process in a slot, with a new owner and empty caches."""
        self._started_hosts += 1
        host = Host(f"host{self._started_hosts}", self, lag_us=self.rng.choice((0, 0, 1_500_000)))
        self.hosts[host.owner] = host
        deployment = self._deployment(host)
        self.slots[slot] = (host, deployment)
        self.on_start(host, deployment)

    def committed(self, owner: str, batch: Batch) -> None:
        """Check a batch that has become durable, and count circuit changes."""
        self.checker.committed(owner, batch)
        self.exercised.update(f"circuit {circuit.state}" for _, circuit in BREAKERS.written(batch.writes))

    def presume_dead(self, host: Host) -> None:
        """Treat this process as dead although it still runs: it is a zombie now."""
        host.believed_dead = True
        self._replace(host)

    def alive(self, owner: str) -> bool:
        """Return whether other processes believe that `owner` is alive."""
        host = self.hosts.get(owner)
        return host is not None and host.up and not host.believed_dead

    def zombies(self) -> bool:
        """Return whether a process that was presumed dead still has tasks."""
        return any(task.host and self.hosts[task.host].believed_dead for task in self.scheduler.tasks)

    def dies_at(self, moment: str) -> bool:
        """Return whether the process dies at this port call or commit, as `die_at` asks."""
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
        """Give the payments adapter a new version, and so a new definition digest."""
        payments = self.definitions["adp_payments"]
        changed = payments.model_copy(update={"version": payments.version + "-next"})
        self.definitions = {**self.definitions, "adp_payments": changed}

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
        catalog = self.admin.catalog(example.EXAMPLE_TENANT)
        by: dict[str, Any] = {"by": "operator", "at_us": START_US, "salt": self.entropy.take}
        immediately(catalog.publish(example.envelope(), **by))
        immediately(catalog.activate_policies((), **by))
        immediately(self.stores.graph(example.EXAMPLE_TENANT).put(**example.graph()))

    def _deployment(self, host: Host, *, raw: bool = False) -> Deployment:
        stores = self.stores if raw else SimulatedStores(host)
        ports = Ports(
            stores=stores,
            graph=stores.graph,
            clock=host,
            entropy=self.entropy,
            keys=example.keys(),
            directory=SimulatedDirectory(host),
            adapters=lambda _tenant: self._adapters(host),
            estimator=BytesDiv4(),
            pause=pause,
            owner=host.owner,
            alive=self.alive,
            concurrency=SimulatedConcurrency(host),
        )
        return Deployment(
            ports=ports,
            config=DeploymentConfig(RunLimits(), __version__, unsafe=SIM_UNSAFE),
            breakers=CircuitBreakers(SIM_LIMITS),
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
