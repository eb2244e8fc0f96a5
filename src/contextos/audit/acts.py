"""Verify the operator acts in a tenant's control stream, and that what is active is what the last act made it.

Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import NamedTuple

from contextos.contracts.acts import ActiveSet
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.bodies import ACT_ARGUMENTS, body_fault
from contextos.contracts.journal import CONTROL, Entry, genesis
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.control.artifacts import ACTIVE_SET_TYPE
from contextos.deployment.acts.keys import is_introduced
from contextos.errors import ChainBroken, InvalidInput, SignatureInvalid
from contextos.trust.approvals.acts import read_act
from contextos.trust.approvals.people import ListedPeople
from contextos.trust.approvals.signers import actor_fault
from contextos.trust.seal import open_sealed

ACTIVATING: frozenset[str] = frozenset({"policies.activated", "packs.pinned", "packs.withdrawn", "artifact.withdrawn"})
"""The kinds of act that make the next version of the active set."""


class VerifiedControl(NamedTuple):
    """How many entries of `control` were verified, and the hash of the last one."""

    entries: int
    head: str


async def verify_acts(
    store: Store, tenant_id: str, control: AsyncIterable[Sequence[Entry]], keys: Keys
) -> VerifiedControl:
    """Check that the runtime sealed every act in `control`, that its actor signed it or the record says that nobody
    did, that every other entry is of a known kind and fits it, and that the active set is what the last act left.

    `control` are the verified pages of the whole stream. Returns how many entries there were, and the
    hash of the last.

    Raises:
        ChainBroken: an act is not sealed or not signed, or is a copy; an entry is of an unknown kind, or its body does
            not fit; or the active set is missing, changed or of another version.
    """
    seals, people = set[bytes](), ListedPeople(keys)
    version, digest, entries, head = 0, "", 0, genesis(tenant_id, CONTROL)
    async for page in control:
        version, digest = _apply_acts(page, (version, digest), seals, people, keys)
        entries, head = entries + len(page), page[-1].hash
    verified = VerifiedControl(entries, head)
    document = await ACTIVE_SETS.one(store, ACTIVE_SET_KEY)
    if document and document.version > version:
        # An operator acted since the stream was read.
        version, digest = _apply_acts(await store.read(CONTROL, after=entries), (version, digest), seals, people, keys)
    stored_version = document.version if document else 0
    if stored_version != version:
        detail = f"left the active set at version {version}, and the stored one has version {stored_version}"
        raise ChainBroken(CONTROL, entries, detail)
    if document is None:
        return verified
    try:
        content = parse(ActiveSet, open_sealed(document.body, keys, "active", {ACTIVE_SET_TYPE}))
        stored_set = (content.tenant_id, content.version, content_address(content.to_json()))
    except (InvalidInput, SignatureInvalid):
        stored_set = ("", 0, "")
    if stored_set != (tenant_id, version, digest):
        raise ChainBroken(CONTROL, entries, "left an active set that somebody changed past the runtime")
    return verified


def _apply_acts(
    control: Iterable[Entry], before: tuple[int, str], seals: set[bytes], people: ListedPeople, keys: Keys
) -> tuple[int, str]:
    """Return the version and the digest of the active set after these acts, starting from `before`. `seals` has the
    seals seen so far, each by its first 16 bytes. Raises `ChainBroken`.
    """
    version, digest = before
    for entry in control:
        if entry.kind not in ACT_ARGUMENTS:
            if fault := body_fault(CONTROL, entry.kind, entry.body or b""):
                raise ChainBroken(CONTROL, entry.seq, f"is nothing that the runtime writes there: {fault}")
            people.add(entry)
            continue
        recorded = read_act(entry, keys)
        seal = bytes.fromhex(recorded.seal.signature)[:16]
        if seal in seals:
            raise ChainBroken(CONTROL, entry.seq, "is a copy of an earlier act")
        seals.add(seal)
        if fault := actor_fault(recorded, entry, people):
            raise ChainBroken(CONTROL, entry.seq, f"is an act that does not count: {fault}")
        if entry.kind == "key.rotated" and not is_introduced(recorded.act.arguments, keys):
            raise ChainBroken(CONTROL, entry.seq, "introduces a key that the old one did not sign")
        if entry.kind in ACTIVATING:
            if recorded.act.expected != version:
                detail = f"is an act on version {recorded.act.expected} of the active set, which had {version}"
                raise ChainBroken(CONTROL, entry.seq, detail)
            version, digest = version + 1, str(recorded.act.arguments.get("active_digest"))
    return version, digest
