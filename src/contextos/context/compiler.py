"""The Context Pack Compiler: eight stages, one list.

Pure: no I/O, no clock, no chance, no global state. What comes as a set, a mapping or an unordered sequence is sorted,
so the same input gives the same bytes whatever the order, locale, time zone or hash seed. A stage reads the inputs
and what earlier stages made, and returns plain JSON; nothing else passes from stage to stage, so the digest of each
covers all that follows from it and a replay difference names the first stage that drifted.
Source: How It Works, step 2; shared/design/contracts.md, "Compile"; contextos-facts.md, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contextos.context import prompt
from contextos.context.blocks import FIRST, USUAL, JsonObject, evidence_entry, evidence_priority, fact_block, identified
from contextos.context.budget import Piece, allocate, budget_report, omissions, pack
from contextos.context.controls import matched_rules, policy_manifest, runtime_controls
from contextos.context.emission import address, compiled_context, is_plain
from contextos.context.sources import (
    attachment_entries,
    business_blocks,
    control_blocks,
    rule_blocks,
    session_blocks,
    tool_block,
)
from contextos.context.surface import SURFACED, reason, tool_manifest, united_constraints
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import Intent, TaskTemplate
from contextos.contracts.envelopes.policy import PolicyBundle, PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest, RunContext
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.outside import Estimator
from contextos.contracts.refs import EVIDENCE

FRAME: Final = "business"
"""The bucket that pays for system, developer and task text, before any block."""


MAX_FACTS: Final = 8_000
"""Facts of one compile, so that with the blocks of all other sources the lists of the contract hold them."""


@dataclass(frozen=True, slots=True)
class CompileInput:
    """The inputs of a compile."""

    pack: ContextPack
    pack_ref: str
    intent: Intent
    template: TaskTemplate
    request: InvokeRequest
    run: RunContext
    evidence: Sequence[EvidenceItem]
    memory: Sequence[EvidenceItem]
    required_evidence: frozenset[str]
    surface: Sequence[SurfaceCapability]
    decisions: tuple[PolicyDecision, ...]
    decision_of: Mapping[str, PolicyDecision]
    bundles: tuple[PolicyBundle, ...]
    estimator: Estimator


CompileState = Mapping[str, JsonObject]
"""What the stages so far made, by stage name."""

CompileStage = Callable[[CompileInput, CompileState], JsonObject | Failure]


def compile_context(
    *,
    pack: ContextPack,
    pack_ref: str,
    intent: Intent,
    template: TaskTemplate,
    request: InvokeRequest,
    run: RunContext,
    evidence: Sequence[EvidenceItem],
    memory: Sequence[EvidenceItem],
    required_evidence: Collection[str],
    surface: Sequence[SurfaceCapability],
    decisions: Mapping[str, PolicyDecision],
    estimator: Estimator,
    bundles: Sequence[PolicyBundle] = (),
) -> JsonObject | Failure:
    """What the model may see and use in this run, a `CompiledContext` in its wire form; or why there can be none.

    `decisions` are by capability id, made at the point `compile`. `bundles` are those in force beside the pack's own.
    Refuses: `unknown_intent`, `unpinned_ref` (an attachment without full digest), `policy_eval_error` (a matched rule
    of no bundle in force), `budget_exhausted` (required blocks do not fit).
    """
    in_force = {bundle.bundle_id: bundle for bundle in (*bundles, *pack.policy_layer.policy_bundles)}
    given = CompileInput(
        pack=pack,
        pack_ref=pack_ref,
        intent=intent,
        template=template,
        request=request,
        run=run,
        evidence=evidence,
        memory=memory,
        required_evidence=frozenset(required_evidence),
        surface=sorted(surface, key=lambda capability: capability.capability_id),
        decisions=tuple(decisions[key] for key in sorted(decisions)),
        decision_of=decisions,
        bundles=tuple(in_force[key] for key in sorted(in_force)),
        estimator=estimator,
    )
    made: dict[str, JsonObject] = {}
    digests: dict[str, str] = {}
    plain = True
    for name, stage in STAGES:
        product = stage(given, made)
        if isinstance(product, Failure):
            return product
        made[name] = product
        plain = plain and ("constraints" not in product or is_plain(product["constraints"]))
        digests[name] = address(product, plain=plain)
    return compiled_context(
        made["manifests_and_controls"],
        digests,
        pack_ref=pack_ref,
        request_id=request.request_id,
        trace_id=run.trace_id,
        estimator=estimator.name,
    )


def intent_classification(given: CompileInput, _made: CompileState) -> JsonObject | Failure:
    """Confirm intent and template against each other and the run; what request and business say of them."""
    intent, template, run = given.intent, given.template, given.run
    if run.intent not in (None, intent.intent_id) or template.intent != intent.intent_id:
        detail = f"intent `{intent.intent_id}` is not that of the run and of template `{template.template_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; classify again")
    if template.template_id not in intent.eligible_task_templates:
        detail = f"template `{template.template_id}` is not eligible for intent `{intent.intent_id}`"
        return Failure(code="unknown_intent", detail=f"{detail}; pick one that the catalog names")
    attachments = attachment_entries(given.request)
    for entry in attachments:
        if not EVIDENCE.fits(entry["evidence_ref"], sealed=True):
            detail = f"attachment `{entry['source_id']}` is not pinned by an artifact id and its whole SHA-256"
            return Failure(code="unpinned_ref", detail=f"{detail}; send 64 hex digits")
    business = business_blocks(given.pack)
    return {
        "intent": [intent.intent_id, intent.version, intent.risk_class],
        "template": [template.template_id, template.version],
        "system": prompt.system(given.pack.tone_and_comms),
        "developer": prompt.developer(given.pack, given.pack_ref),
        "task": prompt.task(intent, template),
        "attachments": attachments,
        "blocks": [*business, *session_blocks(given.request, run.session_id, given.pack)],
        "required": [item["block_id"] for item in business],
    }


def policy_resolution(given: CompileInput, _made: CompileState) -> JsonObject | Failure:
    """The bundles and rules behind the decisions that were made, and the controls they put in force."""
    matched = matched_rules(given.decisions, given.bundles)
    if isinstance(matched, Failure):
        return matched
    controls = runtime_controls(given.decisions, given.pack.policy_layer.guardrails)
    active = control_blocks(controls, given.pack)
    return {
        "manifest": policy_manifest(given.decisions, given.bundles, matched),
        "controls": controls,
        "blocks": [*active, *rule_blocks(matched, given.pack)],
        "required": [item["block_id"] for item in active],
    }


def tool_surfacing(given: CompileInput, _made: CompileState) -> JsonObject | Failure:
    """Registry ∩ permissions − prohibitions, then policy, the approval-mode ceiling, lifecycle."""
    report, surfaced, blocks = [], [], []
    constraints: dict[str, JsonObject] = {}
    planned = {step.tool for step in given.template.steps}
    for capability in given.surface:
        capability_id = capability.capability_id
        decision = given.decision_of.get(capability_id)
        why = reason(capability, decision, given.run.safety_mode)
        report.append({"capability_id": capability_id, "surfaced": why == SURFACED, "reason": why})
        if why != SURFACED:
            continue
        assert decision is not None, "nothing is surfaced without a decision"
        surfaced.append(capability)
        constraints[capability_id] = united_constraints(capability, decision)
        priority = FIRST if capability_id in planned else USUAL
        blocks.append(tool_block(capability, decision, constraints[capability_id], priority, given.pack))
    return {
        "report": report,
        "manifest": tool_manifest(surfaced, constraints),
        "constraints": constraints,
        "blocks": blocks,
        "required": [],
    }


def evidence_retrieval(given: CompileInput, _made: CompileState) -> JsonObject | Failure:
    """Normalise what was retrieved before: distinct items in a fixed order, as data, with their manifest entries."""
    if len(given.evidence) + len(given.memory) > MAX_FACTS:
        detail = f"more than {MAX_FACTS} facts were retrieved and recalled; lower the pack's limits"
        return Failure(code="budget_exhausted", detail=detail)
    items = identified(given.evidence, "ev_")
    return {
        "blocks": [
            fact_block(block_id, "evidence", item, evidence_priority(item, given.required_evidence))
            for block_id, item in items
        ],
        "manifest": [evidence_entry(item) for _, item in items],
        "required": [block_id for block_id, item in items if item.name in given.required_evidence],
    }


def memory_recall(given: CompileInput, _made: CompileState) -> JsonObject | Failure:
    """Normalise the promoted memory as recalled; none of it is ever required."""
    items = identified(given.memory, "mem_")
    return {"blocks": [fact_block(block_id, "memory", item, USUAL) for block_id, item in items], "required": []}


def token_budget_allocation(given: CompileInput, made: CompileState) -> JsonObject | Failure:
    """What each bucket may hold, and what each text would take of it."""
    count = given.estimator.count
    first = made["intent_classification"]
    return {
        "estimator": given.estimator.name,
        "allocated": allocate(given.run.run_budget),
        "frame": sum(count(first[text]) for text in ("system", "developer", "task")),
        "tokens": [count(item["content"]) for item in _blocks(made)],
    }


def bucket_assembly(_given: CompileInput, made: CompileState) -> JsonObject | Failure:
    """Pack each bucket to its budget; what does not fit is dropped whole and said so."""
    budget = made["token_budget_allocation"]
    required = {block_id for product in made.values() for block_id in product.get("required", ())}
    pieces = [
        Piece(
            item["bucket"],
            item["block_id"],
            item["priority"],
            tokens,
            len(item["content"]),
            item["block_id"] in required,
            place,
        )
        for place, (item, tokens) in enumerate(zip(_blocks(made), budget["tokens"], strict=True))
    ]
    packing = pack(pieces, budget["allocated"], {FRAME: budget["frame"]})
    if isinstance(packing, Failure):
        return packing
    return {
        "kept": [piece.place for piece in packing.kept],
        "budget_report": budget_report(budget["allocated"], packing),
        "omissions": omissions(packing),
    }


def manifests_and_controls(_given: CompileInput, made: CompileState) -> JsonObject | Failure:
    """The compiled context but for its ledger; the digest of this stage is the `compiled_context_hash`."""
    first, assembly = made["intent_classification"], made["bucket_assembly"]
    blocks = list(_blocks(made))
    kept = [blocks[place] for place in assembly["kept"]]
    kept_ids = {item["block_id"] for item in kept if item["bucket"] == "evidence"}
    facts = made["evidence_retrieval"]
    admitted = [
        entry for item, entry in zip(facts["blocks"], facts["manifest"], strict=True) if item["block_id"] in kept_ids
    ]
    return {
        "compiled_prompt": {
            "system": first["system"],
            "developer": first["developer"],
            "task": first["task"],
            "context_blocks": kept,
        },
        "manifests": {
            "policy_manifest": made["policy_resolution"]["manifest"],
            "tool_manifest": made["tool_surfacing"]["manifest"],
            "evidence_manifest": [*admitted, *first["attachments"]],
            "omissions": assembly["omissions"],
            "surface_report": made["tool_surfacing"]["report"],
        },
        "runtime_controls": made["policy_resolution"]["controls"],
        "budget_report": assembly["budget_report"],
    }


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


def _blocks(made: CompileState) -> Iterator[JsonObject]:
    for name, _ in STAGES[:5]:
        yield from made[name]["blocks"]
