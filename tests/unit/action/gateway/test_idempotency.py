"""A row of the idempotency table that changes while it is proved is read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.action.gateway import idempotency
from tests.world import open_world, request, run


def test_a_row_that_changed_since_it_was_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proved, asked = idempotency.is_proved, list[str]()

    async def changed_at_first(ports: Any, place: str, row: Any) -> bool:
        asked.append(row.body.state)
        return len(asked) > 1 and await proved(ports, place, row)

    async def act() -> None:
        world = await open_world(tmp_path)
        paid = await world.invoke(request(900, "req_1"))
        monkeypatch.setattr(idempotency, "is_proved", changed_at_first)
        again = await world.invoke(request(900, "req_2"))
        assert asked[:2] == ["completed", "completed"]
        assert again.record is not None
        assert [one["made_by"] for one in again.record["effects"]] == [paid.run_id]
        assert len(world.refunds()) == 1
        world.close()

    run(act())
