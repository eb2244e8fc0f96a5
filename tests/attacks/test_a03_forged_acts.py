"""Attack: a writer of the database puts an operator's act on record that no operator did, or did once already.

The owner of the database can write every table and knows every public key. They hold no key of the runtime.
Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.identity import ApproverKey
from contextos.contracts.journal import CONTROL, Batch, Draft, Entry
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.signing import act_signer
from contextos.errors import ApprovalRefused, ChainBroken, Integrity
from contextos.trust.approvals.acts import ACT_ROLES
from contextos.trust.seal import kid_of, seal
from tests.attacks.conftest import DatabaseOwner
from tests.unit.control.example import pack_json
from tests.world import APPROVER, APPROVER_KEY, OPERATOR, TENANT, TestWorld, open_world, public_key, request, run

MALLORY_KEY = bytes(range(64, 96))
REF = "ctxpack.support@5.3.0"

KINDS = sorted(ACT_ROLES.keys() - {"entry.erased"})
"""A store takes an erasure only with the body that it erases; `test_c16_verify_passes_nothing_altered` forges it."""


def forged(kind: str, expected: int, how: str, template: dict[str, Any]) -> bytes:
    """The body of an act that the operator never did, with the members that the runtime writes."""
    act = {"tenant_id": TENANT, "kind": kind, "actor": OPERATOR, "arguments": {"made": "up"}, "expected": expected}
    public = public_key(MALLORY_KEY)
    key = ApproverKey(kid=kid_of(public), public_key=public.hex()).to_json()
    assertion, beside = dict(act_signer(MALLORY_KEY)(act)), key
    if how == "stand-in":
        assertion, beside = {"kind": "unsafe_local"}, None
    return canonical({**template, "act": act, "role": ACT_ROLES[kind], "assertion": assertion, "key": beside})


async def append(world: TestWorld, kind: str, about: str, body: bytes, like: Entry, salt: bytes = bytes(16)) -> None:
    """Append a line to `control`. The store links it, so the chain is right."""
    line = Draft(kind, about, like.at_us + 1, OPERATOR, body, salt)
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, line),)))


@pytest.mark.parametrize("how", ["own key", "stand-in"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_made_up_act_does_not_verify(tmp_path: Path, stores: str, kind: str, how: str) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        store = world.stores.tenant(TENANT)
        await verify_tenant(store, TENANT, world.keys)
        last = (await store.read(CONTROL))[-1]
        template = json.loads(last.body or b"")
        await append(world, kind, "", forged(kind, await world.active_version(), how, template), last)
        with pytest.raises(ChainBroken, match=f"control.*entry {last.seq + 1}"):
            await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("what", ["whole", "elsewhere", "later"])
def test_an_act_that_was_done_once_does_not_count_twice(tmp_path: Path, stores: str, what: str) -> None:
    """The line of a real act, copied with its salt; or put under another key; or at another time."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        store = world.stores.tenant(TENANT)
        entries = await store.read(CONTROL)
        published = next(one for one in entries if one.kind == "artifact.published")
        about = "ctxpack.other@1.0.0" if what == "elsewhere" else published.key
        at_us = published.at_us + (1 if what == "later" else 0)
        assert published.body is not None
        assert published.salt is not None
        line = Draft(published.kind, about, at_us, published.by, published.body, published.salt)
        await store.commit(Batch(run=CONTROL, shared=((CONTROL, line),)))
        with pytest.raises(ChainBroken, match=f"entry {len(entries) + 1}"):
            await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("forging", ["the document alone", "with a made-up act"])
def test_a_made_up_publisher_approves_no_run_of_their_own_pack(
    tmp_path: Path, stores: str, owner: DatabaseOwner, forging: str
) -> None:
    """The finance lead published the pack. The database says that somebody else did, so that they may approve."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        world.edit_directory(
            lambda tenant: next(one for one in tenant["approvers"] if one["approver_id"] == APPROVER).update(
                roles=["finance_lead", "publisher"],
                granted_by={"finance_lead": "user_cfo_1", "publisher": "user_coo_1"},
            )
        )
        body = pack_json()
        body["pack_meta"]["pack_version"] = "5.3.0"
        envelope = seal(PACK_TYPE, canonical(body), world.keys, "pack")
        await world.publish(envelope, by=world.actor(APPROVER, APPROVER_KEY))
        await world.pin_pack(REF)
        store = world.stores.tenant(TENANT)
        [pin] = await store.scan("pins", key=REF)
        bare = {**json.loads(pin.body), "by": OPERATOR}
        changed = canonical(bare)
        await owner.execute(
            f"UPDATE {{documents}} SET body = {owner.blob(changed)} WHERE collection = 'pins' AND key = '{REF}'"
        )
        if forging != "the document alone":
            last = (await store.read(CONTROL))[-1]
            real = next(one for one in await store.read(CONTROL) if one.key == REF and one.kind == "artifact.published")
            template = json.loads(real.body or b"")
            act = {**template["act"], "actor": OPERATOR}
            key = ApproverKey(kid="k", public_key=public_key(MALLORY_KEY).hex()).to_json()
            made = {**template, "act": act, "assertion": dict(act_signer(MALLORY_KEY)(act)), "key": key}
            await append(world, "artifact.published", REF, canonical(made), last)
        world.deployment._catalogs.clear()
        asked = request(4200, "req_1")
        try:
            waiting = await world.invoke({**asked, "context_pack_refs": [REF]})
            await world.approve(waiting.run_id)
        except (ApprovalRefused, Integrity):
            pass
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_an_older_set_that_was_put_back_with_its_number_is_not_enforced(
    tmp_path: Path, stores: str, owner: DatabaseOwner
) -> None:
    """Nobody has to run `verify` first: a run does not start under a set that a later act has replaced."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        store = world.stores.tenant(TENANT)
        [loose] = await store.scan("active")
        await world.withdraw("ctxpack.support@5.2.0")
        await owner.execute(
            f"UPDATE {{documents}} SET body = {owner.blob(loose.body)}, version = {loose.version} "
            "WHERE collection = 'active'"
        )
        for fresh in (False, True):
            if fresh:
                world.deployment._catalogs.clear()
            with pytest.raises(Integrity, match="active set"):
                await world.invoke(request(900, f"req_{fresh}"))
        assert world.refunds() == []
        await world.aclose()

    run(go())


def test_a_made_up_act_beside_an_older_set_enforces_nothing(tmp_path: Path, stores: str, owner: DatabaseOwner) -> None:
    """The older set, and a made-up last act that would have left it."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        store = world.stores.tenant(TENANT)
        [loose] = await store.scan("active")
        await world.withdraw("ctxpack.support@5.2.0")
        last = (await store.read(CONTROL))[-1]
        body = forged("policies.activated", loose.version - 1, "own key", json.loads(last.body or b""))
        await append(world, "policies.activated", last.key, body, last)
        await owner.execute(
            f"UPDATE {{documents}} SET body = {owner.blob(loose.body)}, version = {loose.version} "
            "WHERE collection = 'active'"
        )
        world.deployment._catalogs.clear()
        with pytest.raises(Integrity, match="active set"):
            await world.invoke(request(900, "req_1"))
        assert world.refunds() == []
        await world.aclose()

    run(go())
