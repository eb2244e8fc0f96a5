"""Facts: what the tenant's graph says of a subject, and the signed acts that set, replace, retract and load it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Query
from pydantic import Field, Strict

from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel, commit_key
from contextos.contracts.ids import CEID, Ceid
from contextos.contracts.model import MAX_NAME_CHARS, ListOnly, Model, Name, OpenObject
from contextos.contracts.refs import EvidenceRef
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.facts import write_facts
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.shared.pages import Limit, LongCursor, opened_cursor, sealed_cursor
from contextos.server.shared.signing import Signed, act_document, signing_actor
from contextos.service.facts import KnownFact, StatedFact
from contextos.service.views import ActDocument
from contextos.trust.approvals.acts import AUDITOR_ROLE, KNOWLEDGE_WRITER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from contextos.workspace import App

fact_routes: Final = APIRouter(tags=["facts"])

FACT_READERS: Final = (KNOWLEDGE_WRITER_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)


MAX_LOADED: Final = 1_000
"""The most nodes, and the most edges, of one load."""
GraphRows = Annotated[tuple[OpenObject, ...], Strict(False), Field(max_length=MAX_LOADED), ListOnly()]


class FactDocument(Model):
    """A fact: `subject` has `value` under `predicate`. `source` refers to the evidence, and `snapshot` is the first one
    that contains it.
    """

    fact_id: str
    subject: str
    predicate: str
    value: Any
    source: str
    integrity: IntegrityLevel
    classification: Classification
    snapshot: str

    @classmethod
    def of_fact(cls, fact: KnownFact) -> Self:
        return cls(**{name: getattr(fact, name) for name in cls.model_fields})


class FactPage(Model):
    """A page of facts, by id, as they are in `snapshot`. `cursor` asks for the next page; null after the last."""

    items: list[FactDocument]
    snapshot: str
    cursor: str | None


class FactDraft(StatedFact):
    """A fact as its writer states it, and when it was observed, in Unix microseconds. Only a `trusted` fact answers a
    requirement of a decision.
    """


class SignedFact(FactDraft, Signed):
    """A fact, with its writer's proof."""


class Retraction(Model):
    """The end of every fact of a subject under a predicate; `source` refers to the evidence that it holds no longer."""

    subject: Ceid
    predicate: Name
    source: EvidenceRef


class SignedRetraction(Retraction, Signed):
    """A retraction, with its writer's proof."""


class RetractedDocument(Model):
    """What holds no longer."""

    subject: str
    predicate: str


class GraphDraft(Model):
    """Nodes and edges to write in one commit, in the form of the command `facts load`. What is there is kept."""

    nodes: GraphRows
    edges: GraphRows


class SignedGraph(GraphDraft, Signed):
    """Nodes and edges, with their writer's proof."""


class SnapshotDocument(Model):
    """The snapshot of the graph that contains what was written."""

    snapshot: str


FactBody = Annotated[FactDraft, json_of(FactDraft)]
SignedFactBody = Annotated[SignedFact, json_of(SignedFact)]
RetractionBody = Annotated[Retraction, json_of(Retraction)]
SignedRetractionBody = Annotated[SignedRetraction, json_of(SignedRetraction)]
GraphBody = Annotated[GraphDraft, json_of(GraphDraft)]
SignedGraphBody = Annotated[SignedGraph, json_of(SignedGraph)]


@fact_routes.get("/facts")
async def get_facts(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    subject: Annotated[
        str,
        Query(max_length=CEID.max_chars, pattern=f"^(?:{CEID.loose})$", description="An entity: `customer:cus_77`."),
    ],
    predicate: Annotated[str | None, Query(max_length=MAX_NAME_CHARS, description="Only facts under it.")] = None,
    snapshot: Annotated[str | None, Query(max_length=24, description="As in this one: `kg_7`. Default: now.")] = None,
    limit: Limit = 50,
    cursor: LongCursor = "",
) -> FactPage:
    """List the facts of a subject that hold, or held in a snapshot."""
    require_role(roles, *FACT_READERS)
    of = (caller.tenant_id, "facts", subject, predicate, snapshot)
    at = snapshot or commit_key(await app.deployment.graph(caller.tenant_id).head())
    page = await app.facts.list(
        caller.tenant_id, subject, predicate, snapshot=at, limit=limit, cursor=opened_cursor(of, cursor)
    )
    items = [FactDocument.of_fact(one) for one in page.items]
    return FactPage(items=items, snapshot=at, cursor=sealed_cursor(of, page.cursor))


@fact_routes.post("/facts/statement", openapi_extra=body_of(FactDraft))
async def post_fact_statement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: FactBody) -> ActDocument:
    """Return what the caller signs to write a fact. Nothing is written."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return await act_document(app, caller, lambda by: _set(app, caller.tenant_id, sent, by))


@fact_routes.post("/facts", status_code=201, openapi_extra=body_of(SignedFact))
async def post_fact(app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedFactBody) -> FactDocument:
    """Write a fact that nothing contradicts yet. The same fact again changes nothing."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return FactDocument.of_fact(await _set(app, caller.tenant_id, sent, signing_actor(app, caller, sent)))


@fact_routes.post("/facts/replace/statement", openapi_extra=body_of(FactDraft))
async def post_replacement_statement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: FactBody) -> ActDocument:
    """Return what the caller signs to replace a fact. Nothing is written."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return await act_document(app, caller, lambda by: _replace(app, caller.tenant_id, sent, by))


@fact_routes.post("/facts/replace", openapi_extra=body_of(SignedFact))
async def post_replacement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedFactBody) -> FactDocument:
    """End the facts that hold, and begin this one in the same commit. Approvals that rest on the old ones are void."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return FactDocument.of_fact(await _replace(app, caller.tenant_id, sent, signing_actor(app, caller, sent)))


@fact_routes.post("/facts/retract/statement", openapi_extra=body_of(Retraction))
async def post_retraction_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: RetractionBody
) -> ActDocument:
    """Return what the caller signs to end the facts of a subject under a predicate. Nothing is written."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return await act_document(app, caller, lambda by: _retract(app, caller.tenant_id, sent, by))


@fact_routes.post("/facts/retract", openapi_extra=body_of(SignedRetraction))
async def post_retraction(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedRetractionBody
) -> RetractedDocument:
    """End every fact of a subject under a predicate."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    await _retract(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    return RetractedDocument(subject=sent.subject, predicate=sent.predicate)


@fact_routes.post("/facts/load/statement", openapi_extra=body_of(GraphDraft))
async def post_load_statement(app: AppHere, caller: CallerHere, roles: RolesHere, sent: GraphBody) -> ActDocument:
    """Return what the caller signs to write nodes and edges. Nothing is written."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    return await act_document(app, caller, lambda by: _load(app, caller.tenant_id, sent, by))


@fact_routes.post("/facts/load", openapi_extra=body_of(SignedGraph))
async def post_load(app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedGraphBody) -> SnapshotDocument:
    """Write nodes and edges in one commit."""
    require_role(roles, KNOWLEDGE_WRITER_ROLE)
    commit = await _load(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    return SnapshotDocument(snapshot=commit_key(commit))


async def _set(app: App, tenant_id: str, sent: FactDraft, by: Actor) -> KnownFact:
    return await app.facts.set(tenant_id, sent.subject, sent.predicate, sent.value, **_known(sent), by=by)


async def _replace(app: App, tenant_id: str, sent: FactDraft, by: Actor) -> KnownFact:
    return await app.facts.replace(tenant_id, sent.subject, sent.predicate, sent.value, **_known(sent), by=by)


async def _retract(app: App, tenant_id: str, sent: Retraction, by: Actor) -> None:
    await app.facts.retract(tenant_id, sent.subject, sent.predicate, source=sent.source, by=by)


async def _load(app: App, tenant_id: str, sent: GraphDraft, by: Actor) -> int:
    return await write_facts(app.deployment, tenant_id, sent.nodes, sent.edges, by=by)


def _known(sent: FactDraft) -> dict[str, Any]:
    return {
        "source": sent.source,
        "integrity": sent.integrity,
        "classification": sent.classification,
        "observed_at_us": sent.observed_at_us,
    }
