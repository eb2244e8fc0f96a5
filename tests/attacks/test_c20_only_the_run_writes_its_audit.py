"""C20: the audit of a run's context slots holds what the run selected, for the user that it proved, and nothing else.

The attackers: another process and the application's role with raw SQL, the owner of the database, and people at the
command line who name somebody else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_tenant
from contextos.context.slots.steps import ArtifactSlots
from contextos.contracts.envelopes.slots import SelectionAct, selection_id
from contextos.contracts.journal import Batch
from contextos.deployment.acts.act import Actor, unsafe_local_assertion
from contextos.deployment.signing import act_signer
from contextos.deployment.slot_answers import answer_slot, read_offer
from contextos.errors import ApprovalRefused, ChainBroken, ContextOSError
from contextos.store.shared.artifact_rules import selection_fingerprint
from contextos.trust.approvals.acts import slot_answer_arguments
from contextos.trust.journal.chain import append
from tests.attacks.attackers import REFUSED, Attacker
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.shop import Shop
from tests.e2e.test_slots_in_runs import USER, declaring, opened
from tests.slots import actor, origin, slot
from tests.world import APPROVER, APPROVER_KEY, OPERATOR_KEY, TENANT, TestWorld, open_world, request

pytestmark = pytest.mark.slow

HEADS = (
    "tenant, org_id, selection_id, parent_run_id, parent_package_name, act_key, slot_id, resolution_mode,"
    " selection_mode, selected_by, principal_id, picked, fingerprint, selected_at_us"
)
REFS = (
    "tenant, org_id, selection_id, position, parent_run_id, parent_package_name, slot_id, artifact_id,"
    " representation_revision_id, semantic_assertion_id, extension, source_scope, owner_id, selected_by,"
    " selection_mode, selected_at_us"
)


def copied(table: str, columns: str, **changes: str) -> str:
    """The INSERT of a copy of one row in which some columns hold another SQL expression."""
    values = [changes.get(name, name) for name in columns.split(", ")]
    where = f"FROM {{{table}}} WHERE tenant = '{TENANT}' ORDER BY selected_at_us LIMIT 1"
    return f"INSERT INTO {{{table}}} ({columns}) SELECT {', '.join(values)} {where}"


def played(path: Path, stores: str, act: Callable[[TestWorld], Awaitable[Any]], mode: str = "") -> Any:
    """Open the world at `path` (with a slot of this mode if it is new), run `act`, and close the world."""

    async def go() -> Any:
        world = await (opened(path, declaring(selectionMode=mode), stores=stores) if mode else reopened(path, stores))
        try:
            return await act(world)
        finally:
            await world.aclose()

    return asyncio.run(go())


async def reopened(path: Path, stores: str) -> TestWorld:
    return await open_world(path, stores=stores)


async def invoked(world: TestWorld) -> Any:
    world.know(USER)
    return await world.invoke(request(900, "req_1"))


async def fault(world: TestWorld) -> str:
    """What `verify` says; empty if all verifies."""
    try:
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    except ChainBroken as broken:
        return str(broken)
    return ""


async def answered(world: TestWorld, run_id: str, by: Actor, artifact: str = "of_all") -> Any:
    """A pick of one artifact, as this person gives it."""
    question, offer = await read_offer(world.deployment, TENANT, run_id, by=USER)
    refs = [ref.to_json() for ref in offer.refs if ref.artifact_id == artifact]
    said = {"slotId": question.slot.slot_id, "resolutionMode": "accumulate", "selectedRefs": refs}
    return await answer_slot(world.deployment, TENANT, run_id, json.dumps(said).encode(), by=by)


def test_what_the_run_selected_is_in_its_journal_and_in_its_audit_and_verifies(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld) -> None:
        view = await invoked(world)
        assert view.state == "completed"
        [audited] = await world.stores.artifacts(TENANT).selections("acme", view.run_id)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        [selected] = [json.loads(one.body) for one in entries if one.kind == "slot.selected"]
        assert selected["answer"]["act"] == audited.to_json()
        assert audited.origin.principal_id == USER
        assert await fault(world) == ""

    played(tmp_path, stores, act, "autonomous")


@pytest.mark.requirement("SLOT-RUN-AUDIT")
@pytest.mark.parametrize("mode", ["autonomous", "interactive"])
def test_the_application_role_writes_no_act_that_the_run_did_not_make(
    tmp_path: Path, stores: str, attacker: Attacker, mode: str
) -> None:
    """A resolution for a run that has ended, and a pick for a run that waits for one."""
    view = played(tmp_path, stores, invoked, mode)
    forged = dict(zip(HEADS.split(", "), ["NULL"] * 14, strict=True)) | {
        "tenant": f"'{TENANT}'",
        "org_id": "'acme'",
        "selection_id": "'sel_00000000000000ff'",
        "parent_run_id": f"'{view.run_id}'",
        "parent_package_name": "'agent:contextos/support-refund@1.2.0'",
        "act_key": "'0/forged'",
        "slot_id": "'voice'",
        "resolution_mode": "'accumulate'",
        "selection_mode": f"'{mode}'",
        "selected_by": "'user'",
        "principal_id": f"'{USER}'",
        "picked": "0",
        "fingerprint": "'sha256:0'",
        "selected_at_us": "5",
    }
    with pytest.raises(REFUSED):
        attacker.application(f"INSERT INTO {{context_selection_acts}} ({HEADS}) VALUES ({', '.join(forged.values())})")
    assert played(tmp_path, stores, fault) == ""


CONTRADICTIONS = {
    "selection_id": "'sel_00000000000000ff'",
    "org_id": "'rival'",
    "parent_package_name": "'agent:contextos/other@1.0.0'",
    "act_key": "'0/other'",
    "slot_id": "'other'",
    "resolution_mode": "'override'",
    "selection_mode": "'interactive'",
    "selected_by": "'user'",
    "principal_id": "'mallory'",
    "picked": "1",
    "selected_at_us": "5",
}


class Dies(Exception):
    """The process ends here."""


def crashed(path: Path, stores: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    """A run whose process died after the selection was in its journal and before it was in the audit."""

    async def dies(_self: Any, _act: Any) -> bool:
        raise Dies

    async def act(world: TestWorld) -> tuple[str, Any]:
        repository = world.stores.artifacts(TENANT)
        with monkeypatch.context() as dying:
            dying.setattr(type(repository), "insert_selection", dies)
            with pytest.raises(Dies):
                await invoked(world)
        [(_, run_id)] = [one async for one in world.stores.due(1 << 60)]
        entries = await world.stores.tenant(TENANT).read(run_id)
        [selected] = [json.loads(one.body) for one in entries if one.kind == "slot.selected"]
        return run_id, selected["answer"]["act"]

    found: tuple[str, Any] = played(path, stores, act, "autonomous")
    return found


def head_of(act: dict[str, Any], **changes: str) -> str:
    """The INSERT of the header row of an act."""
    values = {
        "tenant": TENANT,
        **act["origin"],
        **{name: value for name, value in act.items() if name not in ("origin", "refs")},
        "picked": len(act["refs"]),
        "fingerprint": "sha256:0",
    }
    texts = {name: str(value) if isinstance(value, int) else f"'{value}'" for name, value in values.items()} | changes
    return f"INSERT INTO {{context_selection_acts}} ({', '.join(texts)}) VALUES ({', '.join(texts.values())})"


def ref_of(act: dict[str, Any], at: int, **changes: str) -> str:
    """The INSERT of one ref of an act."""
    ref, of = act["refs"][at], act["origin"]
    texts = {
        "tenant": TENANT,
        "org_id": of["org_id"],
        "selection_id": act["selection_id"],
        "parent_run_id": of["parent_run_id"],
        "parent_package_name": of["parent_package_name"],
        "slot_id": act["slot_id"],
        "artifact_id": ref["artifactId"],
        "representation_revision_id": ref["representationRevisionId"],
        "semantic_assertion_id": ref["semanticAssertionId"],
        "extension": ref["extension"],
        "source_scope": ref["sourceScope"],
        "owner_id": ref["ownerId"],
        "selected_by": act["selected_by"],
        "selection_mode": act["selection_mode"],
    }
    values = {name: f"'{text}'" for name, text in texts.items()}
    values |= {"position": str(at), "selected_at_us": str(act["selected_at_us"])} | changes
    return f"INSERT INTO {{run_context_selections}} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def test_a_row_that_contradicts_the_act_of_the_run_is_refused_by_the_statement(
    tmp_path: Path, stores: str, attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, act = crashed(tmp_path, stores, monkeypatch)
    for column, value in CONTRADICTIONS.items():
        with pytest.raises(REFUSED):
            attacker.application(head_of(act, **{column: value}))
    head = head_of(act)
    swapped = {"artifact_id": "of_team", "other": "of_all"}
    first, second = act["refs"]
    assert (first["artifactId"], second["artifactId"]) == (swapped["artifact_id"], swapped["other"])
    wrong = [
        ref_of(act, 0, position="1"),
        ref_of(act, 0, position="2"),
        ref_of(act, 0, parent_package_name="'agent:contextos/other@1.0.0'"),
        ref_of(act, 0, slot_id="'other'"),
        ref_of(act, 0, selected_by="'user'"),
        ref_of(act, 0, selection_mode="'interactive'"),
        ref_of(act, 0, selected_at_us="5"),
        ref_of(act, 0, parent_run_id="'run_1'"),
    ]
    for statement in wrong:
        with pytest.raises(REFUSED):
            attacker.application(head, statement)

    async def on(world: TestWorld) -> None:
        world.clock.at_us += 600_000_000
        await world.deployment.advance(TENANT, run_id)
        assert (await world.deployment.view(TENANT, run_id)).state == "completed"
        [audited] = await world.stores.artifacts(TENANT).selections("acme", run_id)
        assert audited.to_json() == act
        assert await fault(world) == ""

    played(tmp_path, stores, on)


def test_a_row_that_contradicts_a_standalone_act_is_refused_by_the_statement(
    tmp_path: Path, stores: str, attacker: Attacker
) -> None:
    """Outside of a governed run there is no journal; there the header of the act decides."""

    async def take(world: TestWorld) -> None:
        repository = world.stores.artifacts(TENANT)
        of = slot(slotId="voice", acceptedArtifactExtensions=["@acme/voice"])
        made = await ArtifactSlots(repository, repository, world.clock).take(of, actor(), None, origin())
        assert len(made.act.refs) == 1  # type: ignore[union-attr]

    played(tmp_path, stores, take, "autonomous")
    for changes in (
        {"position": "1"},
        {"position": "1", "slot_id": "'other'"},
        {"position": "1", "selected_by": "'user'"},
    ):
        with pytest.raises(REFUSED):
            attacker.application(copied("run_context_selections", REFS, **changes))


ACTS, PICKS = "{context_selection_acts}", "{run_context_selections}"
FORGED = "sel_00000000000000ff"
NEVER = "run_00000000000000ff"
ALTERED = {
    "who selected": (f"UPDATE {ACTS} SET principal_id = 'mallory'", f"UPDATE {ACTS} SET principal_id = '{USER}'"),
    "by whom": (f"UPDATE {ACTS} SET selected_by = 'agent'", f"UPDATE {ACTS} SET selected_by = 'autonomous'"),
    "when": (
        f"UPDATE {ACTS} SET selected_at_us = selected_at_us + 1",
        f"UPDATE {ACTS} SET selected_at_us = selected_at_us - 1",
    ),
    "its digest": (
        f"UPDATE {ACTS} SET fingerprint = 'x' || fingerprint",
        f"UPDATE {ACTS} SET fingerprint = substr(fingerprint, 2)",
    ),
    "the run": (f"UPDATE {ACTS} SET parent_run_id = '{NEVER}'", f"UPDATE {ACTS} SET parent_run_id = '{{run}}'"),
    "the organisation": (f"UPDATE {ACTS} SET org_id = 'rival'", f"UPDATE {ACTS} SET org_id = 'acme'"),
    "an artifact": (
        f"UPDATE {PICKS} SET artifact_id = 'of_legal' WHERE position = 0",
        f"UPDATE {PICKS} SET artifact_id = 'of_team' WHERE position = 0",
    ),
    "the slot of a ref": (
        f"UPDATE {PICKS} SET slot_id = 'other' WHERE position = 0",
        f"UPDATE {PICKS} SET slot_id = 'voice' WHERE position = 0",
    ),
    "the time of a ref": (
        f"UPDATE {PICKS} SET selected_at_us = selected_at_us + 1 WHERE position = 0",
        f"UPDATE {PICKS} SET selected_at_us = selected_at_us - 1 WHERE position = 0",
    ),
    "an act more": (
        copied("context_selection_acts", HEADS, selection_id=f"'{FORGED}'", picked="0"),
        f"DELETE FROM {ACTS} WHERE selection_id = '{FORGED}'",
    ),
    "an act of a run that never was": (
        copied("context_selection_acts", HEADS, selection_id=f"'{FORGED}'", parent_run_id=f"'{NEVER}'", picked="0"),
        f"DELETE FROM {ACTS} WHERE selection_id = '{FORGED}'",
    ),
}


def test_verify_names_the_run_whose_audit_the_owner_altered(tmp_path: Path, stores: str, owner: DatabaseOwner) -> None:
    view = played(tmp_path, stores, invoked, "autonomous")
    assert view.state == "completed"
    for what, (alteration, undo) in ALTERED.items():
        asyncio.run(owner.execute(alteration))
        named = NEVER if what.endswith("never was") else view.run_id
        assert named in played(tmp_path, stores, fault), what
        asyncio.run(owner.execute(undo.replace("{run}", view.run_id)))
    assert played(tmp_path, stores, fault) == ""
    for table, rest in ((PICKS, " WHERE position = 1"), (PICKS, ""), (ACTS, "")):
        asyncio.run(owner.execute(f"DELETE FROM {table}{rest}"))
        assert view.run_id in played(tmp_path, stores, fault)


def test_a_pick_that_the_owner_plants_is_not_taken_by_the_run_that_waits(
    tmp_path: Path, stores: str, owner: DatabaseOwner
) -> None:
    view = played(tmp_path, stores, invoked, "interactive")

    async def look(world: TestWorld) -> Any:
        return (await read_offer(world.deployment, TENANT, view.run_id, by=USER))[0].origin

    of = played(tmp_path, stores, look)
    act = {
        "selection_id": selection_id("voice", of),
        "origin": of.to_json(),
        "slot_id": "voice",
        "resolution_mode": "accumulate",
        "selection_mode": "interactive",
        "selected_by": "user",
        "refs": [],
        "selected_at_us": 5,
    }
    asyncio.run(owner.execute(head_of(act)))

    async def act_of_user(world: TestWorld) -> str:
        await answered(world, view.run_id, world.actor(USER))
        await world.deployment.advance(TENANT, view.run_id)
        found = await world.deployment.view(TENANT, view.run_id)
        assert found.state != "completed", "another selection is in the audit under this id"
        return await fault(world)

    assert view.run_id in played(tmp_path, stores, act_of_user)


def test_nobody_signs_a_pick_for_a_run_that_was_cut_back_to_its_question(
    tmp_path: Path, stores: str, owner: DatabaseOwner
) -> None:
    """The run has paid since; its lines in the index are left."""

    async def whole(world: TestWorld) -> tuple[str, int]:
        view = await invoked(world)
        asked = len(await world.stores.tenant(TENANT).read(view.run_id))
        await answered(world, view.run_id, world.actor(USER))
        await world.deployment.advance(TENANT, view.run_id)
        assert (await world.deployment.view(TENANT, view.run_id)).state == "completed"
        return view.run_id, asked

    run_id, asked = played(tmp_path, stores, whole, "interactive")
    asyncio.run(owner.execute(f"DELETE FROM {{journal}} WHERE run = '{run_id}' AND seq > {asked}"))
    asyncio.run(owner.execute(f"DELETE FROM {{heads}} WHERE stream = '{run_id}' AND seq > {asked}"))

    async def again(world: TestWorld) -> None:
        signed: list[Any] = []
        actor_of_user = world.actor(USER)
        watched = Actor(USER, lambda said: signed.append(said) or actor_of_user.vouch(said))
        with pytest.raises(ChainBroken, match="the index states"):
            await answered(world, run_id, watched)
        assert signed == []

    played(tmp_path, stores, again)


def test_no_other_process_records_a_selection_for_a_governed_run(tmp_path: Path, stores: str) -> None:
    async def act(world: TestWorld) -> None:
        view = await invoked(world)
        repository = world.stores.artifacts(TENANT)
        steps = ArtifactSlots(repository, repository, world.clock)
        of = slot(slotId="voice", acceptedArtifactExtensions=["@acme/voice"])
        for principal in (USER, "mallory"):
            of_run = origin(parent_run_id=view.run_id, principal_id=principal)
            with pytest.raises(ContextOSError, match="governed run"):
                await steps.take(of, actor(principal_id=principal), None, of_run)
        assert await repository.selections("acme", view.run_id) == []
        assert await fault(world) == ""

    played(tmp_path, stores, act, "interactive")


WRONG = {
    "another person": (Actor(APPROVER, act_signer(APPROVER_KEY)), "not_asked"),
    "only named": (Actor(USER, unsafe_local_assertion), "unsafe_not_allowed"),
    "another person's key": (Actor(USER, act_signer(APPROVER_KEY)), "assertion_invalid"),
    "another statement": (
        Actor(USER, lambda said: act_signer(OPERATOR_KEY)({**said, "arguments": {}})),
        "assertion_invalid",
    ),
}


@pytest.mark.parametrize("who", WRONG)
def test_only_the_user_that_the_run_proved_picks_and_signs_the_pick(tmp_path: Path, stores: str, who: str) -> None:
    async def act(world: TestWorld) -> None:
        view = await invoked(world)
        store = world.stores.tenant(TENANT)
        before = await store.read(view.run_id)
        by, reason = WRONG[who]
        with pytest.raises(ApprovalRefused) as refused:
            await answered(world, view.run_id, by)
        assert refused.value.reason == reason
        assert await store.read(view.run_id) == before
        await answered(world, view.run_id, world.actor(USER))
        await world.deployment.advance(TENANT, view.run_id)
        assert (await world.deployment.view(TENANT, view.run_id)).state == "completed"
        assert await fault(world) == ""

    played(tmp_path, stores, act, "interactive")


@pytest.mark.parametrize("name", [USER, "mallory"])
def test_an_answer_that_another_process_appends_is_not_taken(tmp_path: Path, stores: str, name: str) -> None:
    """It can append to the journal, and has no key of the user."""

    async def act(world: TestWorld) -> None:
        view = await invoked(world)
        question, _ = await read_offer(world.deployment, TENANT, view.run_id, by=USER)
        nothing = json.dumps({"slotId": "voice", "resolutionMode": "accumulate", "selectedRefs": []}).encode()
        repository = world.stores.artifacts(TENANT)
        steps = ArtifactSlots(repository, repository, world.clock)
        chosen = await steps.choose(question.slot, question.actor, None, question.origin, nothing)
        store = world.stores.tenant(TENANT)
        entries = await store.read(view.run_id)
        signed = act_signer(APPROVER_KEY)
        said = {
            "tenant_id": TENANT,
            "kind": "slot.answered",
            "actor": name,
            "arguments": slot_answer_arguments(view.run_id, chosen),  # type: ignore[arg-type]
            "expected": len(entries),
        }
        answer = {"selection": chosen.to_json(), "act": said, "assertion": signed(said)}
        at_us, salt = world.clock.now_us(), b"s" * 16
        entry = append(entries, "slot.answered", "0/voice", by=name, answer=answer, at_us=at_us, salt=salt)
        await store.commit(Batch(run=view.run_id, entries=(entry,), wake_at_us=1))
        await world.deployment.advance(TENANT, view.run_id)
        assert (await world.deployment.view(TENANT, view.run_id)).state == "escalated"
        assert (world.refunds(), await store.selections(view.run_id)) == ([], [])

    played(tmp_path, stores, act, "interactive")


AGENT = ("email_outreach/cinatra/oas.json", "offeringContext", "--actor", "email_outreach/actor.json")
PACKAGE = "@contextos-examples/email-outreach-agent"


def selected_for(shop: Shop, run: str) -> Any:
    return shop.say("slots", "selections", run, "--org", "org_acme").json["selections"]


@pytest.fixture
def outreach(initialised: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The demo's workspace, as the current directory."""
    monkeypatch.chdir(initialised.path)
    return initialised


def answer_file(shop: Shop) -> str:
    path = shop.path / "answer.json"
    path.write_text(json.dumps({"slotId": "offeringContext", "resolutionMode": "accumulate", "selectedRefs": []}))
    return str(path)


def test_the_package_is_that_of_the_document(outreach: Shop) -> None:
    words = ["slots", "select", *AGENT, "--run", "run_1", "--answer", answer_file(outreach), "--package"]
    refused = outreach.say(*words, "@acme/other")
    assert refused.code == 2
    assert "`@acme/other`" in refused.out
    assert PACKAGE in refused.out
    assert selected_for(outreach, "run_1") == []
    assert outreach.say(*words, PACKAGE).code == 0
    assert len(selected_for(outreach, "run_1")) == 1


def test_nobody_selects_for_a_governed_run_at_the_command_line(outreach: Shop) -> None:
    run = "run_00000000000000aa"
    words = ["slots", "select", *AGENT, "--run", run, "--package", PACKAGE, "--answer", answer_file(outreach)]
    refused = outreach.say(*words)
    assert refused.code == 2
    assert "contextos slots answer" in refused.out
    assert selected_for(outreach, run) == []


def test_a_listing_of_what_a_run_selected_names_an_altered_row(
    tmp_path: Path, stores: str, owner: DatabaseOwner, outreach: Shop
) -> None:
    """The digest of an act has no key, so the owner of the database computes it anew."""
    run = "run_00000000000000aa"
    origin_of_run = origin(parent_run_id=run)
    act = {
        "selection_id": selection_id("voice", origin_of_run),
        "origin": origin_of_run.to_json(),
        "slot_id": "voice",
        "resolution_mode": "accumulate",
        "selection_mode": "autonomous",
        "selected_by": "autonomous",
        "refs": [],
        "selected_at_us": 5,
    }
    fingerprint = selection_fingerprint(SelectionAct.model_validate(act))
    planted = DatabaseOwner(outreach.path, owner.database)
    asyncio.run(planted.execute(head_of(act, fingerprint=f"'{fingerprint}'")))
    said = outreach.say("slots", "selections", run, "--org", origin_of_run.org_id)
    assert said.code == 3, said
    assert run in said.json["error"]["detail"]


ICP = "@cinatra-ai/marketing-icp-artifact"
OF = ("--org", "org_acme")
CURATED = (
    ("register-extension", ICP),
    ("add-artifact", "icp", *OF, "--title", "ICP", "--owner", "organization:org_acme", "--visibility", "org"),
    ("add-revision", "icp", *OF, "--file", "icp.md"),
    ("classify", "icp", ICP, *OF),
    ("archive", "icp", ICP, *OF),
    ("tombstone", "icp", *OF),
)


def test_nobody_changes_what_slots_offer_by_naming_somebody(outreach: Shop) -> None:
    """`test_a03_operators_are_proved` tries every other wrong actor on these acts."""
    (outreach.path / "icp.md").write_text("whom to write to\n")

    def offered() -> list[Any]:
        return [one["artifactId"] for one in outreach.say("slots", "resolve", *AGENT).json["refs"]]

    for words in CURATED:
        for by in ("mallory", "user_operator_5"):
            refused = outreach.say("slots", *words, "--by", by)
            assert (refused.code, refused.json["error"]["code"]) == (1, "approval_refused")
        assert words[0] != "classify" or offered() == []
        assert words[0] != "archive" or offered() == ["icp"]
        assert outreach.say("slots", *words, *outreach.by).code == 0
    assert offered() == []
    assert outreach.say("verify").code == 0
