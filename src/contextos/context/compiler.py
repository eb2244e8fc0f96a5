"""The Context Pack Compiler: one list of eight stages.

The compiler is pure: it uses no I/O, no clock, no randomness and no global state. Sets, mappings and unordered
sequences are sorted, so equal inputs give equal bytes whatever the order, locale, time zone or hash seed. A stage reads
the inputs and the products of earlier stages, and returns plain JSON. Nothing else passes from stage to stage, so a
stage's digest covers everything that later stages take from it, and the first digest that differs in a replay names the
stage that drifted.
Source: How It Works, step 2; docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from contextos.context import prompt
from contextos.context.blocks import (
    PRIORITY_DEFAULT,
    PRIORITY_REQUIRED,
    JsonObject,
    evidence_entry,
    evidence_priority,
    fact_block,
    identified,
)
from contextos.context.budget import allocate, budget_report, omissions, pack_blocks
from contextos.context.controls import matched_rules, policy_manifest, runtime_controls
from contextos.context.inputs import CompileInput
from contextos.context.sources import (
    attachment_entries,
    business_blocks,
    control_blocks,
    rule_blocks,
    session_blocks,
    tool_block,
)
from contextos.context.surface import SURFACED, surface_reason, tool_manifest, united_constraints
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.redacted import REDACTION_TARGETS, redacted_places
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.refs import EVIDENCE
from contextos.contracts.trace import manifest_headers

TEXT_BUCKET: Final = "business"
"""The bucket that pays for the system, developer and task texts, before any block."""

MAX_FACTS: Final = 8_000
"""Largest number of facts in one compile. With the blocks of all other sources they fit the contract's list limits."""

CompileState = Mapping[str, JsonObject]
"""The products of the stages that already ran, by stage name."""

CompileStage = Callable[[CompileInput, CompileState], JsonObject | Failure]


def compile_context(inputs: CompileInput) -> JsonObject | Failure:
    """Compile what the model can see and use in this run: a `CompiledContext` in its wire form, or a failure.

    The failure codes: `unknown_intent`; `unpinned_ref` (an attachment without its full digest); `policy_eval_error` (a
    rule matched that belongs to no bundle in force); `budget_exhausted` (the required blocks do not fit).
    """
    products: dict[str, JsonObject] = {}
    digests: dict[str, str] = {}
    for name, stage in STAGES:
        product = stage(inputs, products)
        if isinstance(product, Failure):
            return product
        products[name] = product
        digests[name] = content_address(product)
    return _compiled_context(
        products["manifests_and_controls"],
        digests,
        pack_ref=inputs.pack.pack_ref,
        request_id=inputs.task.request.request_id,
        trace_id=inputs.task.run.trace_id,
        estimator=inputs.estimator.name,
    )


def intent_classification(inputs: CompileInput, _products: CompileState) -> JsonObject | Failure:
    """Stage 1: check that intent, template and run agree; write the prompt's texts and the business and session
    blocks.
    """
    task, pack = inputs.task, inputs.pack.pack
    intent, template, run = task.intent, task.template, task.run
    if run.intent not in (None, intent.intent_id) or template.intent != intent.intent_id:
        detail = f"intent `{intent.intent_id}` is not the intent of the run and of template `{template.template_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; classify the request again")
    if template.template_id not in intent.eligible_task_templates:
        detail = f"template `{template.template_id}` is not eligible for intent `{intent.intent_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; select a template that the catalog lists for it")
    attachments = attachment_entries(task.request)
    for entry in attachments:
        if not EVIDENCE.fits(entry["evidence_ref"], sealed=True):
            detail = f"attachment `{entry['source_id']}` is not pinned by an artifact id and a full SHA-256 digest"
            return Failure(code="unpinned_ref", detail=f"{detail}; send 64 hex digits")
    business = business_blocks(pack)
    return {
        "intent": [intent.intent_id, intent.version, intent.risk_class],
        "template": [template.template_id, template.version],
        "system": prompt.system(pack.tone_and_comms),
        "developer": prompt.developer(pack, inputs.pack.pack_ref),
        "task": prompt.task(intent, template),
        "attachments": attachments,
        "blocks": [*business, *session_blocks(task.request, run.session_id, pack)],
        "required": [item["block_id"] for item in business],
    }


def policy_resolution(inputs: CompileInput, _products: CompileState) -> JsonObject | Failure:
    """Stage 2: list the policy bundles and rules behind the policy decisions, and the controls that
    follow from them.
    """
    decisions, bundles, pack = inputs.surface.decisions_in_order, inputs.pack.bundles_in_force, inputs.pack.pack
    matched = matched_rules(decisions, bundles)
    if isinstance(matched, Failure):
        return matched
    controls = runtime_controls(decisions, pack.policy_layer.guardrails)
    active = control_blocks(controls, pack)
    return {
        "manifest": policy_manifest(decisions, bundles, matched),
        "controls": controls,
        "blocks": [*active, *rule_blocks(matched, pack)],
        "required": [item["block_id"] for item in active],
    }


def tool_surfacing(inputs: CompileInput, _products: CompileState) -> JsonObject | Failure:
    """Stage 3: list the tools that registry, permissions, policy, mode ceiling and lifecycle all allow.

    Every registered tool is reported with the reason why it is listed or not.
    """
    report, surfaced, blocks = [], [], []
    constraints: dict[str, JsonObject] = {}
    planned = {step.tool for step in inputs.task.template.steps}
    for capability in sorted(inputs.surface.capabilities, key=lambda one: one.capability_id):
        capability_id = capability.capability_id
        decision = inputs.surface.decisions.get(capability_id)
        exposure = surface_reason(capability, decision, inputs.task.run.safety_mode)
        report.append({"capability_id": capability_id, "surfaced": exposure == SURFACED, "reason": exposure})
        if exposure != SURFACED:
            continue
        assert decision is not None, "a capability without a policy decision is never surfaced"
        surfaced.append(capability)
        constraints[capability_id] = united_constraints(capability, decision)
        priority = PRIORITY_REQUIRED if capability_id in planned else PRIORITY_DEFAULT
        blocks.append(tool_block(capability, decision, constraints[capability_id], priority, inputs.pack.pack))
    return {
        "report": report,
        "manifest": tool_manifest(surfaced, constraints),
        "constraints": constraints,
        "blocks": blocks,
        "required": [],
    }


def evidence_retrieval(inputs: CompileInput, _products: CompileState) -> JsonObject | Failure:
    """Stage 4: sort the retrieved evidence, drop duplicates, and build its blocks and manifest entries."""
    knowledge, required = inputs.knowledge, frozenset(inputs.knowledge.required_evidence)
    if len(knowledge.evidence) + len(knowledge.memory) > MAX_FACTS:
        detail = f"more than {MAX_FACTS} facts were retrieved and recalled; lower the pack's limits"
        return Failure(code="budget_exhausted", detail=detail)
    items = identified(knowledge.evidence, "ev_")
    return {
        "blocks": [
            fact_block(block_id, "evidence", item, evidence_priority(item, required)) for block_id, item in items
        ],
        "manifest": [evidence_entry(item) for _, item in items],
        "required": [
            block_id for block_id, item in items if item.name in required or item.digest in knowledge.required_digests
        ],
    }


def memory_recall(inputs: CompileInput, _products: CompileState) -> JsonObject | Failure:
    """Stage 5: sort the recalled memories, drop duplicates, and build their blocks. No memory is ever required."""
    items = identified(inputs.knowledge.memory, "mem_")
    blocks = [fact_block(block_id, "memory", item, PRIORITY_DEFAULT) for block_id, item in items]
    return {"blocks": blocks, "required": []}


def token_budget_allocation(inputs: CompileInput, products: CompileState) -> JsonObject | Failure:
    """Stage 6: set the token limit of each bucket (part of the prompt), and count the tokens of each text."""
    count = inputs.estimator.count
    texts = products["intent_classification"]
    return {
        "estimator": inputs.estimator.name,
        "allocated": allocate(inputs.task.run.run_budget),
        "frame": sum(count(texts[name]) for name in ("system", "developer", "task")),
        "tokens": [count(item["content"]) for item in _blocks(products)],
    }


def bucket_assembly(_inputs: CompileInput, products: CompileState) -> JsonObject | Failure:
    """Stage 7: choose the blocks that fit their buckets. A block that does not fit is dropped whole and listed."""
    budget = products["token_budget_allocation"]
    required = {block_id for product in products.values() for block_id in product.get("required", ())}
    blocks, tokens, allocated = list(_blocks(products)), budget["tokens"], budget["allocated"]
    packing = pack_blocks(blocks, tokens, required, allocated, {TEXT_BUCKET: budget["frame"]})
    if isinstance(packing, Failure):
        return packing
    return {
        "kept": list(packing.kept),
        "budget_report": budget_report(blocks, allocated, packing),
        "omissions": omissions(blocks, tokens, packing),
    }


def manifests_and_controls(inputs: CompileInput, products: CompileState) -> JsonObject | Failure:
    """Stage 8: build the compiled context without its ledger. The digest of this stage is the
    `compiled_context_hash`.
    """
    texts, assembly = products["intent_classification"], products["bucket_assembly"]
    blocks = list(_blocks(products))
    kept = [blocks[index] for index in assembly["kept"]]
    kept_ids = {item["block_id"] for item in kept if item["bucket"] == "evidence"}
    facts = products["evidence_retrieval"]
    attached = {one["evidence_ref"] for one in texts["attachments"]}
    admitted = [
        entry
        for item, entry in zip(facts["blocks"], facts["manifest"], strict=True)
        if item["block_id"] in kept_ids and entry["evidence_ref"] not in attached
    ]
    return {
        "compiled_prompt": {
            "system": texts["system"],
            "developer": texts["developer"],
            "task": texts["task"],
            "context_blocks": kept,
        },
        "manifests": {
            "policy_manifest": products["policy_resolution"]["manifest"],
            "tool_manifest": products["tool_surfacing"]["manifest"],
            "evidence_manifest": [*admitted, *texts["attachments"]],
            "omissions": assembly["omissions"],
            "surface_report": products["tool_surfacing"]["report"],
            "redactions": _redactions(inputs),
            "trace_context": _trace(inputs),
        },
        "runtime_controls": products["policy_resolution"]["controls"],
        "budget_report": assembly["budget_report"],
    }


def _redactions(inputs: CompileInput) -> list[JsonObject]:
    """What was redacted where and by which rules, of everything that this compile could see."""
    active = sorted(set(inputs.pack.pack.policy_layer.guardrails.redaction_rules))
    values = [("request", inputs.task.request.to_json())]
    values += [(item.evidence_ref, item.value) for item in (*inputs.knowledge.evidence, *inputs.knowledge.memory)]
    if not redacted_places([value for _, value in values]):
        return []
    return [
        {
            "place": f"{where}:{place}",
            "kinds": kinds,
            "rules": [rule for rule in active if REDACTION_TARGETS.get(rule) in kinds],
        }
        for where, value in values
        for place, kinds in redacted_places(value).items()
    ]


def _trace(inputs: CompileInput) -> JsonObject:
    """The place in the caller's trace and what the run is."""
    trace, run = inputs.task.request.trace, inputs.task.run
    # A run ends with the last of its decisions.
    decisions = [point.decision_id for point in inputs.task.template.decision_checkpoints]
    named = {"session_id": run.session_id, "decision_id": decisions[-1] if decisions else None}
    baggage = {name: one for name, one in named.items() if one} | {"run_id": run.run_id}
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


def _blocks(products: CompileState) -> Iterator[JsonObject]:
    """The blocks of the first five stages, in stage order."""
    for name, _ in STAGES[:5]:
        yield from products[name]["blocks"]


def _compiled_context(
    body: JsonObject, digests: Mapping[str, str], *, pack_ref: str, request_id: str, trace_id: str, estimator: str
) -> JsonObject:
    """Add the ledger to `body` and return the finished `CompiledContext` as JSON.

    The `compiled_context_hash` is the digest of the last stage, whose output is `body`.
    """
    ledger = _ledger(body) | {
        "pack_ref": pack_ref,
        "request_id": request_id,
        "trace_id": trace_id,
        "estimator": estimator,
        "stage_digests": dict(digests),
        "compiled_context_hash": digests["manifests_and_controls"],
    }
    return {**body, "context_ledger": ledger}


def recorded_context(compiled: JsonObject) -> JsonObject:
    """Return what an entry states of a compiled context that only a template reads: a `RecordedContext`."""
    manifests = compiled["manifests"]
    stated = {
        "policy_manifest": manifests["policy_manifest"],
        "omissions": manifests["omissions"],
        "surface_report": [one for one in manifests["surface_report"] if not one["surfaced"]],
        "redactions": manifests["redactions"],
    }
    return {
        "manifests": {name: entries for name, entries in stated.items() if entries},
        **{name: compiled[name] for name in ("runtime_controls", "budget_report", "context_ledger")},
    }


def _ledger(body: JsonObject) -> JsonObject:
    """The ledger fields that are derived from the body."""
    report, manifests = body["budget_report"], body["manifests"]
    memory = [item for item in body["compiled_prompt"]["context_blocks"] if item["bucket"] == "memory"]
    return {
        "policy_bundles": [entry["bundle_id"] for entry in manifests["policy_manifest"]],
        "tools": [entry["capability_id"] for entry in manifests["surface_report"] if entry["surfaced"]],
        "evidence_refs": sorted({entry["evidence_ref"] for entry in manifests["evidence_manifest"]}),
        "memory_refs": sorted({ref for item in memory for ref in item["provenance_refs"]}),
        "budget": {
            "tokens_used_at_compile": report["tokens_used_at_compile"],
            "truncated_buckets": list(report["bucket_truncations"]),
        },
    }
