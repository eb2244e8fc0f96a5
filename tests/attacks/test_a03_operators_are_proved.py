"""Attack: somebody who only names an operator acts as one; an operator acts without the role; a signature is reused.

Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from contextos.action.registry import Registry
from contextos.adapters.key_files import KeyFiles
from contextos.audit.export import export_runs
from contextos.audit.verify import verify_tenant
from contextos.contracts.acts import PackPin
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident, quarantine_key
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.envelopes.artifacts import Artifact, ExtensionManifest, NewAssertion, NewRevision
from contextos.contracts.envelopes.slots import CandidateQuery, SlotActor
from contextos.contracts.journal import CONTROL, Batch
from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE, PROFILE_TYPE
from contextos.deployment import dead_letters
from contextos.deployment.acts.act import Actor, unsafe_local_assertion
from contextos.deployment.acts.curation import (
    add_artifact,
    add_revision,
    archive_assertion,
    classify_artifact,
    delete_artifact,
    register_extension,
)
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.acts.governance import (
    activate_policies,
    pin_packs,
    publish_artifact,
    withdraw_artifact,
    withdraw_pin,
)
from contextos.deployment.acts.keys import rotate_key
from contextos.deployment.acts.memories import review_memory
from contextos.deployment.acts.models import check_model
from contextos.deployment.acts.quarantines import release_capability
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import erase_entry, request_cancel, retry_run
from contextos.deployment.restore import record_restore
from contextos.deployment.signing import act_signer, answer_signer, settlement_signer
from contextos.errors import ApprovalRefused, OtherEnvironment
from contextos.intelligence.memory import list_candidates
from contextos.service.reasks import reask_question
from contextos.trust.seal import seal
from tests.attacks.shop import Shop
from tests.e2e.test_approvals import VOIDS
from tests.modelled import profile, sender
from tests.unit.control.example import pack_json, policy_json
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    INTENT,
    OPERATOR,
    OPERATOR_KEY,
    TENANT,
    ManualClock,
    TestWorld,
    open_world,
    request,
    run,
)

REF = "ctxpack.support@5.2.0"
REQUESTER, OWNER, AGENT = "usr_771", "usr_owner_1", "agt_support"


@dataclass(frozen=True)
class Target:
    """What the acts are about."""

    world: TestWorld
    paid: str
    waiting: str
    buried: str
    proposal: str
    version: int
    exhausted: str


async def target(path: Path, stores: str, unsafe: tuple[str, ...] = ()) -> Target:
    world = await open_world(path, stores=stores, unsafe=unsafe)
    paid, waiting, buried = [
        (await world.invoke(request(amount, f"req_{amount}"))).run_id for amount in (900, 4200, 4300)
    ]
    store = world.stores.tenant(TENANT)
    seen = len(await store.read(buried))
    assert await dead_letters.add(store, buried, ("planted", "it failed for good"), 1, seen=seen)
    [first, *_] = await list_candidates(store)
    await shelve(world)
    await quarantine(world, buried)
    await world.publish(seal(PROFILE_TYPE, canonical(profile("fast")), world.keys, "pack"))
    world.deployment.ports = replace(world.deployment.ports, models=sender(world.clock, {}))
    short = request(900, "req_short")
    short["runtime"] |= {"max_tool_calls": 2}
    exhausted = (await world.invoke(short)).run_id
    return Target(world, paid, waiting, buried, first.proposal_id, await world.active_version(), exhausted)


async def quarantine(world: TestWorld, run_id: str) -> None:
    """An incident of one capability, as a call that finds a change writes it."""
    adapter = world.adapters["adp_orders"]
    [lookup] = [one for one in Registry().register((adapter.describe(),)).values() if one.definition.name == "lookup"]
    code = world.deployment.ports.code.adapter(adapter) or ""
    place = quarantine_key(lookup.capability_id, lookup.definition_digest, code)
    found = DRIFT_INCIDENTS.write(f"{place}tool_1", 0, DriftIncident(run_id, "tool_1", 1))
    await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=(found,)))


VOICE = "@acme/voice"
OF = {"artifact_id": "a", "org_id": "acme"}
ARTIFACT = OF | {"title": "a", "owner_level": "organization", "owner_id": "acme", "visibility": "org"}


async def shelve(world: TestWorld) -> None:
    """An artifact of a type, for slots."""
    shelf = world.stores.artifacts(TENANT)
    await shelf.register(ExtensionManifest(extension=VOICE))
    await shelf.add(Artifact(**ARTIFACT, created_by=OPERATOR, created_at_us=1))
    await shelf.revise(NewRevision(**OF, mime="text/plain", content="x", created_by=OPERATOR, created_at_us=1))
    known = {"extension": VOICE, "asserted_by": "user", "principal_id": OPERATOR, "asserted_at_us": 2}
    await shelf.classify(NewAssertion(**OF, **known))


Act = Callable[[Target, Actor], Awaitable[Any]]
PIN = PackPin(refs=(REF,), intents=(INTENT,), environment="dev")


FACT = {
    "src": "customer:cus_78",
    "predicate": "identity_verified",
    "dst": "check:idv_cus_78",
    "value": True,
    "evidence_ref": "artifact:idv_cus_78#rev_1",
    "observed_at": "2026-05-03T09:30:00Z",
    "integrity": "trusted",
    "classification": "CONFIDENTIAL",
}


def policy(at: Target) -> dict[str, Any]:
    return seal(POLICY_TYPE, canonical(policy_json(tenant=TENANT)), at.world.keys, "pack")


def key_files(at: Target) -> KeyFiles:
    folder = at.world.path / "keys"
    clock = ManualClock()
    return KeyFiles(folder, clock) if folder.exists() else KeyFiles.make(folder, clock)


ACTS: dict[str, Act] = {
    "capability.released": lambda at, by: release_capability(
        at.world.deployment, TENANT, "adp_orders.lookup", reason="the vendor put it back", by=by
    ),
    "artifact.published": lambda at, by: publish_artifact(at.world.deployment, TENANT, policy(at), by=by),
    "artifact.withdrawn": lambda at, by: withdraw_artifact(
        at.world.deployment, TENANT, REF, reason="wrong", expected=at.version, by=by
    ),
    "policies.activated": lambda at, by: _activated(at, by),
    "packs.pinned": lambda at, by: pin_packs(at.world.deployment, TENANT, PIN, expected=at.version, by=by),
    "packs.withdrawn": lambda at, by: withdraw_pin(at.world.deployment, TENANT, PIN, expected=at.version, by=by),
    "memory.reviewed": lambda at, by: review_memory(at.world.deployment, TENANT, at.proposal, "promote", by=by),
    "graph.written": lambda at, by: write_facts(at.world.deployment, TENANT, [], [FACT], by=by),
    "graph.withdrawn": lambda at, by: _withdrawn(at, by),
    "runs.exported": lambda at, by: export_runs(at.world.deployment, TENANT, [at.paid], by=by),
    "run.cancelled": lambda at, by: request_cancel(at.world.deployment, TENANT, at.waiting, by=by, reason="x"),
    "approval.reasked": lambda at, by: _reasked(at, by),
    "model.checked": lambda at, by: check_model(
        at.world.deployment, TENANT, "model.fast@1.0.0", by=by, max_cost_cents=1
    ),
    "run.retried": lambda at, by: retry_run(at.world.deployment, TENANT, at.buried, by=by),
    "entry.erased": lambda at, by: erase_entry(at.world.deployment, TENANT, at.paid, 3, by=by, reason="the law"),
    "decision.resolved": lambda at, by: resolve_escalation(
        at.world.deployment, TENANT, at.exhausted, "REJECTED", by=by, reason="ticket 4711"
    ),
    "decision.closed": lambda at, by: close_decision(
        at.world.deployment, TENANT, at.exhausted, by=by, reason="ticket 4711"
    ),
    "run.reopened": lambda at, by: reopen_run(
        at.world.deployment, TENANT, at.exhausted, by=by, reason="ticket 4711", to=9
    ),
    "key.rotated": lambda at, by: rotate_key(at.world.deployment, key_files(at), [TENANT], "head", by=by),
    "store.restored": lambda at, by: record_restore(at.world.deployment, None, TENANT, by=by),
    "slots.extension_registered": lambda at, by: register_extension(
        at.world.deployment, TENANT, ExtensionManifest(extension="@acme/other"), by=by
    ),
    "slots.artifact_added": lambda at, by: add_artifact(
        at.world.deployment, TENANT, ARTIFACT | {"artifact_id": "b"}, by=by
    ),
    "slots.artifact_revised": lambda at, by: add_revision(
        at.world.deployment, TENANT, OF | {"mime": "text/plain", "content": "x"}, by=by
    ),
    "slots.artifact_classified": lambda at, by: classify_artifact(
        at.world.deployment, TENANT, OF | {"extension": VOICE, "asserted_by": "user"}, by=by
    ),
    "slots.assertion_archived": lambda at, by: archive_assertion(
        at.world.deployment, TENANT, "acme", "a", VOICE, by=by
    ),
    "slots.artifact_deleted": lambda at, by: delete_artifact(at.world.deployment, TENANT, "acme", "a", by=by),
}


async def _withdrawn(at: Target, by: Actor) -> None:
    [row] = await at.world.stores.graph(TENANT).rows(limit=1)
    gone = {"retracts": row.edge_id, "evidence_ref": "artifact:recheck#rev_2"}
    await write_facts(at.world.deployment, TENANT, [], [gone], by=by)


async def _reasked(at: Target, by: Actor) -> None:
    await VOIDS["order_total"](at.world)
    await reask_question(at.world.deployment, TENANT, at.waiting, by=by, reason="x")


async def _activated(at: Target, by: Actor) -> None:
    ref = await at.world.publish(policy(at))
    await activate_policies(at.world.deployment, TENANT, [("tenant", ref)], expected=at.version, by=by)


def test_every_kind_of_act_is_attacked_here() -> None:
    assert ACTS.keys() == ACT_ARGUMENTS.keys()


async def everything(at: Target) -> list[Any]:
    """All that an act could change: the tenant's own streams, the runs and the documents."""
    store = at.world.stores.tenant(TENANT)
    control = [one for one in await store.read(CONTROL) if one.kind != "person.listed"]
    streams = [await store.read(name) for name in (at.paid, at.waiting, at.buried, at.exhausted)]
    names = ("active", "pins", "cancels", "dead_letters", "memory_candidates", "memory_promoted", "epoch")
    shelf = at.world.stores.artifacts(TENANT)
    query = CandidateQuery(actor=SlotActor(principal_id="ann", organization_id="acme"), extensions=(VOICE,), limit=9)
    offered = [await shelf.extensions(), await shelf.candidates(query)]
    graph = await at.world.stores.graph(TENANT).rows()
    return [control, *streams, graph, *offered, *[await store.scan(name) for name in names if name != "pins"]]


WRONG: dict[str, tuple[Actor, str]] = {
    "only named": (Actor(OPERATOR, unsafe_local_assertion), "unsafe_not_allowed"),
    "another person's key": (Actor(OPERATOR, act_signer(APPROVER_KEY)), "assertion_invalid"),
    "a key that nobody holds": (Actor(OPERATOR, act_signer(bytes(32))), "assertion_invalid"),
    "a signature for an approval": (Actor(OPERATOR, answer_signer(OPERATOR_KEY)), "assertion_invalid"),
    "a signature for a settlement": (Actor(OPERATOR, settlement_signer(OPERATOR_KEY)), "assertion_invalid"),
    "no role": (Actor(APPROVER, act_signer(APPROVER_KEY)), "not_allowed"),
    "nobody": (Actor("mallory", act_signer(OPERATOR_KEY)), "unknown_actor"),
    "no assertion": (Actor(OPERATOR, lambda _: {"kind": "jws"}), "assertion_invalid"),
    "one member more": (
        Actor(OPERATOR, lambda said: {**act_signer(OPERATOR_KEY)(said), "role": "operator"}),
        "assertion_invalid",
    ),
    "another statement": (
        Actor(OPERATOR, lambda said: act_signer(OPERATOR_KEY)({**said, "expected": 0, "arguments": {}})),
        "assertion_invalid",
    ),
}


@pytest.mark.parametrize("kind", ACTS)
def test_who_is_not_proved_or_has_no_role_changes_nothing(tmp_path: Path, stores: str, kind: str) -> None:
    async def go() -> None:
        at = await target(tmp_path, stores)
        before = await everything(at)
        for name, (actor, reason) in WRONG.items():
            with pytest.raises(ApprovalRefused) as refused:
                await ACTS[kind](at, actor)
            assert refused.value.reason == reason, name
            if kind != "policies.activated":
                assert await everything(at) == before, name
        assert (await at.world.deployment.catalog(TENANT).active()).version == at.version
        # How the directory lists those whom it knows is stated, once each; a restore states it with the act alone.
        lines = await at.world.stores.tenant(TENANT).read(CONTROL)
        listed = [one.key for one in lines if one.kind == "person.listed"]
        assert sorted(listed) == sorted({*listed, OPERATOR, *([] if kind == "store.restored" else [APPROVER])})
        assert "mallory" not in listed
        await at.world.aclose()

    run(go())


@pytest.mark.parametrize("kind", ACTS)
def test_what_is_proved_is_done_and_its_signature_is_on_record(
    tmp_path: Path, stores: str, kind: str, request: pytest.FixtureRequest
) -> None:
    # On PostgreSQL only a role of its own can empty anything.
    erasing = kind == "entry.erased" and stores != "sqlite"
    place = request.getfixturevalue("database").eraser if erasing else stores

    async def go() -> None:
        at = await target(tmp_path, place)
        await ACTS[kind](at, at.world.actor())
        store = at.world.stores.tenant(TENANT)
        line = (await store.read(CONTROL))[-1]
        body = json.loads(line.body or b"")
        assert (line.kind, line.by, body["act"]["actor"]) == (kind, OPERATOR, OPERATOR)
        assert (body["assertion"]["kind"], bool(body["key"])) == ("jws", True)
        await at.world.aclose()

    run(go())


@pytest.mark.parametrize("kind", ["approval.reasked", "run.retried", "run.reopened"])
def test_an_act_that_drives_a_run_on_is_refused_in_another_environment_before_it_is_stored(
    tmp_path: Path, kind: str
) -> None:
    async def go() -> None:
        at = await target(tmp_path, "memory")
        before, old = await everything(at), at.world.deployment
        at.world.deployment = Deployment(old.ports, replace(old.config, environment="prod"))
        with pytest.raises(OtherEnvironment, match="of the environment `dev`"):
            await ACTS[kind](at, at.world.actor())
        assert await everything(at) == before
        at.world.close()

    run(go())


def test_a_role_that_one_granted_to_oneself_is_none(tmp_path: Path) -> None:
    async def go() -> None:
        at = await target(tmp_path, "sqlite")
        at.world.edit_directory(
            lambda tenant: next(one for one in tenant["approvers"] if one["approver_id"] == OPERATOR).update(
                granted_by=dict.fromkeys(("operator", "policy_admin"), OPERATOR)
            )
        )
        for kind, reason in (("store.restored", "self_granted"), ("runs.exported", "not_granted")):
            with pytest.raises(ApprovalRefused) as refused:
                await ACTS[kind](at, at.world.actor())
            assert refused.value.reason == reason
        at.world.close()

    run(go())


def test_the_record_says_that_an_actor_was_only_named(tmp_path: Path, stores: str) -> None:
    async def go() -> None:
        at = await target(tmp_path, stores, unsafe=("unsafe_local_operators",))
        await ACTS["store.restored"](at, Actor(OPERATOR, unsafe_local_assertion))
        line = (await at.world.stores.tenant(TENANT).read(CONTROL))[-1]
        body = json.loads(line.body or b"")
        assert (body["assertion"], body.get("key")) == ({"kind": "unsafe_local"}, None)
        with pytest.raises(ApprovalRefused):
            await ACTS["store.restored"](at, Actor(APPROVER, unsafe_local_assertion))
        await verify_tenant(at.world.stores.tenant(TENANT), TENANT, at.world.keys)
        await at.world.aclose()

    run(go())


@pytest.mark.parametrize("reviewer", [REQUESTER, OWNER, AGENT])
def test_no_memory_is_reviewed_by_who_asked_for_it(tmp_path: Path, stores: str, reviewer: str) -> None:
    async def go() -> None:
        at = await target(tmp_path, stores)
        world = at.world
        world.know(reviewer)
        world.edit_directory(
            lambda tenant: next(one for one in tenant["approvers"] if one["approver_id"] == reviewer).update(
                roles=["memory_reviewer"], granted_by={"memory_reviewer": "user_coo_1"}
            )
        )
        with pytest.raises(ApprovalRefused) as refused:
            await review_memory(world.deployment, TENANT, at.proposal, "promote", by=world.actor(reviewer))
        assert refused.value.reason == "self_review"
        assert not await world.stores.tenant(TENANT).scan("memory_promoted")
        await world.aclose()

    run(go())


def test_the_publisher_is_who_signed_and_nobody_else_can_be_named(tmp_path: Path, stores: str) -> None:
    """A finance lead publishes a pack in the operator's name, to approve its runs afterwards."""

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        body = pack_json()
        body["pack_meta"]["pack_version"] = "5.3.0"
        envelope = seal(PACK_TYPE, canonical(body), world.keys, "pack")
        for by in (Actor(OPERATOR, act_signer(APPROVER_KEY)), world.actor(APPROVER, APPROVER_KEY)):
            with pytest.raises(ApprovalRefused):
                await world.publish(envelope, by=by)
        world.edit_directory(
            lambda tenant: next(one for one in tenant["approvers"] if one["approver_id"] == APPROVER).update(
                roles=["finance_lead", "publisher"],
                granted_by={"finance_lead": "user_cfo_1", "publisher": "user_coo_1"},
            )
        )
        ref = await world.publish(envelope, by=world.actor(APPROVER, APPROVER_KEY))
        await world.pin_pack(ref)
        asked = request(4200, "req_1")
        waiting = await world.invoke({**asked, "context_pack_refs": [ref]})
        with pytest.raises(ApprovalRefused) as refused:
            await world.approve(waiting.run_id)
        assert refused.value.reason == "self_approval"
        assert world.refunds() == []
        await world.aclose()

    run(go())


NAMED = (
    ["store", "restored"],
    ["runs", "export", "req_small", "--out", "stolen.jsonl"],
    ["runs", "cancel", "req_small"],
    ["runs", "retry", "req_small"],
    ["runs", "erase", "req_small", "3"],
    ["pack", "withdraw", REF, "--intent", INTENT, "--expect", "2"],
)


@pytest.mark.parametrize("words", NAMED, ids=lambda words: words[1])
def test_by_alone_is_refused_on_the_command_line(initialised: Shop, words: list[str], tmp_path: Path) -> None:
    initialised.say("invoke", str(initialised.request("small" if words[1] != "cancel" else "large")))
    words = [one.replace("req_small", "req_large") if words[1] == "cancel" else one for one in words]
    words = [str(tmp_path / one) if one == "stolen.jsonl" else one for one in words]
    said = initialised.say(*words, "--by", OPERATOR)
    assert said.code in (1, 2)
    assert said.json["error"]["code"] in ("approval_refused", "not_found")
    assert not (tmp_path / "stolen.jsonl").exists()
    if words[1] != "retry":
        assert "named and not proved" in said.err
        initialised.settings("")
        settings = initialised.path / "contextos.toml"
        settings.write_text(settings.read_text().replace('unsafe = ["', 'unsafe = ["unsafe_local_operators", "'))
        done = initialised.say(*words, "--by", OPERATOR)
        assert done.code == 0 or "cannot_erase" in done.out, done.out
        assert "named and not proved" in done.err
