"""`app.artifacts`: the artifacts that are published in a tenant, and which of them are active."""

from __future__ import annotations

from collections.abc import Collection

from contextos.contracts.documents.catalog import PINS, PublishedPin
from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.ids import PIN
from contextos.contracts.model import Model, OpenObject
from contextos.control.artifact_repository import ActiveArtifacts
from contextos.deployment.deployment import Deployment
from contextos.errors import Integrity, InvalidInput, NotFound, Problem
from contextos.service.pages import Page, check_limit


class CatalogArtifact(Model):
    """A published artifact under its reference for ever. `kind` is `context_pack`, `policy_bundle`, `intent_catalog`,
    `decision_catalog`, `model_profile` or `routing_rules`, and `digest` the content address of its JSON. `withdrawn`:
    no new run uses it.
    """

    ref: str
    kind: str
    digest: str
    publisher: str
    withdrawn: bool


class ArtifactDocument(CatalogArtifact):
    """A published artifact with its JSON."""

    document: OpenObject


class PublishedArtifacts:
    """The published artifacts of the tenants of a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    async def active(self, tenant_id: str) -> ActiveArtifacts:
        """Return the policies in force, the pins of packs, and what is withdrawn. Raises `Integrity`."""
        return await self._deployment.catalog(tenant_id).active()

    async def list(
        self, tenant_id: str, *, kinds: Collection[str] = (), limit: int = 50, cursor: str = ""
    ) -> Page[CatalogArtifact]:
        """Return a page of the published artifacts by ref, without their documents; only of `kinds`, if given.

        Raises:
            InvalidInput: the limit is out of bounds, or the cursor is not from this tenant.
            Integrity: no act on record published an artifact as it is stored.
        """
        check_limit(limit)
        store = self._deployment.ports.stores.tenant(tenant_id)
        if cursor and (not PIN.fits(cursor) or await PINS.one(store, cursor) is None):
            detail = "the cursor is of no list of this tenant"
            raise InvalidInput(Problem("/cursor", "unknown_cursor", detail, "begin without one"))
        pins, after = list[StoredDocument[PublishedPin]](), cursor
        while len(pins) <= limit and (page := await PINS.page(store, after=after, limit=limit + 1)):
            after = page[-1].key
            pins += [pin for pin in page if not kinds or pin.body.kind in kinds]
        withdrawn = (await self.active(tenant_id)).withdrawn
        items = [await self._catalog_artifact(tenant_id, pin.key, pin.body, withdrawn) for pin in pins[:limit]]
        return Page(tuple(items), items[-1].ref if len(pins) > limit else None)

    async def get(self, tenant_id: str, ref: str) -> ArtifactDocument:
        """Return one published artifact with its document.

        Raises:
            NotFound: nothing is published under this reference.
            Integrity: its content was changed.
        """
        catalog, store = self._deployment.catalog(tenant_id), self._deployment.ports.stores.tenant(tenant_id)
        pin = await PINS.one(store, ref) if PIN.fits(ref) else None
        stored = await catalog.repository.published(ref) if pin is not None else None
        if pin is None or stored is None:
            raise NotFound(f"`{ref[:200]}` is not published in this tenant; list what is")
        withdrawn = (await catalog.active()).withdrawn
        published = await self._catalog_artifact(tenant_id, ref, pin.body, withdrawn)
        return ArtifactDocument(**published.to_json(), document=stored.artifact.to_json())

    async def _catalog_artifact(
        self, tenant_id: str, ref: str, pin: PublishedPin, withdrawn: frozenset[str]
    ) -> CatalogArtifact:
        publisher = await self._deployment.catalog(tenant_id).repository.publisher_of(ref)
        if publisher is None:
            raise Integrity(f"`{ref}` was published by nobody; run `contextos verify`")
        return CatalogArtifact(
            ref=ref, kind=pin.kind, digest=pin.digest, publisher=publisher, withdrawn=ref in withdrawn
        )
