"""Documents of which each person of a tenant has one, sealed with the runtime's key.

Somebody who can write the database cannot forge one, or give the document of one person to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.collection import Collection
from contextos.contracts.documents.identities import SealedIdentity
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.ports import Ports
from contextos.errors import Conflict, InvalidInput, SignatureInvalid
from contextos.trust.seal import open_sealed, seal

MAX_CHANGE_RACES: Final = 8

PersonContent = dict[str, Any]


def person_document_key(person_id: str) -> str:
    """Return the key of a person's document: the SHA-256 of their id, in hex."""
    return digest(person_id.encode()).removeprefix("sha256:")


@dataclass(frozen=True, slots=True)
class PersonDocuments:
    """The documents of one collection. `payload_type` is the type of their sealed payload, `empty` the content of a
    document that is not there, and `remedy` what a person does after too many others wrote at the same moment.
    """

    ports: Ports
    collection: Collection[SealedIdentity]
    payload_type: str
    empty: Mapping[str, Any]
    remedy: str

    async def content(self, tenant_id: str, key: str) -> tuple[PersonContent, int]:
        """Return the content of the document under a key, and its version. A document that the runtime did not seal
        for this key counts as empty.
        """
        found = await self.collection.one(self.ports.stores.tenant(tenant_id), key)
        if found is None:
            return dict(self.empty), 0
        try:
            payload = loads(open_sealed(found.body.envelope, self.ports.keys, "claim", [self.payload_type]))
        except (SignatureInvalid, InvalidInput):
            return dict(self.empty), found.version
        assert isinstance(payload, dict), "the runtime sealed an object"
        if (payload["tenant_id"], payload["key"]) != (tenant_id, key):
            return dict(self.empty), found.version
        return payload, found.version

    async def change(
        self, tenant_id: str, person_id: str, change: Callable[[PersonContent], PersonContent]
    ) -> PersonContent:
        """Replace the content of a person's document by the result of `change`, and return the content before.

        Raises:
            Conflict: the document is changed by others at the same moment, again and again.
            Unavailable: the store does not answer.
        """
        key = person_document_key(person_id)
        for _ in range(MAX_CHANGE_RACES):
            before, version = await self.content(tenant_id, key)
            payload = canonical({**change(before), "tenant_id": tenant_id, "key": key})
            sealed = SealedIdentity(seal(self.payload_type, payload, self.ports.keys, "claim"))
            write = self.collection.write(key, version, sealed)
            try:
                await self.ports.stores.tenant(tenant_id).commit(Batch(run=CONTROL, writes=(write,)))
            except Conflict:
                continue
            return before
        raise Conflict(key, self.remedy)
