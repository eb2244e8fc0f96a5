"""The artifacts of slots verify as acts left them: whatever is added, revised, classified, archived or deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.audit.library import verify_library
from contextos.contracts.envelopes.artifacts import Artifact, ExtensionManifest, NewRevision
from contextos.deployment.acts.curation import (
    add_artifact,
    add_revision,
    archive_assertion,
    classify_artifact,
    delete_artifact,
    register_extension,
)
from contextos.errors import ChainBroken
from tests.world import TENANT, TestWorld, open_world, run

VOICE = "@acme/voice"


async def curated(world: TestWorld) -> None:
    app, by = world.deployment, world.actor()
    for satisfies in ((), ("@acme/tone",)):
        await register_extension(app, TENANT, ExtensionManifest(extension=VOICE, satisfies=satisfies), by=by)
    for name in ("one", "two", "three"):
        of = {"artifact_id": name, "org_id": "acme"}
        owner = {"title": name, "owner_level": "organization", "owner_id": "acme", "visibility": "org"}
        await add_artifact(app, TENANT, {**of, **owner}, by=by)
        for content in ("Be brief.", "Be long."):
            await add_revision(app, TENANT, {**of, "mime": "text/plain", "content": content}, by=by)
        for asserted_by in ("agent", "user"):
            await classify_artifact(app, TENANT, {**of, "extension": VOICE, "asserted_by": asserted_by}, by=by)
    await archive_assertion(app, TENANT, "acme", "two", VOICE, by=by)
    await delete_artifact(app, TENANT, "acme", "three", by=by)


async def verify(world: TestWorld) -> None:
    await verify_library(world.stores.artifacts(TENANT), world.stores.tenant(TENANT), world.keys)


@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_what_acts_made_verifies_and_what_nobody_made_does_not(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        await verify(world)
        await curated(world)
        await verify(world)
        stored = world.stores.artifacts(TENANT)
        made = {"org_id": "acme", "created_by": "ann", "created_at_us": 1}
        await stored.revise(NewRevision(artifact_id="one", mime="text/plain", content="Mine.", **made))
        with pytest.raises(ChainBroken, match="a revision of `acme/one`"):
            await verify(world)
        mine = {"title": "mine", "owner_level": "user", "owner_id": "ann", "visibility": "org"}
        await stored.add(Artifact(artifact_id="mine", **made, **mine))
        with pytest.raises(ChainBroken, match="the artifact `acme/mine`"):
            await verify(world)
        await world.aclose()

    run(go())
