"""Reads the catalog's documents, checks them against digest and signature, and caches them by digest.

Only immutable values are cached: the digest of a ref, and an artifact or an adapter definition by digest. The active
set is read every time.
Source: docs/design/contracts.md, "Packs, pins, budgets"; docs/design/standards.md, "DSSE".
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from contextos.contracts.acts import ActiveSet, PackPin, RecordedAct
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS, ARTIFACTS, PINS, PublishedPin
from contextos.contracts.documents.collection import FoundDocuments, find_documents
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import ENVIRONMENTS
from contextos.contracts.journal import CONTROL, Batch, Entry, Write
from contextos.contracts.ports.storage import Store
from contextos.control.artifacts import ARTIFACT_KINDS, StoredArtifact, read_artifact
from contextos.errors import ChainBroken, Conflict, Integrity, InvalidInput, OtherEnvironment, SignatureInvalid

OpenEnvelope = Callable[[dict[str, Any]], tuple[str, bytes]]
KINDS_OF_MODELS: Final = (ARTIFACT_KINDS[ModelProfile], ARTIFACT_KINDS[RoutingRules])
Looked = FoundDocuments | None
"""Documents that were read from the store a moment ago, as `ArtifactRepository.active_sought` says; None: read now."""


@dataclass(frozen=True, slots=True)
class ActiveSeal:
    """The functions by which the runtime seals the active set of a tenant, opens it, and reads an act that it sealed;
    and the environment that the runtime serves.

    `open` raises `SignatureInvalid`, and `read_act` raises `ChainBroken`. So nobody who can only write to the store can
    change the active set, or who published an artifact.
    """

    seal: Callable[[bytes], dict[str, Any]]
    open: Callable[[dict[str, Any]], bytes]
    read_act: Callable[[Entry], RecordedAct]
    environment: str


@dataclass(frozen=True, slots=True)
class ActiveArtifacts:
    """The active set of a tenant; version 0 before the first act. `digest` is the content address of the policies.
    `sealed_digest` is the content address of the whole set, as the act states it.
    """

    version: int = 0
    policies: tuple[tuple[Level, str], ...] = ()
    packs: tuple[PackPin, ...] = ()
    withdrawn: frozenset[str] = frozenset()
    digest: str = content_address([])
    sealed_digest: str = ""

    def allows(self, refs: Sequence[str], intent: str, environment: str) -> bool:
        """Return whether a tenant pin allows a request with exactly these refs."""
        return intent in self.intents(refs, environment)

    def intents(self, refs: Sequence[str] | None, environment: str) -> list[str]:
        """Return the intents for which tenant pins allow a request with exactly these refs (None: any), sorted."""
        pins = [pin for pin in self.packs if refs is None or set(refs) == set(pin.refs)]
        pins = [pin for pin in pins if environment == pin.environment]
        return sorted({intent for pin in pins for intent in pin.intents})

    def named(self) -> frozenset[str]:
        """Return the refs of the policies in force and of the tenant pins, without the withdrawn ones."""
        active = {policy for _, policy in self.policies}.union(*(pin.refs for pin in self.packs))
        return frozenset(active - self.withdrawn)


class ArtifactRepository:
    """Reads the published artifacts (packs, policies, catalogs) of one tenant.
    An envelope without a signature is accepted only with `allow_unsigned`.
    """

    def __init__(
        self,
        store: Store,
        open_envelope: OpenEnvelope,
        *,
        tenant_id: str,
        active_seal: ActiveSeal | None,
        allow_unsigned: bool,
    ) -> None:
        self._store, self._verify, self._allow_unsigned = store, open_envelope, allow_unsigned
        self._tenant, self._active_seal = tenant_id, active_seal
        self._refs = RecentlyUsed[tuple[str, str]]()
        self._stored = RecentlyUsed[StoredArtifact]()
        self._definitions = RecentlyUsed[AdapterDefinition]()
        self._addresses = RecentlyUsed[tuple[AdapterDefinition, str]]()
        self._active: tuple[object, ActiveArtifacts] = None, ActiveArtifacts()
        """The document of the active set that was verified last, and the set that it states."""
        self._activated = 0, 0, ""
        """The last act on the active set that was read, and the version and the digest of the active set then."""

    def opened(self, envelope: dict[str, Any]) -> StoredArtifact:
        """Verify a signed envelope (DSSE) and return the artifact in it.

        Raises:
            SignatureInvalid: this is not a DSSE envelope, or its signature is missing or not valid.
            InvalidArtifact, MalformedJson, InvalidEnvelope: as `read_artifact`.
        """
        if not isinstance(envelope, dict) or not isinstance(envelope.get("payloadType"), str):
            raise SignatureInvalid("the artifact is not in a DSSE envelope; seal it first")
        if self._allow_unsigned and envelope.get("signatures") == []:
            return read_artifact(envelope["payloadType"], _decode_unsigned(envelope.get("payload")))
        return read_artifact(*self._verify(envelope))

    def active_sought(self) -> dict[str, Any]:
        """Return the arguments with which the store is read, so that `active` can use the result."""
        return {"places": (ACTIVE_SETS.place(ACTIVE_SET_KEY),), "lines": ((ACTIVE_SET_KEY, self._activated[0]),)}

    async def active(self, found: Looked = None) -> ActiveArtifacts:
        """Return the active set as of now, or as of the documents `found`; version 0 if nobody has activated anything.

        Raises:
            Integrity: the stored set is not one that this runtime sealed, or not the set that the last act left.
            OtherEnvironment: the set has a pin of another environment than this deployment serves.
        """
        found = found or await self._read_documents()
        stored = found.stored(ACTIVE_SETS, ACTIVE_SET_KEY)
        if stored is None:
            return ActiveArtifacts()
        version, act_digest = self._last_activation(found)
        if version != stored.version:
            # An operator can have acted between the two reads.
            found = await self._read_documents()
            stored = found.stored(ACTIVE_SETS, ACTIVE_SET_KEY)
            version, act_digest = self._last_activation(found)
            if stored is None or version != stored.version:
                raise self._altered_set_error()
        verified, active = self._active
        if stored != verified:
            content = self._open_set(ACTIVE_SETS.read(stored).body, stored.version)
            if content_address(content.to_json()) != act_digest:
                raise self._altered_set_error()
            digest = content_address([list(item) for item in content.policies])
            # Return the local value: another thread can have stored an older set in `self._active` meanwhile.
            active = ActiveArtifacts(
                stored.version, content.policies, content.packs, frozenset(content.withdrawn), digest, act_digest
            )
            self._active = stored, active
        return active

    def _altered_set_error(self) -> Integrity:
        detail = "is not what the last operator act left"
        return Integrity(f"the active set of `{self._tenant}` {detail}; run `contextos verify`")

    async def _read_documents(self) -> FoundDocuments:
        query = self.active_sought()
        return await find_documents(self._store, *query["places"], lines=query["lines"])

    def _last_activation(self, found: FoundDocuments) -> tuple[int, str]:
        """Return the version and the digest of the active set that the last act left. Raises `Integrity`."""
        assert self._active_seal is not None, "a catalog without a seal only loads"
        last_seq, version, digest = self._activated
        entries = [entry for entry in found.lines if entry.key == ACTIVE_SET_KEY and entry.seq > last_seq]
        try:
            for entry in entries if last_seq else entries[-1:]:
                act = self._active_seal.read_act(entry).act
                last_seq, version, digest = entry.seq, act.expected + 1, str(act.arguments.get("active_digest"))
        except ChainBroken as error:
            detail = f"the last act on the active set of `{self._tenant}` does not count"
            raise Integrity(f"{detail}: {error}; run `contextos verify`") from None
        self._activated = last_seq, version, digest
        return version, digest

    def active_change(self, after: ActiveArtifacts, expected: int) -> tuple[Write, str]:
        """Return the write that replaces the active set at version `expected`, sealed by the runtime, and the digest
        of the new set.
        """
        assert self._active_seal is not None, "a catalog without a seal only loads"
        content = ActiveSet(
            tenant_id=self._tenant,
            version=expected + 1,
            policies=after.policies,
            packs=after.packs,
            withdrawn=tuple(sorted(after.withdrawn)),
        )
        sealed = self._active_seal.seal(canonical(content.to_json()))
        return ACTIVE_SETS.write(ACTIVE_SET_KEY, expected, sealed), content_address(content.to_json())

    def _open_set(self, sealed: dict[str, Any], version: int) -> ActiveSet:
        assert self._active_seal is not None, "a catalog without a seal only loads"
        try:
            content = parse(ActiveSet, self._active_seal.open(sealed))
        except (InvalidInput, SignatureInvalid) as error:
            raise Integrity(f"the active set of `{self._tenant}` was changed past the runtime: {error}") from None
        if (content.tenant_id, content.version) != (self._tenant, version):
            raise Integrity(
                f"the active set of `{self._tenant}` is another tenant's or another version; restore a backup"
            )
        own = self._active_seal.environment
        pinned_for = {pin.environment for pin in content.packs}
        if foreign := sorted(pinned_for.intersection(ENVIRONMENTS) - {own}):
            raise OtherEnvironment(f"what is active in `{self._tenant}`", foreign[0], own)
        return content

    async def digest_of(self, ref: str) -> str | None:
        """Return the content digest of a published reference (`<id>@<x.y.z>`); None if it is not published in this
        tenant.
        """
        pinned = await self._published_pin(ref)
        return None if pinned is None else pinned[0]

    async def publisher_of(self, ref: str) -> str | None:
        """Return the id of the person who published a reference, or None. Publishers may not approve runs that use
        their artifacts.
        """
        pinned = await self._published_pin(ref)
        return None if pinned is None else pinned[1]

    async def _published_pin(self, ref: str) -> tuple[str, str] | None:
        published = self._refs.get(ref)
        if published is None and (pin := await PINS.one(self._store, ref)) is not None:
            published = self._refs.keep(ref, (pin.body.digest, await self._read_publisher(ref, pin.body)))
        return published

    async def _read_publisher(self, ref: str, pin: PublishedPin) -> str:
        """Return who published `ref` with this digest, as the act says that the runtime sealed. Raises `Integrity`."""
        assert self._active_seal is not None, "a catalog without a seal only loads"
        for entry in await self._store.lines(CONTROL, ref):
            if entry.kind != "artifact.published":
                continue
            try:
                act = self._active_seal.read_act(entry).act
            except ChainBroken:
                continue
            if act.arguments == {"ref": ref, **pin.to_json()}:
                return act.actor
        raise Integrity(f"no operator act on record published `{ref}` as it is stored; run `contextos verify`")

    async def published(self, ref: str) -> StoredArtifact | None:
        """Return the artifact that was published under a reference, or None. Raises `Integrity` if its content was
        changed.
        """
        digest = await self.digest_of(ref)
        return None if digest is None else await self.artifact(ref, digest)

    async def models(self, withdrawn: AbstractSet[str]) -> list[ModelProfile | RoutingRules]:
        """Return every published profile and all routing rules that are not withdrawn. Raises as `published`."""
        artifacts, after = list[ModelProfile | RoutingRules](), ""
        while page := await PINS.page(self._store, after=after):
            after = page[-1].key
            for pin in page:
                if pin.body.kind in KINDS_OF_MODELS and pin.key not in withdrawn:
                    stored = await self.published(pin.key)
                    if stored is not None and isinstance(stored.artifact, ModelProfile | RoutingRules):
                        artifacts.append(stored.artifact)
        return artifacts

    async def artifact(self, ref: str, digest: str) -> StoredArtifact:
        """Read the artifact `ref`, and check that its content has this digest.

        Raises:
            Integrity: the artifact is missing, cannot be read, or does not match `ref` and `digest`.
            SignatureInvalid: its signature is missing or not valid.
        """
        stored = self._stored.get(digest)
        if stored is None:
            envelope = await self._read_document(ref, digest)
            try:
                stored = self.opened(envelope)
            except InvalidInput as error:
                raise Integrity(f"`{ref}` with the digest `{digest}` cannot be read: {error}") from None
            if stored.digest != digest:
                raise Integrity(f"the artifact stored as `{digest}` has the digest `{stored.digest}`; restore it")
            self._stored.keep(digest, stored)
        if stored.ref != ref:
            raise Integrity(f"`{digest}` is `{stored.ref}`, and it was pinned as `{ref}`; restore the catalog")
        return stored

    async def definition(self, name: str, digest: str) -> AdapterDefinition:
        """Read the stored adapter definition `name`. Raises `Integrity` if it is missing or its digest differs."""
        cached = self._definitions.get(digest)
        if cached is None:
            value = await self._read_document(name, digest)
            if content_address(value) != digest:
                raise Integrity(f"the document stored as `{digest}` is not `{name}`; restore it")
            try:
                cached = self._definitions.keep(digest, AdapterDefinition.model_validate(value))
            except ValidationError:
                detail = f"`{name}` with the digest `{digest}` is not an adapter definition"
                raise Integrity(f"{detail}; restore it") from None
        return cached

    def address(self, definition: AdapterDefinition) -> str:
        """Return the content digest of an adapter definition. It is computed once per object: definitions never
        change.
        """
        cached = self._addresses.get(id(definition))
        if cached is None or cached[0] is not definition:
            cached = self._addresses.keep(id(definition), (definition, content_address(definition.to_json())))
        return cached[1]

    async def store_definitions(self, definitions: Sequence[AdapterDefinition]) -> None:
        """Store adapter definitions that are not stored yet, in one commit, so that a later replay finds them."""
        by_digest = {self.address(definition): definition for definition in definitions}
        missing = {key: definition for key, definition in by_digest.items() if self._definitions.get(key) is None}
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

    async def _read_document(self, name: str, digest: str) -> dict[str, Any]:
        document = await ARTIFACTS.one(self._store, digest)
        if document is None:
            raise Integrity(f"`{name}` with the digest `{digest}` is missing from the catalog; restore it")
        return document.body


def _decode_unsigned(payload: Any) -> bytes:
    try:
        return base64.b64decode(payload, validate=True)
    except (TypeError, ValueError):
        raise SignatureInvalid("the payload is not Base64; encode the bytes according to RFC 4648") from None
