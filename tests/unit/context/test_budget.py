"""Budgets of a whole compile: what is dropped, what never is, and what the report says of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from contextos.context.compiler import compile_context
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.run import BUCKETS
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import MAX_TEXT_CHARS
from tests.unit.context import samples

FACT_TOKENS = math.ceil(
    len('{"evidence_ref":"kg:order:ord_4#snapshot_7","predicate":"status","subject":"order:ord_4","value":"delivered"}')
    / 4
)


def compiled(**changes: Any) -> CompiledContext:
    return CompiledContext.model_validate(compile_context(samples.compile_input(**changes)))


def ids(context: CompiledContext, bucket: str) -> list[str]:
    return [block.block_id for block in context.compiled_prompt.context_blocks if block.bucket == bucket]


def test_with_room_for_all_nothing_is_dropped() -> None:
    context = compiled()
    assert context.budget_report.dropped_block_ids == {}
    assert context.budget_report.warnings == ()
    assert context.manifests.omissions == ()
    assert context.budget_report.tokens_allocated == samples.BUCKET_TOKENS


def test_used_tokens_are_those_of_the_kept_blocks_and_the_frame() -> None:
    context = compiled()
    count = samples.BytesDiv4().count
    prompt, report = context.compiled_prompt, context.budget_report
    expected = dict.fromkeys(BUCKETS, 0)
    for block in prompt.context_blocks:
        expected[block.bucket] += count(block.content)
    expected["business"] += count(prompt.system) + count(prompt.developer) + count(prompt.task)
    assert report.tokens_used_by_bucket == expected
    assert report.tokens_used_at_compile == sum(expected.values())
    assert context.context_ledger.budget.tokens_used_at_compile == report.tokens_used_at_compile


@pytest.mark.requirement("C-TRUNCATION")
def test_a_dropped_block_is_listed_in_every_place_that_must_name_it() -> None:
    facts = [samples.fact(number, hop=number % 3) for number in range(1, 7)]
    context = compiled(evidence=facts, required_evidence=[], run=samples.run(tokens={"evidence": 4 * FACT_TOKENS + 3}))
    dropped = context.budget_report.dropped_block_ids["evidence"]
    assert len(dropped) == 2
    assert context.budget_report.bucket_truncations == {"evidence": True}
    assert context.budget_report.warnings == ("evidence bucket exceeded budget; dropped 2 low-priority blocks",)
    assert context.context_ledger.budget.truncated_buckets == ("evidence",)
    assert [omission.to_json() for omission in context.manifests.omissions] == [
        {
            "block_id": block_id,
            "bucket": "evidence",
            "reason": "over_budget",
            "estimated_tokens": FACT_TOKENS,
            "priority": 300,
        }
        for block_id in dropped
    ]
    assert not set(dropped) & set(ids(context, "evidence"))


@pytest.mark.requirement("C-EVIDENCE-MANIFEST")
def test_dropped_evidence_is_in_no_manifest_and_no_ledger() -> None:
    keep, drop = samples.fact(1, hop=0), samples.fact(2, hop=2)
    context = compiled(evidence=[drop, keep], required_evidence=[], run=samples.run(tokens={"evidence": FACT_TOKENS}))
    assert [entry.evidence_ref for entry in context.manifests.evidence_manifest] == [keep.evidence_ref]
    assert context.context_ledger.evidence_refs == (keep.evidence_ref,)


def test_a_smaller_block_after_one_that_does_not_fit_may_still_fit() -> None:
    big, small = samples.fact(1, hop=0, value="x" * 400), samples.fact(2, hop=3)
    context = compiled(evidence=[big, small], required_evidence=[], run=samples.run(tokens={"evidence": FACT_TOKENS}))
    assert context.context_ledger.evidence_refs == (small.evidence_ref,)


@pytest.mark.requirement("C-BUCKETS")
def test_unused_tokens_of_one_bucket_are_not_lent_to_another() -> None:
    run = samples.run(tokens={"evidence": 0, "memory": 100_000}, total=200_000)
    context = compiled(required_evidence=[], run=run)
    assert ids(context, "evidence") == []
    assert len(context.budget_report.dropped_block_ids["evidence"]) == 5
    assert context.budget_report.tokens_allocated["memory"] == 100_000


@pytest.mark.requirement("C-BUCKETS")
def test_a_total_below_the_buckets_shrinks_them_all() -> None:
    context = compiled(run=samples.run(total=6000))
    assert context.budget_report.tokens_allocated == {name: value // 2 for name, value in samples.BUCKET_TOKENS.items()}


@pytest.mark.requirement("C-REQUIRED")
@pytest.mark.parametrize("bucket", ["policy", "evidence", "business"])
def test_required_blocks_that_do_not_fit_end_the_compile(bucket: str) -> None:
    failure = compile_context(samples.compile_input(run=samples.run(tokens={bucket: 3})))
    assert isinstance(failure, Failure)
    assert failure.code == "budget_exhausted"
    assert f"`{bucket}`" in failure.detail


@pytest.mark.requirement("C-REQUIRED")
def test_non_negotiables_are_required_beside_the_frame() -> None:
    fits = compiled().budget_report.tokens_used_by_bucket["business"]
    assert "non_negotiable_2" in ids(compiled(run=samples.run(tokens={"business": fits})), "business")
    failure = compile_context(samples.compile_input(run=samples.run(tokens={"business": fits - 1})))
    assert isinstance(failure, Failure)
    assert failure.code == "budget_exhausted"


@pytest.mark.parametrize("bucket", ["tool", "memory", "session"])
def test_a_bucket_without_required_blocks_may_be_empty(bucket: str) -> None:
    context = compiled(run=samples.run(tokens={bucket: 0}))
    assert ids(context, bucket) == []
    assert context.budget_report.bucket_truncations == {bucket: True}


@pytest.mark.requirement("C-REQUIRED")
def test_required_evidence_is_kept_before_any_nearer_fact() -> None:
    required = samples.fact(1, name="order_lookup", hop=4)
    near = [samples.fact(number, hop=0) for number in range(2, 9)]
    name = len(',"name":"order_lookup"')
    run = samples.run(tokens={"evidence": FACT_TOKENS + math.ceil(name / 4)})
    context = compiled(evidence=[*near, required], required_evidence=["order_lookup"], run=run)
    assert ids(context, "evidence") == ["ev_order_lookup"]


@pytest.mark.requirement("C-REQUIRED")
def test_every_answer_to_a_required_name_is_required() -> None:
    two = [samples.fact(1, name="order_lookup"), samples.fact(2, name="order_lookup")]
    run = samples.run(tokens={"evidence": FACT_TOKENS + 20})
    failure = compile_context(samples.compile_input(evidence=two, required_evidence=["order_lookup"], run=run))
    assert isinstance(failure, Failure)
    assert failure.code == "budget_exhausted"


def test_a_required_name_nothing_answers_is_not_the_compilers_to_refuse() -> None:
    assert ids(compiled(required_evidence=["policy_decision"], evidence=[]), "evidence") == []


def test_a_tool_whose_description_does_not_fit_stays_in_the_manifest() -> None:
    context = compiled(run=samples.run(tokens={"tool": 0}))
    assert [entry.adapter_id for entry in context.manifests.tool_manifest] == ["adp_orders", "adp_payments"]


def test_a_block_longer_than_the_contract_allows_is_dropped_however_large_the_bucket() -> None:
    monster = samples.fact(1, value="x" * MAX_TEXT_CHARS)
    run = samples.run(tokens={"evidence": 10_000_000})
    context = compiled(evidence=[monster], required_evidence=[], run=run)
    assert ids(context, "evidence") == []
    assert len(context.budget_report.dropped_block_ids["evidence"]) == 1
    named = samples.fact(1, name="order_lookup", value="x" * MAX_TEXT_CHARS)
    failure = compile_context(samples.compile_input(evidence=[named], run=run))
    assert isinstance(failure, Failure)
    assert "`ev_order_lookup` is longer" in failure.detail


def test_more_facts_than_the_contract_holds_are_refused() -> None:
    one = samples.fact(1)
    failure = compile_context(samples.compile_input(evidence=[one] * 8_001))
    assert isinstance(failure, Failure)
    assert failure.code == "budget_exhausted"
