"""Writes facts into a tenant's graph, as a signed act of the person who wrote them. The act names each edge by its
digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.acts import ProposedAct
from contextos.contracts.encoding.instants import unix_us
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.evidence import commit_key
from contextos.contracts.journal import Draft
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_acts
from contextos.deployment.deployment import Deployment
from contextos.errors import Conflict, InvalidInput, Problem
from contextos.trust.recorded_time import recorded_now_us

MAX_WITHDRAWN: Final = 100
"""The most edges that one call withdraws: each withdrawal is a separate act, under the id of the edge."""
MAX_WRITER_AHEAD_US: Final = 300_000_000
"""How far the clock of a writer can be ahead of the record, in microseconds."""
_MAX_EDGES_CHARS: Final = 8_000
"""The most characters of the ids and digests of the edges in one act. The signed token contains them in base64."""


@Act
async def write_facts(
    app: Deployment,
    tenant_id: str,
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Mapping[str, Any]],
    *,
    by: Actor,
    expect: int | None = None,
) -> ActProposal[int]:
    """Append nodes and edges to the graph as one commit, with the acts that name them; return the commit's number.

    What the graph has already is not appended again. `nodes` and `edges` have the form that `Graph.put` takes. `expect`
    is the number of the newest commit that the caller read, or None to accept any.

    Raises:
        InvalidInput: a node or an edge is malformed or has no evidence; an edge withdraws one that is not valid, or was
            observed more than `MAX_WRITER_AHEAD_US` after now; or more than `MAX_WITHDRAWN` edges are withdrawn.
        ApprovalRefused: as `prove_act`; the role is `knowledge_writer`.
        Integrity: the newest commit of the graph is not the last one that an act made.
        Conflict: the newest commit is not `expect`, or another process wrote at the same moment; read the graph, and
            write again.
    """
    _refuse_future(edges, await recorded_now_us(app.ports, tenant_id) + MAX_WRITER_AHEAD_US)
    graph = app.ports.stores.graph(tenant_id)
    await app.graph(tenant_id).head()
    plan = await graph.plan(nodes, edges)
    if expect not in (None, plan.number - 1):
        raise Conflict("graph")
    if not plan.changes:
        return ActProposal.of_nothing(by, plan.number - 1)
    if len(plan.withdrawn) > MAX_WITHDRAWN:
        detail = f"one call withdraws at most {MAX_WITHDRAWN} edges"
        raise InvalidInput(Problem("/edges", "too_many", detail, "withdraw them in several calls"))
    previous = plan.number - 1
    commit_fields = {"commit": plan.number} | ({"nodes": content_address(list(nodes))} if nodes else {})
    proposed = [
        ProposedAct("graph.written", commit_key(plan.number), {**commit_fields, "edges": edges}, previous)
        for edges in _edges_per_act(plan.appended)
    ]
    proposed += [
        ProposedAct("graph.withdrawn", edge_id, {**fields, "edge_id": edge_id, "evidence_ref": ref}, previous)
        for edge_id, ref in plan.withdrawn.items()
        for fields in [{"commit": plan.number, "fact_digest": plan.ended[edge_id]}]
    ]

    async def write(acts: Sequence[Draft]) -> int:
        return await graph.put(nodes, edges, acts=acts, expect=previous)

    return propose_acts(app.ports, app.config, tenant_id, proposed, by, write)


def _refuse_future(edges: Sequence[Mapping[str, Any]], latest_us: int) -> None:
    """Refuse an observation that is dated in the future: until then it would pass every limit on age."""
    for index, edge in enumerate(edges):
        observed = edge.get("observed_at")
        observed_us = unix_us(observed) if isinstance(observed, str) else observed
        if isinstance(observed_us, int) and observed_us > latest_us:
            remedy = "write the time at which it was observed; a number is in microseconds since 1970"
            raise InvalidInput(Problem(f"/edges/{index}/observed_at", "not_yet", "the time lies ahead", remedy))


def _edges_per_act(digests: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the appended edges (id -> digest) of each act, as many as fit its signature; one empty mapping without
    edges.
    """
    edges: dict[str, str] = {}
    chars = 0
    for edge_id, digest in digests.items():
        chars += len(canonical([edge_id, digest]))
        if edges and chars > _MAX_EDGES_CHARS:
            yield edges
            edges, chars = {}, len(canonical([edge_id, digest]))
        edges[edge_id] = digest
    yield edges
