"""Every edge of the binding graph, broken alone: it is found, where it is, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import MISSING, resolve_pointer
from contextos.contracts.envelopes.pack import DecisionCatalog, IntentCatalog
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import merge
from contextos.control.lint.pack import MAX_LINT_PROBLEMS, lint_merged, lint_pack
from tests.unit.control.example import adapters, pack, pack_json

RULES_AT = "/policy_layer/policy_bundles/0/policy_dsl/rules"
IDV, LOW, HIGH = f"{RULES_AT}/2", f"{RULES_AT}/6", f"{RULES_AT}/7"
TEMPLATE = "/decision_layer/task_templates/0"
SPEC = "/decision_layer/decision_specs/0"
PAY = "/tooling_layer/permissions/2"
RETRIEVAL = "/intelligence_refs/retrieval"


def bind(source: str, pointer: str) -> dict[str, str]:
    return {"from": source, "pointer": pointer}


INTENT = pack_json()["decision_layer"]["intents"][0]
STEP = pack_json()["decision_layer"]["task_templates"][0]["steps"][2]
SPEC_JSON = pack_json()["decision_layer"]["decision_specs"][0]
SLOT = {
    "slotId": "voice",
    "acceptedArtifactExtensions": ["@acme/voice"],
    "selectionMode": "autonomous",
    "resolutionMode": "accumulate",
}
DECLARED = {f"{TEMPLATE}/context_slots": [{"slot": SLOT}]}

BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "intent names no template": (
        {"/decision_layer/intents/0/eligible_task_templates/-": "task_none"},
        "/decision_layer/intents/0/eligible_task_templates/1",
        "unknown_edge",
    ),
    "intent names another intent's template": (
        {"/decision_layer/intents/-": INTENT | {"intent_id": "support.other"}},
        "/decision_layer/intents/1/eligible_task_templates/0",
        "other_intent",
    ),
    "two intents of one name": ({"/decision_layer/intents/-": INTENT | {"version": "4"}}, "", "defined_twice"),
    "two specs of one key": (
        {"/decision_layer/decision_specs/-": SPEC_JSON | {"version": "2.0.0"}},
        "",
        "defined_twice",
    ),
    "rule of an unknown intent": (
        {f"{IDV}/applies_to/intent": "support.none"},
        f"{IDV}/applies_to/intent",
        "unknown_edge",
    ),
    "rule of an unregistered capability": (
        {f"{IDV}/applies_to/capability": "adp_none.act"},
        f"{IDV}/applies_to/capability",
        "unknown_edge",
    ),
    "rule of a slot that no template declares": (
        {**DECLARED, f"{IDV}/applies_to/capability": "slots.vioce", f"{IDV}/then": {"allow": False}},
        f"{IDV}/applies_to/capability",
        "unknown_edge",
    ),
    **{
        f"rule of a slot that says `{name}`": (
            {**DECLARED, f"{IDV}/applies_to/capability": "slots.voice", f"{IDV}/then": {"allow": True, name: value}},
            f"{IDV}/then/{name}",
            "not_enforced",
        )
        for name, value in (
            ("requires_approval_gate", "GATE_FINANCE_APPROVAL"),
            ("requires", ["order_lookup"]),
            ("arg_constraints", {"amount": {"max": 1}}),
        )
    },
    "a prohibition of a slot": (
        {**DECLARED, "/tooling_layer/prohibitions/-": "slots.voice"},
        "/tooling_layer/prohibitions/0",
        "not_enforced",
    ),
    "rule bound to no spec": ({f"{IDV}/decision_binding": "support.none"}, f"{IDV}/decision_binding", "unknown_edge"),
    "rule requires unknown evidence": ({f"{IDV}/then/requires": ["proof"]}, f"{IDV}/then/requires/0", "unknown_edge"),
    "rule names no gate": (
        {f"{HIGH}/then/requires_approval_gate": "GATE_NONE"},
        f"{HIGH}/then/requires_approval_gate",
        "unknown_edge",
    ),
    "rule prohibits the unregistered": (
        {f"{IDV}/then/prohibits": ["adp_none.act"]},
        f"{IDV}/then/prohibits/0",
        "unknown_edge",
    ),
    "rule bounds no argument": (
        {f"{LOW}/then/arg_constraints/amount": {"max": 1}},
        f"{LOW}/then/arg_constraints/amount",
        "unknown_edge",
    ),
    "permission of the unregistered": (
        {"/tooling_layer/permissions/0/capability": "none"},
        "/tooling_layer/permissions/0/capability",
        "unknown_edge",
    ),
    "permission bounds no argument": (
        {f"{PAY}/arg_constraints/amount": {"max": 1}},
        f"{PAY}/arg_constraints/amount",
        "unknown_edge",
    ),
    "permission with an empty enum": (
        {f"{PAY}/arg_constraints/currency": {"enum": []}},
        f"{PAY}/arg_constraints/currency/enum",
        "empty_enum",
    ),
    "permission with an empty range": (
        {f"{PAY}/arg_constraints/amount_inr": {"min": 2, "max": 1}},
        f"{PAY}/arg_constraints/amount_inr",
        "empty_range",
    ),
    "permission with a backtracking pattern": (
        {f"{PAY}/arg_constraints/order_id": {"pattern": "(?=a)b"}},
        f"{PAY}/arg_constraints/order_id/pattern",
        "pattern_refused",
    ),
    "permission agrees on no argument": (
        {f"{PAY}/agrees_with/amount": "/input/context/refund_amount"},
        f"{PAY}/agrees_with/amount",
        "unknown_edge",
    ),
    "permission agrees with no place": (
        {f"{PAY}/agrees_with/currency": "/inputs/currency"},
        f"{PAY}/agrees_with/currency",
        "unknown_edge",
    ),
    "permission agrees with no pointer": (
        {f"{PAY}/agrees_with/currency": "input/context"},
        f"{PAY}/agrees_with/currency",
        "unknown_edge",
    ),
    "two permissions of one id": (
        {"/tooling_layer/permissions/1/permission_id": "perm_orders_lookup"},
        "/tooling_layer/permissions",
        "duplicate",
    ),
    "an adapter twice": (
        {"/tooling_layer/adapter_registry/-": {"adapter_id": "adp_orders", "capabilities": ["lookup"]}},
        "/tooling_layer/adapter_registry",
        "duplicate",
    ),
    "a registered capability that nobody declares": (
        {"/tooling_layer/adapter_registry/0/capabilities/-": "erase"},
        "/tooling_layer/adapter_registry/0/capabilities/1",
        "unknown_edge",
    ),
    "a prohibition with a slip of the pen": (
        {"/tooling_layer/prohibitions/-": "adp_payments.isue_refund"},
        "/tooling_layer/prohibitions/0",
        "unknown_edge",
    ),
    "a target of an unknown intent": (
        {"/evaluation_layer/eval_targets/0/intent": "support.none"},
        "/evaluation_layer/eval_targets/0/intent",
        "unknown_edge",
    ),
    "a seed outside of the namespaces": (
        {f"{RETRIEVAL}/seeds/0/type": "ship"},
        f"{RETRIEVAL}/seeds/0/type",
        "unknown_edge",
    ),
    "a seed out of a step": (
        {f"{RETRIEVAL}/seeds/0/binding": bind("step", "/s1/order_id")},
        f"{RETRIEVAL}/seeds/0/binding/from",
        "too_early",
    ),
    "a seed out of nowhere": (
        {f"{RETRIEVAL}/seeds/0/binding": bind("request", "/inputs/order_id")},
        f"{RETRIEVAL}/seeds/0/binding/pointer",
        "unknown_edge",
    ),
    "an evidence path over an unknown relationship": (
        {f"{RETRIEVAL}/evidence/1/path/0": "bought_by"},
        f"{RETRIEVAL}/evidence/1/path/0",
        "unknown_edge",
    ),
    "an evidence path from no seed": (
        {f"{RETRIEVAL}/evidence/1/seed": 1},
        f"{RETRIEVAL}/evidence/1/seed",
        "unknown_edge",
    ),
    "an evidence path beyond the hops": (
        {f"{RETRIEVAL}/evidence/1/path/-": "placed_by"},
        f"{RETRIEVAL}/evidence/1/path",
        "beyond_hops",
    ),
    "an evidence name that hides another": (
        {f"{RETRIEVAL}/evidence/1/name": "policy"},
        f"{RETRIEVAL}/evidence",
        "name_hidden",
    ),
    "required evidence that nobody gives": (
        {f"{SPEC}/required_evidence/-": "consent_form"},
        f"{SPEC}/required_evidence/3",
        "unknown_edge",
    ),
    "buckets beyond the total": (
        {"/pack_meta/run_budget/bucket_tokens/policy": 1801},
        "/pack_meta/run_budget/bucket_tokens",
        "over_budget",
    ),
    "a gate of two": ({"/policy_layer/approval_gates/0/quorum": 2}, "/policy_layer/approval_gates/0/quorum", "quorum"),
    "an unknown redaction": (
        {"/policy_layer/guardrails/redaction_rules/1": "iban"},
        "/policy_layer/guardrails/redaction_rules/1",
        "unknown_edge",
    ),
    "a template of an unknown intent": (
        {
            "/decision_layer/task_templates/-": {
                "template_id": "task_other",
                "version": "1.0.0",
                "intent": "support.none",
                "steps": [pack_json()["decision_layer"]["task_templates"][0]["steps"][0]],
            }
        },
        "/decision_layer/task_templates/1/intent",
        "unknown_edge",
    ),
    "a step twice": ({f"{TEMPLATE}/steps/-": STEP}, f"{TEMPLATE}/steps/3/id", "duplicate"),
    "a dependency on what comes later": (
        {f"{TEMPLATE}/steps/0/depends_on": ["s2"]},
        f"{TEMPLATE}/steps/0/depends_on/0",
        "not_earlier",
    ),
    "a step that requires no gate": (
        {f"{TEMPLATE}/steps/2/requires": ["GATE_NONE"]},
        f"{TEMPLATE}/steps/2/requires/0",
        "unknown_edge",
    ),
    "a step with an unregistered tool": (
        {f"{TEMPLATE}/steps/0/tool": "adp_none.look"},
        f"{TEMPLATE}/steps/0/tool",
        "unknown_edge",
    ),
    "a step with a prohibited tool": (
        {"/tooling_layer/prohibitions/-": "adp_orders.lookup"},
        f"{TEMPLATE}/steps/0/tool",
        "prohibited",
    ),
    "a step that states another mode": (
        {f"{TEMPLATE}/steps/2/approval_mode": "delegated"},
        f"{TEMPLATE}/steps/2/approval_mode",
        "mode_mismatch",
    ),
    "an effect without a checkpoint before it": (
        {f"{TEMPLATE}/decision_checkpoints/0/after_step": "s3"},
        f"{TEMPLATE}/steps/2",
        "not_bound",
    ),
    "an effect above its spec": ({f"{SPEC}/approval_mode": "delegated"}, f"{TEMPLATE}/steps/2", "mode_above_spec"),
    "an effect by a spec that may not execute": (
        {f"{SPEC}/decision_right": "recommend"},
        f"{TEMPLATE}/steps/2",
        "no_right",
    ),
    "a checkpoint after no step": (
        {f"{TEMPLATE}/decision_checkpoints/-": {"decision_id": "support.refund.execute", "after_step": "s9"}},
        f"{TEMPLATE}/decision_checkpoints/1/after_step",
        "unknown_edge",
    ),
    "a checkpoint of no spec": (
        {f"{TEMPLATE}/decision_checkpoints/-": {"decision_id": "support.none", "after_step": "s1"}},
        f"{TEMPLATE}/decision_checkpoints/1/decision_id",
        "unknown_edge",
    ),
    "an unknown argument": (
        {f"{TEMPLATE}/steps/0/params/colour": "red"},
        f"{TEMPLATE}/steps/0/params/colour",
        "unknown_edge",
    ),
    "a missing argument": (
        {f"{TEMPLATE}/steps/0/params/order_id": ...},
        f"{TEMPLATE}/steps/0/params",
        "argument_missing",
    ),
    "a binding from nowhere": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("session", "/order_id")},
        f"{TEMPLATE}/steps/0/params/order_id/from",
        "unknown_edge",
    ),
    "a binding without a pointer": (
        {f"{TEMPLATE}/steps/0/params/order_id": {"from": "request"}},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "not_a_pointer",
    ),
    "a binding with a bad pointer": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("request", "/input/~2")},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "not_a_pointer",
    ),
    "a binding to no place in a request": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("request", "/context/order_id")},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "unknown_edge",
    ),
    "a binding to no place in the pack": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("pack", "/pack_meta/order_id")},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "unknown_edge",
    ),
    "a binding to unknown evidence": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("evidence", "/order/value")},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "unknown_edge",
    ),
    "a binding to no part of evidence": (
        {f"{TEMPLATE}/steps/2/params/order_id": bind("evidence", "/order_lookup")},
        f"{TEMPLATE}/steps/2/params/order_id/pointer",
        "evidence_part",
    ),
    "a binding to a later step": (
        {f"{TEMPLATE}/steps/0/params/order_id": bind("step", "/s2/order_id")},
        f"{TEMPLATE}/steps/0/params/order_id/pointer",
        "not_earlier",
    ),
    "a binding to a step that is no dependency": (
        {f"{TEMPLATE}/steps/1/depends_on": [], f"{TEMPLATE}/steps/2/params/order_id": bind("step", "/s1/order_id")},
        f"{TEMPLATE}/steps/2/params/order_id/pointer",
        "not_earlier",
    ),
    "a binding to no output": (
        {f"{TEMPLATE}/steps/2/params/order_id": bind("step", "/s1/order")},
        f"{TEMPLATE}/steps/2/params/order_id/pointer",
        "unknown_edge",
    ),
    "an output of no step": (
        {f"{TEMPLATE}/outputs/currency": bind("step", "/s9/currency")},
        f"{TEMPLATE}/outputs/currency/pointer",
        "not_earlier",
    ),
    "an output of no property": (
        {f"{TEMPLATE}/outputs/currency": bind("step", "/s3/money")},
        f"{TEMPLATE}/outputs/currency/pointer",
        "unknown_edge",
    ),
    "a subject outside of the namespaces": (
        {f"{TEMPLATE}/subjects/1/type": "ship"},
        f"{TEMPLATE}/subjects/1/type",
        "unknown_edge",
    ),
    "a subject of no evidence": (
        {f"{TEMPLATE}/subjects/0/binding": bind("evidence", "/customer/subject")},
        f"{TEMPLATE}/subjects/0/binding/pointer",
        "unknown_edge",
    ),
    "a memory of no step": (
        {f"{TEMPLATE}/memory/0/value": bind("step", "/s9")},
        f"{TEMPLATE}/memory/0/value/pointer",
        "not_earlier",
    ),
    "a memory about what is in no namespace": (
        {f"{TEMPLATE}/memory/1/entity/type": "ship"},
        f"{TEMPLATE}/memory/1/entity/type",
        "unknown_edge",
    ),
    "a memory of a class that is not allowed": (
        {f"{TEMPLATE}/memory/0/write_class": "correction"},
        f"{TEMPLATE}/memory/0/write_class",
        "unknown_edge",
    ),
}


def test_the_example_has_no_problem() -> None:
    assert lint_pack(pack(), None) == ()
    assert lint_pack(pack(), adapters()) == ()
    assert lint_merged(merge(pack()), adapters()) == ()


@pytest.mark.requirement("P-LINT")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_edge_is_found_where_it_is(name: str) -> None:
    changes, where, code = BROKEN[name]
    problems = lint_pack(pack(changes), adapters())
    assert (where, code) in {(problem.pointer, problem.code) for problem in problems}
    assert all(problem.detail and problem.remedy for problem in problems)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_edge_drags_at_most_two_others_along(name: str) -> None:
    problems = lint_pack(pack(BROKEN[name][0]), adapters())
    assert 1 <= len(problems) <= 3, "\n".join(map(str, problems))


@pytest.mark.parametrize("name", BROKEN)
def test_a_pointer_leads_into_the_pack(name: str) -> None:
    changes, where, code = BROKEN[name]
    if code in ("argument_missing", "not_a_pointer"):
        where = where.rpartition("/")[0]
    assert resolve_pointer(pack(changes).to_json(), where) is not MISSING


@pytest.mark.parametrize(
    "changes",
    [
        {f"{PAY}/arg_constraints/order_id": {"pattern": "ord_.*"}},
        {f"{LOW}/then/arg_constraints/order_id": {"pattern": "ord_.*"}},
    ],
)
def test_a_limit_of_a_secret_argument_is_refused_since_no_call_could_be_within_it(changes: dict[str, Any]) -> None:
    declared = adapters()
    (refund,) = declared["adp_payments"].capabilities
    secret = AdapterDefinition.model_validate(
        {**declared["adp_payments"].to_json(), "capabilities": [{**refund.to_json(), "secrets": ["order_id"]}]}
    )
    (place,) = changes
    assert (place, "not_enforced") not in {(one.pointer, one.code) for one in lint_pack(pack(changes), declared)}
    found = lint_pack(pack(changes), {**declared, "adp_payments": secret})
    assert (place, "not_enforced") in {(one.pointer, one.code) for one in found}


def test_without_definitions_only_what_needs_them_waits() -> None:
    waits = {
        name
        for name, (changes, where, code) in BROKEN.items()
        if (where, code) not in {(p.pointer, p.code) for p in lint_pack(pack(changes), None)}
    }
    assert waits == {
        "rule requires unknown evidence",
        "rule bounds no argument",
        "permission bounds no argument",
        "permission agrees on no argument",
        "a registered capability that nobody declares",
        "a prohibition with a slip of the pen",
        "required evidence that nobody gives",
        "a step that states another mode",
        "an unknown argument",
        "a missing argument",
        "a binding to unknown evidence",
        "a binding to no output",
        "an output of no property",
        "a subject of no evidence",
    }


def catalogs() -> tuple[Any, Any, Any]:
    layer = pack_json()["decision_layer"]
    about = {"version": "1.0.0", "tenant": "tenant_acme_prod"}
    intents = {"catalog_id": "i", **about, "intents": layer["intents"], "task_templates": layer["task_templates"]}
    specs = {"catalog_id": "d", **about, "decision_specs": layer["decision_specs"]}
    bare = pack({"/decision_layer": {"decision_specs": []}})
    return bare, parse(IntentCatalog, intents), parse(DecisionCatalog, specs)


def test_a_pack_without_intents_and_specs_takes_them_from_catalogs() -> None:
    bare, intents, specs = catalogs()
    assert lint_pack(bare, adapters()) == ()
    assert lint_merged(merge(bare, [intents, specs]), adapters()) == ()


def test_a_rule_of_a_slot_waits_for_the_catalog_that_may_declare_it() -> None:
    _, intents, specs = catalogs()
    place = f"{IDV}/applies_to/capability"
    bare = pack({"/decision_layer": {"decision_specs": []}, place: "slots.voice", f"{IDV}/then": {"allow": False}})
    assert lint_pack(bare, adapters()) == ()
    found = {(one.pointer, one.code) for one in lint_merged(merge(bare, [intents, specs]), adapters())}
    assert found == {(place, "unknown_edge")}


def test_at_the_end_nothing_is_left_for_later() -> None:
    bare, intents, _ = catalogs()
    codes = {(problem.pointer, problem.code) for problem in lint_merged(merge(bare, [intents]), adapters())}
    assert ("/policy_layer/policy_bundles/0/policy_dsl/rules/2/decision_binding", "unknown_edge") in codes
    assert ("/task_templates/task_refund_with_eligibility/decision_checkpoints/0/decision_id", "unknown_edge") in codes
    alone = {problem.pointer for problem in lint_merged(merge(bare), adapters())}
    assert "/evaluation_layer/eval_targets/0/intent" in alone


SOUND = {
    "a bound by a pattern": {f"{PAY}/arg_constraints/order_id": {"pattern": "ord_[0-9]+"}},
    "a step that requires a gate": {f"{TEMPLATE}/steps/2/requires": ["GATE_FINANCE_APPROVAL"]},
    "a rule of a slot that a template declares": {
        **DECLARED,
        f"{IDV}/applies_to/capability": "slots.voice",
        f"{IDV}/then": {"allow": False},
    },
    "a pack without a budget": {"/pack_meta/run_budget": ...},
    "a rule that prohibits": {f"{RULES_AT}/0/then/prohibits": ["adp_payments.issue_refund"]},
    "agreement with any place of a request": {
        f"{PAY}/agrees_with": {"order_id": "/session_id", "amount_inr": "/user/limits/refund", "currency": "/input"}
    },
    "a binding into the pack": {f"{TEMPLATE}/steps/0/params/order_id": bind("pack", "/business_context/summary")},
    "a binding to a dependency's output": {f"{TEMPLATE}/steps/1/params/order_id": bind("step", "/s1/order_id")},
    "a binding to evidence": {f"{TEMPLATE}/steps/2/params/order_id": bind("evidence", "/order_lookup/value/order_id")},
    "an object that is no binding": {
        f"{TEMPLATE}/steps/0/params/order_id": {"from": "Pune", "pointer": "/s9", "until": "Goa"}
    },
    "a prohibition of what no adapter here has": {"/tooling_layer/prohibitions/-": "adp_other.act"},
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_pack_has_no_finding(name: str) -> None:
    assert lint_pack(pack(SOUND[name]), adapters()) == ()


def test_a_definition_that_lost_a_capability_breaks_the_pack() -> None:
    live = adapters()
    body = live["adp_orders"].to_json()
    body["capabilities"][0]["name"] = "find"
    live["adp_orders"] = parse(AdapterDefinition, body)
    assert ("/tooling_layer/adapter_registry/0/capabilities/0", "unknown_edge") in {
        (problem.pointer, problem.code) for problem in lint_pack(pack(), live)
    }


def test_problems_are_bounded() -> None:
    steps = {f"{TEMPLATE}/steps/2/depends_on": [f"x{number}" for number in range(200)]}
    assert len(lint_pack(pack(steps), adapters())) == MAX_LINT_PROBLEMS


def test_lint_reads_and_writes_nothing() -> None:
    value, live = pack(), adapters()
    before = content_address([value.to_json(), *(one.to_json() for one in live.values())])
    lint_pack(value, live)
    assert content_address([value.to_json(), *(one.to_json() for one in live.values())]) == before
