"""Makes a deployment in memory: the real runtime over ports that write nothing to a disk. `contextos.testing` offers it
to tests of packs and tools, and a backtest plays recorded sessions in it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from contextos.adapters.directory import FileDirectory, tenants_of
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.ports.credentials import Credentials
from contextos.contracts.ports.models import ModelProvider
from contextos.contracts.ports.outside import Adapter
from contextos.contracts.ports.planning import Planner
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.acts.governance import initialise_tenant
from contextos.deployment.operator import answer_approval
from contextos.deployment.queries.run_view import RunView
from contextos.deployment.signing import answer_signer
from contextos.errors import InvalidInput, Problem
from contextos.packs.building import DeclaredPack
from contextos.packs.checking import payload_type_of, require_lint
from contextos.packs.expansion import Expansion
from contextos.runtime.environment import RunLimits
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.memory import SqliteMemoryStores
from contextos.trust.approvals.acts import ACT_ROLES
from contextos.trust.seal import KeyRing, listed_key, seal
from contextos.workspace.application import App
from contextos.workspace.given import GivenPorts
from contextos.workspace.opening import Opening
from contextos.workspace.settings import Settings

TEST_OPERATOR: Final = "contextos_test_operator"
"""The id of the person who publishes, pins and writes facts in a deployment in memory, with every operator's role."""
TEST_ADMIN: Final = "contextos_test_admin"
MAX_ADVANCE_S: Final = 10 * 365 * 86_400


class MovableClock:
    """The `Clock` of a test: the time of the machine, plus the seconds that `advance` added."""

    unsafe = ("unsafe_test_clock",)

    def __init__(self) -> None:
        self._clock, self._ahead_us = SystemClock(), 0

    def now_us(self) -> int:
        return self._clock.now_us() + self._ahead_us

    def advance(self, seconds: float) -> None:
        """Move the clock forward. Runs that are due then are driven soon, or at once by `App.drive_due_runs`.

        Raises:
            InvalidInput: `seconds` is negative or more than ten years. The runtime would record a clock that goes back
                as an incident.
        """
        if not 0 <= seconds <= MAX_ADVANCE_S:
            detail = "a test moves its clock forward, by ten years at most"
            raise InvalidInput(Problem("", "backwards", detail, "begin another one"))
        self._ahead_us += int(seconds * 1_000_000)


@dataclass(frozen=True, slots=True)
class Person:
    """A person of the directory with a key of their own, for tests only: the key is made from their id."""

    user_id: str
    _key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", hashlib.sha256(b"contextos.testing\0" + self.user_id.encode()).digest())

    def listed_key(self) -> dict[str, str]:
        """Return the public half as an entry of `keys` of an approver in the directory."""
        return listed_key(self._key)

    def actor(self) -> Actor:
        """Return this person as the actor of operators' acts."""
        return Actor.with_key(self.user_id, self._key)

    async def answer(self, app: App, view: RunView, verdict: str = "approved", *, reason: str = "tested") -> RunView:
        """Answer the question that a run waits for, drive the run on, and return its state.

        Raises:
            InvalidInput: the run waits for no approval.
            ApprovalRefused: this person cannot answer it; the reason comes from `answer_approval`.
        """
        binding = (view.waiting or {}).get("binding_digest")
        if binding is None:
            raise InvalidInput(Problem("", "no_question", "the run waits for no approval", "look at `view.waiting`"))
        await answer_approval(
            app.deployment,
            view.tenant_id,
            view.run_id,
            approver_id=self.user_id,
            verdict=verdict,
            reason=reason,
            binding_digest=binding,
            vouch=answer_signer(self._key),
        )
        await app.deployment.advance(view.tenant_id, view.run_id)
        return await app.deployment.view(view.tenant_id, view.run_id)


class MemoryDirectory(FileDirectory):
    """The `Directory` port over a value of the form of the directory file.

    Every approver who lists no key gets the key of the `Person` with their id, and every tenant gets `TEST_OPERATOR`.
    Raises `InvalidInput` if the value is not a directory.
    """

    def __init__(self, tenants: Mapping[str, Any]) -> None:
        try:
            directory = {name: _with_test_people(tenant) for name, tenant in tenants.items()}
        except (KeyError, TypeError, AttributeError) as error:
            detail = f"this is not a directory of identities ({type(error).__name__}: {error})"
            remedy = "give `{tenant: {users, agents, approvers}}`"
            raise InvalidInput(Problem("/directory", "bad_directory", detail, remedy)) from None
        self._people = tenants_of(directory)

    def _current(self) -> dict[str, dict[str, Any]]:
        return self._people


def in_memory(
    *,
    packs: Sequence[Mapping[str, Any] | DeclaredPack],
    adapters: Sequence[Adapter] = (),
    directory: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    planner: Planner | None = None,
    models: ModelProvider | None = None,
    artifacts: Sequence[Mapping[str, Any]] = (),
    credentials: Credentials | None = None,
    clock: MovableClock | None = None,
    limits: RunLimits | None = None,
    egress: Mapping[str, Sequence[str]] | None = None,
    lint: bool = True,
) -> InMemory:
    """Return a context that is a deployment in memory, in which the packs are published and pinned for their intents.

    `packs` are whole packs, or packs that `contextos.pack` declared, which bring their adapters. `directory` has the
    form of the directory file. `facts` has `nodes` and `edges`, which are written in each tenant. The store is empty
    each time the context is entered. `models` answers calls of models, and `artifacts` are the profiles and routing
    rules that the packs name. `egress` lists the endpoints that the calls of a tenant may reach. `credentials` issues
    the credentials of calls. Without `lint` a pack comes into force although `contextos apply` would refuse it, to test
    how its calls are refused.

    Raises:
        InvalidInput: the directory is malformed; or, on entering, a fact is.
        InvalidArtifact: on entering, lint refuses a pack with all that the deployment knows; names each problem.
        InvalidSettings: on entering, an adapter or a limit is invalid.
    """
    test_clock = clock if clock is not None else MovableClock()
    ports = GivenPorts(
        directory=MemoryDirectory(directory),
        keys=KeyRing.from_seed(hashlib.sha256(b"contextos.testing").digest()),
        adapters=(*adapters, *(port for pack in packs if isinstance(pack, DeclaredPack) for port in pack.adapters)),
        planner=planner,
        models=models,
        credentials=credentials,
        clock=test_clock,
        dev=True,
    )
    allowed_egress = {tenant_id: tuple(endpoints) for tenant_id, endpoints in (egress or {}).items()}
    limits = limits if limits is not None else RunLimits()
    settings = Settings(Path.cwd(), packs=(), witness="off", limits=limits, egress=allowed_egress)
    documents = tuple(pack.expansion.document if isinstance(pack, DeclaredPack) else pack for pack in packs)
    declared = tuple(pack.expansion for pack in packs if isinstance(pack, DeclaredPack))
    return InMemory(settings, ports, (*artifacts, *documents), declared if lint else None, dict(facts or {}))


class InMemory(Opening):
    """A deployment in memory, as `in_memory` makes it."""

    def __init__(
        self,
        settings: Settings,
        given: GivenPorts,
        packs: tuple[Mapping[str, Any], ...],
        declared: tuple[Expansion, ...] | None,
        facts: Mapping[str, Any],
    ) -> None:
        super().__init__(settings, given)
        self._packs, self._declared, self._facts = packs, declared, facts

    async def __aenter__(self) -> App:
        async with AsyncExitStack() as on_failure:
            stores = SqliteMemoryStores(clock=self._given.clock)
            on_failure.callback(stores.close)
            self._given = replace(self._given, stores=stores)
            app = await super().__aenter__()
            on_failure.push_async_exit(self.__aexit__)
            await self._initialise(app)
            on_failure.pop_all()
        return app

    async def _initialise(self, app: App) -> None:
        actor = Person(TEST_OPERATOR).actor()
        envelopes = [
            seal(payload_type_of(pack) or PACK_TYPE, canonical(dict(pack)), app.keys, "pack") for pack in self._packs
        ]
        for tenant_id in app.tenants():
            tenant_envelopes = [envelope for envelope in envelopes if app.tenant_named(envelope) in (None, tenant_id)]
            if self._declared is not None:
                await require_lint(app.deployment, tenant_id, tenant_envelopes, declared=self._declared)
            await initialise_tenant(app.deployment, tenant_id, tenant_envelopes, (), by=actor)
            nodes, edges = self._facts.get("nodes", ()), self._facts.get("edges", ())
            if nodes or edges:
                await write_facts(app.deployment, tenant_id, nodes, edges, by=actor)


def _with_test_people(tenant: Mapping[str, Any]) -> dict[str, Any]:
    approvers = [
        {**entry, "keys": entry.get("keys") or [Person(entry["approver_id"]).listed_key()]}
        for entry in tenant["approvers"]
    ]
    roles = sorted({role for role in ACT_ROLES.values() if role})
    operator = {
        "approver_id": TEST_OPERATOR,
        "roles": roles,
        "granted_by": dict.fromkeys(roles, TEST_ADMIN),
        "keys": [Person(TEST_OPERATOR).listed_key()],
    }
    return {**tenant, "approvers": [*approvers, operator]}
