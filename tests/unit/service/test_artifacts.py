"""What is published is listed in pages and read as it was published, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidInput, NotFound
from contextos.service.artifacts import PublishedArtifacts
from tests.world import OPERATOR, TENANT, open_world, run

PACK = "ctxpack.support@5.2.0"


def test_a_published_pack_is_read_with_its_publisher_and_digest(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        artifacts = PublishedArtifacts(world.deployment)
        page = await artifacts.list(TENANT)
        listed = {one.ref: one for one in page.items}
        found = await artifacts.get(TENANT, PACK)
        assert (found.kind, found.publisher, found.withdrawn) == ("context_pack", OPERATOR, False)
        assert listed[PACK].to_json() == {key: value for key, value in found.to_json().items() if key != "document"}
        assert found.document["pack_meta"]["tenant"] == TENANT
        assert PACK in [ref for pin in (await artifacts.active(TENANT)).packs for ref in pin.refs]
        await world.aclose()

    run(scenario())


@pytest.mark.parametrize("ref", ["", "ctxpack.support", "ctxpack.support@9.9.9", "../x@1.0.0", "a" * 5_000, "\x00"])
def test_what_is_not_published_is_not_found(tmp_path: Path, ref: str) -> None:
    async def scenario() -> None:
        world = await open_world(tmp_path)
        with pytest.raises(NotFound):
            await PublishedArtifacts(world.deployment).get(TENANT, ref)
        if ref:
            with pytest.raises(InvalidInput):
                await PublishedArtifacts(world.deployment).list(TENANT, cursor=ref)
        await world.aclose()

    run(scenario())
