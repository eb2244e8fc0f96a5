"""What is kept of a write is believed as the runtime signed it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextos.contracts.documents.operations import UNVOUCHED_WRITES, UnvouchedWrite
from contextos.contracts.journal import Batch
from contextos.errors import Integrity
from contextos.trust.rows.unvouched_writes import SignedWrites
from tests.world import TENANT, open_world, run

KEY = "adp_notes/run_0123456789abcdef/1/note"
DIGESTS = ("sha256:" + "1" * 64,)


@pytest.mark.parametrize("change", [{"digests": ()}, {"digests": None}, {"at_us": 7}, {"signature": "00" * 64}])
def test_a_row_that_somebody_altered_stops_who_reads_it(change: dict[str, object], tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        store = world.stores.tenant(TENANT)
        writes = SignedWrites(store, TENANT, world.keys)
        await store.commit(Batch(run="run_0123456789abcdef", writes=(writes.keep(KEY, DIGESTS, world.clock.now_us()),)))
        [kept] = await writes.through("adp_notes", limit=10)
        assert kept.body.digests == DIGESTS
        assert await writes.through("adp_other", limit=10) == []
        altered: UnvouchedWrite = replace(kept.body, **change)  # type: ignore[arg-type]
        await store.commit(Batch(run="run_0123456789abcdef", writes=(UNVOUCHED_WRITES.write(KEY, 1, altered),)))
        with pytest.raises(Integrity, match="is not what the runtime signed; nothing is read"):
            await writes.through("adp_notes", limit=10)
        await world.aclose()

    run(act())
