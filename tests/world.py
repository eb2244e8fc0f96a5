"""A deployment over the example, for tests: the real shop, real signed pack, real stores; the clock is the test's."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from contextos import __version__
from contextos.adapters.code import SourceCode
from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.loading import load_function_adapters
from contextos.audit.replay import derived_context
from contextos.context.estimator import BytesDiv4
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.acts import PackPin
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX
from contextos.contracts.ports.outside import Adapter
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment import operator
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.acts.governance import activate_policies, pin_packs, publish_artifact, withdraw_artifact
from contextos.deployment.deployment import Deployment, DeploymentConfig
from contextos.deployment.ports import Ports
from contextos.deployment.queries.run_view import RunView
from contextos.deployment.signing import act_signer
from contextos.runtime.environment import RunLimits
from contextos.service.runs import Runs
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement
from contextos.trust.seal import KeyRing, kid_of, seal
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner
from contextos.workspace.engine.run_watch import RunWatch
from contextos_sim.memory.stores import MemoryStores
from contextos_sim.ports import UnboundedAdmission

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "support_refund"
TENANT = "tenant_acme_prod"
APPROVER = "user_finance_lead_77"
APPROVER_KEY = bytes(range(32))
OPERATOR = "user_operator_5"
OPERATOR_KEY = bytes(range(5, 37))
INTENT = "support.refund"


class ManualClock:
    """A clock that moves 1 ms at every reading, and where the test says."""

    def __init__(self, now_us: int = 1_793_000_000_000_000) -> None:
        self.at_us = now_us

    def now_us(self) -> int:
        self.at_us += 1_000
        return self.at_us


class SystemEntropy:
    def take(self, count: int) -> bytes:
        return os.urandom(count)


def public_key(seed: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


def request(amount: int, request_id: str, **context: Any) -> dict[str, Any]:
    """The request of the How-It-Works page with another amount."""
    body: dict[str, Any] = copy.deepcopy(example("request.json"))
    body["request_id"] = request_id
    body["input"]["message"] = f"Refund order ord_881 for INR {amount}."
    body["input"]["context"] |= {"refund_amount": amount, **context}
    return body


@dataclass
class TestWorld:
    """A workspace and a deployment over it. `adapters` may be replaced or wrapped by a test."""

    __test__ = False

    path: Path
    deployment: Deployment
    stores: Any
    clock: Any
    keys: KeyRing
    adapters: dict[str, Adapter]
    owner: Owner | LeasedOwner
    extra: dict[str, Any] = field(default_factory=dict)

    def actor(self, actor_id: str = OPERATOR, seed: bytes = OPERATOR_KEY) -> Actor:
        """A person who acts, and signs with this key."""
        return Actor(actor_id, act_signer(seed))

    async def active_version(self) -> int:
        return (await self.deployment.catalog(TENANT).active()).version

    async def publish(self, envelope: dict[str, Any], *, by: Actor | None = None, tenant_id: str = TENANT) -> str:
        ref, _ = await publish_artifact(self.deployment, tenant_id, envelope, by=by or self.actor())
        return ref

    async def activate(self, *level_refs: tuple[Any, str]) -> None:
        """Put exactly these policies in force."""
        expected = await self.active_version()
        await activate_policies(self.deployment, TENANT, level_refs, expected=expected, by=self.actor())

    async def withdraw(self, ref: str) -> None:
        expected = await self.active_version()
        await withdraw_artifact(self.deployment, TENANT, ref, reason="wrong", expected=expected, by=self.actor())

    async def pin_pack(self, *refs: str, intents: tuple[str, ...] = (INTENT,), tenant_id: str = TENANT) -> None:
        """Let requests name exactly these refs."""
        pin = PackPin(refs=refs, intents=intents, environment=self.deployment.config.environment)
        expected = (await self.deployment.catalog(tenant_id).active()).version
        await pin_packs(self.deployment, tenant_id, pin, expected=expected, by=self.actor())

    def runs(self) -> Runs:
        """The runs as an application sees them."""
        return Runs(self.deployment, RunWatch(self.stores, self.keys))

    async def invoke(self, body: Mapping[str, Any] | bytes) -> RunView:
        return await self.deployment.invoke(body)

    async def contexts(self, run_id: str) -> list[dict[str, Any]]:
        """Every context that a run compiled, with its text and its manifests, derived again."""
        entries = await self.stores.tenant(TENANT).read(run_id)
        keys = [one.key for one in entries if one.kind == "context.compiled"]
        return [(await derived_context(self.deployment, TENANT, run_id, key)).to_json() for key in keys]

    async def approve(
        self,
        run_id: str,
        verdict: str = "approved",
        *,
        approver: str = APPROVER,
        seed: bytes = APPROVER_KEY,
        then: Callable[[], Any] | None = None,
    ) -> RunView:
        """Answer the question and drive the run on; `then` is what happens in between."""
        await self.answer(run_id, verdict, approver=approver, seed=seed)
        if then is not None and asyncio.iscoroutine(made := then()):
            await made
        await self.deployment.advance(TENANT, run_id)
        return await self.deployment.view(TENANT, run_id)

    async def answer(
        self,
        run_id: str,
        verdict: str = "approved",
        *,
        approver: str = APPROVER,
        seed: bytes = APPROVER_KEY,
        binding_digest: str | None = None,
    ) -> None:
        """Answer the question with this digest, by default the one that the journal shows now."""

        def vouch(said: Mapping[str, Any]) -> dict[str, Any]:
            return {"kind": "jws", "token": sign_approval(seed, kid_of(public_key(seed)), said)}

        await operator.answer_approval(
            self.deployment,
            TENANT,
            run_id,
            approver_id=approver,
            verdict=verdict,
            reason="test",
            binding_digest=binding_digest or await self.binding_digest(run_id),
            vouch=vouch,
        )

    async def binding_digest(self, run_id: str) -> str:
        """The digest of the question that the run asked last, as its approver reads it in the journal."""
        asked = [one for one in await self.stores.tenant(TENANT).read(run_id) if one.kind == "approval.asked"]
        return str(json.loads(asked[-1].body)["binding_digest"]) if asked else "sha256:none"

    async def settle(
        self, run_id: str, settlement: operator.SettlementInput, *, seed: bytes = OPERATOR_KEY, drive: bool = True
    ) -> RunView:
        """An operator says what they found, signed, and the run is driven on."""

        def vouch(said: Mapping[str, Any]) -> dict[str, Any]:
            return {"kind": "jws", "token": sign_settlement(seed, kid_of(public_key(seed)), said)}

        await operator.settle_effect(self.deployment, TENANT, run_id, settlement, vouch=vouch)
        if drive:
            await self.deployment.advance(TENANT, run_id)
        return await self.deployment.view(TENANT, run_id)

    def by_the_books(self, order_id: str | None = None) -> operator.SettlementInput:
        """What a person finds who looks at the shop's books: the refund, of this order if one is named, or none."""
        paid = [one for one in self.refunds() if order_id in (None, one["order_id"])]
        output = None
        if paid:
            output = {
                "transaction_id": paid[0]["transaction_id"],
                "refund_amount_inr": paid[0]["amount_inr"],
                "currency": paid[0]["currency"],
            }
        return operator.SettlementInput(
            happened=bool(paid), by=OPERATOR, evidence_ref="kg:order:ord_881#snapshot_kg_1", output=output
        )

    def refunds(self) -> list[dict[str, Any]]:
        """What really moved, from the shop's own database."""
        refunds: list[dict[str, Any]] = self.shop().refunds()
        return refunds

    def shop(self) -> Any:
        """The shop itself, as its own people have it."""
        sys.path.insert(0, str(EXAMPLE))
        try:
            from shop import Shop
        finally:
            sys.path.pop(0)
        return Shop(self.path / "shop.db")

    async def stock(self, *orders: str, total_inr: int = 90_000) -> None:
        """More orders, each of a customer of its own whose identity is verified."""
        shop, nodes, edges = self.shop(), [], []
        known = {"observed_at": "2026-05-03T09:30:00Z", "integrity": "trusted", "classification": "CONFIDENTIAL"}
        for order in orders:
            name = order.removeprefix("ord_")
            shop.add_order(order, f"cus_{name}", total_inr)
            nodes += [
                {"ceid": ceid, "type": ceid.partition(":")[0], "properties": {}}
                for ceid in (f"order:{order}", f"customer:cus_{name}")
            ]
            edges += [
                {
                    "src": f"order:{order}",
                    "predicate": "placed_by",
                    "dst": f"customer:cus_{name}",
                    "evidence_ref": f"artifact:order_{order}#rev_1",
                    **known,
                },
                {
                    "src": f"customer:cus_{name}",
                    "predicate": "identity_verified",
                    "dst": f"check:idv_cus_{name}",
                    "value": True,
                    "evidence_ref": f"artifact:idv_cus_{name}#rev_1",
                    **known,
                },
                {
                    "src": f"customer:cus_{name}",
                    "predicate": "memory_consent",
                    "dst": f"check:consent_cus_{name}",
                    "value": False,
                    "evidence_ref": f"artifact:consent_cus_{name}#rev_1",
                    **known,
                },
            ]
        shop.close()
        await self.put_facts(edges, nodes)

    async def put_facts(
        self, edges: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]] = (), tenant_id: str = TENANT
    ) -> int:
        """Write facts into the graph, as the operator who holds the role for it."""
        return await write_facts(self.deployment, tenant_id, nodes, edges, by=self.actor())

    async def kinds(self, run_id: str) -> list[str]:
        return [entry.kind for entry in await self.stores.tenant(TENANT).read(run_id)]

    def edit_directory(self, change: Callable[[dict[str, Any]], None]) -> None:
        where = self.path / "directory.json"
        body = json.loads(where.read_text("utf-8"))
        change(body[TENANT])
        where.write_text(json.dumps(body, indent=1) + "\n", "utf-8")

    def know(self, person: str, seed: bytes = OPERATOR_KEY) -> None:
        """Give somebody a key in the directory, so that they can sign; who is new there has no role."""

        def add(tenant: dict[str, Any]) -> None:
            if all(one["approver_id"] != person for one in tenant["approvers"]):
                tenant["approvers"].append({"approver_id": person, "roles": [], "granted_by": {}, "keys": []})
            _give_keys(tenant, {person: seed})

        self.edit_directory(add)

    def close(self) -> None:
        self.stores.close()
        self.owner.close()

    async def aclose(self) -> None:
        """`close`, and a goodbye to a server, from the event loop that has the connections."""
        if hasattr(self.stores, "aclose"):
            await self.stores.aclose()
        self.close()


async def open_world(
    path: Path,
    *,
    stores: str = "memory",
    clock: Any = None,
    payments: str = "keyed",
    pack: Callable[[dict[str, Any]], None] | None = None,
    unsafe: tuple[str, ...] = (),
    limits: RunLimits | None = None,
    seed_graph: bool = True,
    publisher: tuple[str, bytes] = (OPERATOR, OPERATOR_KEY),
    egress: Mapping[str, tuple[str, ...]] | None = None,
    redaction: Mapping[str, tuple[str, ...]] | None = None,
    environment: str = "dev",
) -> TestWorld:
    """Make or reopen the workspace at `path` and open a deployment over it."""
    fresh = not (path / "directory.json").exists()
    if fresh:
        for name in ("shop.py", "directory.json"):
            shutil.copy(EXAMPLE / name, path / name)
    clock = clock or ManualClock()
    keys = KeyRing.from_seed(b"k" * 32)
    kept = await _kept(stores, path, clock)
    with patch.dict(os.environ, SHOP_PAYMENTS=payments):
        loaded = load_function_adapters("shop.py:adapters", None, root=path, workspace=path)
    adapters = {one.describe().adapter_id: one for one in loaded.adapters}
    owner = (
        LeasedOwner()
        if stores.startswith("postgresql:")
        else Owner(path / "contextos.db" if stores == "sqlite" else None)
    )

    async def pause(duration_us: int) -> None:
        if not isinstance(clock, ManualClock):
            await asyncio.sleep(duration_us / 1e6)
            return
        clock.at_us += duration_us
        await asyncio.sleep(min(duration_us, 2_000) / 1e6)

    ports = Ports(
        stores=kept,
        clock=clock,
        entropy=SystemEntropy(),
        keys=keys,
        directory=FileDirectory(path / "directory.json"),
        adapters=lambda _tenant: adapters,
        code=SourceCode(loaded),
        estimator=BytesDiv4(),
        pause=pause,
        owner=owner.id,
        alive=owner.alive,
        admission=UnboundedAdmission(),
        slots=lambda tenant_id: ArtifactSlots(kept.artifacts(tenant_id), kept.artifacts(tenant_id), clock),
        concurrency=AsyncioConcurrency(),
    )
    config = DeploymentConfig(
        limits or RunLimits(),
        __version__,
        environment=environment,
        unsafe=unsafe,
        egress=egress or {},
        redaction=redaction or {},
        # Ten thousand runs wait here for one role.
        pressure=AdmissionLimits(max_open_questions_per_role=20_000),
    )
    deployment = Deployment(ports, config)
    world = TestWorld(path, deployment, kept, clock, keys, adapters, owner)
    if fresh:
        world.edit_directory(lambda tenant: _give_keys(tenant, {APPROVER: APPROVER_KEY, OPERATOR: OPERATOR_KEY}))
    if fresh or stores == "memory":
        body = example("pack.json")
        if pack:
            pack(body)
        envelope = seal(PACK_TYPE, canonical(body), keys, "pack")
        ref = await world.publish(envelope, by=world.actor(*publisher))
        await world.activate()
        await world.pin_pack(ref, intents=tuple(one["intent_id"] for one in body["decision_layer"]["intents"]))
        if seed_graph:
            graph = example("graph.json")
            await world.put_facts(graph["edges"], graph["nodes"])
    return world


async def publish_world(path: Path) -> None:
    """Make the workspace at `path` in its place, for processes that open it later."""
    await (await open_world(path, stores=place_of(path), clock=SystemClock())).aclose()


def place_of(path: Path) -> str:
    """What the workspace at `path` stores in: the URL that its file `place` holds, else a file beside it."""
    place = path / "place"
    return place.read_text("utf-8") if place.exists() else "sqlite"


async def _kept(stores: str, path: Path, clock: Any) -> Any:
    """`memory`, `sqlite`, or the URL of a PostgreSQL database."""
    if stores == "memory":
        return MemoryStores(clock=clock)
    if stores == "sqlite":
        return SqliteStores(path / "contextos.db", clock=clock)
    from contextos.store.postgres.stores import PostgresStores

    # The clock of a machine is not that of its server.
    return await PostgresStores.open(stores, clock=None if isinstance(clock, SystemClock) else clock)


def _give_keys(tenant: dict[str, Any], seeds: Mapping[str, bytes]) -> None:
    for one in tenant["approvers"]:
        if one["approver_id"] in seeds:
            public = public_key(seeds[one["approver_id"]])
            one["keys"] = [{"kid": kid_of(public), "public_key": public.hex()}]


def run(awaitable: Awaitable[Any]) -> Any:
    """Drive a coroutine to its end on a loop of its own."""

    async def whole() -> Any:
        return await awaitable

    return asyncio.run(whole())


def forget_terms(kept: Any) -> None:
    """Leave of a `MemoryStore` the terms of runs that its index still names, under the numbers that they have now."""
    runs = {number: run_id for run_id, number in kept.numbers.items()}
    kept.numbers = {line.key: line.seq for line in reversed(kept.streams[INDEX])}
    kept.terms = {
        (term, kept.numbers[runs[number]]): began_us
        for (term, number), began_us in kept.terms.items()
        if runs[number] in kept.numbers
    }
