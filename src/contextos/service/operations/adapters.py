"""Adapters: the tools that runs of a tenant can call, as they are defined here, and the end of a quarantine.

A tool is in quarantine from the call that found another definition than the published one, until an operator ends it.
`contextos adapters list` also asks each server what it defines now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final

from pydantic import Field

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.tool import CapabilityKind, capability_id
from contextos.contracts.model import Model, OpenObject
from contextos.contracts.ports.outside import Adapter
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.quarantines import MAX_RELEASED, quarantined_capabilities, release_capability
from contextos.service.operations.operation import READER_ROLES, ActReason, Asked, Named, Operation, Paged, page_of
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from contextos.trust.approvals.quarantines import open_incidents

QUARANTINED: Final = Named("capability", "The id of a tool, such as `desk.look_up`.")


class QuarantineDocument(Model):
    """Why a tool is in quarantine: the run whose call found the change, and when, in Unix microseconds. `incidents` are
    what an act that ends the quarantine releases.
    """

    run_id: str
    at_us: int
    incidents: list[str]


class AdapterTool(Model):
    """A tool of an adapter. `definition` is what the adapter says of it, and `adapter_digest` the content address of
    all that the adapter says. `egress` are the endpoints that the adapter reaches. `quarantine` is null while calls are
    sent.
    """

    capability_id: str
    adapter_id: str
    type: str
    version: str
    external: bool
    egress: list[str]
    kind: CapabilityKind
    approval_mode: ApprovalMode
    quarantine: QuarantineDocument | None
    adapter_digest: str
    definition: OpenObject


class AdapterToolPage(Model):
    """A page of tools, by id. `cursor` asks for the next page; null after the last."""

    items: list[AdapterTool]
    cursor: str | None


class ReleaseDraft(Model):
    """The reason for which a tool is to be called again: what was found."""

    reason: Annotated[ActReason, Field(min_length=1)]


class ReleasedDocument(Model):
    """The incidents that no longer keep a tool in quarantine."""

    capability_id: str
    incidents: list[str]


async def list_tools(asked: Asked, page: Paged) -> AdapterToolPage:
    """List the tools of the adapters, as they are defined here, and those that are in quarantine."""
    adapters = asked.app.deployment.ports.adapters(asked.tenant_id)
    tools = sorted(
        (capability_id(described, tool), name, tool.name)
        for name, described in ((name, one.describe()) for name, one in adapters.items())
        for tool in described.capabilities
    )
    of = (asked.tenant_id, "tools", content_address([list(tool) for tool in tools]))
    shown, following = page_of(tools, of, page.limit, page.cursor)
    names = dict.fromkeys(name for _, name, _ in shown)
    found = {one.capability_id: one for name in names async for one in _tools_of(asked, adapters[name])}
    return AdapterToolPage(items=[found[tool] for tool, _, _ in shown], cursor=following)


async def release(asked: Asked, draft: ReleaseDraft) -> ActProposal[ReleasedDocument]:
    """End the quarantine of a tool. Its definition is compared as before, so a tool that still differs is refused again
    and put back.
    """

    async def released(incidents: Sequence[str]) -> ReleasedDocument:
        return ReleasedDocument(capability_id=asked.name, incidents=list(incidents))

    deployment = asked.app.deployment
    act = release_capability.propose(deployment, asked.tenant_id, asked.name, reason=draft.reason, by=asked.by)
    return (await act).then(released)


async def _tools_of(asked: Asked, adapter: Adapter) -> AsyncIterator[AdapterTool]:
    deployment, described = asked.app.deployment, adapter.describe()
    quarantined = await quarantined_capabilities(deployment, asked.tenant_id, adapter)
    store, digest = deployment.ports.stores.tenant(asked.tenant_id), content_address(described.to_json())
    for tool in described.capabilities:
        name, quarantine = capability_id(described, tool), None
        if incident := quarantined.get(tool.name):
            keys = await open_incidents(store, deployment.ports.keys, f"{name}/")
            quarantine = QuarantineDocument(
                run_id=incident.run_id, at_us=incident.at_us, incidents=list(keys[:MAX_RELEASED])
            )
        yield AdapterTool(
            capability_id=name,
            adapter_id=described.adapter_id,
            type=described.type,
            version=described.version,
            external=described.external,
            egress=[str(endpoint) for endpoint in described.egress],
            kind=tool.kind,
            approval_mode=tool.approval_mode,
            quarantine=quarantine,
            adapter_digest=digest,
            definition=tool.to_json(),
        )


ADAPTER_OPERATIONS: Final = (
    Operation("adapters.list", ("GET", "/adapters"), READER_ROLES, Paged, AdapterToolPage, list_tools),
    Operation(
        "adapters.release",
        ("POST", "/adapters/{capability}/release"),
        (OPERATOR_ROLE,),
        ReleaseDraft,
        ReleasedDocument,
        release,
        signs="end the quarantine of a tool",
        about=QUARANTINED,
    ),
)
