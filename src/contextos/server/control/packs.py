"""Packs, policies and catalogs: list and read what is published, publish, and withdraw.

Publishing needs an envelope that the author signed (DSSE) and the act of a publisher. A withdrawal is an act on the
active set, which names the `version` that its actor saw.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final, Self

from fastapi import APIRouter, Header, Path, Response

from contextos.contracts.model import Count, Model, OpenObject
from contextos.deployment.acts.act import Actor
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.acts.governance import publish_artifact, withdraw_artifact
from contextos.errors import SignatureInvalid
from contextos.server.access import RolesHere, require_role
from contextos.server.bodies import body_of, json_of
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.server.shared.forms import ActReason
from contextos.server.shared.pages import Limit, LongCursor, is_unchanged, unchanged
from contextos.server.shared.signing import Signed, act_document, signing_actor
from contextos.service.artifacts import CatalogArtifact
from contextos.service.views import ActDocument, ProblemPart
from contextos.trust.approvals.acts import AUDITOR_ROLE, POLICY_ADMIN_ROLE, PUBLISHER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE
from contextos.workspace import App

pack_routes: Final = APIRouter(tags=["packs"])

PACK_READERS: Final = (PUBLISHER_ROLE, POLICY_ADMIN_ROLE, AUDITOR_ROLE, OPERATOR_ROLE)
"""The roles that read what is published and active."""

RefName = Annotated[str, Path(alias="ref", description="The exact reference of a published artifact: `<id>@<x.y.z>`.")]


class ArtifactSummary(Model):
    """A published artifact. `digest` is the content address of its JSON, which never changes under this `ref`."""

    ref: str
    kind: str
    digest: str
    publisher: str
    withdrawn: bool

    @classmethod
    def of_artifact(cls, one: CatalogArtifact) -> Self:
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class ArtifactDocument(ArtifactSummary):
    """A published artifact with its JSON."""

    document: OpenObject


class ArtifactPage(Model):
    """A page of published artifacts, by reference. `cursor` asks for the next page; null after the last."""

    items: list[ArtifactSummary]
    cursor: str | None


class Publication(Model):
    """An artifact that its author signed: a DSSE envelope over its canonical JSON."""

    envelope: OpenObject


class SignedPublication(Publication, Signed):
    """A publication, with the publisher's proof."""


class PublishedDocument(Model):
    """What was published, or was before."""

    ref: str


class Withdrawal(Model):
    """The end of a published artifact, for ever and with all its pins. `expected` is the `version` of the active set
    that the actor saw.
    """

    reason: ActReason = ""
    expected: Count


class SignedWithdrawal(Withdrawal, Signed):
    """A withdrawal, with the actor's proof."""


class UnmatchedInForce(ProblemPart):
    """What is in force in the policy or pack `ref` and cannot match now or can be passed by, with its place and the
    reason.
    """

    ref: str


class ActiveVersion(Model):
    """The version of the active set after an act on it. `unmatched` is all that cannot match now of what is in force,
    and each pack beside which a request can choose an earlier version, or one that only observes.
    """

    version: int
    unmatched: list[UnmatchedInForce]


PublicationBody = Annotated[Publication, json_of(Publication)]
SignedPublicationBody = Annotated[SignedPublication, json_of(SignedPublication)]
WithdrawalBody = Annotated[Withdrawal, json_of(Withdrawal)]
SignedWithdrawalBody = Annotated[SignedWithdrawal, json_of(SignedWithdrawal)]


@pack_routes.get("/packs")
async def get_packs(
    app: AppHere, caller: CallerHere, roles: RolesHere, limit: Limit = 50, cursor: LongCursor = ""
) -> ArtifactPage:
    """List the packs, policies and catalogs that are published, by reference."""
    require_role(roles, *PACK_READERS)
    page = await app.artifacts.list(caller.tenant_id, limit=limit, cursor=cursor)
    return ArtifactPage(items=[ArtifactSummary.of_artifact(one) for one in page.items], cursor=page.cursor)


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
    found = await app.artifacts.get(caller.tenant_id, ref)
    # Whether it is withdrawn can change, and its content cannot.
    tag = f'"{found.digest}{"-withdrawn" if found.withdrawn else ""}"'
    if is_unchanged(tag, if_none_match):
        return unchanged(tag)
    response.headers["ETag"] = tag
    return ArtifactDocument(**ArtifactSummary.of_artifact(found).to_json(), document=dict(found.document or {}))


@pack_routes.post("/packs/statement", openapi_extra=body_of(Publication))
async def post_publication_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, sent: PublicationBody
) -> ActDocument:
    """Return what the caller signs to publish an artifact. Nothing is published."""
    require_role(roles, PUBLISHER_ROLE)
    return await act_document(app, caller, lambda by: _publish(app, caller.tenant_id, sent, by))


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
    ref, new = await _publish(app, caller.tenant_id, sent, signing_actor(app, caller, sent))
    if not new:
        response.status_code = 200
    return PublishedDocument(ref=ref)


@pack_routes.post("/packs/{ref}/withdraw/statement", openapi_extra=body_of(Withdrawal))
async def post_withdrawal_statement(
    app: AppHere, caller: CallerHere, roles: RolesHere, ref: RefName, sent: WithdrawalBody
) -> ActDocument:
    """Return what the caller signs to withdraw a published artifact. Nothing is changed."""
    require_role(roles, POLICY_ADMIN_ROLE)
    return await act_document(app, caller, lambda by: _withdraw(app, caller.tenant_id, ref, sent, by))


@pack_routes.post("/packs/{ref}/withdraw", openapi_extra=body_of(SignedWithdrawal))
async def post_withdrawal(
    app: AppHere, caller: CallerHere, roles: RolesHere, ref: RefName, sent: SignedWithdrawalBody
) -> ActiveVersion:
    """Withdraw a published artifact: no new run uses it, and what waits for an approval under it is void."""
    require_role(roles, POLICY_ADMIN_ROLE)
    await _withdraw(app, caller.tenant_id, ref, sent, signing_actor(app, caller, sent))
    return await active_version(app, caller.tenant_id, sent.expected + 1)


async def active_version(app: App, tenant_id: str, version: int) -> ActiveVersion:
    """Return the answer to an act on the active set, which has this version now."""
    return ActiveVersion(version=version, unmatched=await unmatched_in(app, tenant_id))


async def unmatched_in(app: App, tenant_id: str) -> list[UnmatchedInForce]:
    """Return what the command line says of the policies and packs in force, too."""
    found = await app.configuration.of_tenant(tenant_id)
    return [UnmatchedInForce(ref=ref, **asdict(one)) for ref, one in found]


async def _publish(app: App, tenant_id: str, sent: Publication, by: Actor) -> tuple[str, bool]:
    try:
        app.deployment.catalog(tenant_id).opened(dict(sent.envelope))
    except SignatureInvalid:
        detail = "no key that may sign packs here signed the envelope; its author signs it"
        raise HttpProblem(403, "not_signed", detail) from None
    return await publish_artifact(app.deployment, tenant_id, sent.envelope, by=by)


async def _withdraw(app: App, tenant_id: str, ref: str, sent: Withdrawal, by: Actor) -> None:
    refuse_reason(sent.reason)
    await withdraw_artifact(app.deployment, tenant_id, ref, reason=sent.reason, expected=sent.expected, by=by)
