"""Lints egress: each call that leaves the machine names its endpoints, and the pack and the tenant allow each of them.

Code of an adapter runs in the process, where it cannot be limited to some of the endpoints that it declares. So an
endpoint that the adapter declares and another list lacks refuses the pack, and is not merely left out.
Source: docs/design/contracts.md, "Approval modes"; docs/security.md, "Egress".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import nearest_name
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import PointerPath
from contextos.errors import Problem


def lint_egress(
    merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition] | None, tenant: Collection[str] | None = None
) -> Iterator[Problem]:
    """Yield a problem for each endpoint outside the machine that a list lacks. If `tenant` (the tenant's list) is None,
    only the list of the pack is compared.
    """
    if definitions is None:
        yield from _lint_stated_modes(merged)
        return
    layer = merged.pack.tooling_layer
    for place, entry in enumerate(layer.adapter_registry):
        adapter = definitions.get(entry.adapter_id)
        outbound = {tool.name for tool in adapter.capabilities if adapter.leaves(tool)} if adapter else set[str]()
        for index, name in enumerate(entry.capabilities):
            if adapter is None or name not in outbound:
                continue
            path: PointerPath = ("tooling_layer", "adapter_registry", place, "capabilities", index)
            if not adapter.egress:
                detail = f"`{entry.adapter_id}.{name}` leaves the machine, and its adapter declares no endpoint"
                yield Problem(pointer(path), "no_egress_list", detail, "list its endpoints in `egress` of the adapter")
            for endpoint in adapter.egress:
                if endpoint not in layer.egress:
                    remedy = _remedy(endpoint, layer.egress, "`tooling_layer.egress`")
                    yield _endpoint_problem(path, endpoint, entry.adapter_id, "the pack", remedy)
                elif tenant is not None and endpoint not in tenant:
                    remedy = _remedy(endpoint, tenant, "the tenant's list in `[egress]` of the settings")
                    yield _endpoint_problem(path, endpoint, entry.adapter_id, "the tenant", remedy)


def _lint_stated_modes(merged: MergedArtifacts) -> Iterator[Problem]:
    """Yield a problem for a step that states `network` in a pack without a list, before the adapters are known."""
    for number, template in enumerate(merged.pack.decision_layer.task_templates):
        for index, step in enumerate(template.steps):
            if step.approval_mode == "network" and not merged.pack.tooling_layer.egress:
                path: PointerPath = ("decision_layer", "task_templates", number, "steps", index, "approval_mode")
                detail = f"`{step.tool}` leaves the machine, and the pack lists no endpoint"
                yield Problem(pointer(path), "no_egress_list", detail, "list its endpoints in `tooling_layer.egress`")


def _remedy(endpoint: str, endpoints: Collection[str], where: str) -> str:
    nearest = nearest_name(endpoint, endpoints)
    return f"write `{endpoint}` for `{nearest}` in {where}" if nearest else f"add it to {where}, or drop the capability"


def _endpoint_problem(path: PointerPath, endpoint: str, adapter_id: str, owner: str, remedy: str) -> Problem:
    detail = f"`{adapter_id}` reaches `{endpoint}`, which {owner} does not allow"
    return Problem(pointer(path), "egress_not_allowed", detail, remedy)
