"""Decide which capabilities a run can see: by registry and permissions, then policy, then the ceiling, then lifecycle.

A capability without its own policy decision at the point `compile` is not surfaced. Every registered capability is
reported with a reason, surfaced or not.
Source: How It Works, step 2; docs/design/contracts.md, "Compile", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode, ArgConstraint, PolicyDecision

SURFACED: Final = "surfaced"

_RANK: Final[dict[str, int]] = {mode: rank for rank, mode in enumerate(APPROVAL_MODES)}


def surface_reason(capability: SurfaceCapability, decision: PolicyDecision | None, ceiling: ApprovalMode) -> str:
    """Return `surfaced` if this run can see the tool, otherwise the first reason that hides it.

    `ceiling` is compared with the declared approval mode, the highest mode that the tool can use.
    """
    if not capability.granted or capability.withheld is not None:
        return capability.withheld or "no_permission"
    if not _allows(decision, capability.capability_id):
        return "policy_denied"
    if _RANK[capability.approval_mode] > _RANK[ceiling]:
        return "above_safety_mode"
    if capability.lifecycle != "active":
        return capability.lifecycle
    return SURFACED


def _allows(decision: PolicyDecision | None, capability_id: str) -> bool:
    return (
        decision is not None
        and decision.allowed
        and decision.point == "compile"
        and decision.capability_id == capability_id
    )


def tool_manifest(
    surfaced: Iterable[SurfaceCapability], constraints: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Build the manifest of tools that a run can use, one `ToolManifestEntry` as JSON per adapter, in the given
    order.
    """
    entries: dict[str, dict[str, Any]] = {}
    for capability in surfaced:
        adapter_id, _, name = capability.capability_id.rpartition(".")
        empty: dict[str, Any] = {
            "adapter_id": adapter_id,
            "capabilities": [],
            "constraints": {},
            "capability_metadata": {},
        }
        entry = entries.setdefault(adapter_id, empty)
        entry["capabilities"].append(name)
        entry["capability_metadata"][name] = {
            "kind": capability.kind,
            "risk_level": capability.risk_level,
            "approval_mode": capability.approval_mode,
            "source": "adapter_registry",
        }
        if bounds := constraints[capability.capability_id]:
            entry["constraints"][name] = bounds
    return list(entries.values())


def united_constraints(capability: SurfaceCapability, decision: PolicyDecision) -> dict[str, Any]:
    """Return, for each argument, the constraints of the permission and of policy together. All of them apply."""
    from_policy = decision.arg_constraints
    return {
        name: _unique_constraints((*capability.constraints.get(name, ()), *from_policy.get(name, ())))
        for name in sorted({*capability.constraints, *from_policy})
    }


def _unique_constraints(constraints: tuple[ArgConstraint, ...]) -> list[Any]:
    if len(constraints) == 1:
        return [constraints[0].to_json()]
    by_text = {canonical(value): value for value in (constraint.to_json() for constraint in constraints)}
    return [by_text[text] for text in sorted(by_text)]
