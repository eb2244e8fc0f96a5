"""A request pins one whole set of artifacts, or gets a recorded reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import INTENTS_TYPE, SPECS_TYPE
from contextos.errors import InvalidArtifact, Problem
from tests.unit.control.example import (
    REF,
    TENANT,
    Shelves,
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
def shelves() -> Shelves:
    made = Shelves()
    made.publish(pack_envelope())
    return made


def refused(shelves: Shelves, *refs: str) -> tuple[str, str]:
    failure = shelves.pin(*refs)["failure"]
    assert failure.keys() == {"code", "detail"}
    return failure["code"], failure["detail"]


@pytest.mark.requirement("P-PINNED")
def test_the_answer_names_every_digest(shelves: Shelves) -> None:
    shelves.publish(policy_envelope(tenant=TENANT))
    shelves.activate(("tenant", HOUSE))
    house = content_address(policy_json(tenant=TENANT))
    assert shelves.pin() == {
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


def test_the_answer_names_who_published_any_of_it_once_and_in_order(shelves: Shelves) -> None:
    whole, intents, specs = split()
    shelves.publish(policy_envelope(tenant=TENANT), by="zoe")
    shelves.activate(("tenant", HOUSE))
    shelves.publish(policy_envelope(bundle_id="POLICY_OTHER", rule_id="R_OTHER"), by="nobody_asked")
    refs = [shelves.publish(one, by=by) for one, by in ((whole, "bob"), (intents, "amy"), (specs, "bob"))]
    assert shelves.pin(*refs)["publishers"] == ["amy", "bob", "zoe"]
    again = run(shelves.again().pin(refs, shelves.definitions))
    assert again["publishers"] == ["amy", "bob", "zoe"], "another process reads it from the documents"


def test_who_publishes_the_same_again_is_not_its_publisher(shelves: Shelves) -> None:
    shelves.publish(pack_envelope(), by="late")
    assert shelves.document("pins", REF)["by"] == "ops"
    assert shelves.pin()["publishers"] == ["ops"]


def test_each_answer_is_an_object_of_its_own(shelves: Shelves) -> None:
    first = shelves.pin()
    first["pins"].clear()
    assert shelves.pin()["pins"]


UNPINNED = ("", "@5.2", "@^5.2.0", "@v5.2.0", "@5.2.0-rc1", "@latest", "@" + "x" * 900)


@pytest.mark.requirement("P-EXACT")
@pytest.mark.parametrize("ref", [f"ctxpack.support{version}" for version in UNPINNED])
def test_a_ref_that_is_no_exact_pin_is_refused(shelves: Shelves, ref: str) -> None:
    code, detail = refused(shelves, ref)
    assert code == "unpinned_ref"
    assert len(detail) < 400


def test_a_ref_that_is_not_published_here_is_unknown(shelves: Shelves) -> None:
    assert refused(shelves, "ctxpack.support@5.2.1")[0] == "unknown_ref"


@pytest.mark.requirement("P-WITHDRAWN")
def test_a_withdrawn_ref_pins_nothing_new(shelves: Shelves) -> None:
    shelves.pin()
    shelves.withdraw(REF)
    assert refused(shelves, REF)[0] == "unknown_ref"


@pytest.mark.requirement("P-ONE-PACK")
@pytest.mark.parametrize("refs", [(HOUSE,), (REF, "ctxpack.support@5.3.0")])
def test_a_request_names_exactly_one_pack(shelves: Shelves, refs: tuple[str, ...]) -> None:
    shelves.publish(policy_envelope())
    shelves.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0"}))
    code, detail = refused(shelves, *refs)
    assert (code, "exactly one context pack" in detail) == ("unknown_ref", True)


def test_a_pack_named_twice_is_one_pack(shelves: Shelves) -> None:
    assert shelves.pin(REF, REF)["pins"] == shelves.pin(REF)["pins"]


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
def test_a_need_that_is_unmet_or_unknown_refuses(shelves: Shelves, requires: dict[str, str], met: bool) -> None:
    changes = {"/pack_meta/pack_version": "5.3.0", "/contract_meta/compatibility/requires": requires}
    ref = shelves.publish(pack_envelope(changes))
    answer = shelves.pin(ref)
    assert ("failure" not in answer) is met
    if not met:
        assert answer["failure"]["code"] == "unknown_ref"


def test_an_adapter_that_is_not_registered_refuses(shelves: Shelves) -> None:
    del shelves.definitions["adp_payments"]
    assert "adp_payments" in refused(shelves, REF)[1]


def test_an_adapter_that_is_gone_refuses_although_it_was_there_before(shelves: Shelves) -> None:
    shelves.pin()
    del shelves.definitions["adp_payments"]
    assert refused(shelves, REF)[0] == "unknown_ref"


def test_a_pack_that_does_not_fit_its_adapters_refuses(shelves: Shelves) -> None:
    body = adapters()["adp_payments"].to_json()
    body["capabilities"][0]["approval_mode"] = "delegated"
    shelves.definitions["adp_payments"] = parse(AdapterDefinition, body)
    assert "does not fit" in refused(shelves, REF)[1]


def test_what_another_plane_could_not_use_is_never_pinned(shelves: Shelves) -> None:
    asked: list[Any] = []

    def judge(loaded: Any) -> None:
        asked.append(loaded)
        if loaded.bundles[0].bundle.bundle_id == "POLICY_HOUSE":
            raise InvalidArtifact(Problem("/policy_dsl", "bad_rule", "the rule does not compile", "mend it"))

    strict = Shelves(judge=judge)
    strict.publish(pack_envelope())
    assert strict.pin() == strict.pin() == shelves.pin()
    assert len(asked) == 1, "a set that was judged is not judged again"
    assert [one.adapter_id for one in asked[0].definitions] == ["adp_orders", "adp_policy", "adp_payments"]
    strict.publish(policy_envelope())
    strict.activate(("platform", HOUSE))
    for _ in range(2):
        code, detail = refused(strict, REF)
        assert (code, "the rule does not compile" in detail) == ("unknown_ref", True)
    assert len(asked) == 3


def test_a_changed_adapter_is_another_pin(shelves: Shelves) -> None:
    before = shelves.pin()["pins"]
    shelves.definitions = adapters("2")
    after = shelves.pin()["pins"]
    assert {name for name in before if before[name] != after[name]} == {f"adapter:{name}" for name in adapters()}
    assert len(run(shelves.again().load({"pack_ref": REF, "pins": after, "policies": []})).definitions) == 3


def test_an_equal_description_by_another_object_is_the_same_pin(shelves: Shelves) -> None:
    before = shelves.pin()
    shelves.definitions = adapters()
    assert shelves.pin() == before


def test_a_change_of_the_policies_in_force_is_another_pin(shelves: Shelves) -> None:
    before = shelves.pin()["pins"]
    shelves.publish(policy_envelope())
    assert shelves.pin()["pins"] == before
    shelves.activate(("platform", HOUSE))
    after = shelves.pin()["pins"]
    assert after["active_policies"] != before["active_policies"]
    assert HOUSE in after


def test_another_process_sees_a_change_of_the_policies_at_once(shelves: Shelves) -> None:
    other = shelves.again()
    before = run(other.pin((REF,), shelves.definitions))
    shelves.publish(policy_envelope())
    shelves.activate(("platform", HOUSE))
    after = run(other.pin((REF,), shelves.definitions))
    assert (before["policies"], [policy["ref"] for policy in after["policies"]]) == ([], [HOUSE])


@pytest.mark.requirement("P-ONE-PACK")
def test_catalogs_beside_the_pack_are_merged_by_kind(shelves: Shelves) -> None:
    refs = [shelves.publish(envelope) for envelope in split()]
    answer = shelves.pin(*refs)
    assert set(refs) <= answer["pins"].keys()
    loaded = run(shelves.again().load(answer))
    assert loaded.pack.pin == "ctxpack.support@6.0.0"
    assert loaded.intents.keys() == {"support.refund"}
    assert loaded.specs.keys() == {"support.refund.execute"}
    assert refused(shelves, *refs[:2])[0] == refused(shelves, refs[0])[0] == "unknown_ref"


def test_a_policy_that_a_request_names_applies_at_the_pack(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    answer = shelves.pin(REF, HOUSE)
    assert [(policy["level"], policy["ref"]) for policy in answer["policies"]] == [("pack", HOUSE)]
    levels = {one.bundle.bundle_id: one.level for one in run(shelves.again().load(answer)).bundles}
    assert levels == {"POLICY_RETURNS_V4": "pack", "POLICY_HOUSE": "pack"}


@pytest.mark.requirement("P-LEVELS")
def test_a_policy_in_force_stays_where_it_is_strongest(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    shelves.activate(("platform", HOUSE))
    answer = shelves.pin(REF, HOUSE)
    assert [(policy["level"], policy["ref"]) for policy in answer["policies"]] == [("platform", HOUSE)]
    assert [(one.level, one.bundle.bundle_id) for one in run(shelves.again().load(answer)).bundles] == [
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
def test_two_definitions_of_one_key_refuse_unless_they_are_equal(shelves: Shelves, kind: str, key: str) -> None:
    equal = Shelves()
    equal.publish(pack_envelope())
    assert "failure" not in equal.pin(REF, equal.publish(catalog(kind, key)))
    code, detail = refused(shelves, REF, shelves.publish(catalog(kind, key, version="9.9.9")))
    assert (code, "defined twice" in detail) == ("unknown_ref", True)


@pytest.mark.requirement("P-ONE-PACK")
def test_two_bundles_of_one_id_refuse_unless_they_are_equal(shelves: Shelves) -> None:
    own = pack_json()["policy_layer"]["policy_bundles"][0]
    shelves.publish(policy_envelope(bundle=own))
    shelves.publish(policy_envelope(bundle={**own, "priority": 11}, version="2.0.0"))
    assert "failure" not in shelves.pin(REF, "POLICY_RETURNS_V4@1.0.0")
    assert "defined twice" in refused(shelves, REF, "POLICY_RETURNS_V4@2.0.0")[1]
    shelves.activate(("platform", "POLICY_RETURNS_V4@1.0.0"))
    assert [one.level for one in run(shelves.catalog.load(shelves.pin())).bundles] == ["platform"]


def test_each_definition_is_stored_once(shelves: Shelves) -> None:
    for _ in range(2):
        shelves.pin()
        run(shelves.again().pin((REF,), shelves.definitions))
    address = content_address(adapters()["adp_orders"].to_json())
    (found,) = run(shelves.store.scan("artifacts", key=address))
    assert found.version == 1


def test_two_processes_that_store_one_definition_both_go_on(shelves: Shelves) -> None:
    other = shelves.again()
    missed = other._shelf._store.scan

    async def late(collection: str, **given: Any) -> Any:
        if collection == "artifacts" and given["key"].startswith("sha256:") and not shelves.more.get("seen"):
            if given["key"] == content_address(adapters()["adp_payments"].to_json()):
                shelves.more["seen"] = True
                await shelves.catalog.pin((REF,), shelves.definitions)
            return [] if given["key"] != content_address(pack_json()) else await missed(collection, **given)
        return await missed(collection, **given)

    other._shelf._store = type("Late", (), {"scan": staticmethod(late), "commit": shelves.store.commit})()
    assert run(other.pin((REF,), shelves.definitions)) == shelves.pin()


def test_pins_now_are_the_pins_until_something_changes(shelves: Shelves) -> None:
    shelves.publish(policy_envelope())
    shelves.activate(("platform", HOUSE))
    pins = shelves.pin()["pins"]

    def now() -> dict[str, str | None]:
        return run(shelves.catalog.pins_now(list(pins), shelves.definitions))[1]

    assert now() == pins
    shelves.activate()
    assert {name for name, digest in now().items() if digest != pins[name]} == {"active_policies"}
    shelves.withdraw(REF)
    assert now()[REF] is None
    shelves.definitions = {"adp_orders": adapters("2")["adp_orders"]}
    after = now()
    assert after["adapter:adp_payments"] is None
    assert after["adapter:adp_orders"] not in (None, pins["adapter:adp_orders"])


def test_what_was_never_there_is_not_there_now(shelves: Shelves) -> None:
    names = ["ctxpack.other@1.0.0", "adapter:adp_none", "estimator"]
    assert run(shelves.catalog.pins_now(names, shelves.definitions))[1] == dict.fromkeys(names)


def test_a_newer_version_of_a_pack_changes_no_pin(shelves: Shelves) -> None:
    pins = shelves.pin()["pins"]
    shelves.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0"}))
    assert run(shelves.catalog.pins_now(list(pins), shelves.definitions))[1] == pins


@pytest.mark.requirement("P-ROLLBACK")
def test_a_prior_version_is_pinned_again_as_it_was(shelves: Shelves) -> None:
    before = shelves.pin()
    newer = shelves.publish(pack_envelope({"/pack_meta/pack_version": "5.3.0", "/business_context/summary": "Other."}))
    assert shelves.pin(newer)["pins"] != before["pins"]
    shelves.withdraw(newer)
    assert shelves.pin() == run(shelves.again().pin((REF,), shelves.definitions)) == before
    assert run(shelves.again().load(before)).pack.to_json() == pack_json()
