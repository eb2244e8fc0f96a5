"""A change of the artifacts of slots and the entry of its act are stored together, or neither is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.envelopes.artifacts import ExtensionManifest, Outranked
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.curation import (
    add_artifact,
    add_revision,
    archive_assertion,
    classify_artifact,
    delete_artifact,
    register_extension,
)
from contextos.errors import InvalidInput, NotFound
from tests.world import OPERATOR, TENANT, TestWorld, open_world, run

VOICE = "@acme/voice"
OF = {"artifact_id": "a", "org_id": "acme"}
ARTIFACT = OF | {"title": "a", "owner_level": "organization", "owner_id": "acme", "visibility": "org"}


async def acts(world: TestWorld) -> list[str]:
    lines = await world.stores.tenant(TENANT).read(CONTROL)
    return [line.kind.removeprefix("slots.") for line in lines if line.kind.startswith("slots.")]


@pytest.mark.parametrize("stores", ["memory", "sqlite", "postgresql"])
def test_what_is_done_is_on_record_and_what_is_refused_is_not(
    tmp_path: Path, stores: str, request: pytest.FixtureRequest
) -> None:
    place = str(request.getfixturevalue("database").app) if stores == "postgresql" else stores

    async def go() -> None:
        world = await open_world(tmp_path, stores=place)
        app, by = world.deployment, world.actor()
        await register_extension(app, TENANT, ExtensionManifest(extension=VOICE), by=by)
        made = await add_artifact(app, TENANT, ARTIFACT, by=by)
        revision = await add_revision(app, TENANT, OF | {"mime": "text/plain", "content": "Be brief."}, by=by)
        stated = await classify_artifact(app, TENANT, OF | {"extension": VOICE, "asserted_by": "user"}, by=by)
        assert {made.created_by, revision.created_by, getattr(stated, "principal_id", "")} == {OPERATOR}
        done = ["extension_registered", "artifact_added", "artifact_revised", "artifact_classified"]
        assert await acts(world) == done
        weaker: dict[str, Any] = OF | {"extension": VOICE, "asserted_by": "agent"}
        assert isinstance(await classify_artifact(app, TENANT, weaker, by=by), Outranked)
        with pytest.raises(InvalidInput, match="in use"):
            await add_artifact(app, TENANT, ARTIFACT, by=by)
        with pytest.raises(InvalidInput, match="not installed"):
            await classify_artifact(app, TENANT, weaker | {"extension": "@acme/none"}, by=by)
        with pytest.raises(NotFound):
            await archive_assertion(app, TENANT, "acme", "a", "@acme/none", by=by)
        with pytest.raises(NotFound):
            await delete_artifact(app, TENANT, "acme", "b", by=by)
        assert await acts(world) == done
        await archive_assertion(app, TENANT, "acme", "a", VOICE, by=by)
        await delete_artifact(app, TENANT, "acme", "a", by=by)
        assert await acts(world) == [*done, "assertion_archived", "artifact_deleted"]
        assert b"Be brief." not in b"".join(
            line.body or b"" for line in await world.stores.tenant(TENANT).read(CONTROL)
        )
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
        await world.aclose()

    run(go())
