"""Make the basis: the part of a compiled context that depends only on pins, policy decisions and permissions.

`basis_key` has exactly these inputs and not the id of a run, so several runs share one basis. A basis is never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

from contextos.context import prompt
from contextos.context.blocks import PRIORITY_DEFAULT, PRIORITY_REQUIRED, JsonObject
from contextos.context.budget import Shelf
from contextos.context.controls import matched_rules, policy_manifest, runtime_controls
from contextos.context.inputs import CompileInput
from contextos.context.sources import business_blocks, control_blocks, rule_blocks, tool_block
from contextos.context.surface import SURFACED, surface_reason, tool_manifest, united_constraints
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyDecision
from contextos.contracts.envelopes.run import Bucket
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.model import final_fields


@final_fields
class Basis:
    """The part that several compiles share.

    `texts` has the texts of the prompt, and `frame` their number of tokens. `policy` and `tools` are the products of
    `policy_resolution` and `tool_surfacing`; `policy` is a `Failure` if a matched rule belongs to no bundle in force.
    `shelves` has the blocks by bucket, and `digests` the digests of the two products by stage.
    """

    texts: JsonObject
    frame: int
    policy: JsonObject | Failure
    tools: JsonObject
    shelves: Mapping[Bucket, Shelf]
    digests: Mapping[str, str]


def basis_of(inputs: CompileInput) -> Basis:
    """Make the basis of a compile."""
    task, pack, count = inputs.task, inputs.pack.pack, inputs.estimator.count
    intent, template = task.intent, task.template
    prompt_texts = {
        "system": prompt.system(pack.tone_and_comms),
        "developer": prompt.developer(pack, inputs.pack.pack_ref),
        "task": prompt.task(intent, template),
    }
    texts: JsonObject = {
        "intent": [intent.intent_id, intent.version, intent.risk_class],
        "template": [template.template_id, template.version],
        **prompt_texts,
    }
    business, policy, tools = business_blocks(pack), _policy_product(inputs), _tools_product(inputs)
    digests, shelves = {"tool_surfacing": content_address(tools)}, dict[Bucket, Shelf]()
    shelves["business"] = Shelf.of(business, frozenset(block["block_id"] for block in business), count)
    if not isinstance(policy, Failure):
        digests["policy_resolution"] = content_address(policy)
        shelves["policy"] = Shelf.of(policy["blocks"], frozenset(policy["required"]), count)
    shelves["tool"] = Shelf.of(tools["blocks"], (), count)
    return Basis(texts, sum(map(count, prompt_texts.values())), policy, tools, shelves, digests)


def basis_key(inputs: CompileInput) -> Hashable:
    """Return a key of all inputs that determine the basis of a compile, under the same pins."""
    task, surface = inputs.task, inputs.surface
    return (
        (inputs.pack.pack_ref, task.intent.intent_id, task.template.template_id, task.template.version),
        (task.run.safety_mode, inputs.estimator.name),
        tuple(
            [
                (tool.capability_id, tool.definition_digest, tool.granted, tool.withheld, tool.lifecycle)
                for tool in surface.capabilities
            ]
        ),
        tuple([_bounds(tool.constraints) for tool in surface.capabilities]),
        tuple([(name, _facts(item), _bounds(item.arg_constraints)) for name, item in surface.decisions.items()]),
        tuple([_facts(item) for item in surface.announced]),
    )


def _facts(decision: PolicyDecision) -> Hashable:
    """Return the parts of a decision that a basis depends on, apart from its bounds on arguments."""
    return (
        *(decision.capability_id, decision.point, decision.allowed, decision.gates, decision.bundle_ids),
        *(decision.must_refuse, decision.must_escalate, decision.matched_rule_ids, decision.denying_rule_ids),
    )


def _bounds(constraints: Mapping[str, Sequence[ArgConstraint]]) -> bytes:
    """Return bounds on arguments as canonical JSON, in which values differ that are equal in Python (1 and true)."""
    if not constraints:
        return b""
    return canonical({name: [constraint.to_json() for constraint in bounds] for name, bounds in constraints.items()})


def _policy_product(inputs: CompileInput) -> JsonObject | Failure:
    decisions, bundles, pack = inputs.surface.decisions_in_order, inputs.pack.bundles_in_force, inputs.pack.pack
    matched = matched_rules(decisions, bundles)
    if isinstance(matched, Failure):
        return matched
    controls = runtime_controls(decisions, pack.policy_layer.guardrails)
    active_blocks = control_blocks(controls, pack)
    return {
        "manifest": policy_manifest(decisions, bundles, matched),
        "controls": controls,
        "blocks": [*active_blocks, *rule_blocks(matched, pack)],
        "required": [item["block_id"] for item in active_blocks],
    }


def _tools_product(inputs: CompileInput) -> JsonObject:
    report, surfaced, blocks = [], [], []
    constraints: dict[str, JsonObject] = {}
    planned: Collection[str] = {step.tool for step in inputs.task.template.steps}
    for capability in sorted(inputs.surface.capabilities, key=lambda item: item.capability_id):
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
