"""Compile the context of a run in eight stages (the Context Pack Compiler).

The compiler is pure: it uses no I/O, no clock, no randomness and no global state. Sets, mappings and unordered
sequences are sorted, so equal inputs give equal bytes whatever the order, locale, time zone or hash seed. A stage reads
the inputs and the products of earlier stages, and returns plain JSON; only its blocks have a second form. A stage's
digest covers everything that later stages take from it, so the first digest that differs in a replay names the stage
that drifted. The parts of the first three stages that no request changes are made once (`context.basis`).
Source: How It Works, step 2; docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from contextos.context.basis import Basis, basis_key, basis_of
from contextos.context.blocks import (
    PRIORITY_DEFAULT,
    JsonObject,
    evidence_entry,
    evidence_priority,
    fact_block,
    identified,
)
from contextos.context.budget import Shelf, allocate, budget_report, omissions, pack_blocks
from contextos.context.inputs import CompileInput
from contextos.context.sources import attachment_entries, session_blocks
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.redacted import REDACTION_TARGETS, redacted_places
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.envelopes.compiled import RecordedLedger
from contextos.contracts.envelopes.run import Bucket
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.refs import EVIDENCE
from contextos.contracts.trace import manifest_headers

TEXT_BUCKET: Final = "business"
"""The bucket that pays for the system, developer and task texts, before any block."""

MAX_FACTS: Final = 8_000
"""The most facts in one compile. Facts and the blocks of all other sources then fit the contract's list limits."""

IN_STAGE_ORDER: Final[tuple[Bucket, ...]] = ("business", "session", "policy", "tool", "evidence", "memory")
"""The buckets in the order in which the first five stages fill them."""


@dataclass(slots=True)
class Compile:
    """One compile. `basis` does not depend on the request. `products` are the results of the stages that already ran,
    by stage name, and `shelves` hold the blocks of these products, by bucket.
    """

    inputs: CompileInput
    basis: Basis
    products: dict[str, JsonObject] = field(default_factory=dict)
    shelves: dict[Bucket, Shelf] = field(default_factory=dict)

    def blocks(self) -> list[JsonObject]:
        """Return the blocks of the first five stages, in stage order."""
        result: list[JsonObject] = []
        for bucket in IN_STAGE_ORDER:
            result += self.shelves[bucket].blocks
        return result


CompileStage = Callable[[Compile], JsonObject | Failure]


def compile_context(inputs: CompileInput, kept: RecentlyUsed[Basis] | None = None) -> JsonObject | Failure:
    """Compile what the model can see and use in this run: a `CompiledContext` in its wire form, or a failure. `kept`
    holds the parts that compiles under the same pins share, so a caller must not change the returned object.

    The failure codes: `unknown_intent`; `unpinned_ref` (an attachment without its full digest); `policy_eval_error` (a
    rule matched that belongs to no bundle in force); `budget_exhausted` (the required blocks do not fit).
    """
    kept, key = kept or RecentlyUsed(), basis_key(inputs)
    basis = kept.get(key) or kept.keep(key, basis_of(inputs))
    compile, digests = Compile(inputs, basis), dict[str, str]()
    products, shared_digests = compile.products, basis.digests
    for name, stage in STAGES:
        product = stage(compile)
        if isinstance(product, Failure):
            return product
        products[name] = product
        digests[name] = shared_digests[name] if name in shared_digests else content_address(product)
    body = products["manifests_and_controls"]
    manifests = {**body["manifests"], "trace_context": _trace(inputs)}
    ledger = _ledger(body, products["memory_recall"]["blocks"], digests, inputs)
    return {**body, "manifests": manifests, "context_ledger": ledger}


def intent_classification(compile: Compile) -> JsonObject | Failure:
    """Stage 1: check that intent, template and run agree; write the prompt's texts and the business and session
    blocks.
    """
    task, basis = compile.inputs.task, compile.basis
    intent, template, run = task.intent, task.template, task.run
    if run.intent not in (None, intent.intent_id) or template.intent != intent.intent_id:
        detail = f"intent `{intent.intent_id}` is not the intent of the run and of template `{template.template_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; classify the request again")
    if template.template_id not in intent.eligible_task_templates:
        detail = f"template `{template.template_id}` is not eligible for intent `{intent.intent_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; select a template that the catalog lists for it")
    attachments = attachment_entries(task.request) if task.request.attachments else []
    for entry in attachments:
        if not EVIDENCE.fits(entry["evidence_ref"], sealed=True):
            detail = f"attachment `{entry['source_id']}` is not pinned by an artifact id and a full SHA-256 digest"
            return Failure(code="unpinned_ref", detail=f"{detail}; send 64 hex digits")
    session = session_blocks(task.request, run.session_id, compile.inputs.pack.pack)
    compile.shelves["business"] = business = basis.shelves["business"]
    compile.shelves["session"] = Shelf.of(session, (), compile.inputs.estimator.count)
    return {
        **basis.texts,
        "attachments": attachments,
        "blocks": [*business.blocks, *session],
        "required": [item["block_id"] for item in business.blocks],
    }


def policy_resolution(compile: Compile) -> JsonObject | Failure:
    """Stage 2: list the policy bundles and rules that made the policy decisions, and the controls that follow from
    these decisions.
    """
    if not isinstance(compile.basis.policy, Failure):
        compile.shelves["policy"] = compile.basis.shelves["policy"]
    return compile.basis.policy


def tool_surfacing(compile: Compile) -> JsonObject | Failure:
    """Stage 3: list the tools that registry, permissions, policy, mode ceiling and lifecycle all allow.

    Every registered tool is reported with the reason why it is listed or not.
    """
    compile.shelves["tool"] = compile.basis.shelves["tool"]
    return compile.basis.tools


def evidence_retrieval(compile: Compile) -> JsonObject | Failure:
    """Stage 4: sort the retrieved evidence, drop duplicates, and build its blocks and manifest entries."""
    knowledge, required = compile.inputs.knowledge, frozenset(compile.inputs.knowledge.required_evidence)
    if len(knowledge.evidence) + len(knowledge.memory) > MAX_FACTS:
        detail = f"more than {MAX_FACTS} facts were retrieved and recalled; lower the pack's limits"
        return Failure(code="budget_exhausted", detail=detail)
    required_ids, digests = list[str](), knowledge.required_digests
    blocks, manifest = list[JsonObject](), list[JsonObject]()
    for block_id, item in identified(knowledge.evidence, "ev_"):
        is_required = item.name in required
        blocks.append(fact_block(block_id, "evidence", item, evidence_priority(item, is_required)))
        manifest.append(evidence_entry(item))
        if is_required or item.digest in digests:
            required_ids.append(block_id)
    compile.shelves["evidence"] = Shelf.of(blocks, frozenset(required_ids), compile.inputs.estimator.count)
    return {"blocks": blocks, "manifest": manifest, "required": required_ids}


def memory_recall(compile: Compile) -> JsonObject | Failure:
    """Stage 5: sort the recalled memories, drop duplicates, and build their blocks. No memory is ever required."""
    items = identified(compile.inputs.knowledge.memory, "mem_")
    blocks = [fact_block(block_id, "memory", item, PRIORITY_DEFAULT) for block_id, item in items]
    compile.shelves["memory"] = Shelf.of(blocks, (), compile.inputs.estimator.count)
    return {"blocks": blocks, "required": []}


def token_budget_allocation(compile: Compile) -> JsonObject | Failure:
    """Stage 6: set the token limit of each bucket (part of the prompt), and count the tokens of each text."""
    tokens: list[int] = []
    for bucket in IN_STAGE_ORDER:
        tokens += compile.shelves[bucket].tokens
    return {
        "estimator": compile.inputs.estimator.name,
        "allocated": allocate(compile.inputs.task.run.run_budget),
        "frame": compile.basis.frame,
        "tokens": tokens,
    }


def bucket_assembly(compile: Compile) -> JsonObject | Failure:
    """Stage 7: choose the blocks that fit their buckets. A block that does not fit is dropped whole and listed."""
    budget = compile.products["token_budget_allocation"]
    packing = pack_blocks(compile.shelves, budget["allocated"], {TEXT_BUCKET: budget["frame"]})
    if isinstance(packing, Failure):
        return packing
    blocks = compile.blocks() if packing.dropped else ()
    return {
        "kept": packing.kept,
        "budget_report": budget_report(blocks, budget["allocated"], packing),
        "omissions": omissions(blocks, budget["tokens"], packing),
    }


def manifests_and_controls(compile: Compile) -> JsonObject | Failure:
    """Stage 8: build the compiled context without its ledger and its trace headers, which name the run. The digest of
    this stage is the `compiled_context_hash`, so equal inputs have equal hashes.
    """
    products, inputs = compile.products, compile.inputs
    texts, assembly = products["intent_classification"], products["bucket_assembly"]
    blocks = compile.blocks()
    kept_blocks = [blocks[index] for index in assembly["kept"]]
    facts, dropped = products["evidence_retrieval"], assembly["budget_report"]["dropped_block_ids"].get("evidence", ())
    attached_refs = {entry["evidence_ref"] for entry in texts["attachments"]}
    evidence_entries = facts["manifest"]
    if dropped or attached_refs:
        evidence_entries = [
            entry
            for item, entry in zip(facts["blocks"], evidence_entries, strict=True)
            if item["block_id"] not in dropped and entry["evidence_ref"] not in attached_refs
        ]
    return {
        "compiled_prompt": {
            "system": texts["system"],
            "developer": texts["developer"],
            "task": texts["task"],
            "context_blocks": kept_blocks,
        },
        "manifests": {
            "policy_manifest": products["policy_resolution"]["manifest"],
            "tool_manifest": products["tool_surfacing"]["manifest"],
            "evidence_manifest": [*evidence_entries, *texts["attachments"]],
            "omissions": assembly["omissions"],
            "surface_report": products["tool_surfacing"]["report"],
            "redactions": _redactions(inputs),
        },
        "runtime_controls": products["policy_resolution"]["controls"],
        "budget_report": assembly["budget_report"],
    }


def _redactions(inputs: CompileInput) -> list[JsonObject]:
    """Return each redacted place in everything that this compile could see, with the rules that redacted it."""
    active = sorted(set(inputs.pack.pack.policy_layer.guardrails.redaction_rules))
    values = [("request", inputs.task.request.to_json())]
    values += [(item.evidence_ref, item.value) for item in (*inputs.knowledge.evidence, *inputs.knowledge.memory)]
    if not redacted_places([value for _, value in values]):
        return []
    return [
        {
            "place": f"{source}:{place}",
            "kinds": kinds,
            "rules": [rule for rule in active if REDACTION_TARGETS.get(rule) in kinds],
        }
        for source, value in values
        for place, kinds in redacted_places(value).items()
    ]


def _trace(inputs: CompileInput) -> JsonObject:
    """Return the trace headers of the run: its place in the caller's trace, and baggage that identifies the run."""
    trace, run = inputs.task.request.trace, inputs.task.run
    # A run is named after the last decision of its template.
    decisions = [point.decision_id for point in inputs.task.template.decision_checkpoints]
    identifiers = {"session_id": run.session_id, "decision_id": decisions[-1] if decisions else None}
    baggage = {name: value for name, value in identifiers.items() if value} | {"run_id": run.run_id}
    return manifest_headers(trace, {"tenant": run.tenant_id, "ctxpack": inputs.pack.pack_ref}, baggage)


STAGES: Final[tuple[tuple[str, CompileStage], ...]] = (
    ("intent_classification", intent_classification),
    ("policy_resolution", policy_resolution),
    ("tool_surfacing", tool_surfacing),
    ("evidence_retrieval", evidence_retrieval),
    ("memory_recall", memory_recall),
    ("token_budget_allocation", token_budget_allocation),
    ("bucket_assembly", bucket_assembly),
    ("manifests_and_controls", manifests_and_controls),
)


def recorded_context(compiled: JsonObject) -> JsonObject:
    """Return the part of a compiled context that an entry records if only the template planner reads the context: a
    `RecordedContext`.
    """
    manifests = compiled["manifests"]
    recorded_manifests = {
        "policy_manifest": manifests["policy_manifest"],
        "omissions": manifests["omissions"],
        "surface_report": [tool for tool in manifests["surface_report"] if not tool["surfaced"]],
        "redactions": manifests["redactions"],
    }
    report, ledger = compiled["budget_report"], compiled["context_ledger"]
    recorded = {name: value for name, value in ledger.items() if name in RecordedLedger.model_fields}
    digests = {name: value for name, value in ledger["stage_digests"].items() if name != "manifests_and_controls"}
    return {
        "manifests": {name: entries for name, entries in recorded_manifests.items() if entries},
        "runtime_controls": compiled["runtime_controls"],
        "budget_report": {name: value for name, value in report.items() if name != "tokens_allocated"},
        "context_ledger": recorded | {"stage_digests": digests},
    }


def _ledger(
    body: JsonObject, memory: Sequence[JsonObject], digests: Mapping[str, str], inputs: CompileInput
) -> JsonObject:
    """Return the ledger of a compiled context. `body` is the product of the last stage, whose digest is the
    `compiled_context_hash`. `memory` are the blocks of the recalled memories.
    """
    report, manifests = body["budget_report"], body["manifests"]
    dropped = report["dropped_block_ids"].get("memory", ())
    return {
        "policy_bundles": [entry["bundle_id"] for entry in manifests["policy_manifest"]],
        "tools": [entry["capability_id"] for entry in manifests["surface_report"] if entry["surfaced"]],
        "evidence_refs": sorted({entry["evidence_ref"] for entry in manifests["evidence_manifest"]}),
        "memory_refs": sorted({block["provenance_refs"][0] for block in memory if block["block_id"] not in dropped}),
        "budget": {
            "tokens_used_at_compile": report["tokens_used_at_compile"],
            "truncated_buckets": list(report["bucket_truncations"]),
        },
        "pack_ref": inputs.pack.pack_ref,
        "request_id": inputs.task.request.request_id,
        "trace_id": inputs.task.run.trace_id,
        "estimator": inputs.estimator.name,
        "stage_digests": digests,
        "compiled_context_hash": digests["manifests_and_controls"],
    }
