"""The simulated workload: pack, graph, directory and adapter definitions of `examples/support_refund`."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import contextos
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import Approver, ApproverKey, KnownAgent, KnownDelegation, KnownUser
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.act import Actor
from contextos.errors import NotFound
from contextos.trust.approvals.acts import sign_act
from contextos.trust.seal import KeyRing, seal
from contextos_sim.payments import SERVICE_DEFAULTS, ShopOrder

SEED_KEY: Final = b"contextos simulated deployment ".ljust(32, b"0")
EXAMPLE_TENANT: Final = "tenant_acme_prod"
SHOP_ENDPOINT: Final = "shop.example"
OPERATOR_ID: Final = "user_operator_5"
EXAMPLE_PACK: Final = "ctxpack.support@5.2.0"
INTENT: Final = "support.refund"


@cache
def keys() -> KeyRing:
    """Return the signing keys of every simulated deployment."""
    return KeyRing.from_seed(SEED_KEY)


def approver_key(approver_id: str) -> bytes:
    """Return the private key of a simulated approver: raw Ed25519, 32 bytes."""
    return hashlib.sha256(b"simulated approver " + approver_id.encode()).digest()


def operator() -> Actor:
    """Return the example's operator, who signs with the key from `approver_key`."""
    key, kid = approver_key(OPERATOR_ID), f"key_{OPERATOR_ID}"
    return Actor(OPERATOR_ID, lambda statement: {"kind": "jws", "token": sign_act(key, kid, statement)})


@cache
def folder() -> Path:
    """Return the example's folder, in the installed package or in the source tree.

    Raises:
        NotFound: the package was installed without its examples.
    """
    packaged = Path(str(importlib.resources.files("contextos"))) / "_examples" / "support_refund"
    source = Path(contextos.__file__).parents[2] / "examples" / "support_refund"
    for content in (packaged, source):
        if content.is_dir():
            return content
    raise NotFound("the example `support_refund` is missing; install the package with its examples")


@cache
def envelope(chosen_by: str = "template", rules: str = "") -> dict[str, Any]:
    """Return the example's pack, signed. It allows the endpoint of external reads.

    `chosen_by`: who chooses the calls of its runs. `rules` are the routing rules of the model that plans them, if any.
    """
    pack = _json("pack.json")
    pack["tooling_layer"]["egress"] = [SHOP_ENDPOINT]
    if rules:
        pack["decision_layer"]["models"] = [{"operation": "judge.plan", "rules": rules}]
    if chosen_by != "template":
        (template,) = pack["decision_layer"]["task_templates"]
        steps = [{name: step[name] for name in ("id", "tool", "approval_mode")} for step in template["steps"]]
        decision = [{"decision_id": template["decision_checkpoints"][0]["decision_id"]}]
        template.update(chosen_by=chosen_by, steps=steps, decision_checkpoints=decision)
    return seal(PACK_TYPE, canonical(pack), keys(), "pack")


@cache
def plan() -> dict[str, Any]:
    """Return the plan of the example's template as a model answers it."""
    (template,) = _json("pack.json")["decision_layer"]["task_templates"]
    names = ("id", "tool", "params", "depends_on")
    return {
        "template_id": f"{template['template_id']}@{template['version']}",
        "steps": [{"depends_on": []} | {name: one[name] for name in names if name in one} for one in template["steps"]],
        "decision_checkpoints": template["decision_checkpoints"],
    }


@cache
def gate_timeout_us() -> int:
    """Return how long the example's approval question can be answered, in µs."""
    gate = _json("pack.json")["policy_layer"]["approval_gates"][0]
    return int(gate["timeout_s"]) * 1_000_000


def graph() -> dict[str, list[dict[str, Any]]]:
    """Return the example's nodes and edges."""
    content: dict[str, list[dict[str, Any]]] = _json("graph.json")
    return content


@cache
def request() -> dict[str, Any]:
    """Return the example's request."""
    content: dict[str, Any] = _json("request.json")
    return content


@cache
def people() -> tuple[dict[str, KnownUser], dict[str, KnownAgent], dict[str, Approver]]:
    """Return the users, agents and approvers of the simulation by their ids.

    The directory entry of an approver holds the public half of the key pair that `approver_key` makes.
    """
    known = _json("directory.json")[EXAMPLE_TENANT]
    users = [KnownUser.model_validate(one) for one in known["users"]]
    agents = [KnownAgent.model_validate(one) for one in known["agents"]]
    approvers = [Approver.model_validate(one) for one in known["approvers"]]
    keyed = [one.model_copy(update={"keys": (_approver_public_key(one.approver_id),)}) for one in approvers]
    by_id = {one.approver_id: one for one in keyed}
    return {one.user_id: one for one in users}, {one.agent_id: one for one in agents}, by_id


@cache
def delegations() -> dict[str, KnownDelegation]:
    """Return the delegations of the simulated users by the references of their tokens."""
    listed = _json("directory.json")[EXAMPLE_TENANT]["delegations"]
    return {token_ref: KnownDelegation.model_validate(one) for token_ref, one in listed.items()}


@cache
def definitions(strategy: str, scope: str, external: bool) -> dict[str, AdapterDefinition]:
    """Return the example's adapter definitions by id. The payments adapter has this idempotency strategy and scope.

    `external`: the reads of the other adapters leave the machine, so each must be recorded durably before it is sent.
    """
    shop = _shop()
    payments: AdapterDefinition = shop.payments_adapter("lookup" if strategy == "lookup_weak" else strategy)
    refund = payments.capabilities[0]
    rule = refund.idempotency.model_copy(update={"scope": scope, "honours_not_after": strategy == "lookup"})
    accepted = refund.input_schema
    defaults = {name: {"type": "string", "default": value} for name, value in SERVICE_DEFAULTS.items()}
    changed = {"idempotency": rule, "input_schema": {**accepted, "properties": {**accepted["properties"], **defaults}}}
    payments = payments.model_copy(update={"capabilities": (refund.model_copy(update=changed),)})
    outward = {"external": external, "egress": (SHOP_ENDPOINT,) if external else ()}
    reads = [one.model_copy(update=outward) for one in (shop.ORDERS_ADAPTER, shop.POLICY_ADAPTER)]
    return {one.adapter_id: one for one in (*reads, payments)}


@cache
def orders() -> dict[str, ShopOrder]:
    """Return the example's orders by id."""
    return {row[0]: ShopOrder(*row) for row in _shop().ORDERS}


@cache
def _shop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contextos_simulated_shop", folder() / "shop.py")
    assert spec is not None and spec.loader is not None, "a file that is there can be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _approver_public_key(approver_id: str) -> ApproverKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(approver_key(approver_id)).public_key().public_bytes_raw()
    return ApproverKey(kid=f"key_{approver_id}", public_key=public.hex())


def _json(name: str) -> Any:
    return json.loads((folder() / name).read_text("utf-8"))
