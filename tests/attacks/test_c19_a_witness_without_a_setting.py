"""C19: without a setting, an embedded workspace has a witness; the cut end of a journal or of the witness is found.

A PostgreSQL store has no witness of its own accord: the cut witness is tried on both stores.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import contextos
from contextos.contracts.documents.epochs import PUBLISHED_HEADS
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.restore import record_restore
from contextos.deployment.witness import WitnessPublisher
from contextos.errors import Integrity
from contextos.store.witness.file import FileWitness
from tests.unit.cli.conftest import Shop
from tests.unit.deployment.test_restore import backup, restore
from tests.world import TENANT, SystemEntropy, TestWorld, open_world, request, run


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def cut_the_last_run(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path / "contextos.db")) as store, store:
        for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.execute(f"DROP TRIGGER {name}")
        (run,) = store.execute("SELECT key FROM journal WHERE run = 'index' ORDER BY seq DESC LIMIT 1").fetchone()
        store.execute("DELETE FROM segments WHERE run = ?", (run,))
        store.execute("DELETE FROM journal WHERE run = 'index' AND key = ?", (run,))
        store.execute("DELETE FROM documents WHERE key = ?", (run,))


def test_a_run_that_was_cut_is_missed_without_any_setting(shop: Shop, state: Path) -> None:
    assert shop.say("invoke", shop.request("deny")).code == 5
    whole = shop.say("verify", "--json")
    [file] = (state / "contextos").iterdir()
    assert (whole.code, whole.json["witness"]) == (0, str(file)[-180:])
    cut_the_last_run(shop)
    reading = (["runs", "list"], ["policies", "list"], ["breakers", "list"])
    for command in (["verify"], ["invoke", shop.request("next")], *reading):
        said = shop.say(*command)
        assert (said.code, "was witnessed at" in said.err) == (3, True), said
    assert (os.stat(file).st_mode & 0o777, os.stat(file.parent).st_mode & 0o777) == (0o600, 0o700)


def test_a_witness_file_is_the_same_one_however_the_workspace_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text('witness = "witness.jsonl"\n' + settings.read_text())
    monkeypatch.chdir(shop.path)
    with contextos.open("."):
        pass
    assert shop.say("invoke", shop.request("deny"), "-w", str(shop.path)).code == 5
    assert shop.say("invoke", shop.request("next"), "-w", "../shop").code == 5
    (shop.path.parent / "link").symlink_to(shop.path)
    for named in (".", "../link", str(shop.path)):
        told = shop.say("verify", "-w", named, "--json").json
        assert told["witness"] == str(shop.path / "witness.jsonl")[-180:]
        assert [Path(one).parent.name for one in told["earlier_witnesses"]] == ["contextos"], "that of the user"


def test_a_witness_of_the_user_that_was_removed_or_cut_is_missed(shop: Shop, state: Path) -> None:
    assert shop.say("invoke", shop.request("deny")).code == 5
    assert shop.say("invoke", shop.request("cancel")).code == 5
    [file] = (state / "contextos").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    for left in (lines[:-1], lines[:1], []):
        file.write_bytes(b"".join(left))
        said = shop.say("verify")
        assert (said.code, "witness" in said.err) == (3, True), said
        assert shop.say("invoke", shop.request("next")).code == 3
    file.unlink()
    assert shop.say("verify").code == 3
    file.write_bytes(b"".join(lines))
    assert shop.say("verify").code == 0


def test_a_copy_elsewhere_says_that_a_cut_cannot_be_excluded_and_where_to_look(
    shop: Shop, state: Path, tmp_path: Path
) -> None:
    assert shop.say("invoke", shop.request("deny")).code == 5
    [file] = (state / "contextos").iterdir()
    shutil.copytree(shop.path, tmp_path / "elsewhere")
    said = shop.say("verify", "--workspace", str(tmp_path / "elsewhere"))
    assert said.code == 0
    assert "truncation of index and control cannot be excluded: the witness " in said.out
    assert f"contextos verify --witness {file}"[-100:] in said.out
    assert shop.say("verify", "--workspace", str(tmp_path / "elsewhere"), "--witness", str(file)).code == 0
    assert len(list((state / "contextos").iterdir())) == 1, "who only reads makes no witness"


def test_a_new_workspace_of_the_same_name_has_a_witness_of_its_own(shop: Shop, state: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert shop.say("demo", "--yes", "--keep", str(tmp_path / "again")).code == 0
        assert shop.say("verify", "--workspace", str(tmp_path / "again")).code == 0
        shutil.rmtree(tmp_path / "again")
    assert len(list((state / "contextos").iterdir())) == 2


def test_no_witness_is_a_choice_and_verify_says_so(shop: Shop, state: Path) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text('witness = "off"\n' + settings.read_text())
    assert shop.say("invoke", shop.request("deny")).code == 5
    said = shop.say("verify")
    assert said.code == 0
    assert "truncation of index and control cannot be excluded: there is no witness" in said.out
    assert not state.exists()


def test_a_state_folder_that_cannot_be_written_stops_what_writes_alone(shop: Shop, state: Path) -> None:
    state.write_text("no folder")
    said = shop.say("invoke", shop.request("deny"), "--json")
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "unwritable")
    assert 'witness = "off"' in said.json["error"]["problems"][0]["remedy"]
    for command in (["runs", "list"], ["runs", "show", "req_large"]):
        assert shop.say(*command).code == 0


def test_what_is_not_kept_leaves_nothing_in_the_state_folder(shop: Shop, state: Path) -> None:
    assert shop.say("demo", "--yes").code == 0
    assert shop.say("slots", "demo").code == 0
    assert not state.exists()


def publisher(world: TestWorld, path: Path) -> WitnessPublisher:
    """A publisher as a process that starts has it."""
    return WitnessPublisher(world.stores, FileWitness(path), world.keys, world.clock, SystemEntropy(), "heads")


def test_a_witness_whose_end_was_cut_is_not_taken_for_a_whole_one(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        path = tmp_path / "heads.jsonl"
        for number in range(2):
            await world.invoke(request(900 + number, f"req_{number}"))
            await publisher(world, path).publish([TENANT])
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2]))
        for act in (publisher(world, path).check(TENANT), publisher(world, path).publish([TENANT])):
            with pytest.raises(Integrity, match="its end was cut"):
                await act
        assert path.read_bytes() == b"".join(lines[:2]), "a cut history is not vouched for anew"
        await record_restore(world.deployment, publisher(world, path), TENANT, by=world.actor())
        await publisher(world, path).check(TENANT)
        await publisher(world, path).publish([TENANT])
        await publisher(world, path).check(TENANT)
        await world.aclose()

    asyncio.run(go())


def test_a_store_and_a_witness_that_were_cut_alike_have_not_lost_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        path = tmp_path / "heads.jsonl"
        await world.invoke(request(900, "req_0"))
        await publisher(world, path).publish([TENANT])
        await publisher(world, path).publish([TENANT])
        taken, whole = backup(world), path.read_bytes()
        await world.invoke(request(901, "req_1"))
        await publisher(world, path).publish([TENANT])
        found = await PUBLISHED_HEADS.one(world.stores.tenant(TENANT), "heads")
        restore(world, taken)
        path.write_bytes(whole)
        assert found is not None
        before = await PUBLISHED_HEADS.one(world.stores.tenant(TENANT), "heads")
        assert before is not None
        write = PUBLISHED_HEADS.write("heads", before.version, found.body)
        await world.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=(write,)))
        made = await record_restore(world.deployment, publisher(world, path), TENANT, by=world.actor())
        assert not made.lost_nothing
        await publisher(world, path).check(TENANT)
        world.close()

    run(go())
