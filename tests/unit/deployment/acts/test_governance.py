"""The first act of a tenant publishes, activates and pins; repeated, it does nothing, and it never changes policies."""

from __future__ import annotations

from pathlib import Path

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.governance import initialise_tenant
from contextos.trust.seal import seal
from tests.world import TENANT, example, open_world, run


def test_initialising_again_does_only_what_is_missing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = example("pack.json")
        envelopes = [seal(PACK_TYPE, canonical(body), world.keys, "pack")]
        given = (world.deployment, TENANT, envelopes, [("tenant", "POLICY_NONE@1.0.0")])
        assert await initialise_tenant(*given, by=world.actor()) == []
        body["pack_meta"]["pack_version"] = "5.3.0"
        envelopes.append(seal(PACK_TYPE, canonical(body), world.keys, "pack"))
        assert await initialise_tenant(*given, by=world.actor()) == [
            "published ctxpack.support@5.3.0",
            "pinned ctxpack.support@5.3.0 for support.refund in dev",
            "withdrew ctxpack.support@5.2.0 for support.refund in dev",
        ]
        assert (await world.deployment.catalog(TENANT).active()).policies == ()
        world.close()

    run(go())
