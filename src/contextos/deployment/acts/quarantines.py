"""The act with which an operator ends the quarantine of a capability, and what is in quarantine now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from contextos.action.registry import Registry
from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident, quarantine_key
from contextos.contracts.ports.outside import Adapter
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_commit
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidInput, NotFound, Problem
from contextos.trust.approvals.quarantines import open_incidents

MAX_RELEASED: Final = 1_000
"""The most incidents that one act releases."""


@Act
async def release_capability(
    app: Deployment, tenant_id: str, capability_id: str, *, reason: str, by: Actor
) -> ActProposal[Sequence[str]]:
    """End the quarantine of a capability, and return the keys of the incidents that are released.

    Its definition is still compared, so a tool that differs from its published definition is quarantined again.

    Raises:
        NotFound: the capability is not in quarantine.
        ApprovalRefused, Unavailable: as `prove_act`.
        InvalidInput: there is no reason, or it has unsafe text.
    """
    refuse_reason(reason)
    if not reason.strip():
        raise InvalidInput(Problem("/reason", "no_reason", "a release has a reason", "say what you found"))
    incidents = await open_incidents(app.ports.stores.tenant(tenant_id), app.ports.keys, f"{capability_id}/")
    if not incidents:
        detail = f"`{capability_id[:200]}` is not in quarantine in this tenant; see `contextos adapters list`"
        raise NotFound(detail)
    arguments = {"capability_id": capability_id, "incidents": list(incidents[:MAX_RELEASED]), "reason": reason}
    proposed = ProposedAct("capability.released", capability_id, arguments)

    async def return_incidents(_: None) -> Sequence[str]:
        return incidents[:MAX_RELEASED]

    return propose_commit(app.ports, app.config, tenant_id, proposed, by).then(return_incidents)


async def quarantined_capabilities(app: Deployment, tenant_id: str, adapter: Adapter) -> Mapping[str, DriftIncident]:
    """Return the capabilities of an adapter that are in quarantine as they are published now, by name, each with one
    incident that keeps it there.
    """
    store, code = app.ports.stores.tenant(tenant_id), app.ports.code.adapter(adapter) or ""
    quarantined = {}
    for name, capability in Registry().register((adapter.describe(),)).items():
        keys = await open_incidents(store, app.ports.keys, quarantine_key(name, capability.definition_digest, code))
        incident = await DRIFT_INCIDENTS.one(store, keys[0]) if keys else None
        if incident is not None:
            quarantined[capability.definition.name] = incident.body
    return quarantined
