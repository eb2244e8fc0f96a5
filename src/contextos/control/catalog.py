"""The catalog of one tenant: publish, activate, withdraw, pin and load artifacts.

Documents: `pins/<ref>` (digest, kind and publisher; written once, never changed), `artifacts/<digest>` (the DSSE
envelope of an artifact, or the canonical definition of an adapter), `active/policies` (the policies in force above
every pack, and the withdrawn refs). Every operation of an operator is one commit with an entry in the tenant's
`control` stream.

`pin` returns the set that a run is bound to. `load` turns that set into artifacts: from the cache, or, in a replay
years later, from the documents. An artifact whose digest or signature does not match is never loaded.
Source: docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.documents.catalog import (
    ARTIFACTS,
    PINS,
    POLICY_LIST_KEY,
    POLICY_LISTS,
    PolicyList,
    PublishedPin,
)
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack, PolicyArtifact
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, TaskTemplate
from contextos.contracts.envelopes.policy import Level, LeveledBundle
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, Batch, Draft, Write
from contextos.contracts.ports.storage import Store
from contextos.control.artifact_repository import ActivePolicies, ArtifactRepository, BoundedCache, OpenEnvelope
from contextos.control.artifacts import ARTIFACT_KINDS, StoredArtifact, merge, tenant_of
from contextos.control.lint.pack import lint_pack
from contextos.control.pinning import PinsRefused, ResolvedPins, check_ref_form, resolve_pins
from contextos.errors import Integrity, InvalidArtifact, NotFound, Problem

SALT_BYTES: Final = 16
ADAPTER: Final = "adapter:"
ACTIVE_POLICIES: Final = "active_policies"

Salt = Callable[[int], bytes]
Definitions = Mapping[str, AdapterDefinition]


@dataclass(frozen=True, slots=True)
class LoadedArtifacts:
    """Everything that a run is pinned to, by key. `bundles` are ordered from the strongest level down."""

    pack: ContextPack
    intents: dict[str, Intent]
    templates: dict[str, TaskTemplate]
    specs: dict[str, DecisionSpec]
    gates: dict[str, ApprovalGate]
    bundles: tuple[LeveledBundle, ...]
    definitions: tuple[AdapterDefinition, ...]


CheckPins = Callable[[LoadedArtifacts], None]
"""Raises `InvalidArtifact` for a set that another plane cannot use, for example if a rule does not compile."""


class Catalog:
    """The control plane of one tenant.

    `open_envelope` verifies a DSSE envelope and returns (payload type, bytes), or raises `SignatureInvalid`. An
    envelope without a signature is accepted only with `allow_unsigned`; an invalid signature never is. `check_pins` is
    called before a set is pinned for the first time.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant_id: str,
        open_envelope: OpenEnvelope,
        runtime_version: str,
        allow_unsigned: bool = False,
        check_pins: CheckPins | None = None,
    ) -> None:
        self._store, self._tenant, self._runtime_version = store, tenant_id, runtime_version
        self._check_pins = check_pins
        self._repository = ArtifactRepository(store, open_envelope, allow_unsigned=allow_unsigned)
        self._pinned: BoundedCache[tuple[ResolvedPins, tuple[AdapterDefinition, ...]]] = BoundedCache()
        self._loaded: BoundedCache[LoadedArtifacts] = BoundedCache()

    async def publish(self, envelope: dict[str, Any], *, by: str, at_us: int, salt: Salt) -> str:
        """Publish an artifact and return its ref. Publishing the same content again changes nothing.

        Raises:
            SignatureInvalid: no key that is allowed to sign packs signed it.
            InvalidArtifact: lint refuses it, it is for another tenant, or the ref already has different content.
            MalformedJson, InvalidEnvelope: the payload does not fit its contract.
            Conflict: another process published at the same time; publish again.
        """
        stored = self._repository.opened(envelope)
        if tenant_of(stored.artifact) not in (None, self._tenant):
            detail = f"`{stored.ref}` is for another tenant"
            raise _invalid("/tenant", "other_tenant", detail, "publish it in that tenant")
        problems = lint_pack(stored.artifact, None) if isinstance(stored.artifact, ContextPack) else ()
        if problems:
            raise InvalidArtifact(*problems)
        published_digest = await self._repository.digest_of(stored.ref)
        if published_digest == stored.digest:
            return stored.ref
        if published_digest is not None:
            detail = f"`{stored.ref}` is published with different content already, and a version never changes"
            raise _invalid("", "ref_taken", detail, "publish it under a new version")
        pin = PublishedPin(stored.digest, ARTIFACT_KINDS[type(stored.artifact)], by)
        writes = (PINS.write(stored.ref, 0, pin), ARTIFACTS.write(stored.digest, 0, envelope))
        await self._commit("artifact.published", {"ref": stored.ref, **pin.to_json()}, writes, by, at_us, salt)
        return stored.ref

    async def activate_policies(
        self, level_refs: Sequence[tuple[Level, str]], *, by: str, at_us: int, salt: Salt
    ) -> None:
        """Set the policies in force above every pack.

        A policy that is not in the list is no longer in force. Setting the same list again changes nothing.

        Raises:
            NotFound: a ref is not published in this tenant, or is withdrawn.
            InvalidArtifact: a ref is no policy bundle, is listed twice, or is a tenant's policy at level `platform`.
            Conflict: another process changed the list at the same time; read it and set it again.
        """
        active = await self._repository.active()
        for level, ref in level_refs:
            stored = await self._repository.published(ref)
            if stored is None or ref in active.withdrawn:
                raise NotFound(f"`{ref[:200]}` is not published or is withdrawn; publish it first")
            _refuse_level(level, stored)
        if len({ref for _, ref in level_refs}) != len(level_refs):
            raise _invalid("/policies", "duplicate", "a policy is listed twice", "list it once, at its strongest level")
        policies = tuple(sorted(level_refs, key=lambda entry: entry[0] != "platform"))
        if policies == active.policies:
            return
        body = PolicyList(policies, tuple(sorted(active.withdrawn)))
        await self._change("policies.activated", active, body, {"policies": body.levels()}, by, at_us, salt)

    async def withdraw(self, ref: str, *, by: str, reason: str, at_us: int, salt: Salt) -> None:
        """Withdraw `ref`: new runs can no longer pin it, and approvals that depend on it become void.

        Runs that used it still replay.

        Raises:
            NotFound: nothing is published under `ref`.
            InvalidArtifact: it is an active policy. Activate the other policies first, so that no rule ends unnoticed.
            Conflict: another process changed the list at the same time; withdraw again.
        """
        active = await self._repository.active()
        if await self._repository.digest_of(ref) is None:
            raise NotFound(f"`{ref[:200]}` is not published; nothing was withdrawn")
        if any(ref == name for _, name in active.policies):
            remedy = "activate the other policies without it first"
            raise _invalid("/policies", "still_active", f"`{ref}` is an active policy", remedy)
        body = PolicyList(active.policies, tuple(sorted(active.withdrawn | {ref})))
        await self._change("artifact.withdrawn", active, body, {"ref": ref, "reason": reason}, by, at_us, salt)

    async def pin(self, refs: Sequence[str], definitions: Definitions) -> dict[str, Any]:
        """Return the set that a run with these refs is bound to now, or `{"failure": {"code", "detail"}}`.

        The set has four keys. `pack_ref`. `pins`: the digest by name, for every ref, every active policy, every adapter
        that the pack registers (`adapter:<id>`), and `active_policies`. `policies`: a list of `{level, ref, digest}`.
        `publishers`: the sorted publishers of the refs and active policies.
        """
        active = await self._repository.active()
        key = (tuple(refs), active)
        pinned, used = self._pinned.get(key, (None, ()))
        if pinned is None or not all(self._same(definitions.get(one.adapter_id), one) for one in used):
            resolved = await self._resolve(refs, active, definitions)
            if isinstance(resolved, PinsRefused):
                return _failure(resolved)
            used = tuple(definitions[adapter_id] for adapter_id in resolved.adapters)
            await self._repository.store_definitions(used)
            refused = await self._refused(self._pin_set(resolved, active, definitions))
            if refused:
                return _failure(refused)
            pinned, _ = self._pinned.keep(key, (resolved, used))
        return self._pin_set(pinned, active, definitions)

    async def load(self, pin_set: Mapping[str, Any]) -> LoadedArtifacts:
        """Load the artifacts of a set that `pin` returned, by digest.

        Raises:
            Integrity: an artifact is missing, or is not the one with that digest.
            SignatureInvalid: the signature of an artifact is missing or not valid.
        """
        pack_ref, pins = pin_set["pack_ref"], pin_set["pins"]
        levels = {policy["ref"]: policy["level"] for policy in pin_set["policies"]}
        key = (pack_ref, tuple(pins.items()), tuple(levels.items()))
        if key in self._loaded:
            return self._loaded[key]
        adapters = {name: digest for name, digest in pins.items() if name.startswith(ADAPTER)}
        refs = {name: digest for name, digest in pins.items() if name not in adapters and name != ACTIVE_POLICIES}
        artifacts = {ref: (await self._repository.artifact(ref, digest)).artifact for ref, digest in refs.items()}
        pack = artifacts.get(pack_ref)
        above = [(level, artifacts.get(ref)) for ref, level in levels.items() if level != "pack"]
        if not isinstance(pack, ContextPack):
            raise Integrity(f"the pack `{pack_ref}` is not among the pins; pass a set that `pin` returned")
        policies = [(level, artifact) for level, artifact in above if isinstance(artifact, PolicyArtifact)]
        if len(policies) != len(above):
            raise Integrity("a policy in force is not among the pins; pass a set that `pin` returned")
        additional = [one for ref, one in artifacts.items() if ref != pack_ref and levels.get(ref, "pack") == "pack"]
        merged = merge(pack, additional, policies)
        definitions = [await self._repository.definition(name, digest) for name, digest in adapters.items()]
        return self._loaded.keep(
            key,
            LoadedArtifacts(
                pack,
                merged.intents,
                merged.templates,
                merged.specs,
                merged.gates,
                tuple(merged.bundles.values()),
                tuple(definitions),
            ),
        )

    async def pins_now(self, names: Sequence[str], definitions: Definitions) -> tuple[int, dict[str, str | None]]:
        """Return (version of the active policies, digest by name as of now).

        The digest is None for a name that is withdrawn or not known.
        """
        active = await self._repository.active()
        digests: dict[str, str | None] = {}
        for name in names:
            if name == ACTIVE_POLICIES:
                digests[name] = active.digest
            elif name.startswith(ADAPTER):
                definition = definitions.get(name.removeprefix(ADAPTER))
                digests[name] = None if definition is None else self._repository.address(definition)
            else:
                digests[name] = None if name in active.withdrawn else await self._repository.digest_of(name)
        return active.version, digests

    def _pin_set(self, pinned: ResolvedPins, active: ActivePolicies, definitions: Definitions) -> dict[str, Any]:
        addresses = {ADAPTER + name: self._repository.address(definitions[name]) for name in pinned.adapters}
        return pinned.pin_set({**addresses, ACTIVE_POLICIES: active.digest})

    async def _refused(self, pin_set: dict[str, Any]) -> PinsRefused | None:
        """Why another plane cannot use a set, or None. It is checked before a run starts, not halfway through."""
        if self._check_pins is not None:
            try:
                self._check_pins(await self.load(pin_set))
            except InvalidArtifact as error:
                return PinsRefused("unknown_ref", f"`{pin_set['pack_ref']}` cannot be used: {error}")
        return None

    def _same(self, live: AdapterDefinition | None, known: AdapterDefinition) -> bool:
        return live is known or (live is not None and self._repository.address(live) == self._repository.address(known))

    async def _resolve(
        self, refs: Sequence[str], active: ActivePolicies, definitions: Definitions
    ) -> ResolvedPins | PinsRefused:
        unpinned = check_ref_form(refs)
        if unpinned:
            return unpinned
        found: dict[str, StoredArtifact] = {}
        for ref in (*refs, *(name for _, name in active.policies)):
            stored = await self._repository.published(ref)
            if stored is None or ref in active.withdrawn:
                detail = f"`{ref[:200]}` is not published in this tenant or is withdrawn; publish it"
                return PinsRefused("unknown_ref", detail)
            found[ref] = stored
        above = [(level, found[ref]) for level, ref in active.policies]
        active_refs = {ref for _, ref in active.policies}
        requested = [found[ref] for ref in dict.fromkeys(refs) if ref not in active_refs]
        pinned = resolve_pins(requested, above, definitions, self._runtime_version)
        if isinstance(pinned, PinsRefused):
            return pinned
        publishers = {await self._repository.publisher_of(ref) for ref in found}
        return replace(pinned, publishers=tuple(sorted(by for by in publishers if by is not None)))

    async def _change(
        self,
        kind: str,
        active: ActivePolicies,
        body: PolicyList,
        details: dict[str, Any],
        by: str,
        at_us: int,
        salt: Salt,
    ) -> None:
        write = POLICY_LISTS.write(POLICY_LIST_KEY, active.version, body)
        await self._commit(kind, details, (write,), by, at_us, salt)

    async def _commit(
        self, kind: str, details: dict[str, Any], writes: tuple[Write, ...], by: str, at_us: int, salt: Salt
    ) -> None:
        draft = Draft(kind, details.get("ref", ""), at_us, by, canonical({**details, "by": by}), salt(SALT_BYTES))
        await self._store.commit(Batch(run=CONTROL, shared=((CONTROL, draft),), writes=writes))


def _failure(refused: PinsRefused) -> dict[str, Any]:
    return {"failure": {"code": refused.code, "detail": refused.detail}}


def _refuse_level(level: Level, stored: StoredArtifact) -> None:
    if level not in ("platform", "tenant") or not isinstance(stored.artifact, PolicyArtifact):
        detail = f"`{stored.ref}` is not a policy bundle that can be active at level `{level}`"
        remedy = "name a published policy bundle, with level `platform` or `tenant`"
        raise _invalid("/policies", "not_a_policy", detail, remedy)
    if level == "platform" and stored.artifact.tenant is not None:
        detail = f"`{stored.ref}` belongs to a tenant"
        raise _invalid("/policies", "not_platform", detail, "activate it at level `tenant`")


def _invalid(pointer: str, code: str, detail: str, remedy: str) -> InvalidArtifact:
    return InvalidArtifact(Problem(pointer, code, detail, remedy))
