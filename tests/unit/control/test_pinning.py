"""A request pins one whole set of artifacts, or gets a recorded reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import INTENTS_TYPE, PACK_TYPE, SPECS_TYPE
from contextos.errors import InvalidArtifact, Problem
from tests.unit.control.example import (
    HERE,
    REF,
    TENANT,
    TenantCatalog,
    adapters,
    pack_envelope,
    pack_json,
    policy_envelope,
    policy_json,
    run,
    sealed,
    split,
)

HOUSE = "POLICY_HOUSE@1.0.0"


@pytest.fixture
def control() -> TenantCatalog:
    made = TenantCatalog()
    made.publish(pack_envelope())
    return made


def refused(control: TenantCatalog, *refs: str) -> tuple[str, str]:
    failure = control.pin(*refs)["failure"]
    assert failure.keys() == {"code", "detail", "pointer"}
    return failure["code"], failure["detail"]


@pytest.mark.requirement("P-PINNED")
def test_the_answer_names_every_digest(control: TenantCatalog) -> None:
    control.publish(policy_envelope(tenant=TENANT))
    control.activate(("tenant", HOUSE))
    house = content_address(policy_json(tenant=TENANT))
    assert control.pin() == {
        "pack_ref": REF,
        "pins": {
            REF: content_address(pack_json()),
            HOUSE: house,
            **{f"adapter:{name}": content_address(one.to_json()) for name, one in adapters().items()},
            "active_policies": content_address([["tenant", HOUSE]]),
        },
        "policies": [{"level": "tenant", "ref": HOUSE, "digest": house}],
        "publishers": ["ops"],
    }


def test_the_answer_names_who_published_any_of_it_once_and_in_order(control: TenantCatalog) -> None:
    whole, intents, specs = split()
    control.publish(policy_envelope(tenant=TENANT), by="zoe")
    control.activate(("tenant", HOUSE))
    control.publish(policy_envelope(bundle_id="POLICY_OTHER", rule_id="R_OTHER"), by="nobody_asked")
    refs = [control.publish(one, by=by) for one, by in ((whole, "bob"), (intents, "amy"), (specs, "bob"))]
    assert control.pin(*refs)["publishers"] == ["amy", "bob", "zoe"]
    again = control.elsewhere(*refs)
    assert again["publishers"] == ["amy", "bob", "zoe"], "another process reads it from the documents"


def test_who_publishes_the_same_again_is_not_its_publisher(control: TenantCatalog) -> None:
    control.publish(pack_envelope(), by="late")
    assert control.pin()["publishers"] == ["ops"]


def test_each_answer_is_an_object_of_its_own(control: TenantCatalog) -> None:
    first = control.pin()
    first["pins"].clear()
    assert control.pin()["pins"]


UNPINNED = ("", "@5.2", "@^5.2.0", "@v5.2.0", "@5.2.0-rc1", "@latest", "@" + "x" * 900)


@pytest.mark.requirement("P-EXACT")
@pytest.mark.parametrize("ref", [f"ctxpack.support{version}" for version in UNPINNED])
def test_a_ref_that_is_no_exact_pin_is_refused(control: TenantCatalog, ref: str) -> None:
    code, detail = refused(control, ref)
    assert code == "unpinned_ref"
    assert len(detail) < 400


def test_an_intent_is_unknown_where_the_pinned_refs_do_not_define_it(control: TenantCatalog) -> None:
    wider, other = pack_json(), pack_json()
    layer = wider["decision_layer"]
    template = layer["task_templates"][0] | {"template_id": "task_gift", "intent": "support.gift"}
    intent = layer["intents"][0] | {"intent_id": "support.gift", "eligible_task_templates": ["task_gift"]}
    layer["task_templates"].append(template), layer["intents"].append(intent)
    wider["pack_meta"]["pack_version"], other["pack_meta"]["pack_version"] = "6.0.0", "7.0.0"
    control.publish(sealed(PACK_TYPE, wider)), control.publish(sealed(PACK_TYPE, other))
    control.pin("ctxpack.support@6.0.0")

    def code(ref: str, intent: str) -> str:
        return str(control.asked(ref, intent=intent)["failure"]["code"])

    assert code("ctxpack.support@6.0.0", "support.nothing") == "unknown_intent"
    assert code("ctxpack.support@6.0.0", "support.gift") == "unpinned_ref", "defined, and pinned for another one"
    assert code("ctxpack.support@7.0.0", "support.nothing") == "unpinned_ref", "the refs come first"
    assert code("ctxpack.support@9.0.0", "support.nothing") == "unknown_ref"
    detail = control.asked("ctxpack.support@6.0.0", intent="support.refnud")["failure"]["detail"]
    assert detail.endswith("did you mean `support.refund`?")
    assert len(control.asked("ctxpack.support@6.0.0", intent="x" * 5_000)["failure"]["detail"]) < 400


def test_a_ref_that_is_not_published_here_is_unknown(control: TenantCatalog) -> None:
    control.activate()
    assert refused(control, "ctxpack.support@5.2.1")[0] == "unknown_ref"


@pytest.mark.requirement("P-WITHDRAWN")
def test_a_withdrawn_ref_pins_nothing_new(control: TenantCatalog) -> None:
    control.pin()
    control.withdraw(REF)
    assert refused(control, REF)[0] == "unknown_ref"


@pytest.mark.requirement("P-ONE-PACK")
@pytest.mark.parametrize("refs", [(HOUSE,), (REF, "ctxpack.support@5.3.0")])
def test_a_request_names_exactly_one_pack(control: TenantCatalog, refs: tuple[str, ...]) -> None:
    control.publish(policy_envelope())
    control.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0"}))
    code, _ = refused(control, *refs)
    assert code == "unpinned_ref", "no tenant pin can allow it"
    with pytest.raises(InvalidArtifact, match="name one pack"):
        control.allow(*refs)


def test_a_pack_named_twice_is_one_pack(control: TenantCatalog) -> None:
    assert control.pin(REF, REF)["pins"] == control.pin(REF)["pins"]


@pytest.mark.requirement("P-REQUIRES")
@pytest.mark.parametrize(
    ("requires", "met"),
    [
        ({"runtime": ">=0.1.0"}, True),
        ({"runtime": ">=0.0.9", "ontology": ">=4.2.0"}, True),
        ({"runtime": ">=0.1.1"}, False),
        ({"runtime": ">=0.10.0"}, False),
        ({"ontology": ">=4.10.0"}, False),
        ({"runtime": "0.1.0"}, False),
        ({"runtime": ">=0.1"}, False),
        ({"runtime": "*"}, False),
        ({"tokenizer": ">=1.0.0"}, False),
    ],
)
def test_a_need_that_is_unmet_or_unknown_refuses(control: TenantCatalog, requires: dict[str, str], met: bool) -> None:
    changes = {"/pack_meta/pack_version": "5.3.0", "/contract_meta/compatibility/requires": requires}
    ref = control.publish(pack_envelope(changes))
    answer = control.pin(ref)
    assert ("failure" not in answer) is met
    if not met:
        assert answer["failure"]["code"] == "unknown_ref"


def test_an_adapter_that_is_not_registered_refuses(control: TenantCatalog) -> None:
    del control.definitions["adp_payments"]
    assert "adp_payments" in refused(control, REF)[1]


def test_an_adapter_that_is_gone_refuses_although_it_was_there_before(control: TenantCatalog) -> None:
    control.pin()
    del control.definitions["adp_payments"]
    assert refused(control, REF)[0] == "unknown_ref"


def test_a_pack_that_does_not_fit_its_adapters_refuses(control: TenantCatalog) -> None:
    body = adapters()["adp_payments"].to_json()
    body["capabilities"][0]["approval_mode"] = "delegated"
    control.definitions["adp_payments"] = parse(AdapterDefinition, body)
    assert "lint refuses" in refused(control, REF)[1]


def test_what_another_plane_could_not_use_is_never_pinned(control: TenantCatalog) -> None:
    asked: list[Any] = []

    def check_pins(loaded: Any) -> None:
        asked.append(loaded)
        if loaded.bundles[0].bundle.bundle_id == "POLICY_HOUSE":
            raise InvalidArtifact(Problem("/policy_dsl", "bad_rule", "the rule does not compile", "correct it"))

    strict = TenantCatalog(check_pins=check_pins)
    strict.publish(pack_envelope())
    assert strict.pin() == strict.pin() == control.pin()
    assert len(asked) == 1, "a set that was checked is not checked again"
    assert [one.adapter_id for one in asked[0].definitions] == ["adp_orders", "adp_policy", "adp_payments"]
    strict.publish(policy_envelope())
    strict.activate(("platform", HOUSE))
    for _ in range(2):
        code, detail = refused(strict, REF)
        assert (code, "the rule does not compile" in detail) == ("unknown_ref", True)
    assert len(asked) == 3


def test_a_changed_adapter_is_another_pin(control: TenantCatalog) -> None:
    before = control.pin()["pins"]
    control.definitions = adapters("2")
    after = control.pin()["pins"]
    assert {name for name in before if before[name] != after[name]} == {f"adapter:{name}" for name in adapters()}
    assert len(run(control.again().load({"pack_ref": REF, "pins": after, "policies": []})).definitions) == 3


def test_an_equal_description_by_another_object_is_the_same_pin(control: TenantCatalog) -> None:
    before = control.pin()
    control.definitions = adapters()
    assert control.pin() == before


def test_a_change_of_the_policies_in_force_is_another_pin(control: TenantCatalog) -> None:
    before = control.pin()["pins"]
    control.publish(policy_envelope())
    assert control.pin()["pins"] == before
    control.activate(("platform", HOUSE))
    after = control.pin()["pins"]
    assert after["active_policies"] != before["active_policies"]
    assert HOUSE in after


def test_another_process_sees_a_change_of_the_policies_at_once(control: TenantCatalog) -> None:
    control.allow(REF)
    other = control.again()
    before = run(other.pin((REF,), control.definitions, **HERE))
    control.publish(policy_envelope())
    control.activate(("platform", HOUSE))
    after = run(other.pin((REF,), control.definitions, **HERE))
    assert (before["policies"], [policy["ref"] for policy in after["policies"]]) == ([], [HOUSE])


@pytest.mark.requirement("P-ONE-PACK")
def test_catalogs_beside_the_pack_are_merged_by_kind(control: TenantCatalog) -> None:
    refs = [control.publish(envelope) for envelope in split()]
    answer = control.pin(*refs)
    assert set(refs) <= answer["pins"].keys()
    loaded = run(control.again().load(answer))
    assert loaded.pack.pin == "ctxpack.support@6.0.0"
    assert loaded.intents.keys() == {"support.refund"}
    assert loaded.specs.keys() == {"support.refund.execute"}
    assert refused(control, *refs[:2])[0] == "unknown_ref"
    assert refused(control, refs[0])[0] == "unpinned_ref", "no pin can allow an intent that the pack does not define"


def test_a_policy_that_a_request_names_applies_at_the_pack(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    answer = control.pin(REF, HOUSE)
    assert [(policy["level"], policy["ref"]) for policy in answer["policies"]] == [("pack", HOUSE)]
    levels = {one.bundle.bundle_id: one.level for one in run(control.again().load(answer)).bundles}
    assert levels == {"POLICY_RETURNS_V4": "pack", "POLICY_HOUSE": "pack"}


@pytest.mark.requirement("P-LEVELS")
def test_a_policy_in_force_stays_where_it_is_strongest(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    control.activate(("platform", HOUSE))
    answer = control.pin(REF, HOUSE)
    assert [(policy["level"], policy["ref"]) for policy in answer["policies"]] == [("platform", HOUSE)]
    assert [(one.level, one.bundle.bundle_id) for one in run(control.again().load(answer)).bundles] == [
        ("platform", "POLICY_HOUSE"),
        ("pack", "POLICY_RETURNS_V4"),
    ]


def catalog(kind: str, key: str, **changes: Any) -> dict[str, Any]:
    layer = pack_json()["decision_layer"]
    entry = {**layer[key][0], **changes}
    about = {"catalog_id": "more", "version": "1.0.0", "tenant": TENANT, "intents": [], "task_templates": []}
    if kind == SPECS_TYPE:
        about = {"catalog_id": "more", "version": "1.0.0", "tenant": TENANT}
    return sealed(kind, {**about, key: [entry]})


@pytest.mark.requirement("P-ONE-PACK")
@pytest.mark.parametrize(
    ("kind", "key"), [(INTENTS_TYPE, "intents"), (INTENTS_TYPE, "task_templates"), (SPECS_TYPE, "decision_specs")]
)
def test_two_definitions_of_one_key_refuse_unless_they_are_equal(control: TenantCatalog, kind: str, key: str) -> None:
    equal = TenantCatalog()
    equal.publish(pack_envelope())
    assert "failure" not in equal.pin(REF, equal.publish(catalog(kind, key)))
    code, detail = refused(control, REF, control.publish(catalog(kind, key, version="9.9.9")))
    assert (code, "two different definitions" in detail) == ("unknown_ref", True)


@pytest.mark.requirement("P-ONE-PACK")
def test_two_bundles_of_one_id_refuse_unless_they_are_equal(control: TenantCatalog) -> None:
    own = pack_json()["policy_layer"]["policy_bundles"][0]
    control.publish(policy_envelope(bundle=own))
    control.publish(policy_envelope(bundle={**own, "priority": 11}, version="2.0.0"))
    assert "failure" not in control.pin(REF, "POLICY_RETURNS_V4@1.0.0")
    assert "two different definitions" in refused(control, REF, "POLICY_RETURNS_V4@2.0.0")[1]
    control.activate(("platform", "POLICY_RETURNS_V4@1.0.0"))
    assert [one.level for one in run(control.catalog.load(control.pin())).bundles] == ["platform"]


def test_each_definition_is_stored_once(control: TenantCatalog) -> None:
    for _ in range(2):
        control.pin()
        control.elsewhere(REF)
    address = content_address(adapters()["adp_orders"].to_json())
    (found,) = run(control.store.scan("artifacts", key=address))
    assert found.version == 1


def test_two_processes_that_store_one_definition_both_go_on(control: TenantCatalog) -> None:
    control.allow(REF)
    other = control.again()
    missed = other.repository._store.scan

    async def late(collection: str, **given: Any) -> Any:
        if collection == "artifacts" and given["key"].startswith("sha256:") and not control.more.get("seen"):
            if given["key"] == content_address(adapters()["adp_payments"].to_json()):
                control.more["seen"] = True
                await control.catalog.pin((REF,), control.definitions, **HERE)
            return [] if given["key"] != content_address(pack_json()) else await missed(collection, **given)
        return await missed(collection, **given)

    real = control.store
    late_store = {"scan": staticmethod(late), "commit": real.commit, "lines": real.lines, "look": real.look}
    other.repository._store = type("Late", (), late_store)()
    assert run(other.pin((REF,), control.definitions, **HERE)) == control.pin()


def test_pins_now_are_the_pins_until_something_changes(control: TenantCatalog) -> None:
    control.publish(policy_envelope())
    control.activate(("platform", HOUSE))
    pins = control.pin()["pins"]

    def now() -> dict[str, str | None]:
        return run(control.catalog.pins_now(list(pins), control.definitions))[1]

    assert now() == pins
    control.activate()
    assert {name for name, digest in now().items() if digest != pins[name]} == {"active_policies", HOUSE}
    control.withdraw(REF)
    assert now()[REF] is None
    control.definitions = {"adp_orders": adapters("2")["adp_orders"]}
    after = now()
    assert after["adapter:adp_payments"] is None
    assert after["adapter:adp_orders"] not in (None, pins["adapter:adp_orders"])


def test_an_artifact_that_never_existed_is_not_found(control: TenantCatalog) -> None:
    names = ["ctxpack.other@1.0.0", "adapter:adp_none", "estimator"]
    assert run(control.catalog.pins_now(names, control.definitions))[1] == dict.fromkeys(names)


def test_a_newer_version_of_a_pack_changes_no_pin(control: TenantCatalog) -> None:
    pins = control.pin()["pins"]
    control.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0"}))
    assert run(control.catalog.pins_now(list(pins), control.definitions))[1] == pins


@pytest.mark.requirement("P-ROLLBACK")
def test_a_prior_version_is_pinned_again_as_it_was(control: TenantCatalog) -> None:
    before = control.pin()
    newer = control.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0", "/business_context/summary": "Other."}))
    assert control.pin(newer)["pins"] != before["pins"]
    control.withdraw(newer)
    assert control.pin() == control.elsewhere(REF) == before
    assert run(control.again().load(before)).pack.to_json() == pack_json()
