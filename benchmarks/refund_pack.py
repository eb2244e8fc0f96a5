"""The refund of `examples/support_refund` for benchmarks: its pack, its adapters and a deployment."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contextos import __version__
from contextos.adapters.code import SourceCode
from contextos.adapters.directory import FileDirectory
from contextos.adapters.function.adapter import FunctionAdapter
from contextos.context.estimator import BytesDiv4
from contextos.contracts.acts import PackPin
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment import operator
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.acts.governance import activate_policies, pin_packs, publish_artifact
from contextos.deployment.deployment import Deployment, DeploymentConfig
from contextos.deployment.ports import Ports
from contextos.deployment.signing import act_signer
from contextos.runtime.environment import RunLimits
from contextos.store.shared.clock import SystemClock
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement
from contextos.trust.seal import KeyRing, kid_of, seal
from contextos.workspace.engine.admission_controller import AdmissionController
from contextos.workspace.engine.lease_owner import LeasedOwner, Owner

# By a statement: code that loads other code by its path is bound to every file that this process could import.
from examples.support_refund import shop

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "support_refund"
TENANT = "tenant_acme_prod"
APPROVER, APPROVER_SEED = "user_finance_lead_77", bytes(range(32))
OPERATOR, OPERATOR_SEED = "user_operator_5", bytes(range(5, 37))
LIMITS = AdmissionLimits(max_callers_per_tenant=256, max_new_runs_per_minute_per_tenant=1_000_000)
ORDERS = 256
"""How many orders there are. Requests name them in turn, so what is kept of the last order serves no next request."""


class SystemEntropy:
    def take(self, count: int) -> bytes:
        return os.urandom(count)


class Tools:
    """The benchmark's external systems as adapters. The idempotency key has the scope of one run."""

    def __init__(self, outside: Any, orders: str, *, keyed: bool, timeout_s: int = 10) -> None:
        self.outside, self.keyed, self.timeout_s = outside, keyed, timeout_s
        self.requests: dict[str, str] = {}

    def adapters(self) -> tuple[FunctionAdapter, ...]:
        payments = json.loads(json.dumps(shop.payments_adapter("keyed" if self.keyed else "none").to_json()))
        capability = payments["capabilities"][0]
        capability["timeout_s"] = self.timeout_s
        capability["idempotency"] |= {"scope": "run"}
        capability["idempotency"].pop("identity_args", None)
        properties = capability["input_schema"]["properties"]
        properties["request_id"] = {"type": "string"}
        capability["input_schema"]["required"] = sorted(properties)
        return (
            FunctionAdapter(shop.ORDERS_ADAPTER, {"lookup": self._lookup}, inline=("lookup",)),
            FunctionAdapter(shop.POLICY_ADAPTER, {"eval": self._eval}, inline=("eval",)),
            FunctionAdapter(AdapterDefinition.model_validate(payments), {"issue_refund": self._refund}),
        )

    def _lookup(self, args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        order = self.outside.orders_lookup(args["order_id"])
        return {
            "order_id": order["order_id"],
            "customer_id": order["order_id"].replace("ord", "cus"),
            "total_inr": order["total"],
            "currency": order["currency"],
            "status": order["status"],
        }

    def _eval(self, args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        context_args = {"order_id": args["order_id"], "refund_amount": args["amount_inr"], "currency": "INR"}
        self.outside.policy_eval({"intent": "support.refund", "context": {**context_args, "identity_verified": True}})
        return {"eligible": True, "refundable_inr": 9900, "policy_version": "returns-4"}

    def _refund(self, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        paid = self.outside.issue_refund(args["request_id"], args["order_id"], args["amount_inr"])
        output = {"transaction_id": paid["transaction_id"], "refund_amount_inr": paid["amount"], "currency": "INR"}
        return AdapterReply(output=output, mutations=(f"refund:{paid['transaction_id']}",), cost_cents=0.31)


def order_of(number: int) -> str:
    """Return the order that request `number` is about; the next request is about another one."""
    return f"ord_b{number % ORDERS}"


async def fill_graph(deployment: Deployment, tenant_id: str, by: Actor) -> None:
    """Write `ORDERS` orders that are as the example's first one, each with a customer of its own, and then its graph.

    The newest commit, which each run reads the act of, is as small as the example's.
    """
    known: dict[str, Any] = json.loads((EXAMPLE / "graph.json").read_text("utf-8"))
    own = ("order:ord_881", "customer:cus_77")
    nodes = json.dumps([node for node in known["nodes"] if node["ceid"] in own])
    edges = json.dumps([edge for edge in known["edges"] if edge["src"] in own])
    more: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for order in map(order_of, range(ORDERS)):
        for part, text in zip(more, (nodes, edges), strict=True):
            part += json.loads(text.replace("ord_881", order).replace("cus_77", order.replace("ord", "cus")))
    await write_facts(deployment, tenant_id, *more, by=by)
    await write_facts(deployment, tenant_id, known["nodes"], known["edges"], by=by)


def pack(filler: int) -> dict[str, Any]:
    """Return the example's pack, whose refund names its request, with `filler` rules that apply and never match."""
    body: dict[str, Any] = copy.deepcopy(json.loads((EXAMPLE / "pack.json").read_text("utf-8")))
    template = body["decision_layer"]["task_templates"][0]
    template["steps"][2]["params"]["request_id"] = {"from": "request", "pointer": "/request_id"}
    rules = body["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    applies = {"intent": "support.refund", "capability": "adp_payments.issue_refund"}
    rules += [
        {
            "rule_id": f"R_FILLER_{number:03d}",
            "applies_to": applies,
            "if": {">": [{"var": "args.amount_inr"}, 1_000_000 + number]},
            "then": {"allow": False},
        }
        for number in range(filler)
    ]
    return body


async def open_deployment(path: Path, tools: Tools, filler: int) -> Deployment:
    """Return a deployment over SQLite in `path`. If the database is new, publish the pack and fill the graph."""
    fresh = not (path / "contextos.db").exists()
    stores = SqliteStores(path / "contextos.db", clock=SystemClock())
    # One process at a time drives here, and a lock would be another file in the folder.
    deployment = deploy(path, tools, stores, Owner(None))
    if fresh:
        await publish(deployment, filler)
    return deployment


def deploy(
    path: Path, tools: Tools, stores: Any, owner: Owner | LeasedOwner, *, tenants: Sequence[str] = ()
) -> Deployment:
    """Return a deployment over `stores`, with its directory file in `path`. `tenants` have the people of the first."""
    directory = path / "directory.json"
    keys = KeyRing.from_seed(b"b" * 32)
    known = json.loads((EXAMPLE / "directory.json").read_text("utf-8"))
    seeds = {APPROVER: APPROVER_SEED, OPERATOR: OPERATOR_SEED}
    for one in known[TENANT]["approvers"]:
        if one["approver_id"] in seeds:
            public, kid = _public(seeds[one["approver_id"]])
            one["keys"] = [{"kid": kid, "public_key": public.hex()}]
    directory.write_text(json.dumps(known | dict.fromkeys(tenants, known[TENANT])), "utf-8")
    adapters = {adapter.describe().adapter_id: adapter for adapter in tools.adapters()}

    async def pause(duration_us: int) -> None:
        import asyncio

        await asyncio.sleep(duration_us / 1e6)

    clock = SystemClock()
    return Deployment(
        ports=Ports(
            stores=stores,
            clock=clock,
            entropy=SystemEntropy(),
            keys=keys,
            directory=FileDirectory(directory),
            adapters=lambda _tenant: adapters,
            code=SourceCode(),
            estimator=BytesDiv4(),
            pause=pause,
            owner=owner.id,
            alive=owner.alive,
            admission=AdmissionController(LIMITS, clock),
        ),
        config=DeploymentConfig(RunLimits(), __version__),
    )


async def put_in_force(deployment: Deployment, tenant_id: str, envelope: dict[str, Any]) -> None:
    """Publish a signed pack, with no policies above it, pin it, and fill the graph."""
    by = Actor(OPERATOR, act_signer(OPERATOR_SEED))
    ref, _ = await publish_artifact(deployment, tenant_id, envelope, by=by)
    await activate_policies(deployment, tenant_id, (), expected=0, by=by)
    pin = PackPin(refs=(ref,), intents=("support.refund",), environment=deployment.config.environment)
    await pin_packs(deployment, tenant_id, pin, expected=1, by=by)
    await fill_graph(deployment, tenant_id, by)


async def publish(deployment: Deployment, filler: int) -> None:
    """Publish the pack and fill the graph."""
    await put_in_force(deployment, TENANT, seal(PACK_TYPE, canonical(pack(filler)), deployment.ports.keys, "pack"))


async def approve(deployment: Deployment, run_id: str) -> None:
    """Approve as the finance lead, with their own key."""
    kid = _public(APPROVER_SEED)[1]
    question = await operator.open_question(deployment, TENANT, run_id)
    await operator.answer_approval(
        deployment,
        TENANT,
        run_id,
        approver_id=APPROVER,
        verdict="approved",
        reason="bench",
        binding_digest=question.binding_digest,
        vouch=lambda statement: {"kind": "jws", "token": sign_approval(APPROVER_SEED, kid, statement)},
    )


async def settle(deployment: Deployment, run_id: str, output: dict[str, Any], mutations: tuple[str, ...]) -> None:
    """Settle as the operator that the effect happened, with their own key."""
    kid = _public(OPERATOR_SEED)[1]
    settlement = operator.SettlementInput(True, OPERATOR, "artifact:bank_statement#rev_1", output, mutations)
    await operator.settle_effect(
        deployment,
        TENANT,
        run_id,
        settlement,
        vouch=lambda statement: {"kind": "jws", "token": sign_settlement(OPERATOR_SEED, kid, statement)},
    )


async def run_of(deployment: Deployment, request_id: str) -> str:
    """Return the run id of a request."""
    found = await deployment.ports.stores.tenant(TENANT).scan("requests", key=request_id)
    return str(json.loads(found[0].body)["run_id"])


def _public(seed: bytes) -> tuple[bytes, str]:
    """Return the public key of a seed, and its key id."""
    ring = KeyRing({"pack": seed})
    kid = ring.kids("pack")[0]
    public = ring.public_key("pack", kid) or b""
    assert kid == kid_of(public)
    return public, kid


__all__ = ["APPROVER", "TENANT", "Tools", "approve", "deploy", "open_deployment", "pack", "publish", "run_of", "settle"]
