"""C19: an emptied witness is found, and the witness is asked before anything is published."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contextos.contracts.journal import CONTROL
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import Integrity
from contextos.store.witness.file import FileWitness
from tests.unit.cli.conftest import Shop
from tests.world import TENANT, SystemEntropy, TestWorld, open_world, request


def publisher(world: TestWorld, path: Path) -> WitnessPublisher:
    """A publisher as a process that starts has it."""
    return WitnessPublisher(world.stores, FileWitness(path), world.keys, world.clock, SystemEntropy(), "heads")


@pytest.mark.parametrize("empty", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_an_emptied_witness_is_no_new_witness(stores: str, empty, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        path = tmp_path / "heads.jsonl"
        await world.invoke(request(900, "req_1"))
        await publisher(world, path).publish([TENANT])
        await publisher(world, path).check(TENANT)
        empty(path)
        for act in (publisher(world, path).check(TENANT), publisher(world, path).publish([TENANT])):
            with pytest.raises(Integrity, match="it was emptied or moved"):
                await act
        assert not path.exists() or path.read_bytes() == b"", "a cut history is not vouched for anew"
        await record_restore(world.deployment, publisher(world, path), TENANT, by=world.actor())
        await publisher(world, path).check(TENANT)
        await publisher(world, path).publish([TENANT])
        lines = await world.stores.tenant(TENANT).lines(CONTROL, "heads")
        assert [line.kind for line in lines] == ["witness.begun"], "a witness begins once"
        await world.aclose()

    asyncio.run(go())


def test_nothing_is_published_into_a_journal_that_was_cut(shop: Shop, tmp_path: Path) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text(f'witness = "{tmp_path / "heads.jsonl"}"\n' + settings.read_text())
    assert shop.say("invoke", shop.request("large")).code == 0
    assert (tmp_path / "heads.jsonl").exists()
    with closing(sqlite3.connect(shop.path / "contextos.db")) as store, store:
        for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.execute(f"DROP TRIGGER {name}")
        store.execute("DELETE FROM journal WHERE run = 'control'")
        store.execute("DELETE FROM documents WHERE collection IN ('pins', 'artifacts', 'active')")
    said = shop.say("invoke", shop.request("next"))
    assert (said.code, "witnessed" in said.err) == (3, True)
    with closing(sqlite3.connect(shop.path / "contextos.db")) as store:
        assert store.execute("SELECT count(*) FROM journal WHERE run = 'control'").fetchone() == (0,)
