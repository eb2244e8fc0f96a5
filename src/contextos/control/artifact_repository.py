"""What the catalog has in its documents, read back: held against digest and signature, and cached by digest.

Only what can never change is cached: a ref's digest, an artifact and an adapter definition by digest. The list of
active policies is read every time.
Source: shared/design/contracts.md, "Packs, pins, budgets"; standards.md, A9.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, Batch, Write
from contextos.contracts.ports.storage import Store
from contextos.control.artifacts import StoredArtifact, read_artifact
from contextos.errors import Conflict, Integrity, InvalidInput, SignatureInvalid

MAX_CACHED: Final = 1024
MAX_DOCUMENT_BYTES: Final = 4 << 20

PINS: Final = "pins"
ARTIFACTS: Final = "artifacts"
ACTIVE: Final = "active"
POLICIES: Final = "policies"

OpenEnvelope = Callable[[dict[str, Any]], tuple[str, bytes]]
ValueT = TypeVar("ValueT")


class BoundedCache(OrderedDict[Any, ValueT], Generic[ValueT]):
    """A cache of at most `MAX_CACHED` values; the oldest leaves first."""

    def keep(self, key: Any, value: ValueT) -> ValueT:
        self[key] = value
        if len(self) > MAX_CACHED:
            self.popitem(last=False)
        return value


@dataclass(frozen=True, slots=True)
class ActivePolicies:
    """The document `active/policies`: its version, the policies in force, what is withdrawn. `digest` is the list's."""

    version: int = 0
    policies: tuple[tuple[Level, str], ...] = ()
    withdrawn: frozenset[str] = frozenset()
    digest: str = content_address([])


class ArtifactRepository:
    """The documents of one tenant's catalog. An envelope without any signature counts only with `allow_unsigned`."""

    def __init__(self, store: Store, open_envelope: OpenEnvelope, *, allow_unsigned: bool) -> None:
        self._store, self._verify, self._allow_unsigned = store, open_envelope, allow_unsigned
        self._refs: BoundedCache[tuple[str, str]] = BoundedCache()
        self._stored: BoundedCache[StoredArtifact] = BoundedCache()
        self._definitions: BoundedCache[AdapterDefinition] = BoundedCache()
        self._addresses: BoundedCache[tuple[AdapterDefinition, str]] = BoundedCache()
        self._active = ActivePolicies()

    def opened(self, envelope: dict[str, Any]) -> StoredArtifact:
        """The artifact in an envelope whose signature holds. Raises as `artifacts.read` does, or `SignatureInvalid`."""
        if not isinstance(envelope, dict) or not isinstance(envelope.get("payloadType"), str):
            raise SignatureInvalid("this is no DSSE envelope; seal the artifact first")
        if self._allow_unsigned and envelope.get("signatures") == []:
            return read_artifact(envelope["payloadType"], _unsigned(envelope.get("payload")))
        return read_artifact(*self._verify(envelope))

    async def active(self) -> ActivePolicies:
        """The policies in force now; none while the document is absent."""
        documents = await self._store.scan(ACTIVE, key=POLICIES)
        if not documents:
            return ActivePolicies()
        document, known = documents[0], self._active
        if document.version != known.version:
            said = loads(document.body)
            policies = tuple((level, ref) for level, ref in said["policies"])
            digest = content_address(said["policies"])
            # Returned as read: another thread may meanwhile have kept an older list.
            known = self._active = ActivePolicies(document.version, policies, frozenset(said["withdrawn"]), digest)
        return known

    async def digest_of(self, ref: str) -> str | None:
        """The content address that a ref maps to; None for one that is not published here."""
        pinned = await self._pinned(ref)
        return None if pinned is None else pinned[0]

    async def publisher_of(self, ref: str) -> str | None:
        """Who published a ref, and so may not approve what rests on it; None for one that is not published here."""
        pinned = await self._pinned(ref)
        return None if pinned is None else pinned[1]

    async def _pinned(self, ref: str) -> tuple[str, str] | None:
        if ref not in self._refs:
            documents = await self._store.scan(PINS, key=ref)
            if not documents:
                return None
            said = loads(documents[0].body)
            self._refs.keep(ref, (said["digest"], said["by"]))
        return self._refs[ref]

    async def published(self, ref: str) -> StoredArtifact | None:
        """The artifact of a ref. Raises `Integrity` where it is not what was published."""
        digest = await self.digest_of(ref)
        return None if digest is None else await self.artifact(ref, digest)

    async def artifact(self, ref: str, digest: str) -> StoredArtifact:
        """The artifact with this digest. Raises `Integrity`: it is missing, or is another, or its signature fails."""
        if digest not in self._stored:
            envelope = await self._document(ref, digest)
            try:
                stored = self.opened(envelope)
            except InvalidInput as error:
                raise Integrity(f"`{ref}` is stored as `{digest}` and cannot be read: {error}") from None
            if stored.digest != digest:
                raise Integrity(f"what is stored as `{digest}` has the digest `{stored.digest}`; restore it")
            self._stored.keep(digest, stored)
        stored = self._stored[digest]
        if stored.ref != ref:
            raise Integrity(f"`{digest}` is `{stored.ref}` and was pinned as `{ref}`; restore the catalog")
        return stored

    async def definition(self, name: str, digest: str) -> AdapterDefinition:
        """The adapter definition with this digest. Raises `Integrity`."""
        if digest not in self._definitions:
            value = await self._document(name, digest)
            if content_address(value) != digest:
                raise Integrity(f"what is stored as `{digest}` is not `{name}`; restore it")
            try:
                self._definitions.keep(digest, AdapterDefinition.model_validate(value))
            except ValidationError:
                raise Integrity(f"`{name}` is stored as `{digest}` and is no adapter definition; restore it") from None
        return self._definitions[digest]

    def address(self, definition: AdapterDefinition) -> str:
        """The content address of a definition; reckoned once per object, as none is ever written into."""
        known = self._addresses.get(id(definition))
        if known is None or known[0] is not definition:
            known = self._addresses.keep(id(definition), (definition, content_address(definition.to_json())))
        return known[1]

    async def keep(self, definitions: Sequence[AdapterDefinition]) -> None:
        """Store those that are new, in one commit, so that a replay finds them."""
        fresh = {self.address(definition): definition for definition in definitions}
        fresh = {digest: definition for digest, definition in fresh.items() if digest not in self._definitions}
        there = {digest for digest in fresh if await self._store.scan(ARTIFACTS, key=digest)}
        writes = tuple(
            Write(ARTIFACTS, digest, 0, canonical(definition.to_json()))
            for digest, definition in fresh.items()
            if digest not in there
        )
        if writes:
            try:
                await self._store.commit(Batch(run=CONTROL, writes=writes))
            except Conflict:  # another process stored one of them just now, so it is there
                return await self.keep(definitions)
        for digest, definition in fresh.items():
            self._definitions.keep(digest, definition)

    async def _document(self, name: str, digest: str) -> Any:
        documents = await self._store.scan(ARTIFACTS, key=digest)
        if not documents:
            raise Integrity(f"`{name}` with the digest `{digest}` is missing from the catalog; restore it")
        try:
            return loads(documents[0].body, max_bytes=MAX_DOCUMENT_BYTES)
        except InvalidInput as error:
            raise Integrity(f"`{name}` with the digest `{digest}` is not JSON: {error}") from None


def _unsigned(payload: Any) -> bytes:
    try:
        return base64.b64decode(payload, validate=True)
    except (TypeError, ValueError):
        raise SignatureInvalid("the payload is not Base64; encode the bytes as RFC 4648 says") from None
