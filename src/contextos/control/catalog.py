"""The catalog of one tenant: publish, activate, withdraw, pin and load artifacts.

Documents: `pins/<ref>` (digest, kind and publisher; written once, never changed), `artifacts/<digest>` (the DSSE
envelope of an artifact, or the canonical definition of an adapter), `active/artifacts` (the policies in force above
every pack, the tenant pins and the withdrawn refs, sealed by the runtime). A change is returned as a `ProposedAct`,
which `deployment.acts` proves and commits.

`pin` returns the set that a run is bound to. `load` turns that set into artifacts: from the cache, or, in a replay
years later, from the documents. An artifact whose digest or signature does not match is never loaded.
Source: docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextos.contracts.acts import PackPin, ProposedAct
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ARTIFACTS, PINS, PublishedPin
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.linked import RecentlyUsed
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.contracts.facts import name_remedy
from contextos.contracts.ids import PIN
from contextos.contracts.ports.storage import Store
from contextos.contracts.scope import ADAPTER
from contextos.control.artifact_repository import ActiveArtifacts, ActiveSeal, ArtifactRepository, Looked, OpenEnvelope
from contextos.control.artifacts import ARTIFACT_KINDS, GovernedArtifact, StoredArtifact, merge, model_refs, tenant_of
from contextos.control.lint.models import lint_models
from contextos.control.lint.pack import lint_pack
from contextos.control.loading import (
    ACTIVE_POLICIES,
    EGRESS_LIST,
    REDACTION_LIST,
    LoadedArtifacts,
    loaded_artifacts,
    pinned_refs,
)
from contextos.control.pinning import (
    NOTHING_ACTIVE,
    PinsRefused,
    ResolvedPins,
    not_allowed,
    pinned_nowhere,
    pins_failure,
    resolve_pins,
    without_pin,
)
from contextos.errors import InvalidArtifact, NotFound, Problem

Definitions = Mapping[str, AdapterDefinition]


CheckPins = Callable[[LoadedArtifacts], None]
"""Raises `InvalidArtifact` for a set that another plane cannot use, for example if a rule does not compile."""


class Catalog:
    """The published artifacts (packs, policies, catalogs) of one tenant: publish, activate, withdraw, pin and load.

    `open_envelope` verifies a DSSE envelope and returns (payload type, bytes), or raises `SignatureInvalid`. An
    envelope without a signature is accepted only with `allow_unsigned`; an invalid signature never is. `active_seal`
    protects the active set; a catalog without it can only load. `check_pins` is called before a set is pinned for the
    first time. `egress` and `redaction` are the lists of the tenant.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant_id: str,
        open_envelope: OpenEnvelope,
        runtime_version: str,
        active_seal: ActiveSeal | None = None,
        allow_unsigned: bool = False,
        check_pins: CheckPins | None = None,
        egress: Sequence[str] = (),
        redaction: Sequence[str] = (),
    ) -> None:
        self._lists = {EGRESS_LIST: sorted(set(egress)), REDACTION_LIST: sorted(set(redaction))}
        self._tenant, self._runtime_version, self._check_pins = tenant_id, runtime_version, check_pins
        self.repository = ArtifactRepository(
            store, open_envelope, tenant_id=tenant_id, active_seal=active_seal, allow_unsigned=allow_unsigned
        )
        self._pinned = RecentlyUsed[tuple[ResolvedPins, tuple[AdapterDefinition, ...]]]()
        self._loaded = RecentlyUsed[LoadedArtifacts]()
        self._rules = RecentlyUsed[frozenset[str]]()
        self._now = RecentlyUsed[dict[str, str | None]]()

    async def active(self) -> ActiveArtifacts:
        """Return the active set. Raises as `ArtifactRepository.active`."""
        return await self.repository.active()

    async def models(self) -> list[ModelProfile | RoutingRules]:
        """Return every published profile and all routing rules that are not withdrawn. Raises `Integrity`."""
        return await self.repository.models((await self.active()).withdrawn)

    def opened(self, envelope: dict[str, Any]) -> GovernedArtifact:
        """Return the artifact in a signed envelope. Raises as `publication`."""
        return self.repository.opened(envelope).artifact

    async def publication(self, envelope: dict[str, Any]) -> tuple[str, ProposedAct | None]:
        """Return the ref of an artifact and the act that publishes it; None if the same content is published already.

        Raises:
            SignatureInvalid: no key that is allowed to sign packs signed it.
            InvalidArtifact: lint refuses it, it is for another tenant, or the ref already has different content.
            MalformedJson, InvalidEnvelope: the payload does not fit its contract.
        """
        stored = self.repository.opened(envelope)
        if tenant_of(stored.artifact) not in (None, self._tenant):
            detail = f"`{stored.ref}` is for another tenant"
            raise _invalid("/tenant", "other_tenant", detail, "publish it in that tenant")
        problems = lint_pack(stored.artifact, None) if isinstance(stored.artifact, ContextPack) else ()
        if problems:
            raise InvalidArtifact(*problems)
        published_digest = await self.repository.digest_of(stored.ref)
        if published_digest == stored.digest:
            return stored.ref, None
        if published_digest is not None:
            detail = f"`{stored.ref}` is published with different content already, and a version never changes"
            raise _invalid("", "ref_taken", detail, "publish it under a new version")
        models = await self.models() if model_refs(stored.artifact) else ()
        if problems := tuple(lint_models(stored.artifact, models, self._lists[EGRESS_LIST])):
            raise InvalidArtifact(*problems)
        pin = PublishedPin(stored.digest, ARTIFACT_KINDS[type(stored.artifact)])
        writes = (PINS.write(stored.ref, 0, pin), ARTIFACTS.write(stored.digest, 0, envelope))
        act = ProposedAct("artifact.published", stored.ref, {"ref": stored.ref, **pin.to_json()}, 0, writes)
        return stored.ref, act

    async def activation(self, level_refs: Sequence[tuple[Level, str]], *, expected: int) -> ProposedAct | None:
        """Return the act that puts exactly these policies in force above every pack; None if they are in force.

        The first act of a tenant is never None: before it nothing is active, and no run can be pinned.

        Raises:
            NotFound: a ref is not published in this tenant, or is withdrawn.
            InvalidArtifact: the active set has another version than `expected`; a ref is not a policy bundle, is listed
                twice, or is a tenant's policy at level `platform`.
        """
        active = await self._expected_active(expected)
        for level, ref in level_refs:
            _refuse_level(level, await self._usable_artifact(ref, active))
        if len({ref for _, ref in level_refs}) != len(level_refs):
            raise _invalid("/policies", "duplicate", "a policy is listed twice", "list it once, at its strongest level")
        policies = tuple(sorted(level_refs, key=lambda entry: entry[0] != "platform"))
        if policies == active.policies and expected:
            return None
        arguments = {"policies": [[level, ref] for level, ref in policies]}
        return self._change_act("policies.activated", arguments, replace(active, policies=policies), expected)

    async def pinning(self, pin: PackPin, *, expected: int) -> ProposedAct:
        """Return the act that allows requests with exactly the refs of `pin`, for its intents in its environment.

        Raises:
            NotFound: a ref is not published in this tenant, or is withdrawn.
            InvalidArtifact: the active set has another version than `expected`; the refs do not include exactly one
                context pack; or none of them defines one of the intents.
        """
        active = await self._expected_active(expected)
        artifacts = [await self._usable_artifact(ref, active) for ref in pin.refs]
        packs = [stored.artifact for stored in artifacts if isinstance(stored.artifact, ContextPack)]
        if len(packs) != 1:
            detail = f"`{', '.join(pin.refs)[:200]}` has {len(packs)} context packs"
            raise _invalid("/refs", "not_one_pack", detail, "name one pack, and the catalogs and policies beside it")
        defined = merge(packs[0], [stored.artifact for stored in artifacts if stored.artifact is not packs[0]]).intents
        if undefined := sorted(set(pin.intents) - defined.keys()):
            detail = f"none of the refs defines the intent `{undefined[0][:80]}`"
            remedy = name_remedy(undefined[0], sorted(defined)) if defined else "use another pack"
            raise _invalid("/intents", "unknown_intent", detail, remedy)
        pins = (*without_pin(active.packs, pin), pin)
        return self._change_act("packs.pinned", pin.to_json(), replace(active, packs=pins), expected)

    async def unpinning(self, pin: PackPin, *, expected: int) -> ProposedAct:
        """Return the act after which no tenant pin allows the requests that `pin` allows.

        Raises:
            NotFound: for one of the intents of `pin`, no tenant pin allows its refs now.
            InvalidArtifact: the active set has another version than `expected`.
        """
        active = await self._expected_active(expected)
        if missing := [intent for intent in pin.intents if not active.allows(pin.refs, intent, pin.environment)]:
            detail = f"`{', '.join(pin.refs)[:200]}` is not pinned for `{missing[0][:80]}` in `{pin.environment[:80]}`"
            raise NotFound(f"{detail}; list the pins with `contextos pack list`")
        pins = without_pin(active.packs, pin)
        return self._change_act("packs.withdrawn", pin.to_json(), replace(active, packs=pins), expected)

    async def withdrawal(self, ref: str, *, reason: str, expected: int) -> ProposedAct:
        """Return the act that withdraws `ref`: new runs can no longer pin it, and approvals that depend on it are void.

        Tenant pins that name `ref` end. Runs that used it still replay.

        Raises:
            NotFound: nothing is published under `ref`.
            InvalidArtifact: the active set has another version than `expected`, or `ref` is an active policy. Activate
                the other policies first, so that no rule ends unnoticed.
        """
        active = await self._expected_active(expected)
        if await self.repository.digest_of(ref) is None:
            raise NotFound(f"`{ref[:200]}` is not published; nothing was withdrawn")
        if any(ref == name for _, name in active.policies):
            remedy = "activate the other policies without it first"
            raise _invalid("/policies", "still_active", f"`{ref}` is an active policy", remedy)
        pins = tuple(pin for pin in active.packs if ref not in pin.refs)
        after = replace(active, packs=pins, withdrawn=active.withdrawn | {ref})
        return self._change_act("artifact.withdrawn", {"ref": ref, "reason": reason}, after, expected)

    async def pin(
        self, refs: Sequence[str], definitions: Definitions, *, intent: str, environment: str, looked: Looked = None
    ) -> dict[str, Any]:
        """Return the set that a run with these refs is bound to now, or `{"failure": {"code", "detail",
        "pointer"}}`, with the other failures under `further`.

        A tenant pin must allow exactly these refs for this intent in this environment. The set has four keys.
        `pack_ref`. `pins`: the digest by name, for every ref, every active policy, every adapter that the pack
        registers (`adapter:<id>`), and `active_policies`. `policies`: a list of `{level, ref, digest}`. `publishers`:
        the sorted publishers of the refs and active policies.
        """
        active = await self.repository.active(looked)
        if not active.allows(refs, intent, environment):
            result = await self._find_artifacts(refs, active) if active.version else [NOTHING_ACTIVE]
            if not isinstance(result, list):
                artifacts = [result[ref].artifact for ref in refs]
                pinned_for = active.intents(refs, environment)
                result = [not_allowed(refs, artifacts, pinned_for, intent, environment)]
            elif (pinned_intents := active.intents(None, environment)) and intent not in pinned_intents:
                result.append(pinned_nowhere(pinned_intents, intent, environment))
            return pins_failure(*result)
        key = (tuple(refs), active.version)
        pinned, adapters = self._pinned.get(key) or (None, ())
        if pinned is None or not all(self._is_same(definitions.get(item.adapter_id), item) for item in adapters):
            resolved = await self._resolve_refs(refs, active, definitions)
            if isinstance(resolved, list):
                return pins_failure(*resolved)
            adapters = tuple(definitions[adapter_id] for adapter_id in resolved.adapters)
            await self.repository.store_definitions(adapters)
            refusal = await self._usage_refusal(self._pin_set(resolved, active, definitions))
            if refusal:
                return pins_failure(refusal)
            pinned, _ = self._pinned.keep(key, (resolved, adapters))
        return self._pin_set(pinned, active, definitions)

    async def redaction_rules(self, refs: Sequence[str]) -> frozenset[str] | None:
        """Return the redaction rules of the tenant and of the packs among these references, or None if one of them is
        not published.
        """
        rules = set(self._lists[REDACTION_LIST])
        for ref in refs:
            pack_rules = self._rules.get(ref)
            if pack_rules is None:
                stored = await self.repository.published(ref)
                if stored is None:
                    return None
                pack = stored.artifact
                names = pack.policy_layer.guardrails.redaction_rules if isinstance(pack, ContextPack) else ()
                pack_rules = self._rules.keep(ref, frozenset(names))
            rules |= pack_rules
        return frozenset(rules)

    async def load(self, pin_set: Mapping[str, Any]) -> LoadedArtifacts:
        """Load the artifacts of a set that `pin` returned, by digest. The pack has the tenant's redaction rules too.

        Raises:
            Integrity: an artifact is missing, or is not the one with that digest.
            SignatureInvalid: the signature of an artifact is missing or not valid.
        """
        pins = pin_set["pins"]
        key = (pin_set["pack_ref"], tuple(pins.items()), *((row["ref"], row["level"]) for row in pin_set["policies"]))
        if (loaded := self._loaded.get(key)) is not None:
            return loaded
        refs = pinned_refs(pins)
        artifacts = {ref: (await self.repository.artifact(ref, digest)).artifact for ref, digest in refs.items()}
        adapters = [name for name in pins if name.startswith(ADAPTER)]
        definitions = tuple([await self.repository.definition(name, pins[name]) for name in adapters])
        return self._loaded.keep(key, loaded_artifacts(pin_set, artifacts, definitions))

    async def pins_now(
        self, names: Collection[str], definitions: Definitions, looked: Looked = None
    ) -> tuple[int, dict[str, str | None]]:
        """Return (version of the active set, digest by name as of now).

        The digest is None for a name that is not known, that is withdrawn, or that no tenant pin names any more. The
        tenant's lists that are in force now are included even if `names` lacks them.
        """
        active = await self.repository.active(looked)
        cached = self._now.get(key := (active.sealed_digest, *names))
        digests = cached or await self._current_digests(names, active)
        if cached is None and None not in digests.values():
            self._now.keep(key, digests)
        adapters = {name: definitions.get(name.removeprefix(ADAPTER)) for name in names if name.startswith(ADAPTER)}
        addresses = {name: None if item is None else self.repository.address(item) for name, item in adapters.items()}
        return active.version, digests | addresses

    async def _current_digests(self, names: Iterable[str], active: ActiveArtifacts) -> dict[str, str | None]:
        """Return the digests of these names, except names of adapters, and the digests of the tenant's lists."""
        active_refs, digests = active.named(), dict[str, str | None]()
        for name in dict.fromkeys((*names, *(name for name, entries in self._lists.items() if entries))):
            if name == ACTIVE_POLICIES:
                digests[name] = active.digest
            elif name in self._lists:
                digests[name] = content_address(self._lists[name])
            elif not name.startswith(ADAPTER):
                in_use = name in active_refs or await self._is_of_models(name, active)
                digests[name] = await self.repository.digest_of(name) if in_use else None
        return digests

    async def _is_of_models(self, ref: str, active: ActiveArtifacts) -> bool:
        """Return whether `ref` is a profile or routing rules of models: packs name them, and tenant pins do not."""
        stored = None if ref in active.withdrawn or not PIN.fits(ref) else await self.repository.published(ref)
        return stored is not None and isinstance(stored.artifact, ModelProfile | RoutingRules)

    def _pin_set(self, pinned: ResolvedPins, active: ActiveArtifacts, definitions: Definitions) -> dict[str, Any]:
        addresses = {ADAPTER + name: self.repository.address(definitions[name]) for name in pinned.adapters}
        pin_set = pinned.pin_set({**addresses, ACTIVE_POLICIES: active.digest})
        for name, entries in self._lists.items():
            if entries:
                pin_set["pins"][name] = content_address(entries)
                pin_set[name] = entries
        return pin_set

    async def _usage_refusal(self, pin_set: dict[str, Any]) -> PinsRefused | None:
        """Return why another plane cannot use a set, or None. Checked before a run starts, not halfway through."""
        if self._check_pins is not None:
            try:
                self._check_pins(await self.load(pin_set))
            except InvalidArtifact as error:
                return PinsRefused("unknown_ref", f"`{pin_set['pack_ref']}` cannot be used: {error}")
        return None

    def _is_same(self, live: AdapterDefinition | None, pinned: AdapterDefinition) -> bool:
        return live is pinned or (live is not None and self.repository.address(live) == self.repository.address(pinned))

    async def _find_artifacts(
        self, refs: Sequence[str], active: ActiveArtifacts
    ) -> dict[str, StoredArtifact] | list[PinsRefused]:
        """Return, by ref, the artifacts of a request, the policies in force, and the profiles and routing rules of
        models that the packs name; or, if some are missing, why each of them is.
        """
        artifacts, refusals = dict[str, StoredArtifact](), list[PinsRefused]()
        all_refs = [*refs, *(name for _, name in active.policies)]
        for number, ref in enumerate(all_refs):
            place = f"/context_pack_refs/{number}" if number < len(refs) else ""
            if place and not PIN.fits(ref):
                detail = f"`{ref[:200]}` is not an exact ref; use the form `{PIN.example}`"
                refusals.append(PinsRefused("unpinned_ref", detail, place))
                continue
            stored = await self.repository.published(ref)
            if stored is None or ref in active.withdrawn:
                detail = f"`{ref[:200]}` is not published in this tenant or is withdrawn; publish it"
                refusals.append(PinsRefused("unknown_ref", detail, place))
            else:
                artifacts[ref] = stored
                all_refs += [name for name in model_refs(stored.artifact) if name not in all_refs]
        return refusals or artifacts

    async def _resolve_refs(
        self, refs: Sequence[str], active: ActiveArtifacts, definitions: Definitions
    ) -> ResolvedPins | list[PinsRefused]:
        artifacts = await self._find_artifacts(refs, active)
        if isinstance(artifacts, list):
            return artifacts
        policies = [(level, artifacts[ref]) for level, ref in active.policies]
        requested = [stored for ref, stored in artifacts.items() if ref not in {name for _, name in active.policies}]
        pinned = resolve_pins(requested, policies, definitions, self._runtime_version)
        if isinstance(pinned, PinsRefused):
            return [pinned]
        publishers = {await self.repository.publisher_of(ref) for ref in artifacts}
        return replace(pinned, publishers=tuple(sorted(publisher for publisher in publishers if publisher is not None)))

    async def _expected_active(self, expected: int) -> ActiveArtifacts:
        """Return the active set. Raises `InvalidArtifact` if its version is not the one that the actor saw."""
        active = await self.repository.active()
        if active.version != expected:
            detail = f"the active set has the version {active.version} and not {expected}"
            raise _invalid("/expected", "stale_version", detail, "look at what is active now, and decide again")
        return active

    async def _usable_artifact(self, ref: str, active: ActiveArtifacts) -> StoredArtifact:
        """Return a published artifact that is not withdrawn. Raises `NotFound`."""
        stored = await self.repository.published(ref)
        if stored is None or ref in active.withdrawn:
            raise NotFound(f"`{ref[:200]}` is not published or is withdrawn; publish it first")
        return stored

    def _change_act(self, kind: str, arguments: dict[str, Any], after: ActiveArtifacts, expected: int) -> ProposedAct:
        """Return an act on the active set. It states the digest of the set that it leaves. Its key is the key of the
        set's document, so that the last act is found at once.
        """
        write, digest = self.repository.active_change(after, expected)
        return ProposedAct(kind, ACTIVE_SET_KEY, {**arguments, "active_digest": digest}, expected, (write,))


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
