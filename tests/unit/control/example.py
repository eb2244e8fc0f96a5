"""The example pack with its adapters, as one catalog of one tenant would hold it; and copies of it with changes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from contextos.contracts.acts import PackPin, ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.control.artifact_repository import ActiveSeal
from contextos.control.artifacts import ACTIVE_SET_TYPE, INTENTS_TYPE, MODELS, PACK_TYPE, POLICY_TYPE, SPECS_TYPE
from contextos.control.catalog import Catalog
from contextos.errors import ContextOSError
from contextos.trust.approvals.acts import ACT_ROLES, read_act, sealed_act
from contextos.trust.seal import KeyRing, open_sealed, seal
from contextos_sim.memory.stores import MemoryStores

ROOT = Path(__file__).resolve().parents[3] / "examples" / "support_refund"
TENANT = "tenant_acme_prod"
REF = "ctxpack.support@5.2.0"
INTENT = "support.refund"
HERE = {"intent": INTENT, "environment": "dev"}
RING = KeyRing.from_seed(b"c" * 32)
STRANGER = KeyRing.from_seed(b"s" * 32)
T = TypeVar("T")

OBJECT = {"type": "object", "additionalProperties": False}
RUPEES = {"type": "integer"}
TEXT = {"type": "string"}


def run(awaited: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(awaited)


def schema(**properties: Any) -> dict[str, Any]:
    return {**OBJECT, "required": sorted(properties), "properties": properties}


def capability(name: str, given: Any, answer: Any, **more: Any) -> dict[str, Any]:
    read = {
        "name": name,
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "input_schema": given,
        "output_schema": answer,
        "idempotency": {"strategy": "none"},
    }
    return read | more


def adapter(adapter_id: str, version: str, *capabilities: dict[str, Any]) -> AdapterDefinition:
    return parse(
        AdapterDefinition,
        {"adapter_id": adapter_id, "type": "function", "version": version, "capabilities": list(capabilities)},
    )


def adapters(version: str = "1") -> dict[str, AdapterDefinition]:
    """What the pack's adapters declare: the parts that lint looks at."""
    order, amount, flag = {"order_id": TEXT}, {"amount_inr": RUPEES}, {"type": "boolean"}
    look = capability("lookup", schema(**order), schema(**order), produces=["order_lookup"])
    evaluate = capability("eval", schema(**order, **amount), schema(eligible=flag), produces=["policy.eval"])
    refund = capability(
        "issue_refund",
        schema(**order, **amount, currency=TEXT),
        schema(transaction_id=TEXT, refund_amount_inr=RUPEES, currency=TEXT),
        kind="write",
        risk_level="write_irreversible",
        approval_mode="destructive",
        idempotency={"strategy": "keyed"},
    )
    made = (
        adapter("adp_orders", version, look),
        adapter("adp_policy", version, evaluate),
        adapter("adp_payments", version, refund),
    )
    return {one.adapter_id: one for one in made}


def pack_json() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((ROOT / "pack.json").read_text(encoding="utf-8"))
    return value


def changed(value: Any, changes: Mapping[str, Any]) -> Any:
    """A copy in which each place (JSON pointer) holds the value given; `...` removes it, `/-` appends."""
    value = copy.deepcopy(value)
    for pointer, new in changes.items():
        *above, last = pointer.split("/")[1:]
        node = value
        for step in above:
            node = node[int(step)] if isinstance(node, list) else node[step]
        if isinstance(node, list):
            node.append(new) if last == "-" else node.__setitem__(int(last), new)
        elif new is ...:
            del node[last]
        else:
            node[last] = new
    return value


def pack(changes: Mapping[str, Any] | None = None) -> ContextPack:
    return parse(ContextPack, changed(pack_json(), changes or {}))


def sealed(payload_type: str, value: Any, ring: KeyRing = RING) -> dict[str, Any]:
    return seal(payload_type, json.dumps(value).encode(), ring, "pack")


def open_envelope(envelope: dict[str, Any]) -> tuple[str, bytes]:
    return envelope["payloadType"], open_sealed(envelope, RING, "pack", MODELS)


def pack_envelope(changes: Mapping[str, Any] | None = None, ring: KeyRing = RING) -> dict[str, Any]:
    return sealed(PACK_TYPE, changed(pack_json(), changes or {}), ring)


def policy_json(bundle_id: str = "POLICY_HOUSE", rule_id: str = "R_HOUSE", **more: Any) -> dict[str, Any]:
    rule = {"rule_id": rule_id, "if": {"==": [{"var": "user.role"}, "intern"]}, "then": {"allow": False}}
    bundle = {"bundle_id": bundle_id, "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
    return {"version": "1.0.0", "bundle": bundle, **more}


def policy_envelope(**more: Any) -> dict[str, Any]:
    return sealed(POLICY_TYPE, policy_json(**more))


def split() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The same workflow in three artifacts: a pack without a decision layer of its own, intents, and specs."""
    whole = pack_json()
    layer = whole["decision_layer"]
    intents = {
        "catalog_id": "intent-catalog.support",
        "version": "3.0.0",
        "tenant": TENANT,
        "intents": layer["intents"],
        "task_templates": layer["task_templates"],
    }
    specs = {
        "catalog_id": "decision-catalog.support",
        "version": "2.1.0",
        "tenant": TENANT,
        "decision_specs": layer["decision_specs"],
    }
    whole["decision_layer"] = {"decision_specs": []}
    whole["pack_meta"]["pack_version"] = "6.0.0"
    return sealed(PACK_TYPE, whole), sealed(INTENTS_TYPE, intents), sealed(SPECS_TYPE, specs)


def salt(count: int) -> bytes:
    return b"\1" * count


class TenantCatalog:
    """A tenant's store with a catalog over it; `again()` is another process over the same store."""

    def __init__(self, **more: Any) -> None:
        self.stores = MemoryStores()
        self.store = self.stores.tenant(TENANT)
        self.more = more
        self.catalog = self.again()
        self.definitions = adapters()

    def again(self, open_with: Callable[[dict[str, Any]], tuple[str, bytes]] = open_envelope) -> Catalog:
        settings = {
            "runtime_version": "0.1.0",
            "tenant_id": TENANT,
            "open_envelope": open_with,
            "active_seal": ActiveSeal(
                lambda content: seal(ACTIVE_SET_TYPE, content, RING, "active"),
                lambda envelope: open_sealed(envelope, RING, "active", {ACTIVE_SET_TYPE}),
                lambda entry: read_act(entry, RING),
                "dev",
            ),
        } | self.more
        return Catalog(self.store, **settings)

    def commit(self, proposed: ProposedAct | None, by: str = "ops") -> None:
        """The act as the runtime seals it; who may do it is not the catalog's to know."""
        if proposed:
            act = {
                "tenant_id": TENANT,
                "kind": proposed.kind,
                "actor": by,
                "arguments": dict(proposed.arguments),
                "expected": proposed.expected,
            }
            body = {"act": act, "role": ACT_ROLES[proposed.kind], "assertion": {"kind": "unsafe_local"}, "key": None}
            draft = sealed_act(TENANT, Draft(proposed.kind, proposed.about, 8, by, b"", salt(16)), body, RING)
            run(self.store.commit(Batch(run=CONTROL, shared=((CONTROL, draft),), writes=proposed.writes)))

    def version(self) -> int:
        return run(self.catalog.active()).version

    def publish(self, envelope: dict[str, Any], by: str = "ops") -> str:
        ref, proposed = run(self.catalog.publication(envelope))
        self.commit(proposed, by)
        return ref

    def activate(self, *level_refs: tuple[Any, str]) -> None:
        self.commit(run(self.catalog.activation(level_refs, expected=self.version())))

    def withdraw(self, ref: str) -> None:
        self.commit(run(self.catalog.withdrawal(ref, reason="wrong", expected=self.version())))

    def allow(self, *refs: str) -> None:
        """A tenant pin for exactly these refs."""
        pin = PackPin(refs=tuple(dict.fromkeys(refs)), intents=(INTENT,), environment="dev")
        self.commit(run(self.catalog.pinning(pin, expected=self.version())))

    def pin(self, *refs: str) -> dict[str, Any]:
        """What a run with these refs is bound to, where a tenant pin allows them if it can."""
        named = refs or (REF,)
        if not run(self.catalog.active()).allows(named, INTENT, "dev"):
            with suppress(ContextOSError, ValidationError):
                self.allow(*named)
        return self.asked(*named)

    def asked(self, *refs: str, intent: str = INTENT, environment: str = "dev") -> dict[str, Any]:
        return run(self.catalog.pin(refs, self.definitions, intent=intent, environment=environment))

    def elsewhere(self, *refs: str) -> dict[str, Any]:
        """What another process over the same store answers."""
        return run(self.again().pin(refs, self.definitions, **HERE))

    def document(self, collection: str, key: str) -> Any:
        (found,) = run(self.store.scan(collection, key=key))
        return json.loads(found.body)

    def control(self) -> list[tuple[str, Any]]:
        return [
            (entry.kind, json.loads(entry.body or b"null")["act"]["arguments"])
            for entry in run(self.store.read("control"))
        ]

    def overwrite(self, collection: str, key: str, body: bytes) -> None:
        """What nobody but an attacker with the database can do."""
        kept = self.stores._tenants[TENANT].documents
        found = kept[collection, key]
        kept[collection, key] = type(found)(collection, key, found.version, body)

    def lose(self, collection: str, key: str) -> None:
        del self.stores._tenants[TENANT].documents[collection, key]
