"""A quarantine ends by an act with a reason; what is listed is what is in quarantine as it is published now."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.action.registry import Registry
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident, quarantine_key
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.acts.quarantines import quarantined_capabilities, release_capability
from contextos.errors import InvalidInput, NotFound
from tests.planted import planted
from tests.world import TENANT, open_world, run


def test_what_is_in_quarantine_is_listed_until_it_is_released(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        adapter = world.adapters["adp_orders"]
        name, one = next(iter(Registry().register((adapter.describe(),)).items()))
        code = world.deployment.ports.code.adapter(adapter) or ""
        for digest in (one.definition_digest, "sha256:an-earlier-version"):
            key = f"{quarantine_key(name, digest, code)}tool_1"
            row = DRIFT_INCIDENTS.write(key, 0, DriftIncident("run_1", "tool_1", 1))
            await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=(row,)))
        (tool, incident), *others = (await quarantined_capabilities(world.deployment, TENANT, adapter)).items()
        assert (tool, incident.run_id[:4], others) == ("lookup", "run_", [])
        assert not await quarantined_capabilities(world.deployment, TENANT, world.adapters["adp_policy"])
        for reason in ("", " ", planted()["github classic"].text):
            with pytest.raises(InvalidInput):
                await release_capability(world.deployment, TENANT, name, reason=reason, by=world.actor())
        assert len(await release_capability(world.deployment, TENANT, name, reason="same", by=world.actor())) == 2
        assert not await quarantined_capabilities(world.deployment, TENANT, adapter)
        with pytest.raises(NotFound):
            await release_capability(world.deployment, TENANT, name, reason="same", by=world.actor())
        world.close()

    run(act())
