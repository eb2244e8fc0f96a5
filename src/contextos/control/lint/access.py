"""Lints access: finds capabilities that nobody may call, gates that nobody can answer, and effects that nobody checks.

Only `contextos pack lint` checks this: each of these denies at run time, so no pack and no run is refused for it.
Source: docs/design/contracts.md, "Approval modes", "Policy".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import nearest_name
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import BindingTargets, PointerPath, binding_targets
from contextos.errors import Problem


def lint_access(
    merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition] | None, held: HeldRoles | None
) -> Iterator[Problem]:
    """Yield the problems of permissions, gates and destructive capabilities. Without `held`, roles are not checked."""
    edges = binding_targets(merged, definitions, complete=definitions is not None)
    yield from _lint_permissions(merged)
    yield from _lint_effects(merged, edges)
    yield from _lint_gated_reads(merged, edges)
    if held is not None:
        yield from _lint_roles(merged, held)


def lint_integrity(merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition]) -> Iterator[Problem]:
    """Yield a problem for each read that does not say whether its answers are trusted; they count as untrusted."""
    edges = binding_targets(merged, definitions, complete=True)
    for place, entry in enumerate(merged.pack.tooling_layer.adapter_registry):
        for index, short in enumerate(entry.capabilities):
            declared = edges.capability(f"{entry.adapter_id}.{short}")
            if declared is not None and declared.kind == "read" and declared.output_integrity is None:
                path: PointerPath = ("tooling_layer", "adapter_registry", place, "capabilities", index)
                detail = f"`{entry.adapter_id}.{short}` does not say whether anybody could have written its answers"
                remedy = 'state `integrity="untrusted"` or `"trusted"` (`output_integrity` in a definition)'
                yield Problem(pointer(path), "no_integrity", detail, remedy)


def _lint_permissions(merged: MergedArtifacts) -> Iterator[Problem]:
    """Yield a problem for each registered capability that no permission allows: nobody can use it."""
    layer = merged.pack.tooling_layer
    allowed = {f"{item.adapter_id}.{item.capability}" for item in layer.permissions if item.allow}
    registered = {f"{entry.adapter_id}.{short}" for entry in layer.adapter_registry for short in entry.capabilities}
    for place, entry in enumerate(layer.adapter_registry):
        for index, short in enumerate(entry.capabilities):
            name = f"{entry.adapter_id}.{short}"
            if name not in allowed and name not in layer.prohibitions:
                path: PointerPath = ("tooling_layer", "adapter_registry", place, "capabilities", index)
                nearest = nearest_name(name, allowed - registered)
                remedy = f"did you mean `{nearest}`? otherwise " * bool(nearest)
                remedy += "add a permission for it, or remove it from the registry"
                yield Problem(pointer(path), "no_permission", f"no permission lets anybody call `{name}`", remedy)


def _lint_effects(merged: MergedArtifacts, edges: BindingTargets) -> Iterator[Problem]:
    """Yield a problem for each destructive capability without a gate or a denying rule: only its allow would decide."""
    layer = merged.pack.tooling_layer
    for place, entry in enumerate(layer.adapter_registry):
        for index, short in enumerate(entry.capabilities):
            name = f"{entry.adapter_id}.{short}"
            if name in layer.prohibitions or not _is_destructive(name, merged, edges) or _is_checked(name, merged):
                continue
            path: PointerPath = ("tooling_layer", "adapter_registry", place, "capabilities", index)
            detail = f"`{name}` is destructive, and no rule gates or denies it"
            remedy = "add a rule with `requires_approval_gate`, or one that denies"
            yield Problem(pointer(path), "no_gate", detail, remedy)


def _is_destructive(name: str, merged: MergedArtifacts, edges: BindingTargets) -> bool:
    """Return whether a capability is declared `destructive`; before its adapter is known, as the steps state it."""
    declared = edges.capability(name)
    if declared is not None:
        return declared.approval_mode == "destructive"
    steps = (step for template in merged.templates.values() for step in template.steps)
    return any(step.tool == name and step.approval_mode == "destructive" for step in steps)


def _is_checked(name: str, merged: MergedArtifacts) -> bool:
    rules = [
        rule
        for leveled in merged.bundles.values()
        if leveled.bundle.mode == "enforce"
        for rule in leveled.bundle.policy_dsl.rules
        if rule.applies_to.capability in (None, name)
    ]
    steps = [step for template in merged.templates.values() for step in template.steps if step.tool == name]
    gated = bool(steps) and all(step.requires for step in steps)
    return gated or any(rule.then.requires_approval_gate or not rule.then.allow for rule in rules)


def _lint_gated_reads(merged: MergedArtifacts, edges: BindingTargets) -> Iterator[Problem]:
    """Yield a problem for each read behind a gate: an approval is for one effect, so the read could never run."""
    for place, bundle in enumerate(merged.pack.policy_layer.policy_bundles):
        for index, rule in enumerate(bundle.policy_dsl.rules):
            declared = edges.capability(rule.applies_to.capability or "")
            if rule.then.requires_approval_gate and declared is not None and declared.kind == "read":
                path: PointerPath = ("policy_layer", "policy_bundles", place, "policy_dsl", "rules", index, "then")
                detail = f"`{rule.applies_to.capability}` is a read, and a gate is only for writes"
                yield Problem(
                    pointer((*path, "requires_approval_gate")),
                    "gate_on_read",
                    detail,
                    "drop the gate, or deny the read",
                )


def _lint_roles(merged: MergedArtifacts, held: HeldRoles) -> Iterator[Problem]:
    for index, gate in enumerate(merged.pack.policy_layer.approval_gates):
        if gate.required_approver_role not in held.approvers:
            path: PointerPath = ("policy_layer", "approval_gates", index, "required_approver_role")
            yield _unheld_role(path, "approver", gate.required_approver_role, held.approvers)
    for index, permission in enumerate(merged.pack.tooling_layer.permissions):
        for number, role in enumerate(permission.roles):
            if role not in held.users:
                path = ("tooling_layer", "permissions", index, "roles", number)
                yield _unheld_role(path, "user", role, held.users)


def _unheld_role(path: PointerPath, subject: str, role: str, roles: Collection[str]) -> Problem:
    name = nearest_name(role, roles)
    remedy = f"write `{name}`" if name else f"give somebody the role, or use one of {', '.join(roles) or 'no role yet'}"
    return Problem(pointer(path), "nobody_holds", f"no {subject} of the tenant holds the role `{role[:80]}`", remedy)
