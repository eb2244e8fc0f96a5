"""Before an act on a run: its journal verifies, its lines of the index too, and the reason is clean text."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidInput, NotFound
from contextos.operations.acts.checks import MAX_REASON_CHARS, no_run, refuse_reason, verified_run
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
