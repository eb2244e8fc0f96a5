"""The catalog of one tenant: publish, activate, withdraw, pin, load.

Documents: `pins/<ref>` (digest, kind and publisher; written once, never changed), `artifacts/<digest>` (the DSSE
envelope of an artifact, or the canonical definition of an adapter), `active/policies` (the policies in force above
every pack, and what is withdrawn). Every operator's act is one commit with an entry of the tenant's `control` stream.

`pin` answers what a run is bound to, `load` turns that answer into artifacts: today from memory, in a replay years
later from the documents. What is read is held against its digest and its signature, or nothing is loaded.
Source: shared/design/contracts.md, "Packs, pins, budgets"; contextos-facts.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack, PolicyArtifact
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, TaskTemplate
from contextos.contracts.envelopes.policy import Level, LeveledBundle
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.journal import CONTROL, Batch, Draft, Write
from contextos.contracts.ports.storage import Store
from contextos.control.artifact_repository import (
    ACTIVE,
    ARTIFACTS,
    PINS,
    POLICIES,
    ActivePolicies,
    ArtifactRepository,
    BoundedCache,
    OpenEnvelope,
)
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
    """Everything that a run is pinned to, by key. `bundles` come from the strongest level down."""

    pack: ContextPack
    intents: dict[str, Intent]
    templates: dict[str, TaskTemplate]
    specs: dict[str, DecisionSpec]
    gates: dict[str, ApprovalGate]
    bundles: tuple[LeveledBundle, ...]
    definitions: tuple[AdapterDefinition, ...]


CheckPins = Callable[[LoadedArtifacts], None]
"""Raises `InvalidArtifact` for a set that other planes could not use: rules that do not compile, say."""


class Catalog:
    """The control plane of one tenant.

    `open_envelope` verifies a DSSE envelope and gives payload type and bytes, or raises `SignatureInvalid`. Only with
    `allow_unsigned` does an envelope without any signature count; a signature that does not hold never does. `judge` is
    asked before a set is pinned for the first time.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant_id: str,
        open_envelope: OpenEnvelope,
        runtime_version: str,
        allow_unsigned: bool = False,
        judge: CheckPins | None = None,
    ) -> None:
        self._store, self._tenant, self._runtime_version, self._judge = store, tenant_id, runtime_version, judge
        self._shelf = ArtifactRepository(store, open_envelope, allow_unsigned=allow_unsigned)
        self._pinned: BoundedCache[tuple[ResolvedPins, tuple[AdapterDefinition, ...]]] = BoundedCache()
        self._loaded: BoundedCache[LoadedArtifacts] = BoundedCache()

    async def publish(self, envelope: dict[str, Any], *, by: str, at_us: int, salt: Salt) -> str:
        """Publish an artifact and return its ref. The same content again changes nothing.

        Raises:
            SignatureInvalid: nobody who may sign packs signed it.
            InvalidArtifact: lint refuses it, it is for another tenant, or the ref has other content already.
            MalformedJson, InvalidEnvelope: the payload does not fit its contract.
            Conflict: somebody published at the same moment; publish again.
        """
        stored = self._shelf.opened(envelope)
        if tenant_of(stored.artifact) not in (None, self._tenant):
            raise _invalid("/tenant", "other_tenant", f"`{stored.ref}` is for another tenant", "publish it there")
        problems = lint_pack(stored.artifact, None) if isinstance(stored.artifact, ContextPack) else ()
        if problems:
            raise InvalidArtifact(*problems)
        there = await self._shelf.digest_of(stored.ref)
        if there == stored.digest:
            return stored.ref
        if there is not None:
            detail = f"`{stored.ref}` has other content; (id, version) maps to one content digest for ever"
            raise _invalid("", "ref_taken", detail, "publish it under a new version")
        pin = {"digest": stored.digest, "kind": ARTIFACT_KINDS[type(stored.artifact)], "by": by}
        writes = (Write(PINS, stored.ref, 0, canonical(pin)), Write(ARTIFACTS, stored.digest, 0, canonical(envelope)))
        await self._commit("artifact.published", {"ref": stored.ref, **pin}, writes, by, at_us, salt)
        return stored.ref

    async def activate_policies(
        self, level_refs: Sequence[tuple[Level, str]], *, by: str, at_us: int, salt: Salt
    ) -> None:
        """Set the policies in force above every pack. What is left out is no longer in force; the same list again
        changes nothing.

        Raises:
            NotFound: a ref is not published here, or withdrawn.
            InvalidArtifact: a ref is no policy bundle, stands twice, or a tenant's own is to count as the platform's.
            Conflict: somebody changed the list at the same moment; look and set it again.
        """
        active = await self._shelf.active()
        for level, ref in level_refs:
            stored = await self._shelf.published(ref)
            if stored is None or ref in active.withdrawn:
                raise NotFound(f"there is no `{ref[:200]}` to activate; publish it first")
            _refuse_level(level, stored)
        if len({ref for _, ref in level_refs}) != len(level_refs):
            raise _invalid("/policies", "duplicate", "a policy is named twice", "name it once, at its strongest level")
        policies = sorted(([level, ref] for level, ref in level_refs), key=lambda entry: entry[0] != "platform")
        if policies == [[level, ref] for level, ref in active.policies]:
            return
        body = {"policies": policies, "withdrawn": sorted(active.withdrawn)}
        await self._change("policies.activated", active, body, {"policies": policies}, by, at_us, salt)

    async def withdraw(self, ref: str, *, by: str, reason: str, at_us: int, salt: Salt) -> None:
        """From now on `ref` pins nothing new and voids what waits on it; runs that used it still replay.

        Raises:
            NotFound: nothing is published under `ref`.
            InvalidArtifact: it is an active policy; activate the others first, so that nothing loosens unseen.
            Conflict: somebody changed the list at the same moment; withdraw again.
        """
        active = await self._shelf.active()
        if await self._shelf.digest_of(ref) is None:
            raise NotFound(f"there is no `{ref[:200]}`; nothing was withdrawn")
        if any(ref == name for _, name in active.policies):
            raise _invalid("/policies", "still_active", f"`{ref}` is active", "activate the other policies first")
        policies = [[level, name] for level, name in active.policies]
        body = {"policies": policies, "withdrawn": sorted(active.withdrawn | {ref})}
        await self._change("artifact.withdrawn", active, body, {"ref": ref, "reason": reason}, by, at_us, salt)

    async def pin(self, refs: Sequence[str], definitions: Definitions) -> dict[str, Any]:
        """What a run with these refs is bound to now, or `{"failure": {"code", "detail"}}`.

        The answer: `pack_ref`; `pins`, name to digest, of every ref, every active policy, `adapter:<id>` of the
        adapters that the pack registers, and `active_policies`; `policies`, each `{level, ref, digest}`; `publishers`,
        sorted: who published any of the refs and active policies.
        """
        active = await self._shelf.active()
        key = (tuple(refs), active)
        pinned, used = self._pinned.get(key, (None, ()))
        if pinned is None or not all(self._same(definitions.get(one.adapter_id), one) for one in used):
            found = await self._resolve(refs, active, definitions)
            if isinstance(found, PinsRefused):
                return _failure(found)
            used = tuple(definitions[adapter_id] for adapter_id in found.adapters)
            await self._shelf.keep(used)
            misfit = await self._misfit(self._answer(found, active, definitions))
            if misfit:
                return _failure(misfit)
            pinned, _ = self._pinned.keep(key, (found, used))
        return self._answer(pinned, active, definitions)

    async def load(self, answer: Mapping[str, Any]) -> LoadedArtifacts:
        """The artifacts of a recorded answer of `pin`, by digest.

        Raises:
            Integrity: something is missing, or is not what its digest and signature say.
        """
        pack_ref, pins = answer["pack_ref"], answer["pins"]
        levels = {policy["ref"]: policy["level"] for policy in answer["policies"]}
        key = (pack_ref, tuple(pins.items()), tuple(levels.items()))
        if key in self._loaded:
            return self._loaded[key]
        adapters = {name: digest for name, digest in pins.items() if name.startswith(ADAPTER)}
        refs = {name: digest for name, digest in pins.items() if name not in adapters and name != ACTIVE_POLICIES}
        artifacts = {ref: (await self._shelf.artifact(ref, digest)).artifact for ref, digest in refs.items()}
        pack = artifacts.get(pack_ref)
        above = [(level, artifacts.get(ref)) for ref, level in levels.items() if level != "pack"]
        if not isinstance(pack, ContextPack):
            raise Integrity(f"the pins hold no pack `{pack_ref}`; this answer was not made by `pin`")
        policies = [(level, artifact) for level, artifact in above if isinstance(artifact, PolicyArtifact)]
        if len(policies) != len(above):
            raise Integrity("a policy in force is not among the pins; this answer was not made by `pin`")
        beside = [one for ref, one in artifacts.items() if ref != pack_ref and levels.get(ref, "pack") == "pack"]
        merged = merge(pack, beside, policies)
        definitions = [await self._shelf.definition(name, digest) for name, digest in adapters.items()]
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
        """The digest of each pinned name as it is now; None for what is withdrawn, gone or was never there.

        Before them the version of the policies in force that it holds under.
        """
        active = await self._shelf.active()
        now: dict[str, str | None] = {}
        for name in names:
            if name == ACTIVE_POLICIES:
                now[name] = active.digest
            elif name.startswith(ADAPTER):
                definition = definitions.get(name.removeprefix(ADAPTER))
                now[name] = None if definition is None else self._shelf.address(definition)
            else:
                now[name] = None if name in active.withdrawn else await self._shelf.digest_of(name)
        return active.version, now

    def _answer(self, pinned: ResolvedPins, active: ActivePolicies, definitions: Definitions) -> dict[str, Any]:
        addresses = {ADAPTER + name: self._shelf.address(definitions[name]) for name in pinned.adapters}
        return pinned.answer({**addresses, ACTIVE_POLICIES: active.digest})

    async def _misfit(self, answer: dict[str, Any]) -> PinsRefused | None:
        """What another plane has against a set; found now, so that no run meets it half way."""
        if self._judge is not None:
            try:
                self._judge(await self.load(answer))
            except InvalidArtifact as error:
                return PinsRefused("unknown_ref", f"`{answer['pack_ref']}` cannot be used: {error}")
        return None

    def _same(self, live: AdapterDefinition | None, known: AdapterDefinition) -> bool:
        return live is known or (live is not None and self._shelf.address(live) == self._shelf.address(known))

    async def _resolve(
        self, refs: Sequence[str], active: ActivePolicies, definitions: Definitions
    ) -> ResolvedPins | PinsRefused:
        unpinned = check_ref_form(refs)
        if unpinned:
            return unpinned
        found: dict[str, StoredArtifact] = {}
        for ref in (*refs, *(name for _, name in active.policies)):
            stored = await self._shelf.published(ref)
            if stored is None or ref in active.withdrawn:
                return PinsRefused("unknown_ref", f"there is no `{ref[:200]}` in force in this tenant; publish it")
            found[ref] = stored
        above = [(level, found[ref]) for level, ref in active.policies]
        named = {ref for _, ref in active.policies}
        asked = [found[ref] for ref in dict.fromkeys(refs) if ref not in named]
        pinned = resolve_pins(asked, above, definitions, self._runtime_version)
        if isinstance(pinned, PinsRefused):
            return pinned
        publishers = {await self._shelf.publisher_of(ref) for ref in found}
        return replace(pinned, publishers=tuple(sorted(by for by in publishers if by is not None)))

    async def _change(
        self,
        kind: str,
        active: ActivePolicies,
        body: dict[str, Any],
        said: dict[str, Any],
        by: str,
        at_us: int,
        salt: Salt,
    ) -> None:
        write = Write(ACTIVE, POLICIES, active.version, canonical(body))
        await self._commit(kind, said, (write,), by, at_us, salt)

    async def _commit(
        self, kind: str, said: dict[str, Any], writes: tuple[Write, ...], by: str, at_us: int, salt: Salt
    ) -> None:
        draft = Draft(kind, said.get("ref", ""), at_us, by, canonical({**said, "by": by}), salt(SALT_BYTES))
        await self._store.commit(Batch(run=CONTROL, shared=((CONTROL, draft),), writes=writes))


def _failure(refused: PinsRefused) -> dict[str, Any]:
    return {"failure": {"code": refused.code, "detail": refused.detail}}


def _refuse_level(level: Level, stored: StoredArtifact) -> None:
    if level not in ("platform", "tenant") or not isinstance(stored.artifact, PolicyArtifact):
        detail = f"`{stored.ref}` is no policy that can be in force as `{level}`"
        raise _invalid("/policies", "not_a_policy", detail, "name a published policy bundle, as platform or tenant")
    if level == "platform" and stored.artifact.tenant is not None:
        raise _invalid("/policies", "not_platform", f"`{stored.ref}` is a tenant's own", "activate it as `tenant`")


def _invalid(pointer: str, code: str, detail: str, remedy: str) -> InvalidArtifact:
    return InvalidArtifact(Problem(pointer, code, detail, remedy))
