"""A run is read together with what about it does not verify."""

from __future__ import annotations

from pathlib import Path

from contextos.contracts.journal import Draft, Entry, link
from contextos.deployment.queries.checked_run import UNREADABLE, CheckedRun, read_checked
from contextos.trust.seal import KeyRing
from tests.world import TENANT, open_world, request, run


def test_a_whole_run_has_no_fault_and_an_unknown_one_has_no_entries(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        store, view = world.stores.tenant(TENANT), await world.invoke(request(900, "req_1"))
        found = await read_checked(store, TENANT, world.keys, view.run_id)
        assert (found.fault, found.view().state) == (None, "completed")
        unknown = await read_checked(store, TENANT, world.keys, "run_0000000000000000")
        assert (unknown.fault, list(unknown.entries)) == (None, [])

    run(act())


def test_a_head_that_no_known_key_signed_is_a_fault(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(900, "req_1"))
        other = KeyRing.from_seed(b"o" * 32)
        found = await read_checked(world.stores.tenant(TENANT), TENANT, other, view.run_id)
        assert found.fault is not None
        assert "signature does not verify" in found.fault

    run(act())


def broken() -> CheckedRun:
    entry: Entry = link("t", "run_a", 1, "", Draft("run.received", "", 1, "runtime", b"{}", bytes(16)))
    return CheckedRun("t", "run_a", [entry, entry._replace(kind="record.revised", body=b"{")], "it was altered")


def test_entries_that_tell_nothing_are_unreadable_and_not_an_error() -> None:
    assert broken().view().state == UNREADABLE
    assert CheckedRun("t", "run_a", (), "its row was altered").view().state == UNREADABLE
    assert CheckedRun("t", "run_a", (), None).view().state == "new"
    assert broken().told(lambda: {}["absent"], "otherwise") == "otherwise"
