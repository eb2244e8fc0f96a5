"""The field invariants and naming rules of "Runtime API Schemas", as far as the models alone can keep them.

Invariants 1 to 7 also need the runtime, so what is tested here of them carries no mark. The order is that of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.compiled import CompiledContext, PolicyManifestEntry, RuntimeControls
from contextos.contracts.envelopes.plan import PlanStep
from contextos.contracts.envelopes.policy import APPROVAL_MODES, Indeterminate, PolicyDecision, Rule
from contextos.contracts.envelopes.record import (
    ApprovalReceipt,
    DecisionRecord,
    Lineage,
    PolicyDecisionRef,
    ReplayPacket,
)
from contextos.contracts.envelopes.run import RunContext
from contextos.contracts.envelopes.tool import CapabilityDefinition, Idempotency, ToolCallEnvelope, ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import GateId, PolicyDecisionId, ReplayPacketId, RuleId, ToolCallId
from contextos.contracts.model import Model
from contextos.errors import InvalidEnvelope
from tests.unit.contracts.seeds import DIGEST, HEX, PACKET, completed, with_changes

CALL, RESULT = completed("tool_call_envelope"), completed("tool_result_envelope")
RECORD, COMPILED, RUN = completed("decision_record"), completed("compiled_context"), completed("run_context")

CARRIERS: list[tuple[type[Model], dict[str, Any]]] = [
    (RunContext, RUN),
    (ToolCallEnvelope, CALL),
    (ToolResultEnvelope, RESULT),
    (DecisionRecord, RECORD),
    (ReplayPacket, PACKET),
]


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: kept for key, kept in value.items() if key != name}


def refused(model: type[Model], value: Any) -> set[str]:
    """Where `parse` refuses the value; empty when it does not."""
    try:
        parse(model, value)
    except InvalidEnvelope as error:
        return {problem.pointer for problem in error.problems}
    return set()


def unsealable(model: type[Model], value: Any) -> set[str]:
    """The fields for which a wire-valid value is refused as a sealed one."""
    try:
        parse(model, value).sealed()
    except ValidationError as error:
        return {str(item["loc"][0]) for item in error.errors()}
    return set()


@pytest.mark.parametrize(("model", "value"), CARRIERS, ids=lambda part: getattr(part, "__name__", ""))
def test_an_envelope_without_the_trace_id_of_its_run_is_refused(model: type[Model], value: dict[str, Any]) -> None:
    assert value["trace_id"] == RUN["trace_id"]
    assert refused(model, value) == set()
    assert refused(model, without(value, "trace_id")) == {"/trace_id"}
    assert refused(model, value | {"trace_id": "0" * 32}) == {"/trace_id"}


def test_the_context_ledger_has_a_place_for_the_trace_id() -> None:
    kept = parse(CompiledContext, with_changes(COMPILED, {"/context_ledger/trace_id": RUN["trace_id"]})).sealed()
    assert kept.context_ledger.trace_id == RUN["trace_id"]


def test_a_safety_mode_is_one_of_the_five_and_never_absent() -> None:
    assert APPROVAL_MODES == ("read_only", "local_write", "network", "delegated", "destructive")
    for mode in APPROVAL_MODES:
        assert refused(RunContext, RUN | {"safety_mode": mode}) == set()
    for other in ("", "READ_ONLY", "admin", None, 4):
        assert refused(RunContext, RUN | {"safety_mode": other}) == {"/safety_mode"}
    assert refused(RunContext, without(RUN, "safety_mode")) == {"/safety_mode"}


def test_a_sealed_compiled_context_names_its_whole_hash_and_a_digest_per_stage() -> None:
    for field, value in (("compiled_context_hash", "sha256:9f0b..."), ("stage_digests", None), ("estimator", None)):
        loose = with_changes(COMPILED, {f"/context_ledger/{field}": value})
        assert refused(CompiledContext, loose) == set()
        assert unsealable(CompiledContext, loose) == {"context_ledger"}


def test_a_sealed_call_names_the_policy_decision_that_allows_it() -> None:
    assert unsealable(ToolCallEnvelope, without(CALL, "policy_decision_id")) == {"policy_decision_id"}
    assert unsealable(ToolCallEnvelope, CALL | {"policy_decision_id": None}) == {"policy_decision_id"}
    assert refused(ToolCallEnvelope, CALL | {"policy_decision_id": "R_REFUND"}) == {"/policy_decision_id"}


@pytest.mark.parametrize("mode", ["local_write", "destructive"])
def test_a_sealed_write_without_an_idempotency_key_is_refused(mode: str) -> None:
    modes = {f"approval_mode_{which}": mode for which in ("requested", "effective", "highest")}
    assert unsealable(ToolCallEnvelope, CALL | modes) == set()
    assert unsealable(ToolCallEnvelope, without(CALL | modes, "idempotency_key")) == {"idempotency_key"}


@pytest.mark.parametrize("mode", ["read_only", "network", "delegated"])
def test_a_sealed_call_that_may_be_a_read_needs_no_idempotency_key(mode: str) -> None:
    modes = {f"approval_mode_{which}": mode for which in ("requested", "effective", "highest")}
    assert unsealable(ToolCallEnvelope, without(CALL | modes, "idempotency_key")) == set()


def test_two_keys_for_one_act_are_refused() -> None:
    other = with_changes(CALL, {"/args/idempotency_key": "ik_aaaaaaaaaaaaaaaa"})
    assert unsealable(ToolCallEnvelope, other) == {"idempotency_key"}
    assert unsealable(ToolCallEnvelope, CALL | {"args": without(CALL["args"], "idempotency_key")}) == set()
    for bad in ("", "ik_", "ik_2X9K4J7M1Q8W0P3Z", "ik_2x9k4j7m1q8w0p3", "ik_2x9k4j7m1q8w0p3zz", " ik_2x9k4j7m1q8w0p3z"):
        assert refused(ToolCallEnvelope, CALL | {"idempotency_key": bad}) == {"/idempotency_key"}


def test_a_sealed_call_carries_the_agent_and_whom_it_acts_for() -> None:
    user, agent = CALL["principal_chain"]
    for chain in ([], [user], [agent], [agent, agent], [user, user]):
        assert unsealable(ToolCallEnvelope, CALL | {"principal_chain": chain}) == {"principal_chain"}
    for chain in ([user, agent], [user | {"kind": "automation"}, agent], [user, agent, agent]):
        assert unsealable(ToolCallEnvelope, CALL | {"principal_chain": chain}) == set()
    assert refused(ToolCallEnvelope, CALL | {"principal_chain": [user] * 33}) == {"/principal_chain"}


def test_an_effective_mode_above_the_declared_one_is_never_sealed() -> None:
    risk = {mode: number for number, mode in enumerate(APPROVAL_MODES)}
    for highest in APPROVAL_MODES:
        for effective in APPROVAL_MODES:
            call = CALL | {"approval_mode_highest": highest, "approval_mode_effective": effective}
            faulty = unsealable(ToolCallEnvelope, call) == {"approval_mode_effective"}
            assert faulty == (risk[effective] > risk[highest])


def test_a_result_without_side_effects_names_no_mutation() -> None:
    assert unsealable(ToolResultEnvelope, RESULT | {"status": "ok"}) == {"mutations"}
    assert unsealable(ToolResultEnvelope, RESULT | {"status": "ok", "mutations": []}) == set()
    assert unsealable(ToolResultEnvelope, RESULT | {"status": "completed"}) == set()


def test_the_status_of_a_result_and_its_error_agree() -> None:
    error = {"code": "tool_failed", "message": "the card was declined"}
    for status in ("ok", "completed"):
        assert unsealable(ToolResultEnvelope, RESULT | {"status": status, "mutations": [], "error": error}) == {"error"}
    for status in ("blocked", "rejected", "failed", "error"):
        assert unsealable(ToolResultEnvelope, RESULT | {"status": status}) == {"error"}
        assert unsealable(ToolResultEnvelope, RESULT | {"status": status, "error": error}) == set()
    assert refused(ToolResultEnvelope, RESULT | {"status": "done"}) == {"/status"}


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "order:ord_881",
        "kg:order:ord_881",
        "tool:issue_refund:tool_1",
        "policy:POLICY_X#GATE_FINANCE",
        "http://x/y",
        "memory:",
        "attachment:art_1#sha256",
        "artifact:art_1",
    ],
)
def test_a_record_cites_nothing_that_could_not_be_looked_up(ref: str) -> None:
    assert refused(DecisionRecord, with_changes(RECORD, {"/evidence_refs/0": ref})) == {"/evidence_refs/0"}


@pytest.mark.requirement("C-INV-8")
@pytest.mark.parametrize("payload", ["trace", "transcripts", "tool_transcripts", "entries", "evidence"])
def test_a_replay_handle_carries_no_trace_and_no_transcripts(payload: str) -> None:
    stuffed = with_changes(RECORD, {f"/replay/{payload}": []})
    assert refused(DecisionRecord, stuffed) == {f"/replay/{payload}"}
    assert unsealable(DecisionRecord, without(RECORD, "replay")) == {"replay"}


@pytest.mark.requirement("C-INV-9")
def test_a_replay_packet_declares_one_of_three_side_effect_policies() -> None:
    for policy in ("transcript_only", "sandbox", "live_disallowed"):
        assert refused(ReplayPacket, PACKET | {"side_effect_policy": policy}) == set()
    for policy in ("live", "live_allowed", "", None):
        assert refused(ReplayPacket, PACKET | {"side_effect_policy": policy}) == {"/side_effect_policy"}
    assert refused(ReplayPacket, without(PACKET, "side_effect_policy")) == {"/side_effect_policy"}


def names(kind: Any, text: str) -> bool:
    try:
        TypeAdapter(kind).validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.mark.requirement("C-NAME-1", "C-NAME-2", "C-NAME-3", "C-NAME-4", "C-NAME-5")
def test_each_kind_of_name_is_taken_for_no_other() -> None:
    kinds: dict[str, Any] = {
        "R_HIGH_VALUE_REQUIRES_APPROVAL": RuleId,
        "GATE_FINANCE_APPROVAL": GateId,
        "pol_9901": PolicyDecisionId,
        "tool_118": ToolCallId,
        "rp_17": ReplayPacketId,
    }
    for text, own in kinds.items():
        assert [kind for kind in kinds.values() if names(kind, text)] == [own]
    for bad in ("", "R_", "r_high", "R-HIGH", "GATE_", "Gate_x", "pol_", "POL_1", "tool_", "tc_117", "rp_", "R_X\n"):
        assert not any(names(kind, bad) for kind in kinds.values())


def rule_id_places() -> Iterator[tuple[str, type[Model], dict[str, Any]]]:
    """Every model that holds rule ids, with the gate's id where a rule's belongs."""
    gate = "GATE_FINANCE_APPROVAL"
    decision = {
        "policy_decision_id": f"pol_{HEX}",
        "point": "execute",
        "capability_id": None,
        "allowed": False,
        "reason": "denied_by_rule",
        "facts_digest": DIGEST,
    }
    yield "/rule_id", Rule, {"rule_id": gate, "if": True, "then": {"allow": True}}
    yield "/rule_id", Indeterminate, {"rule_id": gate, "facts": []}
    yield "/rule_ids/0", PolicyManifestEntry, {"bundle_id": "POLICY_RETURNS_V4", "rule_ids": [gate]}
    yield "/rule_ids/0", PolicyDecisionRef, {"policy_decision_id": f"pol_{HEX}", "rule_ids": [gate]}
    yield "/rule_ids/0", Failure, {"code": "policy_denied", "detail": "", "rule_ids": [gate]}
    for field in ("matched_rule_ids", "denying_rule_ids", "passed_over", "observed"):
        yield f"/{field}/0", PolicyDecision, decision | {field: [gate]}
    policy_ref = {"/evidence_refs/0": f"policy:POLICY_RETURNS_V4#{gate}"}
    yield "/evidence_refs/0", DecisionRecord, with_changes(RECORD, policy_ref)


@pytest.mark.requirement("C-NAME-6")
@pytest.mark.parametrize(("place", "model", "value"), list(rule_id_places()))
def test_a_gate_id_is_refused_where_a_rule_id_belongs(place: str, model: type[Model], value: dict[str, Any]) -> None:
    assert refused(model, value) == {place}
    as_rule = with_changes(value, {place: str(value_at(value, place)).replace("GATE_", "R_")})
    assert refused(model, as_rule) == set()


def value_at(value: Any, place: str) -> Any:
    for step in place.split("/")[1:]:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


@pytest.mark.requirement("C-NAME-2", "C-NAME-6")
def test_a_rule_id_is_refused_where_a_gate_id_belongs() -> None:
    rule = "R_HIGH_VALUE_REQUIRES_APPROVAL"
    then = {"allow": True, "requires_approval_gate": rule}
    assert refused(Rule, {"rule_id": rule, "if": True, "then": then}) == {"/then/requires_approval_gate"}
    step = {"id": "s3", "tool": "adp_payments.issue_refund", "approval_mode": "destructive", "requires": [rule]}
    assert refused(PlanStep, step) == {"/requires/0"}
    assert refused(ApprovalReceipt, RECORD["approvals"][0] | {"gate_id": rule}) == {"/gate_id"}
    controls = RECORD["controls_active"] | {"approval_gates_active": [rule]}
    assert refused(RuntimeControls, controls) == {"/approval_gates_active/0"}


@pytest.mark.requirement("C-NAME-4")
def test_the_runtime_never_writes_a_call_id_of_the_old_kind() -> None:
    assert refused(ToolCallEnvelope, CALL | {"tool_call_id": "tc_117"}) == {"/tool_call_id"}
    cited = with_changes(RECORD, {"/evidence_refs/1": "tool:adp_orders.lookup:tc_117"})
    assert refused(DecisionRecord, cited) == set()
    assert unsealable(DecisionRecord, cited) == {"evidence_refs"}


@pytest.mark.requirement("C-NAME-7")
def test_a_routing_decision_is_no_decision_record() -> None:
    route = f"route_{HEX}"
    assert refused(DecisionRecord, RECORD | {"record_id": route}) == {"/record_id"}
    as_policy = with_changes(RECORD, {"/policy_decisions/0/policy_decision_id": route})
    assert refused(DecisionRecord, as_policy) == {"/policy_decisions/0/policy_decision_id"}
    lineage = RECORD["lineage"] | {"routing_decisions": [route]}
    assert refused(Lineage, lineage) == set()
    assert refused(Lineage, RECORD["lineage"] | {"routing_decisions": ["pol_9901"]}) == {"/routing_decisions/0"}


def test_an_allowed_destructive_decision_without_a_gate_is_never_sealed() -> None:
    decision = {
        "policy_decision_id": f"pol_{HEX}",
        "point": "execute",
        "capability_id": "adp_payments.issue_refund",
        "allowed": True,
        "reason": "allowed",
        "effective_approval_mode": "destructive",
        "facts_digest": DIGEST,
    }
    assert unsealable(PolicyDecision, decision) == {"gates"}
    assert unsealable(PolicyDecision, decision | {"gates": ["GATE_FINANCE_APPROVAL"]}) == set()
    assert unsealable(PolicyDecision, decision | {"allowed": False}) == set()
    assert unsealable(PolicyDecision, decision | {"effective_approval_mode": "delegated"}) == set()


def test_a_decided_record_without_an_outcome_is_never_sealed() -> None:
    assert unsealable(DecisionRecord, without(RECORD, "outcome")) == {"outcome"}
    assert unsealable(DecisionRecord, without(RECORD, "outcome") | {"status": "DEFERRED"}) == set()


def test_a_result_states_no_artifacts_because_nothing_would_come_of_them() -> None:
    assert parse(ToolResultEnvelope, RESULT).artifacts == ()
    with pytest.raises(InvalidEnvelope, match="/artifacts"):
        parse(ToolResultEnvelope, with_changes(RESULT, {"/artifacts": [{"ref": "artifact:a#rev_1"}]}))


@pytest.mark.parametrize(
    ("kind", "produces", "expected"),
    [("write", (), "act"), ("read", ("order_known",), "verify"), ("read", (), "observe")],
)
def test_the_class_of_a_capability_says_what_a_call_is_for(kind: Any, produces: tuple[str, ...], expected: str) -> None:
    risk: Any
    mode: Any
    risk, mode = ("write_reversible", "local_write") if kind == "write" else ("read", "read_only")
    made = CapabilityDefinition(
        name="call",
        kind=kind,
        risk_level=risk,
        approval_mode=mode,
        input_schema={"type": "object"},
        output_schema={"type": "object"},
        idempotency=Idempotency(strategy="none"),
        produces=produces,
    )
    assert made.capability_class == expected
