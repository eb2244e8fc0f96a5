"""Lints a pack's binding graph: checks every edge, and reports each problem with its pointer and its remedy.

A pack is linted twice. At publish it is checked alone, without the parts that are not known yet: intents and specs can
come from a separate catalog, schemas and modes from adapters. When a run is pinned, the pack is checked with all other
artifacts of the run. The meaning of rules (facts, modes, asserted values, guardrails) is checked when policies are
compiled.
Source: docs/design/contracts.md, "Policy", "Compile".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, get_args

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.encoding.safe_patterns import safe_pattern
from contextos.contracts.envelopes.pack import ContextPack, Permission
from contextos.contracts.envelopes.plan import MemoryTemplate
from contextos.contracts.envelopes.policy import ArgConstraint, Then
from contextos.contracts.envelopes.run import BUCKETS
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import nearest_name
from contextos.contracts.scope import PARAMETERS
from contextos.control.artifacts import MergedArtifacts, merge
from contextos.control.lint.egress import lint_egress
from contextos.control.lint.evidence import lint_evidence
from contextos.control.lint.graph import (
    REQUEST_PLACE,
    TO_REGISTER,
    BindingTargets,
    PointerPath,
    binding_targets,
    no_such,
    place_of,
    request_has,
)
from contextos.control.lint.models import lint_model_templates
from contextos.control.lint.parameters import lint_parameters
from contextos.control.lint.templates import lint_templates
from contextos.errors import Problem

WRITE_CLASSES: Final[tuple[str, ...]] = get_args(MemoryTemplate.model_fields["write_class"].annotation)
TIERS: Final[tuple[str, ...]] = get_args(MemoryTemplate.model_fields["tier_target"].annotation)
OUTCOMES: Final = frozenset({"approved", "denied", "escalated"})
"""The outcomes that a decision can have."""
MAX_LINT_PROBLEMS: Final = 100


def lint_pack(pack: ContextPack, definitions: Mapping[str, AdapterDefinition] | None) -> tuple[Problem, ...]:
    """Return the problems of a pack by itself; empty if there are none.

    Without `definitions`, references to adapters are not checked. If the pack has no intents, or no decision specs,
    they come from a separate catalog, and references to them are not checked either.
    """
    merged = merge(pack)
    return _lint_all(merged, binding_targets(merged, definitions, complete=False), definitions)


def lint_merged(merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition]) -> tuple[Problem, ...]:
    """Return the problems of a pack together with everything that it is used with. Every reference is checked."""
    return _lint_all(merged, binding_targets(merged, definitions, complete=True), definitions)


def _lint_all(
    merged: MergedArtifacts, edges: BindingTargets, definitions: Mapping[str, AdapterDefinition] | None
) -> tuple[Problem, ...]:
    pack = merged.pack
    problems = chain(
        _lint_clashes(merged),
        _lint_intents(merged),
        lint_parameters(merged),
        _lint_retrieval(pack),
        _lint_evidence_names(pack, edges),
        _lint_budget(pack),
        _lint_gates(pack),
        _lint_specs(merged),
        _lint_redaction(pack),
        _lint_registry(pack, edges),
        _lint_permissions(pack, edges),
        _lint_rules(pack, edges),
        _lint_targets(pack, edges),
        _lint_memory(pack),
        lint_templates(merged, edges),
        lint_model_templates(merged, edges),
        lint_egress(merged, definitions),
        lint_evidence(merged, edges),
    )
    return tuple(problems)[:MAX_LINT_PROBLEMS]


def _lint_clashes(merged: MergedArtifacts) -> Iterator[Problem]:
    for name in merged.clashes:
        yield Problem("", "defined_twice", f"`{name}` has two different definitions", "keep one of them")


def _lint_intents(merged: MergedArtifacts) -> Iterator[Problem]:
    for place, intent in enumerate(merged.pack.decision_layer.intents):
        for index, name in enumerate(intent.eligible_task_templates):
            path: PointerPath = ("decision_layer", "intents", place, "eligible_task_templates", index)
            template = merged.templates.get(name)
            if template is None:
                yield no_such(path, "task template", name, "define it, or name an existing one", merged.templates)
            elif template.intent != intent.intent_id:
                detail = f"task template `{name}` belongs to the intent `{template.intent}`"
                yield Problem(pointer(path), "other_intent", detail, "name a template of this intent")


def _lint_retrieval(pack: ContextPack) -> Iterator[Problem]:
    layer, refs = pack.intelligence_refs.retrieval, pack.intelligence_refs
    base: PointerPath = ("intelligence_refs", "retrieval")
    for index, seed in enumerate(layer.seeds):
        place: PointerPath = (*base, "seeds", index)
        if seed.type is not None and seed.type not in refs.identity_layer.ceid_namespaces:
            yield no_such((*place, "type"), "CEID namespace", seed.type, "add it to `identity_layer.ceid_namespaces`")
        if seed.binding.source not in ("request", "parameter", "pack"):
            detail = f"a seed cannot be bound to `{seed.binding.source}`, which does not exist before retrieval"
            yield Problem(
                pointer((*place, "binding", "from")),
                "too_early",
                detail,
                "bind it to the request, a parameter or the pack",
            )
        elif seed.binding.source == "request" and not request_has(seed.binding.pointer):
            yield no_such((*place, "binding", "pointer"), REQUEST_PLACE, seed.binding.pointer, "correct the pointer")
    for index, path in enumerate(layer.evidence):
        place = (*base, "evidence", index)
        for step, predicate in enumerate(path.path):
            if predicate not in refs.ontology.relationship_types:
                remedy = "add it to `ontology.relationship_types`"
                yield no_such((*place, "path", step), "relationship type", predicate, remedy)
        if path.seed >= len(layer.seeds):
            yield no_such((*place, "seed"), "seed", str(path.seed), "use the index of a seed, counted from 0")
        if len(path.path) > layer.hops:
            detail = f"the path has {len(path.path)} edges, and retrieval follows {layer.hops} hops"
            yield Problem(pointer((*place, "path")), "beyond_hops", detail, "increase `hops` or shorten the path")


def _lint_evidence_names(pack: ContextPack, edges: BindingTargets) -> Iterator[Problem]:
    """Refuse an evidence name that is a prefix of another one, and required evidence that has no source."""
    names = sorted(edges.evidence)
    path: PointerPath = ("intelligence_refs", "retrieval", "evidence")
    for name in names:
        if nested := [other for other in names if other.startswith(name + ".")]:
            detail = f"evidence `{nested[0]}` is nested in evidence `{name}`, so no rule can read both"
            yield Problem(pointer(path), "name_hidden", detail, "rename one of them")
    for place, spec in enumerate(pack.decision_layer.decision_specs):
        for index, name in enumerate(spec.required_evidence if edges.produces is not None else ()):
            if name not in edges.available_evidence:
                remedy = "produce it by a capability, or retrieve it by an evidence path"
                spec_path: PointerPath = ("decision_layer", "decision_specs", place, "required_evidence", index)
                yield no_such(spec_path, "evidence", name, remedy)


def _lint_budget(pack: ContextPack) -> Iterator[Problem]:
    budget = pack.pack_meta.run_budget
    if budget is None:
        return
    total = sum(getattr(budget.bucket_tokens, bucket) for bucket in BUCKETS)
    if total > budget.total_tokens:
        detail = f"the buckets add up to {total} tokens, and the run has {budget.total_tokens}"
        yield Problem("/pack_meta/run_budget/bucket_tokens", "over_budget", detail, "lower a bucket")


def _lint_gates(pack: ContextPack) -> Iterator[Problem]:
    for index, gate in enumerate(pack.policy_layer.approval_gates):
        if gate.quorum > 1:
            path: PointerPath = ("policy_layer", "approval_gates", index, "quorum")
            yield Problem(
                pointer(path), "quorum", "a gate is answered by one person in this version", "set `quorum` to 1"
            )


def _lint_specs(merged: MergedArtifacts) -> Iterator[Problem]:
    """Refuse fields of a spec that this version does not enforce: a check that never runs is a false statement.

    Refuse also a spec that does not allow every outcome that can occur, or allows another one.
    """
    for spec in merged.specs.values():
        place = place_of(spec, spec.decision_key, merged.pack.decision_layer.decision_specs, "decision_specs")
        path = pointer((*place, "allowed_outcomes"))
        remedy = f"list {', '.join(sorted(OUTCOMES))}"
        for outcome in sorted({*spec.allowed_outcomes} - OUTCOMES):
            yield Problem(path, "outcome_never_occurs", f"no run ends with the outcome `{outcome}`", remedy)
        for outcome in sorted(OUTCOMES - {*spec.allowed_outcomes}):
            yield Problem(path, "outcome_missing", f"a run can end as `{outcome}`, which is not allowed", remedy)
        unenforced = {
            "challenge_required": spec.challenge_required,
            "eligibility_rules": spec.eligibility_rules,
            "inputs_schema_ref": spec.inputs_schema_ref,
            "outputs_schema_ref": spec.outputs_schema_ref,
        }
        for name, value in unenforced.items():
            if value:
                detail = f"`{name}` is not enforced in this version"
                yield Problem(pointer((*place, name)), "not_enforced", detail, "write it as a policy rule")


def _lint_redaction(pack: ContextPack) -> Iterator[Problem]:
    for index, name in enumerate(pack.policy_layer.guardrails.redaction_rules):
        if name not in REDACTION_TARGETS:
            path: PointerPath = ("policy_layer", "guardrails", "redaction_rules", index)
            yield no_such(path, "redaction rule", name, f"use one of {', '.join(sorted(REDACTION_TARGETS))}")


def _lint_registry(pack: ContextPack, edges: BindingTargets) -> Iterator[Problem]:
    layer = pack.tooling_layer
    names = [name for name, count in Counter(entry.adapter_id for entry in layer.adapter_registry).items() if count > 1]
    for name in names:
        yield Problem("/tooling_layer/adapter_registry", "duplicate", f"`{name}` is listed twice", "merge its entries")
    names = [name for name, count in Counter(entry.permission_id for entry in layer.permissions).items() if count > 1]
    for name in names:
        detail = f"permission `{name}` is defined twice"
        yield Problem("/tooling_layer/permissions", "duplicate", detail, "give each permission its own id")
    for index, name in enumerate(layer.prohibitions):
        if edges.is_slot(name):
            path: PointerPath = ("tooling_layer", "prohibitions", index)
            detail = f"`{name}` is a slot, and prohibitions do not apply to slots"
            yield Problem(pointer(path), "not_enforced", detail, "deny it by a policy rule")
    if edges.declared is None:
        return
    for place, entry in enumerate(layer.adapter_registry):
        for index, name in enumerate(entry.capabilities):
            if f"{entry.adapter_id}.{name}" not in edges.declared:
                path = ("tooling_layer", "adapter_registry", place, "capabilities", index)
                remedy = "name a capability that the adapter declares"
                yield no_such(path, "capability", f"{entry.adapter_id}.{name}", remedy, edges.declared)
    for index, name in enumerate(layer.prohibitions):
        if name not in edges.declared and name.rpartition(".")[0] in edges.adapters:
            remedy = "name a capability that the adapter declares; otherwise nothing is prohibited"
            yield no_such(("tooling_layer", "prohibitions", index), "capability", name, remedy)


def _lint_permissions(pack: ContextPack, edges: BindingTargets) -> Iterator[Problem]:
    for index, permission in enumerate(pack.tooling_layer.permissions):
        path: PointerPath = ("tooling_layer", "permissions", index)
        name = f"{permission.adapter_id}.{permission.capability}"
        if edges.is_unregistered(name):
            yield no_such((*path, "capability"), "registered capability", name, TO_REGISTER, edges.registered)
        yield from _lint_limits(permission.arg_constraints, edges, (*path, "arg_constraints"), name)
        yield from _lint_agreements(permission, edges, path, name)
        for argument, constraint in permission.arg_constraints.items():
            yield from _lint_constraint(constraint, (*path, "arg_constraints", argument))


def _lint_arguments(names: Iterable[str], edges: BindingTargets, path: PointerPath, tool: str) -> Iterator[Problem]:
    fields = edges.properties(tool)
    for name in names:
        if fields is not None and name not in fields:
            yield no_such((*path, name), f"argument of `{tool}`", name, "name a property of its input schema", fields)


def _lint_limits(names: Collection[str], edges: BindingTargets, path: PointerPath, tool: str) -> Iterator[Problem]:
    yield from _lint_arguments(names, edges, path, tool)
    capability = edges.capability(tool)
    for name in names:
        if capability is not None and name in capability.secrets:
            detail = f"`{name}` is a secret of `{tool}`, and a limit finds no value to check"
            yield Problem(pointer((*path, name)), "not_enforced", detail, "remove it, or ask a person about the call")


def _lint_agreements(
    permission: Permission, edges: BindingTargets, path: PointerPath, capability: str
) -> Iterator[Problem]:
    yield from _lint_arguments(permission.agrees_with, edges, (*path, "agrees_with"), capability)
    for argument, place in permission.agrees_with.items():
        if not place.startswith(PARAMETERS) and not request_has(place):
            yield no_such((*path, "agrees_with", argument), REQUEST_PLACE, place, "correct the pointer")


def _lint_constraint(constraint: ArgConstraint, path: PointerPath) -> Iterator[Problem]:
    if constraint.enum is not None and not constraint.enum:
        yield Problem(
            pointer((*path, "enum")), "empty_enum", "an empty `enum` refuses every value", "list the allowed values"
        )
    if constraint.min is not None and constraint.max is not None and constraint.min > constraint.max:
        yield Problem(pointer(path), "empty_range", "`min` is greater than `max`", "swap them")
    if constraint.pattern is not None and safe_pattern(constraint.pattern) is None:
        remedy = "use RE2 syntax without look-around"
        yield Problem(
            pointer((*path, "pattern")), "pattern_refused", "the pattern is not valid RE2, or is too large", remedy
        )


def _lint_rules(pack: ContextPack, edges: BindingTargets) -> Iterator[Problem]:
    for place, bundle in enumerate(pack.policy_layer.policy_bundles):
        for index, rule in enumerate(bundle.policy_dsl.rules):
            path: PointerPath = ("policy_layer", "policy_bundles", place, "policy_dsl", "rules", index)
            applies, then = rule.applies_to, rule.then
            if applies.intent is not None and edges.lacks_intent(applies.intent):
                yield no_such((*path, "applies_to", "intent"), "intent", applies.intent, "define it in the catalog")
            tool = applies.capability
            if tool is not None and edges.lacks_capability(tool):
                remedy = "add it to `adapter_registry`, or declare the slot in a task template"
                target = (*path, "applies_to", "capability")
                yield no_such(target, "registered capability", tool, remedy, edges.registered)
            if tool is not None and edges.is_slot(tool):
                yield from _lint_slot_rule(then, (*path, "then"))
            if rule.decision_binding is not None and edges.lacks_spec(rule.decision_binding):
                remedy = "name a `decision_key`"
                yield no_such((*path, "decision_binding"), "DecisionSpec", rule.decision_binding, remedy)
            if then.requires_approval_gate is not None and then.requires_approval_gate not in edges.gates:
                target, remedy = (*path, "then", "requires_approval_gate"), "define it in `approval_gates`"
                yield no_such(target, "gate", then.requires_approval_gate, remedy, edges.gates)
            yield from _lint_required(then.requires, edges, (*path, "then", "requires"))
            for number, name in enumerate(then.prohibits):
                if edges.is_unregistered(name):
                    target, remedy = (*path, "then", "prohibits", number), "name one of `adapter_registry`"
                    yield no_such(target, "registered capability", name, remedy, edges.registered)
            name = applies.capability or ""
            yield from _lint_limits(then.arg_constraints, edges, (*path, "then", "arg_constraints"), name)


def _lint_slot_rule(then: Then, path: PointerPath) -> Iterator[Problem]:
    """Refuse a rule on a slot that does more than allow or deny: evidence, arguments and approvals come later."""
    for name in ("requires", "requires_approval_gate", "arg_constraints"):
        if getattr(then, name):
            detail = f"`{name}` is not checked when a slot is filled"
            yield Problem(pointer((*path, name)), "not_enforced", detail, "allow or deny the slot")


def _lint_required(names: Sequence[str], edges: BindingTargets, path: PointerPath) -> Iterator[Problem]:
    for index, name in enumerate(names if edges.produces is not None else ()):
        if name not in edges.evidence:
            yield no_such((*path, index), "evidence", name, "require it in a DecisionSpec, produce it or retrieve it")


def _lint_memory(pack: ContextPack) -> Iterator[Problem]:
    layer = pack.memory_layer
    for index, name in enumerate(layer.write_classes):
        if name not in WRITE_CLASSES:
            remedy = _name_remedy(name, WRITE_CLASSES)
            yield no_such(("memory_layer", "write_classes", index), "write class", name, remedy)
    for name in layer.tier_ttls:
        if name not in TIERS:
            yield no_such(("memory_layer", "tier_ttls", name), "memory tier", name, _name_remedy(name, TIERS))


def _name_remedy(name: str, names: Collection[str]) -> str:
    nearest = nearest_name(name, names)
    return f"write `{nearest}`" if nearest else f"use one of {', '.join(names)}"


def _lint_targets(pack: ContextPack, edges: BindingTargets) -> Iterator[Problem]:
    for index, target in enumerate(pack.evaluation_layer.eval_targets):
        if edges.lacks_intent(target.intent):
            path: PointerPath = ("evaluation_layer", "eval_targets", index, "intent")
            yield no_such(path, "intent", target.intent, "name an intent of the catalog")
