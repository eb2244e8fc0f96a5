"""An act counts for one actor, one kind and one version; a recorded one is checked without the directory."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.acts import OperatorAct
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.envelopes.identity import Approver, ApproverKey, SignerAssertion
from contextos.contracts.journal import CONTROL, Draft, Entry, genesis, link
from contextos.errors import ChainBroken
from contextos.trust.approvals.acts import ACT_ROLES, act_fault, act_key, read_act, sealed_act, sign_act
from contextos.trust.seal import KeyRing
from tests.world import OPERATOR, OPERATOR_KEY, public_key

ACT = OperatorAct(tenant_id="tenant_a", kind="store.restored", actor=OPERATOR, arguments={"epoch": "ab"}, expected=3)
KEY = ApproverKey(kid="key_1", public_key=public_key(OPERATOR_KEY).hex())
PERSON = Approver(approver_id=OPERATOR, roles=("operator",), granted_by={"operator": "boss"}, keys=(KEY,))
SIGNED = SignerAssertion(kind="jws", token=sign_act(OPERATOR_KEY, "key_1", ACT.to_json()))
NAMED = SignerAssertion(kind="unsafe_local")
RING = KeyRing.from_seed(b"k" * 32)


def test_every_kind_of_act_needs_a_role() -> None:
    assert ACT_ROLES.keys() == ACT_ARGUMENTS.keys()


def test_what_the_actor_signed_counts() -> None:
    assert act_fault(PERSON, ACT, "operator", SIGNED, unsafe_local=False) is None
    assert act_key(PERSON, ACT, SIGNED) == KEY


@pytest.mark.parametrize(
    ("person", "role", "assertion", "reason"),
    [
        (None, "operator", SIGNED, "unknown_actor"),
        (PERSON.model_copy(update={"approver_id": "other"}), "operator", SIGNED, "unknown_actor"),
        (PERSON, "auditor", SIGNED, "not_allowed"),
        (PERSON.model_copy(update={"granted_by": {}}), "operator", SIGNED, "not_granted"),
        (PERSON.model_copy(update={"granted_by": {"operator": OPERATOR}}), "operator", SIGNED, "self_granted"),
        (PERSON.model_copy(update={"keys": ()}), "operator", SIGNED, "assertion_invalid"),
        (PERSON, "operator", NAMED, "unsafe_not_allowed"),
        (None, None, SIGNED, "assertion_invalid"),
        (None, None, NAMED, "unsafe_not_allowed"),
    ],
)
def test_each_reason_to_refuse_an_act(
    person: Approver | None, role: str | None, assertion: SignerAssertion, reason: str
) -> None:
    refused = act_fault(person, ACT, role, assertion, unsafe_local=False)
    assert refused is not None
    assert refused.reason == reason


def test_an_actor_who_is_only_named_counts_where_that_is_allowed() -> None:
    assert act_fault(PERSON, ACT, "operator", NAMED, unsafe_local=True) is None
    assert act_key(PERSON, ACT, NAMED) is None


@pytest.mark.parametrize("change", [{"expected": 4}, {"kind": "run.retried"}, {"arguments": {}}, {"tenant_id": "b"}])
def test_a_signature_fits_no_other_act(change: dict[str, Any]) -> None:
    other = ACT.model_copy(update=change)
    refused = act_fault(PERSON, other, "operator", SIGNED, unsafe_local=False)
    assert refused is not None
    assert refused.reason == "assertion_invalid"


PLACE = Draft(ACT.kind, "ab", 5, OPERATOR, b"", bytes(16))
FIELDS = {"act": ACT.to_json(), "role": "operator", "assertion": SIGNED.to_json(), "key": KEY.to_json()}


def entry(place: Draft = PLACE, *, keys: KeyRing = RING, tenant: str = "tenant_a", **changes: Any) -> Entry:
    """The entry of an act with these changes, as the runtime with these keys would seal it."""
    draft = sealed_act(tenant, place, {**FIELDS, **changes}, keys)
    return link(tenant, CONTROL, 1, genesis(tenant, CONTROL), draft)


def test_a_recorded_act_is_checked_with_its_seal_and_the_key_that_is_recorded_beside_it() -> None:
    assert read_act(entry(), RING).act == ACT
    assert read_act(entry(assertion=NAMED.to_json(), key=None), RING).assertion == NAMED


@pytest.mark.parametrize(
    "changed",
    [
        entry(tenant="tenant_b"),
        entry(PLACE._replace(kind="run.retried")),
        entry(PLACE._replace(by="mallory")),
        entry(role="auditor"),
        entry(role=None),
        entry(key=None),
        entry(act=ACT.model_copy(update={"expected": 4}).to_json()),
        entry(keys=KeyRing.from_seed(b"o" * 32)),
    ],
)
def test_a_recorded_act_that_was_changed_or_that_others_sealed_is_found(changed: Entry) -> None:
    with pytest.raises(ChainBroken, match="does not count"):
        read_act(changed, RING)


@pytest.mark.parametrize(
    "change", [{"key": "cd"}, {"at_us": 6}, {"salt": b"1" * 16}, {"body": b"[]"}, {"body": b"no"}, {"body": b"{}"}]
)
def test_a_seal_counts_for_one_place(change: dict[str, Any]) -> None:
    sealed = sealed_act("tenant_a", PLACE, FIELDS, RING)
    moved = link("tenant_a", CONTROL, 1, genesis("tenant_a", CONTROL), sealed._replace(**change))
    with pytest.raises(ChainBroken):
        read_act(moved, RING)


@pytest.mark.parametrize("change", [{"body": None}, {"body": b"{}"}, {"key": "cd"}])
def test_an_entry_that_is_not_what_was_written_is_no_act(change: dict[str, Any]) -> None:
    with pytest.raises(ChainBroken, match=r"entry 1: (is not the entry|has a body)"):
        read_act(entry()._replace(**change), RING)


@pytest.mark.parametrize("signature", ["", "00", "zz" * 64, "00" * 64])
def test_a_seal_that_is_none_is_found(signature: str) -> None:
    body = canonical({**FIELDS, "seal": {"kid": RING.kids("act")[0], "signature": signature}})
    with pytest.raises(ChainBroken):
        read_act(link("tenant_a", CONTROL, 1, genesis("tenant_a", CONTROL), PLACE._replace(body=body)), RING)


def test_the_keys_are_asked_about_an_act_that_was_read_before() -> None:
    read = entry()
    assert read_act(read, RING) == read_act(read, RING)
    with pytest.raises(ChainBroken, match="the runtime did not seal it"):
        read_act(read, KeyRing.from_seed(b"o" * 32))
    assert read_act(read, RING).act == ACT


def test_an_act_that_nobody_signed_is_found_each_time_it_is_read() -> None:
    for _ in range(2):
        with pytest.raises(ChainBroken, match="its actor did not sign this act"):
            read_act(entry(key=None), RING)
