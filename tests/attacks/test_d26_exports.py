"""D26, exports: a file can be verified, appears whole or not at all, and only what was written is recorded."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit import export, exported
from contextos.cli import command_context
from contextos.contracts.journal import CONTROL
from contextos.errors import InvalidInput, Problem
from tests.unit.cli.conftest import Shop
from tests.world import TENANT, TestWorld, open_world, request, run

SMALL = 90_000
"""Bytes: less than two runs of the example, more than one."""


async def recorded(world: TestWorld) -> list[dict[str, Any]]:
    entries = await world.stores.tenant(TENANT).read(CONTROL)
    return [orjson.loads(entry.body or b"{}") for entry in entries if entry.kind == "runs.exported"]


def test_an_export_is_split_where_verify_would_refuse_it(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        runs = [(await world.invoke(request(900 + number, f"req_{number}"))).run_id for number in range(4)]
        monkeypatch.setattr(export, "MAX_EXPORT_BYTES", SMALL)
        files = await export.signed_exports(world.deployment, TENANT, runs)
        assert len(files) > 1
        assert all(len(one.raw) <= SMALL for one in files)
        assert [name for one in files for name in exported.read_export(one.raw, world.keys).streams] == sorted(runs)
        for one in files:
            replayed = await exported.replay_export(exported.read_export(one.raw, world.keys))
            assert [result.run_id for result in replayed] == list(one.runs)
        assert await recorded(world) == [], "nothing was written yet"
        with pytest.raises(InvalidInput, match=r"need \d export files"):
            await export.export_runs(world.deployment, TENANT, runs, by=world.actor())
        monkeypatch.setattr(export, "MAX_EXPORT_BYTES", 1_000)
        with pytest.raises(InvalidInput):
            await export.signed_exports(world.deployment, TENANT, runs[:1])
        assert await recorded(world) == []
        await export.record_export(world.deployment, TENANT, files, by=world.actor())
        assert [sorted(one["act"]["arguments"]["runs"]) for one in await recorded(world)] == [sorted(runs)]
        await world.aclose()

    run(go())


def control_of(shop: Shop) -> int:
    streams = {one["stream"]: one["entries"] for one in shop.say("verify", "--json").json["verified"]}
    return int(streams["control"])


def test_what_is_too_large_for_one_file_is_in_several(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_EXPORT_BYTES", SMALL)
    monkeypatch.setattr(command_context, "MAX_FILE_BYTES", SMALL)
    out = shop.path / "runs.jsonl"
    said = shop.say("runs", "export", *shop.by, "req_small", "req_large", "--out", str(out), "--json")
    assert said.code == 0, said
    files = [one["file"] for one in said.json["files"]]
    assert files == [str(out), str(shop.path / "runs-2.jsonl")]
    trusted = [f"--trusted-key={purpose}={key}" for purpose, keys in said.json["public_keys"].items() for key in keys]
    for file in files:
        assert shop.say("verify", file, *trusted).code == 0
        assert shop.say("replay", file, *trusted).code == 0
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_the_limits_of_export_and_verify_are_one() -> None:
    assert export.MAX_EXPORT_BYTES == command_context.MAX_FILE_BYTES


def test_no_link_is_followed_and_nothing_is_replaced(shop: Shop) -> None:
    target = shop.path / "target"
    before = control_of(shop)
    (shop.path / "dangling").symlink_to(target)
    (shop.path / "taken").write_text("mine", "utf-8")
    (shop.path / "runs-dir").mkdir()
    for name in ("dangling", "taken", "runs-dir", "no/such/folder", "taken/below"):
        said = shop.say("runs", "export", *shop.by, "req_small", "--out", str(shop.path / name), "--json")
        assert said.code == 2, said
    assert not target.exists()
    assert (shop.path / "taken").read_text("utf-8") == "mine"
    assert control_of(shop) == before
    assert not list(shop.path.glob(".export-*"))


def failing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on the disk is full for this call."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, name, full)


@pytest.mark.parametrize("step", ["write", "fsync"])
def test_an_export_that_cannot_be_written_is_not_recorded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = control_of(shop)
    with monkeypatch.context() as broken:
        failing(broken, step)
        said = shop.say("runs", "export", *shop.by, "req_small", "--out", str(shop.path / "runs.jsonl"), "--json")
    assert said.code == 2, said
    assert said.json["error"]["problems"][0]["code"] == "unwritable"
    assert control_of(shop) == before
    assert not list(shop.path.glob("*.jsonl"))
    assert not list(shop.path.glob(".export-*"))


def test_an_export_that_cannot_be_recorded_does_not_stay(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise InvalidInput(Problem("", "refused", "the store says no", "ask it"))

    monkeypatch.setattr(export, "record_export", refused)
    assert shop.say("runs", "export", *shop.by, "req_small", "--out", str(shop.path / "runs.jsonl")).code == 2
    assert not list(shop.path.glob("*.jsonl"))
    assert not list(shop.path.glob(".export-*"))
