"""Packs, policies and catalogs over HTTP, beside the table of operations: read one with its tag, and publish.

Publishing needs an envelope that the author signed (DSSE) and the act of a publisher.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Response

from contextos.contracts.model import Model, OpenObject
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.acts.governance import publish_artifact
from contextos.errors import SignatureInvalid
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.pages import is_unchanged, unchanged
from contextos.service.acts import act_document, done_with, signer_elsewhere
from contextos.service.artifacts import ArtifactDocument
from contextos.service.operations.operation import Signed
from contextos.service.operations.packs import PACK_READERS, REF
from contextos.service.views import ActDocument
from contextos.trust.approvals.acts import PUBLISHER_ROLE
from contextos.trust.identity.callers import Caller
from contextos.workspace import App

pack_routes: Final = APIRouter(tags=["packs"])

RefName = Annotated[str, Path(alias=REF.name, description=REF.description)]


class Publication(Model):
    """An artifact that its author signed: a DSSE envelope over its canonical JSON."""

    envelope: OpenObject


class SignedPublication(Publication, Signed):
    """A publication, with the publisher's proof."""


class PublishedDocument(Model):
    """The ref of the artifact that is published, now or by an earlier request."""

    ref: str


PublicationBody = Annotated[Publication, json_of(Publication)]
SignedPublicationBody = Annotated[SignedPublication, json_of(SignedPublication)]


@pack_routes.get(
    "/packs/{ref}",
    response_model=ArtifactDocument,
    responses={304: {"description": "The artifact is the one that `If-None-Match` names."}},
)
async def get_pack(
    app: AppHere,
    caller: CallerHere,
    roles: RolesHere,
    ref: RefName,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=1_000)] = None,
) -> ArtifactDocument | Response:
    """Read one published artifact. `ETag` is the digest of its content."""
    require_role(roles, *PACK_READERS)
    artifact = await app.artifacts.get(caller.tenant_id, ref)
    # Whether it is withdrawn can change, and its content cannot.
    tag = f'"{artifact.digest}{"-withdrawn" if artifact.withdrawn else ""}"'
    if is_unchanged(tag, if_none_match):
        return unchanged(tag)
    response.headers["ETag"] = tag
    return artifact


@pack_routes.post("/packs/statement", openapi_extra=body_of(Publication))
async def post_publication_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: PublicationBody
) -> ActDocument:
    """Return what the caller signs to publish an artifact. Nothing is published."""
    require_role(roles, PUBLISHER_ROLE)
    return await act_document(app.deployment, caller.tenant_id, await _propose_publication(app, caller, sent))


@pack_routes.post(
    "/packs",
    status_code=201,
    responses={200: {"model": PublishedDocument, "description": "The same content is published already."}},
    openapi_extra=body_of(SignedPublication),
)
async def post_publication(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: SignedPublicationBody, response: Response
) -> PublishedDocument:
    """Publish an artifact. Nothing uses it before it is pinned or activated, and its publisher approves no run of it.

    The same content again changes nothing.
    """
    require_role(roles, PUBLISHER_ROLE)
    ref, is_new = await done_with(app.deployment, await _propose_publication(app, caller, sent), sent.tokens)
    if not is_new:
        response.status_code = 200
    return PublishedDocument(ref=ref)


async def _propose_publication(app: App, caller: Caller, publication: Publication) -> ActProposal[tuple[str, bool]]:
    try:
        app.deployment.catalog(caller.tenant_id).opened(dict(publication.envelope))
    except SignatureInvalid:
        detail = "no key that may sign packs here signed the envelope; its author signs it"
        raise HttpProblem(403, "not_signed", detail) from None
    by = signer_elsewhere(caller.subject)
    return await publish_artifact.propose(app.deployment, caller.tenant_id, publication.envelope, by=by)
