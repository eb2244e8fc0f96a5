"""A cancel request is stored once, and not for a run that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import Batch
from contextos.errors import ApprovalRefused
from contextos.operations.acts.cancels import stored_cancel
from contextos.operations.operator import request_cancel
from tests.world import TENANT, open_world, request, run


def test_a_stored_request_counts_as_proved_only_with_its_act(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        store, app = world.stores.tenant(TENANT), world.deployment
        first, second = [
            (await world.invoke(request(900 + n, f"req_{n}") | {"mode": "long_running"})).run_id for n in (1, 2)
        ]
        assert await stored_cancel(app, store, first) == (0, False)
        await store.commit(Batch(run=first, writes=(CANCELS.write(first, 0, CancelRequest("usr_1", "")),)))
        assert await stored_cancel(app, store, first) == (1, False)
        await request_cancel(app, TENANT, second, by=world.actor(), reason="")
        assert await stored_cancel(app, store, second) == (1, True)
        world.close()

    run(act())


def test_a_run_that_has_ended_takes_no_request(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        ended = await world.invoke(request(900, "req_1"))
        with pytest.raises(ApprovalRefused, match="has ended as `completed`"):
            await request_cancel(world.deployment, TENANT, ended.run_id, by=world.actor(), reason="")
        world.close()

    run(act())
