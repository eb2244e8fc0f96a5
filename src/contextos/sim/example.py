"""The workload: pack, graph, directory and adapter definitions of `examples/support_refund`, in memory."""

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
from contextos.contracts.envelopes.identity import Approver, ApproverKey, KnownAgent, KnownUser
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import NotFound
from contextos.sim.payments import ShopOrder
from contextos.trust.seal import KeyRing, seal

SEED_KEY: Final = b"contextos simulated deployment ".ljust(32, b"0")
EXAMPLE_TENANT: Final = "tenant_acme_prod"


@cache
def keys() -> KeyRing:
    """The signing keys of every simulated deployment."""
    return KeyRing.from_seed(SEED_KEY)


def approver_key(approver_id: str) -> bytes:
    """The private key of a simulated approver: raw Ed25519."""
    return hashlib.sha256(b"simulated approver " + approver_id.encode()).digest()


@cache
def folder() -> Path:
    """Where the example stands: beside an installed package, or in the source tree. Raises `NotFound`."""
    packaged = Path(str(importlib.resources.files("contextos"))) / "_examples" / "support_refund"
    source = Path(contextos.__file__).parents[2] / "examples" / "support_refund"
    for found in (packaged, source):
        if found.is_dir():
            return found
    raise NotFound("the example `support_refund` is not there; install the package whole")


@cache
def envelope() -> dict[str, Any]:
    """The example's pack, signed."""
    return seal(PACK_TYPE, canonical(_json("pack.json")), keys(), "pack")


@cache
def gate_timeout_us() -> int:
    """How long a question stays open, as the example's gate has it."""
    gate = _json("pack.json")["policy_layer"]["approval_gates"][0]
    return int(gate["timeout_s"]) * 1_000_000


def graph() -> dict[str, list[dict[str, Any]]]:
    """The example's nodes and edges."""
    found: dict[str, list[dict[str, Any]]] = _json("graph.json")
    return found


@cache
def request() -> dict[str, Any]:
    """The example's request."""
    found: dict[str, Any] = _json("request.json")
    return found


@cache
def people() -> tuple[dict[str, KnownUser], dict[str, KnownAgent], dict[str, Approver]]:
    """Users, agents and approvers by id; each approver has a key that the simulation can sign with."""
    known = _json("directory.json")
    known = known.get(EXAMPLE_TENANT, known)
    users = [KnownUser.model_validate(one) for one in known["users"]]
    agents = [KnownAgent.model_validate(one) for one in known["agents"]]
    approvers = [Approver.model_validate(one) for one in known["approvers"]]
    keyed = [one.model_copy(update={"keys": (_public(one.approver_id),)}) for one in approvers]
    by_id = {one.approver_id: one for one in keyed}
    return {one.user_id: one for one in users}, {one.agent_id: one for one in agents}, by_id


@cache
def definitions(strategy: str, scope: str, external: bool) -> dict[str, AdapterDefinition]:
    """The example's adapters by id, with payments of this strategy and scope; `external` reads are barriers."""
    shop = _shop()
    payments: AdapterDefinition = shop.payments_adapter("lookup" if strategy == "lookup_weak" else strategy)
    act = payments.capabilities[0]
    rule = act.idempotency.model_copy(update={"scope": scope, "honours_not_after": strategy == "lookup"})
    payments = payments.model_copy(update={"capabilities": (act.model_copy(update={"idempotency": rule}),)})
    reads = [one.model_copy(update={"external": external}) for one in (shop.ORDERS_ADAPTER, shop.POLICY_ADAPTER)]
    return {one.adapter_id: one for one in (*reads, payments)}


@cache
def orders() -> dict[str, ShopOrder]:
    """The example's orders by id."""
    return {row[0]: ShopOrder(*row) for row in _shop().ORDERS}


@cache
def _shop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contextos_simulated_shop", folder() / "shop.py")
    assert spec is not None and spec.loader is not None, "a file that is there can be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _public(approver_id: str) -> ApproverKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(approver_key(approver_id)).public_key().public_bytes_raw()
    return ApproverKey(kid=f"key_{approver_id}", public_key=public.hex())


def _json(name: str) -> Any:
    return json.loads((folder() / name).read_text("utf-8"))
