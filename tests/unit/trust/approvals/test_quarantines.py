"""An incident counts until a sealed act about its capability lists it, whatever its row says."""

from __future__ import annotations

from pathlib import Path

from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident, quarantine_key
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.acts.quarantines import release_capability
from contextos.trust.approvals.quarantines import open_incidents
from contextos.trust.seal import KeyRing
from tests.world import TENANT, open_world, run

SAY, SHOUT = (quarantine_key(f"lab.{name}", "sha256:a", "sha256:b") for name in ("say", "say_loud"))


def test_incidents_are_released_one_by_one_and_for_one_capability(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        store = world.stores.tenant(TENANT)

        async def add(key: str) -> None:
            row = DRIFT_INCIDENTS.write(key, 0, DriftIncident("run_1", key.rpartition("/")[2], 1))
            await store.commit(Batch(run=CONTROL, writes=(row,)))

        for key in (f"{SAY}tool_1", f"{SHOUT}tool_2"):
            await add(key)
        assert await open_incidents(store, world.keys, SAY) == [f"{SAY}tool_1"]
        await release_capability(world.deployment, TENANT, "lab.say", reason="put back", by=world.actor())
        assert not await open_incidents(store, world.keys, SAY)
        assert await open_incidents(store, world.keys, SHOUT) == [f"{SHOUT}tool_2"]
        await add(f"{SAY}tool_3")
        assert await open_incidents(store, world.keys, SAY) == [f"{SAY}tool_3"]
        stranger = KeyRing.from_seed(b"o" * 32)
        assert len(await open_incidents(store, stranger, SAY)) == 2, "an act that another key sealed releases nothing"
        world.close()

    run(act())


def test_another_definition_or_other_code_is_another_version() -> None:
    versions = {quarantine_key("lab.say", *one) for one in (("a", "b"), ("a", "c"), ("c", "b"), ("b", "a"))}
    assert len(versions) == 4
