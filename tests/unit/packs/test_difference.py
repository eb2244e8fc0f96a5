"""Two packs differ in the fields that changed, whatever their order."""

from __future__ import annotations

from contextos.contracts.encoding.pointer import MISSING
from contextos.packs.difference import pack_changes
from tests.unit.packs.deploying import expanded


def test_equal_packs_do_not_differ() -> None:
    assert pack_changes(expanded().document, expanded().document) == []


def test_a_change_is_named_by_ids_and_conditions_are_text() -> None:
    before = expanded(deny=[{"when": "args.service == 'a'"}]).document
    after = expanded(deny=[{"when": "args.service == 'b'"}], approver="lead").document
    rules = "/policy_layer/policy_bundles/POLICY_DEPLOY/policy_dsl/rules"
    changes = {one.at: (one.before, one.after) for one in pack_changes(before, after)}
    assert changes[f"{rules}/R_DEPLOY_CHANGE_DEPLOY_SCALE_DENY_1/if"] == ('args.service == "a"', 'args.service == "b"')
    gate = "/policy_layer/approval_gates/GATE_DEPLOY_CHANGE_DEPLOY_SCALE_ASK/required_approver_role"
    assert changes[gate] == ("approver", "lead")


def test_another_order_is_no_change_and_a_rule_that_is_gone_is() -> None:
    before = expanded(deny=[{"when": "args.service == 'a'"}]).document
    rules = before["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    turned = expanded(deny=[{"when": "args.service == 'a'"}]).document
    turned["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].reverse()
    assert pack_changes(before, turned) == []
    gone = [one for one in pack_changes(before, expanded().document) if one.after is MISSING]
    assert {one.at.split("/")[6] for one in gone} == {one["rule_id"] for one in rules if "DENY" in one["rule_id"]}
