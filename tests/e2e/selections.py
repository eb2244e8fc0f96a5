"""A workspace whose runs ask their user twice: for one or two briefings, and for one voice or none."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from contextos.cli.demo import workspace
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.contracts.envelopes.slots import SlotActor
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.curation import add_artifact, add_revision, classify_artifact, register_extension
from contextos.trust.seal import listed_key
from contextos.workspace import App, open_unchecked
from contextos.workspace.settings import Settings
from contextos_agentspec.session import SelectionSession, SlotCall
from tests.http_face import OTHER_TENANT, REQUESTER, TENANT, HttpFace

ORG, PACKAGE = "org_acme", "@acme/outreach"
BRIEFING, POLICY, VOICE = "@acme/briefing", "@acme/policy", "@acme/voice"
SEED: Final = bytes(range(32))
SLOTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "slotId": "briefings",
        "acceptedArtifactExtensions": [BRIEFING, POLICY],
        "selectionMode": "interactive",
        "resolutionMode": "accumulate",
        "minItems": 1,
        "maxItems": 2,
        "readableOnly": True,
    },
    {
        "slotId": "voice",
        "acceptedArtifactExtensions": [VOICE],
        "selectionMode": "interactive",
        "resolutionMode": "override",
    },
)
ARTIFACTS: Final = (
    ("b_org", "Refunds: what we promise", "organization", ORG, "org", (BRIEFING, POLICY)),
    ("a_org", "Enterprise buyers", "organization", ORG, "org", (BRIEFING,)),
    ("mine", "My notes of the call", "user", REQUESTER, "owner", (BRIEFING,)),
    ("team", "How support writes to angry people", "team", "support", "team:support", (BRIEFING,)),
    ("hostile", "pay\u202e0001<script>alert(1)</script>", "organization", ORG, "workspace", (BRIEFING,)),
    ("calm", "Calm", "organization", ORG, "org", (VOICE,)),
    ("brief", "Brief", "organization", ORG, "org", (VOICE,)),
)


def _asking(pack: dict[str, Any]) -> dict[str, Any]:
    for template in pack["decision_layer"]["task_templates"]:
        template["context_slots"] = [{"slot": slot} for slot in SLOTS]
    return pack


async def begin_selections(path: Path) -> None:
    """Make the workspace; its requester has a key."""
    sealed = workspace._seal
    asking = lambda kind, made, keys: sealed(kind, _asking(made) if kind == PACK_TYPE else made, keys)  # noqa: E731
    with patch.object(workspace, "_seal", asking):
        made = make_workspace(path)
    directory = json.loads((path / "directory.json").read_text("utf-8"))
    for user in directory[TENANT]["users"]:
        user.update(organization_id=ORG, team_ids=["support"])
    (path / "keys" / f"{REQUESTER}.key").write_text(SEED.hex(), encoding="ascii")
    keyed = {"approver_id": REQUESTER, "roles": [], "granted_by": {}, "keys": [listed_key(SEED)]}
    directory[TENANT]["approvers"].append(keyed)
    directory[OTHER_TENANT] = directory[TENANT]
    (path / "directory.json").write_text(json.dumps(directory), encoding="utf-8")
    app = await open_unchecked(Settings.read(path))
    await app.initialise(TENANT, by=example_operator(path))
    await seed_graph(app, made)
    await add_all(app, path)
    app.close()


async def add_all(app: App, path: Path) -> None:
    by = example_operator(path)
    for extension in (BRIEFING, POLICY, VOICE):
        await register_extension(app.deployment, TENANT, ExtensionManifest(extension=extension), by=by)
    for artifact, title, level, owner, visibility, extensions in ARTIFACTS:
        of: dict[str, Any] = {"artifact_id": artifact, "org_id": ORG}
        shown = {"title": title, "owner_level": level, "owner_id": owner, "visibility": visibility}
        await add_artifact(app.deployment, TENANT, {**of, **shown}, by=by)
        content = {"mime": "text/plain", "content": f"the content of {artifact}"}
        await add_revision(app.deployment, TENANT, {**of, **content}, by=by)
        for extension in extensions:
            kind = {"extension": extension, "asserted_by": "user"}
            await classify_artifact(app.deployment, TENANT, {**of, **kind}, by=by)


def selecting_run(face: HttpFace) -> str:
    """A run that waits for its user to select briefings."""
    sent = face.send("POST", "/v1/runs", json=face.request())
    assert sent.json()["waits_for"] == "slot", sent.text
    return str(sent.json()["run_id"])


def asking_session(face: HttpFace, run: str) -> SelectionSession:
    """The selection steps of a flow outside of governed runs, which asks its person on the console."""
    document = {
        "component_type": "Flow",
        "metadata": {"cinatra": {"packageName": PACKAGE, "contextSlots": list(SLOTS)}},
    }
    actor = SlotActor(principal_id=REQUESTER, organization_id=ORG, team_ids=("support",))
    artifacts = face.app.stores.artifacts(TENANT)
    ask = partial(face.app.slot_questions.ask, TENANT)
    return SelectionSession(document, run, PACKAGE, actor, artifacts, artifacts, face.app.deployment.ports.clock, ask)


def paused_flow(face: HttpFace, run: str, slot: str = "briefings") -> tuple[SelectionSession, SlotCall, str]:
    """A flow that waits for a selection: its session, the inputs of its selection node, and the act key."""
    session, call = asking_session(face, run), SlotCall(run, PACKAGE, slot, "")

    async def pause() -> str:
        offer = await session.offer(call)
        await session.ask_person(call, offer)
        return offer.act_key

    return session, call, face.call(pause())
