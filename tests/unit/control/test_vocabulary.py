"""What the rules of the example pack can read, before and after its adapters are known."""

from __future__ import annotations

from contextos.control.vocabulary import pack_vocabulary
from tests.unit.control.example import adapters, pack

PACK = pack()
SPECS = {spec.decision_key: spec for spec in PACK.decision_layer.decision_specs}


def test_without_adapters_evidence_is_what_retrieval_and_specs_name() -> None:
    found = pack_vocabulary(PACK, SPECS, None)
    assert found.arguments is None
    named = {"identity_verified", "memory_consent", "order_currency", "order_lookup", "order_total", "policy.eval"}
    assert set(found.evidence or ()) == named
    assert not found.complete


def test_adapters_add_arguments_and_types() -> None:
    found = pack_vocabulary(PACK, SPECS, adapters().values())
    assert set(found.arguments or ()) == {"adp_orders.lookup", "adp_policy.eval", "adp_payments.issue_refund"}
    eligible = found.find("evidence.policy.eval.eligible")
    assert eligible is not None
    assert (found.complete, eligible.type) == (True, "boolean")


def test_an_adapter_that_the_pack_does_not_register_adds_nothing() -> None:
    only = pack({"/tooling_layer/adapter_registry": [{"adapter_id": "adp_orders", "capabilities": ["lookup"]}]})
    assert set(pack_vocabulary(only, SPECS, adapters().values()).arguments or ()) == {"adp_orders.lookup"}
