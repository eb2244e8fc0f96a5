"""The catalog publishes what is signed and sound, once and for ever, and loads exactly that again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical, content_address, digest
from contextos.control.artifact_repository import MAX_CACHED, BoundedCache
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE
from contextos.errors import (
    Conflict,
    Integrity,
    InvalidArtifact,
    InvalidEnvelope,
    MalformedJson,
    NotFound,
    SignatureInvalid,
)
from contextos.store.sqlite.stores import SqliteStores
from contextos.trust.seal import seal
from tests.unit.control.example import (
    REF,
    RING,
    STRANGER,
    TENANT,
    Shelves,
    adapters,
    changed,
    open_envelope,
    pack_envelope,
    pack_json,
    policy_envelope,
    policy_json,
    run,
    salt,
    sealed,
)


@pytest.fixture
def shelves() -> Shelves:
    return Shelves()


@pytest.mark.requirement("P-ACTS")
def test_what_is_published_stands_under_its_ref_and_its_digest(shelves: Shelves) -> None:
    envelope = pack_envelope()
    assert shelves.publish(envelope) == REF
    address = content_address(pack_json())
    assert shelves.document("pins", REF) == {"digest": address, "kind": "context_pack", "by": "ops"}
    assert shelves.document("artifacts", address) == envelope
    said = {"ref": REF, "digest": address, "kind": "context_pack", "by": "ops"}
    assert shelves.control() == [("artifact.published", said)]


def test_the_same_content_again_changes_nothing_however_it_is_written(shelves: Shelves) -> None:
    shelves.publish(pack_envelope())
    spaced = seal(PACK_TYPE, json.dumps(pack_json(), indent=3, sort_keys=True).encode(), RING, "pack")
    assert shelves.publish(pack_envelope()) == shelves.publish(spaced) == REF
    assert len(shelves.control()) == 1


@pytest.mark.requirement("P-IMMUTABLE")
@pytest.mark.parametrize("fresh", [False, True])
def test_other_content_under_one_ref_is_refused_for_ever(shelves: Shelves, fresh: bool) -> None:
    shelves.publish(pack_envelope())
    other = pack_envelope({"/business_context/summary": "Other refunds."})
    with pytest.raises(InvalidArtifact, match="one content digest for ever"):
        run((shelves.again() if fresh else shelves.catalog).publish(other, by="ops", at_us=7, salt=salt))
    assert shelves.publish(pack_envelope({"/pack_meta/pack_version": "5.2.1"})) == "ctxpack.support@5.2.1"


@pytest.mark.requirement("P-SIGNED")
def test_a_signature_by_a_stranger_counts_for_nothing(shelves: Shelves) -> None:
    with pytest.raises(SignatureInvalid):
        shelves.publish(pack_envelope(ring=STRANGER))
    envelope = pack_envelope()
    with pytest.raises(SignatureInvalid):
        shelves.publish(envelope | {"payload": pack_envelope({"/business_context/summary": "x"})["payload"]})
    assert shelves.control() == []


def unsigned(envelope: dict[str, Any]) -> dict[str, Any]:
    return envelope | {"signatures": []}


@pytest.mark.requirement("P-SIGNED")
def test_an_unsigned_artifact_counts_only_under_the_unsafe_setting() -> None:
    with pytest.raises(SignatureInvalid):
        Shelves().publish(unsigned(pack_envelope()))
    loose = Shelves(allow_unsigned=True)
    assert loose.publish(unsigned(pack_envelope())) == REF
    assert run(loose.catalog.load(loose.pin())).pack.pin == REF
    with pytest.raises(SignatureInvalid):
        loose.publish(policy_envelope() | {"signatures": pack_envelope(ring=STRANGER)["signatures"]})


@pytest.mark.parametrize("payload", [None, 7, "not base64!"])
def test_an_unsigned_payload_that_is_not_base64_is_refused(payload: Any) -> None:
    with pytest.raises(SignatureInvalid, match="not Base64"):
        Shelves(allow_unsigned=True).publish(unsigned(pack_envelope()) | {"payload": payload})


def test_an_unknown_kind_of_artifact_is_refused() -> None:
    loose = Shelves(allow_unsigned=True)
    with pytest.raises(InvalidArtifact, match="no kind of artifact"):
        loose.publish(unsigned(pack_envelope()) | {"payloadType": "application/json"})
    with pytest.raises(SignatureInvalid, match="no DSSE envelope"):
        loose.publish(unsigned(pack_envelope()) | {"payloadType": None})


def test_what_does_not_fit_its_contract_is_refused(shelves: Shelves) -> None:
    with pytest.raises(InvalidEnvelope):
        shelves.publish(pack_envelope({"/extra": 1}))
    with pytest.raises(MalformedJson):
        shelves.publish(seal(PACK_TYPE, b'{"a":1,"a":2}', RING, "pack"))
    with pytest.raises(InvalidEnvelope):
        shelves.publish(sealed(POLICY_TYPE, pack_json()))


@pytest.mark.requirement("P-LINT")
def test_a_pack_that_lint_refuses_is_not_published(shelves: Shelves) -> None:
    with pytest.raises(InvalidArtifact, match="one person") as raised:
        shelves.publish(pack_envelope({"/policy_layer/approval_gates/0/quorum": 2}))
    assert raised.value.problems[0].pointer == "/policy_layer/approval_gates/0/quorum"
    assert shelves.control() == []


@pytest.mark.requirement("P-TENANT")
def test_an_artifact_of_another_tenant_is_refused(shelves: Shelves) -> None:
    with pytest.raises(InvalidArtifact, match="another tenant"):
        shelves.publish(pack_envelope({"/pack_meta/tenant": "tenant_other"}))
    with pytest.raises(InvalidArtifact, match="another tenant"):
        shelves.publish(policy_envelope(tenant="tenant_other"))


@pytest.mark.requirement("P-EXACT")
def test_a_version_that_is_no_exact_pin_is_refused(shelves: Shelves) -> None:
    with pytest.raises(InvalidArtifact, match="no exact ref"):
        shelves.publish(pack_envelope({"/pack_meta/pack_version": "5.2.99999999999"}))


@pytest.mark.requirement("P-IMMUTABLE")
def test_two_publishers_at_one_moment_publish_once(shelves: Shelves) -> None:
    one, other = shelves.again(), shelves.again()
    assert run(other.publish(pack_envelope(), by="b", at_us=7, salt=salt)) == REF
    one._shelf.digest_of = _absent  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        run(one.publish(pack_envelope({"/business_context/summary": "x"}), by="a", at_us=7, salt=salt))
    assert shelves.document("pins", REF)["digest"] == content_address(pack_json())


async def _absent(ref: str) -> None:
    """What a publisher sees that looked just before another one's commit."""


@pytest.mark.requirement("P-ACTS")
def test_policies_are_put_in_force_in_the_order_of_their_levels(shelves: Shelves) -> None:
    shelves.publish(policy_envelope(bundle_id="POLICY_PLATFORM", rule_id="R_PLATFORM"))
    shelves.publish(policy_envelope(tenant=TENANT))
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"), ("platform", "POLICY_PLATFORM@1.0.0"))
    policies = [["platform", "POLICY_PLATFORM@1.0.0"], ["tenant", "POLICY_HOUSE@1.0.0"]]
    assert shelves.document("active", "policies") == {"policies": policies, "withdrawn": []}
    assert shelves.control()[-1] == ("policies.activated", {"policies": policies, "by": "ops"})


def test_the_same_list_again_leaves_no_entry(shelves: Shelves) -> None:
    shelves.activate()
    shelves.publish(policy_envelope())
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    entries = shelves.control()
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    assert shelves.control() == entries
    assert [kind for kind, _ in entries] == ["artifact.published", "policies.activated"]


def test_policies_can_be_set_again_and_again(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    for _ in range(3):
        shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
        shelves.activate()
    assert shelves.document("active", "policies") == {"policies": [], "withdrawn": []}


@pytest.mark.parametrize(
    ("level_refs", "error"),
    [
        ([("tenant", "POLICY_NONE@1.0.0")], NotFound),
        ([("pack", "POLICY_HOUSE@1.0.0")], InvalidArtifact),
        ([("tenant", REF)], InvalidArtifact),
        ([("platform", "POLICY_HOUSE@1.0.0")], InvalidArtifact),
        ([("tenant", "POLICY_HOUSE@1.0.0"), ("tenant", "POLICY_HOUSE@1.0.0")], InvalidArtifact),
    ],
)
def test_what_is_no_policy_of_its_level_is_not_put_in_force(
    shelves: Shelves, level_refs: Any, error: type[Exception]
) -> None:
    shelves.publish(pack_envelope())
    shelves.publish(policy_envelope(tenant=TENANT))
    with pytest.raises(error):
        shelves.activate(*level_refs)
    assert run(shelves.store.scan("active", key="policies")) == []


def test_a_change_of_the_list_in_between_is_a_conflict(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    late = shelves.again()
    stale = run(late._shelf.active())

    async def seen() -> Any:
        return stale

    late._shelf.active = seen  # type: ignore[method-assign]
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    with pytest.raises(Conflict):
        run(late.activate_policies([("platform", "POLICY_HOUSE@1.0.0")], by="b", at_us=9, salt=salt))


@pytest.mark.requirement("P-ACTS")
def test_withdrawing_is_an_act_on_the_record(shelves: Shelves) -> None:
    shelves.publish(pack_envelope())
    shelves.withdraw(REF)
    assert shelves.document("active", "policies") == {"policies": [], "withdrawn": [REF]}
    assert shelves.control()[-1] == ("artifact.withdrawn", {"ref": REF, "reason": "wrong", "by": "ops"})


def test_what_is_in_force_or_not_there_cannot_be_withdrawn(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    with pytest.raises(InvalidArtifact, match="is active"):
        shelves.withdraw("POLICY_HOUSE@1.0.0")
    with pytest.raises(NotFound):
        shelves.withdraw("POLICY_NONE@1.0.0")


def test_what_is_withdrawn_cannot_be_put_in_force(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    shelves.withdraw("POLICY_HOUSE@1.0.0")
    with pytest.raises(NotFound):
        shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))


def answered(shelves: Shelves) -> dict[str, Any]:
    shelves.publish(pack_envelope())
    shelves.publish(policy_envelope())
    shelves.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    return shelves.pin()


@pytest.mark.requirement("P-WITHDRAWN")
def test_another_process_loads_the_same_years_later(shelves: Shelves) -> None:
    answer = answered(shelves)
    shelves.activate()
    shelves.withdraw(REF)
    loaded = run(shelves.again().load(json.loads(json.dumps(answer))))
    assert loaded.pack.to_json() == pack_json()
    assert loaded.intents.keys() == {"support.refund"}
    assert loaded.templates.keys() == {"task_refund_with_eligibility"}
    assert loaded.specs.keys() == {"support.refund.execute"}
    assert loaded.gates.keys() == {"GATE_FINANCE_APPROVAL"}
    assert {one.adapter_id: one.to_json() for one in loaded.definitions} == {
        name: one.to_json() for name, one in adapters().items()
    }
    house, own = loaded.bundles
    assert (house.level, house.bundle.bundle_id, house.version) == ("tenant", "POLICY_HOUSE", "1.0.0")
    assert (own.level, own.bundle.bundle_id, own.version) == ("pack", "POLICY_RETURNS_V4", "5.2.0")
    assert own.digest == content_address(pack_json()["policy_layer"]["policy_bundles"][0])


def test_a_payload_that_is_unsound_now_is_an_integrity_fault(shelves: Shelves) -> None:
    answer = answered(shelves)
    shelves.overwrite("artifacts", answer["pins"][REF], canonical(pack_envelope({"/extra": 1})))
    with pytest.raises(Integrity, match="cannot be read"):
        run(shelves.again().load(answer))


def test_a_second_load_is_the_first_one(shelves: Shelves) -> None:
    answer = answered(shelves)
    assert run(shelves.catalog.load(answer)) is run(shelves.catalog.load(answer))


NAMES = [REF, "POLICY_HOUSE@1.0.0", "adapter:adp_orders"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_named(shelves: Shelves, name: str) -> None:
    answer = answered(shelves)
    shelves.lose("artifacts", answer["pins"][name])
    with pytest.raises(Integrity, match=f"`{name}`.*missing"):
        run(shelves.again().load(answer))


@pytest.mark.requirement("P-LOADED")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"a":1}', b'{"payloadType":"x","signatures":[]}'])
def test_what_is_stored_otherwise_is_not_loaded(shelves: Shelves, name: str, body: bytes) -> None:
    answer = answered(shelves)
    shelves.overwrite("artifacts", answer["pins"][name], body)
    with pytest.raises(Integrity):
        run(shelves.again().load(answer))


@pytest.mark.requirement("P-LOADED")
def test_a_pack_that_was_exchanged_is_not_loaded_though_it_is_signed(shelves: Shelves) -> None:
    answer = answered(shelves)
    other = pack_envelope({"/business_context/summary": "Pay everybody."})
    shelves.overwrite("artifacts", answer["pins"][REF], canonical(other))
    with pytest.raises(Integrity, match="has the digest"):
        run(shelves.again().load(answer))


@pytest.mark.requirement("P-LOADED", "P-SIGNED")
def test_an_artifact_whose_signer_is_no_longer_trusted_is_not_loaded(shelves: Shelves) -> None:
    answer = answered(shelves)

    def distrusting(envelope: dict[str, Any]) -> tuple[str, bytes]:
        raise SignatureInvalid("the key was revoked")

    with pytest.raises(SignatureInvalid):
        run(shelves.again(distrusting).load(answer))


@pytest.mark.requirement("P-LOADED")
def test_a_definition_that_was_exchanged_is_not_loaded(shelves: Shelves) -> None:
    answer = answered(shelves)
    other = adapters("2")["adp_orders"].to_json()
    shelves.overwrite("artifacts", answer["pins"]["adapter:adp_orders"], canonical(other))
    with pytest.raises(Integrity, match="adapter:adp_orders"):
        run(shelves.again().load(answer))


def test_what_has_the_digest_and_is_no_definition_is_not_loaded(shelves: Shelves) -> None:
    answer = answered(shelves)
    body = canonical({"adapter_id": "adp_orders"})
    shelves.overwrite("artifacts", answer["pins"]["adapter:adp_orders"], body)
    forged = changed(answer, {"/pins/adapter:adp_orders": digest(body)})
    shelves.stores._tenants[TENANT].documents["artifacts", digest(body)] = shelves.stores._tenants[TENANT].documents[
        "artifacts", answer["pins"]["adapter:adp_orders"]
    ]
    with pytest.raises(Integrity, match="no adapter definition"):
        run(shelves.again().load(forged))


@pytest.mark.parametrize(
    "changes",
    [
        {f"/pins/{REF}": ...},
        {"/pins/POLICY_HOUSE@1.0.0": ...},
        {"/pack_ref": "POLICY_HOUSE@1.0.0"},
        {"/policies/0/ref": REF},
    ],
)
def test_an_answer_that_pin_did_not_make_is_refused(shelves: Shelves, changes: dict[str, Any]) -> None:
    answer = answered(shelves)
    with pytest.raises(Integrity, match="not made by `pin`"):
        run(shelves.catalog.load(changed(answer, changes)))


def test_a_digest_pinned_under_another_name_is_refused(shelves: Shelves) -> None:
    answer = answered(shelves)
    forged = changed(answer, {f"/pins/{REF}": answer["pins"]["POLICY_HOUSE@1.0.0"]})
    with pytest.raises(Integrity, match="pinned as"):
        run(shelves.catalog.load(forged))


def test_the_catalog_works_on_the_store_that_is_shipped(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "contextos.db")
    shelves = Shelves()
    shelves.store = stores.tenant(TENANT)
    shelves.catalog = shelves.again()
    try:
        answer = answered(shelves)
        assert run(shelves.again().load(answer)).pack.pin == REF
        assert run(shelves.catalog.pins_now(list(answer["pins"]), shelves.definitions))[1] == answer["pins"]
        assert [kind for kind, _ in shelves.control()] == [
            "artifact.published",
            "artifact.published",
            "policies.activated",
        ]
    finally:
        stores.close()


def test_caches_are_bounded_and_the_oldest_leaves_first() -> None:
    recent: BoundedCache[int] = BoundedCache()
    for number in range(MAX_CACHED + 5):
        recent.keep(number, number)
    assert len(recent) == MAX_CACHED
    assert min(recent) == 5


def test_the_example_is_opened_by_the_key_that_sealed_it() -> None:
    kind, payload = open_envelope(policy_envelope())
    assert (kind, json.loads(payload)) == (POLICY_TYPE, policy_json())
