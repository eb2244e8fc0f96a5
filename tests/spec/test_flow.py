"""How It Works, step by step: the request as it stands, its gate, the answer of the finance lead, and the record, with
the ids, rules, gates and shapes of the specification's documents. Two of its parts have other names here; see
`docs/design/specification.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.http_face import LEAD, TENANT, HttpFace, http_face
from tests.spec.test_seeds import kept, shows_the_flow
from tests.spec.whole import whole_envelopes

FACT = "kg:customer:cus_77"
"""The page names the order; what the graph says, and rules read, is about the customer who placed it."""
RULE = "#R_HIGH_VALUE_REQUIRES_APPROVAL"


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The run of the minimal request to its end, as its callers and its approver see it over HTTP."""
    with http_face(tmp_path_factory.mktemp("flow")) as face:
        sent = face.send("POST", "/v1/runs", json=kept("invoke_agent_minimal"))
        told = json.loads(sent.text.strip().splitlines()[-1].removeprefix("data: "))["value"]
        run = told["run_id"]
        early = face.send("GET", f"/v1/runs/{run}/decision")
        waiting = {"state": told["state"], "entries": entries(face, run)}
        answer = face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run))
        ended = face.ended(run)
        yield {
            "waiting": waiting,
            "early": early.status_code,
            "answer": answer.status_code,
            "ended": ended,
            "record": face.send("GET", f"/v1/runs/{run}/record").json(),
            "output": face.send("GET", f"/v1/runs/{run}/decision").json(),
            "entries": entries(face, run),
        }


def entries(face: HttpFace, run: str) -> list[tuple[str, str, Any]]:
    read = face.call(face.app.deployment.ports.stores.tenant(TENANT).read(run))
    return [(one.kind, one.key, json.loads(one.body)) for one in read]


def envelopes(flow: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return whole_envelopes(flow["entries"], kind)


def pieces(refs: list[str]) -> set[str]:
    """References without what differs in each run: the snapshot, and the id of the call."""
    return {one.partition("#")[0] if one.startswith("kg:") else ":".join(one.split(":")[:2]) for one in refs}


def test_steps_1_to_4_are_those_of_the_page(flow: dict[str, Any]) -> None:
    shows_the_flow(flow["waiting"])
    assert flow["early"] == 409, "nothing was decided before the answer"


def test_step_5_each_call_is_made_once_and_the_refund_only_after_the_answer(flow: dict[str, Any]) -> None:
    before, calls = (
        [body["envelope"]["capability_id"] for kind, _, body in entries if kind == "tool.dispatching"]
        for entries in (flow["waiting"]["entries"], flow["entries"])
    )
    assert before == ["adp_orders.lookup", "adp_policy.eval"]
    assert calls == [*before, "adp_payments.issue_refund"]
    assert flow["answer"] == 200


def test_the_envelopes_of_the_refund_have_the_members_and_values_of_the_page(flow: dict[str, Any]) -> None:
    shown, ours = kept("tool_call_envelope"), envelopes(flow, "tool.dispatching")["adp_payments.issue_refund"]
    assert shown.keys() <= ours.keys()
    same = ("envelope_version", "trace_id", "session_id", "capability_id", "principal_chain")
    modes = ("approval_mode_requested", "approval_mode_effective", "approval_mode_highest")
    for name in (*same, *modes):
        assert ours[name] == shown[name], name
    assert {name: ours["args"][name] for name in shown["args"] if name != "idempotency_key"} == {
        name: value for name, value in shown["args"].items() if name != "idempotency_key"
    }
    assert FACT in pieces(ours["evidence_refs"])
    assert any(one.startswith("policy:") and one.endswith(RULE) for one in ours["evidence_refs"])
    shown, result = kept("tool_result_envelope"), envelopes(flow, "tool.returned")["adp_payments.issue_refund"]
    assert shown.keys() <= result.keys()
    assert (result["status"], result["error"], result["risk_tags"]) == ("completed", None, ["destructive"])
    assert result["policy_decision_id"] == ours["policy_decision_id"]


def test_step_6_the_record_is_that_of_the_page(flow: dict[str, Any]) -> None:
    for shown in (kept("decision_record"), kept("decision_record_how_it_works")):
        ours = flow["record"]
        assert shown.keys() <= ours.keys()
        for name in ("decision_key", "decision_version", "status", "actor", "trace_id"):
            assert ours[name] == shown[name], name
        assert pieces(shown["evidence_refs"]) - {"kg:order:ord_881"} | {FACT} <= pieces(ours["evidence_refs"])
        rules = {rule for one in shown["policy_decisions"] for rule in one["rule_ids"]}
        assert rules <= {rule for one in ours["policy_decisions"] for rule in one["rule_ids"]}
        [receipt], [approval] = ours["approvals"], shown["approvals"]
        for name in ("gate_id", "approver", "approval_mode_effective"):
            assert receipt[name] == approval[name]
        assert approval.keys() <= receipt.keys()
        assert ours["controls_active"].keys() >= shown["controls_active"].keys()
        assert ours["controls_active"]["approval_gates_active"] == ["GATE_FINANCE_APPROVAL"]
        assert ours["budget_usage"].keys() >= shown["budget_usage"].keys()
    chain = kept("decision_record")["agent_identity"]["principal_chain"]
    assert flow["record"]["agent_identity"]["principal_chain"] == chain
    assert set(kept("decision_record")["subject_ids"]) <= set(flow["record"]["subject_ids"])
    assert flow["record"]["intent_ref"] == "support.refund"


def test_the_decision_output_is_the_short_form_of_the_record(flow: dict[str, Any]) -> None:
    shown, ours = kept("decision_output"), flow["output"]
    assert ours.keys() == shown.keys()
    assert (ours["decision_id"], ours["outcome"]) == (shown["decision_id"], shown["outcome"])
    assert FACT in pieces(ours["evidence_refs"])
    assert any(one.startswith("policy:") and one.endswith(RULE) for one in ours["evidence_refs"])
    assert set(flow["record"]["evidence_refs"]) <= set(ours["evidence_refs"])


def test_step_7_what_the_run_proposes_to_remember_waits_for_review(flow: dict[str, Any]) -> None:
    proposed = [body for kind, _, body in flow["entries"] if kind == "memory.proposed"]
    assert proposed
