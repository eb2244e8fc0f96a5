"""Evidence that an operator can name: an artifact of the tenant, of which there is one revision."""

from __future__ import annotations

from typing import Final

from contextos.contracts.envelopes.artifacts import Artifact, NewRevision
from contextos.contracts.ports.storage import Stores

BOOKS: Final = "artifact:books#rev_1"


async def keep_books(stores: Stores, tenant_id: str) -> None:
    """Store the artifact that `BOOKS` names, past the desk that records who did."""
    made = {"artifact_id": "books", "org_id": "org_1", "created_by": "olga", "created_at_us": 1}
    shelf = stores.artifacts(tenant_id)
    about = {"title": "Books", "owner_level": "organization", "owner_id": "org_1", "visibility": "org"}
    await shelf.add(Artifact.model_validate({**made, **about}))
    await shelf.revise(NewRevision.model_validate({**made, "mime": "text/plain", "content": "nothing was paid"}))
