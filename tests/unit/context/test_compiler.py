"""The eight stages, what the hash covers, and that the emitted model is the validated one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.compiler import STAGES, compile_context
from contextos.context.estimator import BYTES_DIV_4
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.verdicts import Failure
from tests.unit.context import samples

HASHED = ("compiled_prompt", "manifests", "runtime_controls", "budget_report")
ATTACHMENT = samples.ATTACHMENT


def compiled(**changes: Any) -> CompiledContext:
    return CompiledContext.model_validate(compile_context(samples.compile_input(**changes)))


def refused(**changes: Any) -> Failure:
    result = compile_context(samples.compile_input(**changes))
    assert isinstance(result, Failure)
    return result


@pytest.mark.requirement("C-STAGES")
def test_the_stages_are_those_of_the_specification_in_its_order() -> None:
    assert [name for name, _ in STAGES] == [
        "intent_classification",
        "policy_resolution",
        "tool_surfacing",
        "evidence_retrieval",
        "memory_recall",
        "token_budget_allocation",
        "bucket_assembly",
        "manifests_and_controls",
    ]
    assert [stage.__name__ for _, stage in STAGES] == [name for name, _ in STAGES]
    assert list(compiled().context_ledger.stage_digests or ()) == [name for name, _ in STAGES]


def hashed(wire: dict[str, Any]) -> dict[str, Any]:
    """What the hash covers: nothing that names the run."""
    manifests = {name: one for name, one in wire["manifests"].items() if name != "trace_context"}
    return {name: wire[name] for name in HASHED} | {"manifests": manifests}


def test_the_hash_covers_prompt_manifests_controls_and_budget_report() -> None:
    context = compiled()
    wire = context.to_json()
    assert context.context_ledger.compiled_context_hash == content_address(hashed(wire))


def test_equal_inputs_of_two_runs_have_one_hash_and_a_place_in_a_trace_each() -> None:
    one, two = (compiled(run=samples.run(run_id=run_id)) for run_id in ("run_a1b2c3d4e5f60718", "run_ffffffffffffffff"))
    assert one.context_ledger.compiled_context_hash == two.context_ledger.compiled_context_hash
    places = [str(context.to_json()["manifests"]["trace_context"]) for context in (one, two)]
    assert ["run_ffffffffffffffff" in place for place in places] == [False, True]


def test_the_hash_does_not_cover_the_ledger() -> None:
    one, two = compiled(), compiled(pack_ref="ctxpack.support@5.2.0", request=samples.request(request_id="req_other"))
    assert one.context_ledger.request_id != two.context_ledger.request_id
    assert one.context_ledger.compiled_context_hash == two.context_ledger.compiled_context_hash


@given(st.floats(0, 2**52), st.sampled_from(["amount", "betrag_é"]))
def test_the_hash_is_canonical_whatever_numbers_and_names_constraints_bring(limit: float, argument: str) -> None:
    capability = samples.capability(constraints={argument: [{"max": limit}], "other": [{"enum": [limit, None, "x"]}]})
    context = compiled(surface=[capability])
    wire = context.to_json()
    assert context.context_ledger.compiled_context_hash == content_address(hashed(wire))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evidence": [], "memory": [], "surface": [], "decisions": {}, "required_evidence": []},
        {"run": samples.run(tokens={"evidence": 150, "tool": 0, "memory": 0, "session": 1})},
        {"request": samples.request(attachments=[ATTACHMENT]), "run": samples.run(session_id=None)},
        samples.large(5, 30),
    ],
    ids=["refund", "empty", "tight", "attached and ephemeral", "many"],
)
def test_the_output_is_the_wire_form_of_a_sealed_context(changes: dict[str, Any]) -> None:
    wire = compile_context(samples.compile_input(**changes))
    assert isinstance(wire, dict)
    assert canonical(CompiledContext.sealed_from(wire).to_json()) == canonical(wire)


def test_the_ledger_indexes_everything_that_the_run_can_use() -> None:
    ledger = compiled().context_ledger
    assert (ledger.pack_ref, ledger.request_id) == ("ctxpack.support@5.2.0", "req_9f3a12")
    assert ledger.estimator == BYTES_DIV_4
    assert ledger.policy_bundles == ("POLICY_RETURNS_V4",)
    assert ledger.tools == ("adp_orders.lookup", "adp_payments.issue_refund")
    assert ledger.evidence_refs == tuple(f"kg:order:ord_{number}#snapshot_7" for number in range(1, 6))
    assert ledger.memory_refs == ("memory:m_9",)


def test_memory_that_was_dropped_is_not_in_the_ledger() -> None:
    assert compiled(run=samples.run(tokens={"memory": 0})).context_ledger.memory_refs == ()


@pytest.mark.requirement("C-EVIDENCE-MANIFEST")
def test_memory_is_no_evidence_and_answers_no_requirement() -> None:
    recalled = [samples.memory(1, name="order_lookup")]
    context = compiled(evidence=[], memory=recalled, run=samples.run(tokens={"memory": 0}))
    assert context.manifests.evidence_manifest == ()
    assert context.budget_report.dropped_block_ids == {"memory": ("mem_order_lookup",)}


@pytest.mark.requirement("C-EVIDENCE-MANIFEST")
def test_admitted_evidence_is_named_and_hashed_in_the_manifest() -> None:
    item = samples.fact(1, name="order_lookup")
    (entry,) = compiled(evidence=[item]).manifests.evidence_manifest
    assert entry.to_json() == {
        "evidence_ref": item.evidence_ref,
        "source_id": "graph",
        "hash": item.digest,
        "name": "order_lookup",
    }


@pytest.mark.requirement("C-ATTACHMENT")
def test_the_digest_of_an_attachment_is_in_the_manifest_and_its_address_nowhere() -> None:
    context = compiled(request=samples.request(attachments=[ATTACHMENT, ATTACHMENT]))
    *_, entry = context.manifests.evidence_manifest
    assert entry.to_json() == {
        "evidence_ref": f"attachment:art_receipt#sha256:{'ab' * 32}",
        "source_id": "art_receipt",
        "hash": f"sha256:{'ab' * 32}",
    }
    assert len(context.manifests.evidence_manifest) == 6
    assert entry.evidence_ref in context.context_ledger.evidence_refs
    assert b"x.test" not in canonical(context.to_json())


@pytest.mark.requirement("C-ATTACHMENT")
def test_an_attachment_that_is_not_pinned_ends_the_compile() -> None:
    loose = ATTACHMENT | {"sha256": "abcdef..."}
    assert refused(request=samples.request(attachments=[ATTACHMENT, loose])).code == "unpinned_ref"


@pytest.mark.requirement("C-INTENT")
@pytest.mark.parametrize(
    "changes",
    [
        {"run": samples.run(intent="support.other")},
        {"template": samples.template(intent="support.other")},
        {"template": samples.template(template_id="task_other")},
        {"intent": samples.intent(intent_id="support.other")},
    ],
    ids=["run", "template's intent", "template", "intent"],
)
def test_intent_run_and_template_must_agree(changes: dict[str, Any]) -> None:
    assert refused(**changes).code == "unknown_intent"


def test_a_run_whose_intent_was_classified_only_now_compiles() -> None:
    assert compiled(run=samples.run(intent=None)) == compiled()


def test_the_plain_texts_come_from_pack_and_template() -> None:
    prompt = compiled().compiled_prompt
    assert "Voice: calm and short" in prompt.system.splitlines()
    assert prompt.system.splitlines()[-4:] == ["Do:", "- name the order", "Do not:", "- blame"]
    assert "Business context: Refunds of a shop." in prompt.developer.splitlines()
    assert "- s3: adp_payments.issue_refund, destructive, after s1, requires GATE_FINANCE_APPROVAL" in prompt.task
    assert "- support.refund.execute after s1" in prompt.task


def test_a_pack_without_non_negotiables_announces_none() -> None:
    business = {"summary": "Refunds of a shop."}
    quiet = compiled(pack=samples.pack(business_context=business)).compiled_prompt
    assert "non_negotiable" in compiled().compiled_prompt.developer
    assert "non_negotiable" not in quiet.developer
    assert not any(block.bucket == "business" for block in quiet.context_blocks)


def test_the_request_is_the_session_bucket_with_or_without_a_session() -> None:
    def session(context: CompiledContext) -> list[tuple[str, tuple[str, ...]]]:
        blocks = context.compiled_prompt.context_blocks
        return [(block.block_id, block.provenance_refs) for block in blocks if block.bucket == "session"]

    for run, refs in ((samples.run(), ("session:sess_42f1",)), (samples.run(session_id=None), ())):
        assert session(compiled(run=run)) == [("request_message", refs), ("request_context", refs)]


@pytest.mark.requirement("C-TRUNCATION")
def test_blocks_are_sorted_by_bucket_then_priority_then_id() -> None:
    order = ["policy", "tool", "evidence", "memory", "business", "session"]
    blocks = compiled().compiled_prompt.context_blocks
    keys = [(order.index(block.bucket), -block.priority, block.block_id) for block in blocks]
    assert keys == sorted(keys)
    assert {block.bucket for block in blocks} == set(order)
    assert not any(block.truncated for block in blocks)
