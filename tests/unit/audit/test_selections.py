"""The audit of slots is compared with the acts in the journal of a run; an erased body leaves one act unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.selections import verify_selections
from contextos.contracts.journal import Entry
from contextos.errors import ChainBroken
from tests.e2e.test_slots_in_runs import declaring, opened
from tests.world import TENANT, request, run


class _Audited:
    """A store whose run goes on between the two reads, and whose audit is what a test says."""

    def __init__(self, entries: list[Entry], acts: list[Any]) -> None:
        self.entries, self.acts = entries, acts

    async def selections(self, _run: str) -> list[Any]:
        return self.acts

    async def read(self, _run: str) -> list[Entry]:
        return self.entries


def test_the_audit_is_what_the_journal_says(tmp_path: Path) -> None:
    async def go() -> None:
        world = await opened(tmp_path, declaring())
        view = await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        entries = list(await store.read(view.run_id))
        [act] = await store.selections(view.run_id)
        assert await store.selected_runs() == [view.run_id]
        await verify_selections(store, view.run_id, entries)
        at = {one.kind: number for number, one in enumerate(entries)}
        later: Any = _Audited(entries, [act])
        await verify_selections(later, view.run_id, entries[: at["slot.selected"]])
        missing: Any = _Audited(entries, [])
        await verify_selections(missing, view.run_id, entries[: at["slot.pinned"]])
        with pytest.raises(ChainBroken, match="does not hold"):
            await verify_selections(missing, view.run_id, entries)
        other: Any = _Audited(entries, [act.model_copy(update={"slot_id": "other"})])
        with pytest.raises(ChainBroken, match="something else"):
            await verify_selections(other, view.run_id, entries)
        more: Any = _Audited(entries, [act, act.model_copy(update={"selection_id": "sel_00000000000000ff"})])
        with pytest.raises(ChainBroken, match="sel_00000000000000ff"):
            await verify_selections(more, view.run_id, entries)
        erased = [one._replace(body=None, salt=None) if one.kind == "slot.selected" else one for one in entries]
        await verify_selections(_Audited(erased, [act]), view.run_id, erased)  # type: ignore[arg-type]
        world.close()

    run(go())
