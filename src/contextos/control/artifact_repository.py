"""Reads the catalog's documents, checks them against digest and signature, and caches them by digest.

Only immutable values are cached: the digest of a ref, and an artifact or an adapter definition by digest. The list of
active policies is read every time.
Source: docs/design/contracts.md, "Packs, pins, budgets"; docs/design/standards.md, "DSSE".
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from contextos.contracts.documents.catalog import ARTIFACTS, PINS, POLICY_LIST_KEY, POLICY_LISTS
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.storage import Store
from contextos.control.artifacts import StoredArtifact, read_artifact
from contextos.errors import Conflict, Integrity, InvalidInput, SignatureInvalid

MAX_CACHED: Final = 1024

OpenEnvelope = Callable[[dict[str, Any]], tuple[str, bytes]]
ValueT = TypeVar("ValueT")


class BoundedCache(OrderedDict[Any, ValueT], Generic[ValueT]):
    """A cache of at most `MAX_CACHED` values, oldest first out."""

    def keep(self, key: Any, value: ValueT) -> ValueT:
        """Store `value` under `key` and return it."""
        self[key] = value
        if len(self) > MAX_CACHED:
            self.popitem(last=False)
        return value


@dataclass(frozen=True, slots=True)
class ActivePolicies:
    """The document `active/policies`: its version, the policies in force, and the withdrawn refs.

    `digest` is the content address of the list of policies.
    """

    version: int = 0
    policies: tuple[tuple[Level, str], ...] = ()
    withdrawn: frozenset[str] = frozenset()
    digest: str = content_address([])


class ArtifactRepository:
    """The documents of one tenant's catalog. An envelope without a signature is accepted only with `allow_unsigned`."""

    def __init__(self, store: Store, open_envelope: OpenEnvelope, *, allow_unsigned: bool) -> None:
        self._store, self._verify, self._allow_unsigned = store, open_envelope, allow_unsigned
        self._refs: BoundedCache[tuple[str, str]] = BoundedCache()
        self._stored: BoundedCache[StoredArtifact] = BoundedCache()
        self._definitions: BoundedCache[AdapterDefinition] = BoundedCache()
        self._addresses: BoundedCache[tuple[AdapterDefinition, str]] = BoundedCache()
        self._active = ActivePolicies()

    def opened(self, envelope: dict[str, Any]) -> StoredArtifact:
        """Return the artifact in a DSSE envelope.

        Raises:
            SignatureInvalid: this is no DSSE envelope, or its signature is missing or not valid.
            InvalidArtifact, MalformedJson, InvalidEnvelope: as `read_artifact`.
        """
        if not isinstance(envelope, dict) or not isinstance(envelope.get("payloadType"), str):
            raise SignatureInvalid("the artifact is not in a DSSE envelope; seal it first")
        if self._allow_unsigned and envelope.get("signatures") == []:
            return read_artifact(envelope["payloadType"], _unsigned(envelope.get("payload")))
        return read_artifact(*self._verify(envelope))

    async def active(self) -> ActivePolicies:
        """Return the policies in force now; none if the document does not exist yet."""
        document = await POLICY_LISTS.one(self._store, POLICY_LIST_KEY)
        if document is None:
            return ActivePolicies()
        active = self._active
        if document.version != active.version:
            content, digest = document.body, content_address(document.body.levels())
            # Return the local value: another thread can have stored an older list in `self._active` meanwhile.
            active = ActivePolicies(document.version, content.policies, frozenset(content.withdrawn), digest)
            self._active = active
        return active

    async def digest_of(self, ref: str) -> str | None:
        """Return the content address of a ref, or None if the ref is not published in this tenant."""
        pinned = await self._pinned(ref)
        return None if pinned is None else pinned[0]

    async def publisher_of(self, ref: str) -> str | None:
        """Return who published a ref, or None. A publisher is not allowed to approve what depends on the artifact."""
        pinned = await self._pinned(ref)
        return None if pinned is None else pinned[1]

    async def _pinned(self, ref: str) -> tuple[str, str] | None:
        if ref not in self._refs:
            pin = await PINS.one(self._store, ref)
            if pin is None:
                return None
            self._refs.keep(ref, (pin.body.digest, pin.body.by))
        return self._refs[ref]

    async def published(self, ref: str) -> StoredArtifact | None:
        """Return the artifact of a ref, or None. Raises `Integrity` if it is not the artifact that was published."""
        digest = await self.digest_of(ref)
        return None if digest is None else await self.artifact(ref, digest)

    async def artifact(self, ref: str, digest: str) -> StoredArtifact:
        """Return the artifact `ref`, and check that its content has this digest.

        Raises:
            Integrity: the artifact is missing, cannot be read, or does not match `ref` and `digest`.
            SignatureInvalid: its signature is missing or not valid.
        """
        if digest not in self._stored:
            envelope = await self._document(ref, digest)
            try:
                stored = self.opened(envelope)
            except InvalidInput as error:
                raise Integrity(f"`{ref}` with the digest `{digest}` cannot be read: {error}") from None
            if stored.digest != digest:
                raise Integrity(f"the artifact stored as `{digest}` has the digest `{stored.digest}`; restore it")
            self._stored.keep(digest, stored)
        stored = self._stored[digest]
        if stored.ref != ref:
            raise Integrity(f"`{digest}` is `{stored.ref}`, and it was pinned as `{ref}`; restore the catalog")
        return stored

    async def definition(self, name: str, digest: str) -> AdapterDefinition:
        """Return the adapter definition with this digest. Raises `Integrity` if it is missing or different."""
        if digest not in self._definitions:
            value = await self._document(name, digest)
            if content_address(value) != digest:
                raise Integrity(f"the document stored as `{digest}` is not `{name}`; restore it")
            try:
                self._definitions.keep(digest, AdapterDefinition.model_validate(value))
            except ValidationError:
                raise Integrity(f"`{name}` with the digest `{digest}` is no adapter definition; restore it") from None
        return self._definitions[digest]

    def address(self, definition: AdapterDefinition) -> str:
        """Return the content address of a definition. It is computed once per object: definitions never change."""
        cached = self._addresses.get(id(definition))
        if cached is None or cached[0] is not definition:
            cached = self._addresses.keep(id(definition), (definition, content_address(definition.to_json())))
        return cached[1]

    async def store_definitions(self, definitions: Sequence[AdapterDefinition]) -> None:
        """Store the definitions that are not stored yet, in one commit, so that a replay finds them."""
        by_digest = {self.address(definition): definition for definition in definitions}
        missing = {digest: definition for digest, definition in by_digest.items() if digest not in self._definitions}
        stored = {digest for digest in missing if await ARTIFACTS.one(self._store, digest)}
        writes = tuple(
            ARTIFACTS.write(digest, 0, definition.to_json())
            for digest, definition in missing.items()
            if digest not in stored
        )
        if writes:
            try:
                await self._store.commit(Batch(run=CONTROL, writes=writes))
            except Conflict:  # another process has just stored one of them
                return await self.store_definitions(definitions)
        for digest, definition in missing.items():
            self._definitions.keep(digest, definition)

    async def _document(self, name: str, digest: str) -> dict[str, Any]:
        document = await ARTIFACTS.one(self._store, digest)
        if document is None:
            raise Integrity(f"`{name}` with the digest `{digest}` is missing from the catalog; restore it")
        return document.body


def _unsigned(payload: Any) -> bytes:
    try:
        return base64.b64decode(payload, validate=True)
    except (TypeError, ValueError):
        raise SignatureInvalid("the payload is not Base64; encode the bytes according to RFC 4648") from None
