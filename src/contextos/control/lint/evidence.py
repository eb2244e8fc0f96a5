"""Lints the subjects of evidence: a call can use evidence only if it has the arguments that the evidence is about.

A call that the gateway would refuse in every run is refused here once.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Iterator

from contextos.contracts.encoding.pointer import last_name, pointer
from contextos.contracts.envelopes.pack import Permission
from contextos.contracts.envelopes.plan import PlanStep, TaskTemplate
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import BindingTargets, PointerPath, governing_keys, steps_before
from contextos.errors import Problem


def lint_evidence(merged: MergedArtifacts, edges: BindingTargets) -> Iterator[Problem]:
    """Yield a problem for each unknown name in `evidence_args` and `consent`, and for each step that lacks an argument
    that its required evidence is about.
    """
    for index, permission in enumerate(merged.pack.tooling_layer.permissions):
        yield from _lint_evidence_args(permission, edges, ("tooling_layer", "permissions", index, "evidence_args"))
        consent, path = permission.consent, ("tooling_layer", "permissions", index, "consent")
        if consent is not None and edges.produces is not None and consent not in edges.available_evidence:
            yield _no_evidence(path, consent)
    for template in merged.templates.values():
        before = steps_before(template)
        for step in template.steps:
            yield from _lint_required(merged, edges, template, step, before[step.id])


def _lint_evidence_args(permission: Permission, edges: BindingTargets, base: PointerPath) -> Iterator[Problem]:
    tool = f"{permission.adapter_id}.{permission.capability}"
    arguments = edges.properties(tool)
    for name, names in permission.evidence_args.items():
        place = pointer((*base, name))
        if edges.produces is not None and name not in edges.available_evidence:
            yield _no_evidence((*base, name), name)
        for argument in names.values() if arguments is not None else ():
            if argument not in (arguments or ()):
                detail = f"there is no argument of `{tool}` `{argument}`"
                yield Problem(place, "unknown_edge", detail, "name a property of its input schema")


def _no_evidence(path: PointerPath, name: str) -> Problem:
    detail = f"there is no evidence `{name}`"
    return Problem(pointer(path), "unknown_edge", detail, "name evidence that is retrieved or produced")


def _lint_required(
    merged: MergedArtifacts, edges: BindingTargets, template: TaskTemplate, step: PlanStep, before: set[str]
) -> Iterator[Problem]:
    arguments = edges.properties(step.tool)
    if arguments is None:
        return
    adapter, _, capability = step.tool.partition(".")
    all_permissions = merged.pack.tooling_layer.permissions
    permissions = [item for item in all_permissions if (item.adapter_id, item.capability) == (adapter, capability)]
    mapped = {name for permission in permissions for name in permission.evidence_args}
    keys = () if step.approval_mode == "read_only" else governing_keys(template, before)
    required = {name for key in keys if key in edges.specs for name in edges.specs[key].required_evidence}
    required |= {permission.consent for permission in permissions if permission.consent is not None}
    for name in sorted(required - mapped):
        for argument in sorted(_evidence_arguments(merged, edges, name) - arguments.keys()):
            detail = f"evidence `{name}` is about `{argument}`, and `{step.tool}` has no such argument"
            remedy = f"say in `evidence_args` of its permission which argument must be the same for `{name}`"
            yield Problem("/tooling_layer/permissions", "evidence_unbound", detail, remedy)


def _evidence_arguments(merged: MergedArtifacts, edges: BindingTargets, name: str) -> set[str]:
    """Return the arguments that this evidence is about in all of its sources."""
    retrieval = merged.pack.intelligence_refs.retrieval
    argument_sets = [
        {last_name(retrieval.seeds[path.seed].binding.pointer)}
        for path in retrieval.evidence
        if path.name == name
        and path.seed < len(retrieval.seeds)
        and retrieval.seeds[path.seed].binding.source in ("request", "parameter")
    ]
    argument_sets += [
        set(tool.input_schema.get("required", ())) for tool in (edges.declared or {}).values() if name in tool.produces
    ]
    return set.intersection(*argument_sets) if argument_sets else set()
