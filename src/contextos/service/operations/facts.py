"""Facts: what the tenant's graph says of a subject, and the signed acts that set, replace, retract and load them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, Strict

from contextos.contracts.envelopes.evidence import commit_key
from contextos.contracts.ids import CEID, Ceid
from contextos.contracts.model import ListOnly, Model, Name, OpenObject
from contextos.contracts.refs import EvidenceRef
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.facts import write_facts
from contextos.service.facts import KnownFact, StatedFact
from contextos.service.operations.operation import (
    Asked,
    Operation,
    OperationFunction,
    Paged,
    opened_cursor,
    sealed_cursor,
)
from contextos.trust.approvals.acts import AUDITOR_ROLE, KNOWLEDGE_WRITER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE

FACT_READERS: Final = (KNOWLEDGE_WRITER_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)
MAX_LOADED: Final = 1_000
"""The most nodes, and the most edges, of one load."""
GraphRows = Annotated[tuple[OpenObject, ...], Strict(False), Field(max_length=MAX_LOADED), ListOnly()]


class FactQuery(Paged):
    """Which facts of a subject."""

    subject: Annotated[
        str,
        Field(max_length=CEID.max_chars, pattern=f"^(?:{CEID.loose})$", description="An entity: `customer:cus_77`."),
    ]
    predicate: Annotated[Name | None, Field(description="Only facts under it.")] = None
    snapshot: Annotated[
        Annotated[str, Field(max_length=24)] | None, Field(description="As in this one: `kg_7`. Default: now.")
    ] = None
    ended: Annotated[
        bool, Strict(False), Field(description="Instead the facts that were replaced or retracted before.")
    ] = False


class FactPage(Model):
    """A page of facts, by id, as they are in `snapshot`. `cursor` asks for the next page; null after the last."""

    items: list[KnownFact]
    snapshot: str
    cursor: str | None


class Retraction(Model):
    """The end of all facts of a subject under a predicate; `source` names the evidence that they no longer hold."""

    subject: Ceid
    predicate: Name
    source: EvidenceRef


class RetractedDocument(Model):
    """The facts that no longer hold."""

    subject: str
    predicate: str


class GraphDraft(Model):
    """Nodes and edges to write in one commit, in the form of the command `facts load`. What exists already stays."""

    nodes: GraphRows
    edges: GraphRows


class SnapshotDocument(Model):
    """The snapshot of the graph that contains what was written."""

    snapshot: str


async def list_facts(asked: Asked, query: FactQuery) -> FactPage:
    """List the facts of a subject that hold, or held in a snapshot."""
    list_name = (asked.tenant_id, "facts", query.subject, query.predicate, query.snapshot, query.ended)
    snapshot = query.snapshot or commit_key(await asked.app.deployment.graph(asked.tenant_id).head())
    page = await asked.app.facts.list(
        asked.tenant_id,
        query.subject,
        query.predicate,
        snapshot=snapshot,
        ended=query.ended,
        limit=query.limit,
        cursor=opened_cursor(list_name, query.cursor),
    )
    return FactPage(items=list(page.items), snapshot=snapshot, cursor=sealed_cursor(list_name, page.cursor))


async def set_fact(asked: Asked, fact: StatedFact) -> ActProposal[KnownFact]:
    """Write a fact that nothing contradicts yet. The same fact again changes nothing."""
    return await asked.app.facts.propose_set(asked.tenant_id, fact, by=asked.by)


async def replace_fact(asked: Asked, fact: StatedFact) -> ActProposal[KnownFact]:
    """End the facts that hold, and begin this one in the same commit. Approvals that rest on the old ones are void."""
    return await asked.app.facts.propose_replacement(asked.tenant_id, fact, by=asked.by)


async def retract_facts(asked: Asked, ended: Retraction) -> ActProposal[RetractedDocument]:
    """End every fact of a subject under a predicate."""

    async def document(_: int) -> RetractedDocument:
        return RetractedDocument(subject=ended.subject, predicate=ended.predicate)

    proposal = await asked.app.facts.propose_retraction(
        asked.tenant_id, ended.subject, ended.predicate, source=ended.source, by=asked.by
    )
    return proposal.then(document)


async def load_facts(asked: Asked, graph: GraphDraft) -> ActProposal[SnapshotDocument]:
    """Write nodes and edges in one commit."""

    async def document(commit: int) -> SnapshotDocument:
        return SnapshotDocument(snapshot=commit_key(commit))

    nodes, edges = graph.nodes, graph.edges
    proposal = await write_facts.propose(asked.app.deployment, asked.tenant_id, nodes, edges, by=asked.by)
    return proposal.then(document)


def _change(
    verb: str, draft: type[Model], answer: type[Model], run: OperationFunction, signs: str, path: str = "", **how: Any
) -> Operation:
    """Return the operation `facts.<verb>`, by which a knowledge writer changes facts, at `/facts` and `path`."""
    address = ("POST", f"/facts{path}")
    return Operation(f"facts.{verb}", address, (KNOWLEDGE_WRITER_ROLE,), draft, answer, run, signs=signs, **how)


_ENDS: Final = "end the facts of a subject under a predicate"
FACT_OPERATIONS: Final = (
    Operation("facts.list", ("GET", "/facts"), FACT_READERS, FactQuery, FactPage, list_facts),
    _change("set", StatedFact, KnownFact, set_fact, "write a fact", status=201),
    _change("replace", StatedFact, KnownFact, replace_fact, "replace a fact", "/replace"),
    _change("retract", Retraction, RetractedDocument, retract_facts, _ENDS, "/retract"),
    _change("load", GraphDraft, SnapshotDocument, load_facts, "write nodes and edges", "/load"),
)
