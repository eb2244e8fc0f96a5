"""Before an act on a run: its journal verifies, its lines of the index too, and the reason is clean text."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.documents.runs import CANCELS, CancelRequest
from contextos.contracts.journal import Batch
from contextos.deployment.acts.checks import MAX_REASON_CHARS, no_run, refuse_reason, stored_cancel, verified_run
from contextos.deployment.operator import request_cancel
from contextos.errors import ApprovalRefused, InvalidInput, NotFound
from tests.world import TENANT, open_world, request, run


@pytest.mark.parametrize("reason", ["x" * (MAX_REASON_CHARS + 1), "hidden \u202e text", "\ud800"])
def test_a_reason_that_is_too_long_or_unsafe_is_refused(reason: str) -> None:
    with pytest.raises((InvalidInput, ValueError)):
        refuse_reason(reason)


def test_a_clean_reason_passes() -> None:
    refuse_reason("x" * MAX_REASON_CHARS)


def test_a_run_is_read_after_it_verified_and_none_is_named(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(900, "req_1"))
        store, entries = await verified_run(world.deployment, TENANT, view.run_id)
        assert list(entries) == list(await store.read(view.run_id))
        with pytest.raises(NotFound) as missing:
            await verified_run(world.deployment, TENANT, "run_none")
        assert str(missing.value) == str(no_run("run_none"))
        world.close()

    run(go())


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
