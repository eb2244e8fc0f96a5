"""The catalog publishes what is signed and sound, once and for ever, and loads exactly that again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.documents.catalog import ACTIVE_SET_KEY
from contextos.contracts.encoding.jcs import canonical, content_address, digest
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
    TenantCatalog,
    adapters,
    changed,
    open_envelope,
    pack_envelope,
    pack_json,
    policy_envelope,
    policy_json,
    run,
    sealed,
)


@pytest.fixture
def control() -> TenantCatalog:
    return TenantCatalog()


@pytest.mark.requirement("P-ACTS")
def test_a_published_artifact_is_found_by_its_ref_and_its_digest(control: TenantCatalog) -> None:
    envelope = pack_envelope()
    assert control.publish(envelope) == REF
    address = content_address(pack_json())
    assert control.document("pins", REF) == {"digest": address, "kind": "context_pack"}
    assert control.document("artifacts", address) == envelope
    said = {"ref": REF, "digest": address, "kind": "context_pack"}
    assert control.control() == [("artifact.published", said)]


def test_the_same_content_again_changes_nothing_however_it_is_written(control: TenantCatalog) -> None:
    control.publish(pack_envelope())
    spaced = seal(PACK_TYPE, json.dumps(pack_json(), indent=3, sort_keys=True).encode(), RING, "pack")
    assert control.publish(pack_envelope()) == control.publish(spaced) == REF
    assert len(control.control()) == 1


@pytest.mark.requirement("P-IMMUTABLE")
@pytest.mark.parametrize("fresh", [False, True])
def test_other_content_under_one_ref_is_refused_for_ever(control: TenantCatalog, fresh: bool) -> None:
    control.publish(pack_envelope())
    other = pack_envelope({"/business_context/summary": "Other refunds."})
    with pytest.raises(InvalidArtifact, match="a version never changes"):
        run((control.again() if fresh else control.catalog).publication(other))
    assert control.publish(pack_envelope({"/pack_meta/pack_version": "5.2.1"})) == "ctxpack.support@5.2.1"


@pytest.mark.requirement("P-SIGNED")
def test_a_signature_by_a_stranger_counts_for_nothing(control: TenantCatalog) -> None:
    with pytest.raises(SignatureInvalid):
        control.publish(pack_envelope(ring=STRANGER))
    envelope = pack_envelope()
    with pytest.raises(SignatureInvalid):
        control.publish(envelope | {"payload": pack_envelope({"/business_context/summary": "x"})["payload"]})
    assert control.control() == []


def unsigned(envelope: dict[str, Any]) -> dict[str, Any]:
    return envelope | {"signatures": []}


@pytest.mark.requirement("P-SIGNED")
def test_an_unsigned_artifact_counts_only_under_the_unsafe_setting() -> None:
    with pytest.raises(SignatureInvalid):
        TenantCatalog().publish(unsigned(pack_envelope()))
    loose = TenantCatalog(allow_unsigned=True)
    assert loose.publish(unsigned(pack_envelope())) == REF
    assert run(loose.catalog.load(loose.pin())).pack.pin == REF
    with pytest.raises(SignatureInvalid):
        loose.publish(policy_envelope() | {"signatures": pack_envelope(ring=STRANGER)["signatures"]})


@pytest.mark.parametrize("payload", [None, 7, "not base64!"])
def test_an_unsigned_payload_that_is_not_base64_is_refused(payload: Any) -> None:
    with pytest.raises(SignatureInvalid, match="not Base64"):
        TenantCatalog(allow_unsigned=True).publish(unsigned(pack_envelope()) | {"payload": payload})


def test_an_unknown_kind_of_artifact_is_refused() -> None:
    loose = TenantCatalog(allow_unsigned=True)
    with pytest.raises(InvalidArtifact, match="not an artifact type"):
        loose.publish(unsigned(pack_envelope()) | {"payloadType": "application/json"})
    with pytest.raises(SignatureInvalid, match="not in a DSSE envelope"):
        loose.publish(unsigned(pack_envelope()) | {"payloadType": None})


def test_what_does_not_fit_its_contract_is_refused(control: TenantCatalog) -> None:
    with pytest.raises(InvalidEnvelope):
        control.publish(pack_envelope({"/extra": 1}))
    with pytest.raises(MalformedJson):
        control.publish(seal(PACK_TYPE, b'{"a":1,"a":2}', RING, "pack"))
    with pytest.raises(InvalidEnvelope):
        control.publish(sealed(POLICY_TYPE, pack_json()))


@pytest.mark.requirement("P-LINT")
def test_a_pack_that_lint_refuses_is_not_published(control: TenantCatalog) -> None:
    with pytest.raises(InvalidArtifact, match="one person") as raised:
        control.publish(pack_envelope({"/policy_layer/approval_gates/0/quorum": 2}))
    assert raised.value.problems[0].pointer == "/policy_layer/approval_gates/0/quorum"
    assert control.control() == []


@pytest.mark.requirement("P-TENANT")
def test_an_artifact_of_another_tenant_is_refused(control: TenantCatalog) -> None:
    with pytest.raises(InvalidArtifact, match="another tenant"):
        control.publish(pack_envelope({"/pack_meta/tenant": "tenant_other"}))
    with pytest.raises(InvalidArtifact, match="another tenant"):
        control.publish(policy_envelope(tenant="tenant_other"))


@pytest.mark.requirement("P-EXACT")
def test_a_version_that_is_no_exact_pin_is_refused(control: TenantCatalog) -> None:
    with pytest.raises(InvalidArtifact, match="not an exact ref"):
        control.publish(pack_envelope({"/pack_meta/pack_version": "5.2.99999999999"}))


@pytest.mark.requirement("P-IMMUTABLE")
def test_two_publishers_at_one_moment_publish_once(control: TenantCatalog) -> None:
    one, other = control.again(), control.again()
    control.commit(run(other.publication(pack_envelope()))[1], "b")
    one.repository.digest_of = _absent  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        control.commit(run(one.publication(pack_envelope({"/business_context/summary": "x"})))[1], "a")
    assert control.document("pins", REF)["digest"] == content_address(pack_json())


async def _absent(ref: str) -> None:
    """What a publisher sees that looked just before another one's commit."""


@pytest.mark.requirement("P-ACTS")
def test_policies_are_put_in_force_in_the_order_of_their_levels(control: TenantCatalog) -> None:
    control.publish(policy_envelope(bundle_id="POLICY_PLATFORM", rule_id="R_PLATFORM"))
    control.publish(policy_envelope(tenant=TENANT))
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"), ("platform", "POLICY_PLATFORM@1.0.0"))
    policies = [["platform", "POLICY_PLATFORM@1.0.0"], ["tenant", "POLICY_HOUSE@1.0.0"]]
    assert run(control.catalog.active()).policies == tuple((level, ref) for level, ref in policies)
    kind, arguments = control.control()[-1]
    assert (kind, arguments["policies"]) == ("policies.activated", policies)
    assert set(arguments) == {"policies", "active_digest"}


def test_the_same_list_again_leaves_no_entry(control: TenantCatalog) -> None:
    control.activate()
    control.publish(policy_envelope())
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    entries = control.control()
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    assert control.control() == entries
    assert [kind for kind, _ in entries] == ["policies.activated", "artifact.published", "policies.activated"]


def test_policies_can_be_set_again_and_again(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    for _ in range(3):
        control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
        control.activate()
    assert run(control.catalog.active()).policies == ()


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
def test_an_artifact_that_is_no_policy_of_its_level_is_not_put_in_force(
    control: TenantCatalog, level_refs: Any, error: type[Exception]
) -> None:
    control.publish(pack_envelope())
    control.publish(policy_envelope(tenant=TENANT))
    with pytest.raises(error):
        control.activate(*level_refs)
    assert run(control.store.scan("active")) == []


def test_a_change_of_the_list_in_between_is_a_conflict(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    late = control.again()
    stale = run(late.repository.active())

    async def seen() -> Any:
        return stale

    late.repository.active = seen  # type: ignore[method-assign]
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    with pytest.raises(Conflict):
        control.commit(run(late.activation([("platform", "POLICY_HOUSE@1.0.0")], expected=0)))


@pytest.mark.requirement("P-ACTS")
def test_withdrawing_is_an_act_on_the_record(control: TenantCatalog) -> None:
    control.publish(pack_envelope())
    control.withdraw(REF)
    assert run(control.catalog.active()).withdrawn == {REF}
    kind, arguments = control.control()[-1]
    assert (kind, arguments["ref"], arguments["reason"]) == ("artifact.withdrawn", REF, "wrong")


def test_an_artifact_in_force_or_absent_cannot_be_withdrawn(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    with pytest.raises(InvalidArtifact, match="is an active policy"):
        control.withdraw("POLICY_HOUSE@1.0.0")
    with pytest.raises(NotFound):
        control.withdraw("POLICY_NONE@1.0.0")


def test_a_withdrawn_policy_cannot_be_put_in_force(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    control.withdraw("POLICY_HOUSE@1.0.0")
    with pytest.raises(NotFound):
        control.activate(("tenant", "POLICY_HOUSE@1.0.0"))


def answered(control: TenantCatalog) -> dict[str, Any]:
    control.publish(pack_envelope())
    control.publish(policy_envelope())
    control.activate(("tenant", "POLICY_HOUSE@1.0.0"))
    return control.pin()


@pytest.mark.requirement("P-WITHDRAWN")
def test_another_process_loads_the_same_years_later(control: TenantCatalog) -> None:
    answer = answered(control)
    control.activate()
    control.withdraw(REF)
    loaded = run(control.again().load(json.loads(json.dumps(answer))))
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


def test_a_payload_that_is_unsound_now_is_an_integrity_fault(control: TenantCatalog) -> None:
    answer = answered(control)
    control.overwrite("artifacts", answer["pins"][REF], canonical(pack_envelope({"/extra": 1})))
    with pytest.raises(Integrity, match="cannot be read"):
        run(control.again().load(answer))


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"a":1}', b'{"payloadType":"x","signatures":[]}'])
def test_an_active_set_that_was_changed_is_found_by_the_process_that_verified_it(
    control: TenantCatalog, body: bytes
) -> None:
    """Its version is the same, so nothing else would tell."""
    answered(control)
    control.overwrite("active", ACTIVE_SET_KEY, body)
    with pytest.raises(Integrity):
        control.pin()


def test_a_second_load_is_the_first_one(control: TenantCatalog) -> None:
    answer = answered(control)
    assert run(control.catalog.load(answer)) is run(control.catalog.load(answer))


NAMES = [REF, "POLICY_HOUSE@1.0.0", "adapter:adp_orders"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_artifact_is_named(control: TenantCatalog, name: str) -> None:
    answer = answered(control)
    control.lose("artifacts", answer["pins"][name])
    with pytest.raises(Integrity, match=f"`{name}`.*missing"):
        run(control.again().load(answer))


@pytest.mark.requirement("P-LOADED")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"a":1}', b'{"payloadType":"x","signatures":[]}'])
def test_a_stored_artifact_that_was_changed_is_not_loaded(control: TenantCatalog, name: str, body: bytes) -> None:
    answer = answered(control)
    control.overwrite("artifacts", answer["pins"][name], body)
    with pytest.raises(Integrity):
        run(control.again().load(answer))


@pytest.mark.requirement("P-LOADED")
def test_a_pack_that_was_exchanged_is_not_loaded_though_it_is_signed(control: TenantCatalog) -> None:
    answer = answered(control)
    other = pack_envelope({"/business_context/summary": "Pay everybody."})
    control.overwrite("artifacts", answer["pins"][REF], canonical(other))
    with pytest.raises(Integrity, match="has the digest"):
        run(control.again().load(answer))


@pytest.mark.requirement("P-LOADED", "P-SIGNED")
def test_an_artifact_whose_signer_is_no_longer_trusted_is_not_loaded(control: TenantCatalog) -> None:
    answer = answered(control)

    def distrusting(envelope: dict[str, Any]) -> tuple[str, bytes]:
        raise SignatureInvalid("the key was revoked")

    with pytest.raises(SignatureInvalid):
        run(control.again(distrusting).load(answer))


@pytest.mark.requirement("P-LOADED")
def test_a_definition_that_was_exchanged_is_not_loaded(control: TenantCatalog) -> None:
    answer = answered(control)
    other = adapters("2")["adp_orders"].to_json()
    control.overwrite("artifacts", answer["pins"]["adapter:adp_orders"], canonical(other))
    with pytest.raises(Integrity, match="adapter:adp_orders"):
        run(control.again().load(answer))


def test_content_with_the_right_digest_that_is_no_definition_is_not_loaded(control: TenantCatalog) -> None:
    answer = answered(control)
    body = canonical({"adapter_id": "adp_orders"})
    control.overwrite("artifacts", answer["pins"]["adapter:adp_orders"], body)
    forged = changed(answer, {"/pins/adapter:adp_orders": digest(body)})
    control.stores._tenants[TENANT].documents["artifacts", digest(body)] = control.stores._tenants[TENANT].documents[
        "artifacts", answer["pins"]["adapter:adp_orders"]
    ]
    with pytest.raises(Integrity, match="not an adapter definition"):
        run(control.again().load(forged))


@pytest.mark.parametrize(
    "changes",
    [
        {f"/pins/{REF}": ...},
        {"/pins/POLICY_HOUSE@1.0.0": ...},
        {"/pack_ref": "POLICY_HOUSE@1.0.0"},
        {"/policies/0/ref": REF},
    ],
)
def test_an_answer_that_pin_did_not_make_is_refused(control: TenantCatalog, changes: dict[str, Any]) -> None:
    answer = answered(control)
    with pytest.raises(Integrity, match="pass a set that `pin` returned"):
        run(control.catalog.load(changed(answer, changes)))


def test_a_digest_pinned_under_another_name_is_refused(control: TenantCatalog) -> None:
    answer = answered(control)
    forged = changed(answer, {f"/pins/{REF}": answer["pins"]["POLICY_HOUSE@1.0.0"]})
    with pytest.raises(Integrity, match="pinned as"):
        run(control.catalog.load(forged))


def test_the_catalog_works_on_the_store_that_is_shipped(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "contextos.db")
    control = TenantCatalog()
    control.store = stores.tenant(TENANT)
    control.catalog = control.again()
    try:
        answer = answered(control)
        assert run(control.again().load(answer)).pack.pin == REF
        assert run(control.catalog.pins_now(list(answer["pins"]), control.definitions))[1] == answer["pins"]
        assert [kind for kind, _ in control.control()] == [
            "artifact.published",
            "artifact.published",
            "policies.activated",
            "packs.pinned",
        ]
    finally:
        stores.close()


def test_the_example_is_opened_by_the_key_that_sealed_it() -> None:
    kind, payload = open_envelope(policy_envelope())
    assert (kind, json.loads(payload)) == (POLICY_TYPE, policy_json())
