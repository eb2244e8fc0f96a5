"""A rotation is an act in every tenant, and nothing is changed before it is on record."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.key_files import KeyFiles
from contextos.contracts.journal import CLOCK_MARGIN_US, CONTROL, Entry
from contextos.deployment.acts.keys import NewKey, is_introduced, rotate_key
from contextos.errors import ApprovalRefused, Conflict, InvalidInput, InvalidSettings, Problem
from tests.world import APPROVER, APPROVER_KEY, TENANT, TestWorld, open_world, run


async def acts_of(world: TestWorld) -> list[Entry]:
    return [one for one in await world.stores.tenant(TENANT).read(CONTROL) if one.kind != "person.listed"]


def test_the_old_key_introduces_the_new_one(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        new = await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        line = (await world.stores.tenant(TENANT).read(CONTROL))[-1]
        assert (line.kind, line.key) == ("key.rotated", new.kid)
        said = json.loads(line.body or b"")["act"]["arguments"]
        assert is_introduced(said, keys)
        for changed in ({"kid": "kid_x"}, {"signature": "no"}, {"old_kid": new.kid}, {"retired_at_us": 9}, {"more": 1}):
            assert not is_introduced({**said, **changed}, keys)
        world.close()

    run(go())


def test_who_may_not_act_in_one_of_the_tenants_rotates_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        files = sorted((tmp_path / "keys").iterdir())
        before, lines = keys.listed(), await acts_of(world)
        for tenants, by in (([TENANT, "tenant_other"], world.actor()), ([TENANT], world.actor(APPROVER, APPROVER_KEY))):
            with pytest.raises(ApprovalRefused):
                await rotate_key(world.deployment, keys, tenants, "head", by=by)
        assert (keys.listed(), sorted((tmp_path / "keys").iterdir())) == (before, files)
        # How the directory lists who tried is stated, and no act.
        assert await acts_of(world) == lines
        world.close()

    run(go())


@pytest.mark.parametrize("ahead_us", [0, CLOCK_MARGIN_US])
def test_a_rotated_key_signs_by_the_clock_of_the_machine(tmp_path: Path, ahead_us: int) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        world.clock.at_us = await world.stores.tenant(TENANT).latest_us() - ahead_us
        new = await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        assert new.activated_at_us < world.clock.at_us
        assert keys.sign("head", b"x")[0] == new.kid
        world.close()

    run(go())


def test_no_key_is_rotated_while_the_record_of_a_tenant_is_ahead_of_the_clock(tmp_path: Path) -> None:
    """The old key would sign on until the clock reaches the record, entries that are later than its retirement."""

    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        before, latest_us = keys.listed(), await world.stores.tenant(TENANT).latest_us()
        files = sorted((tmp_path / "keys").iterdir())
        world.clock.at_us = latest_us - CLOCK_MARGIN_US - 10_000
        with pytest.raises(InvalidInput) as refused:
            await rotate_key(world.deployment, keys, ["tenant_new", TENANT], "head", by=world.actor())
        [problem] = refused.value.problems
        assert problem.code == "record_ahead"
        assert f"`{TENANT}`" in problem.detail
        assert "set the clock" in problem.remedy
        assert (keys.listed(), sorted((tmp_path / "keys").iterdir())) == (before, files)
        assert "key.rotated" not in [line.kind for line in await world.stores.tenant(TENANT).read(CONTROL)]
        world.clock.at_us = latest_us
        new = await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        assert keys.sign("head", b"x")[0] == new.kid
        world.close()

    run(go())


def test_who_rotates_a_key_that_was_rotated_meanwhile_puts_nothing_on_record(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        keys, other = (KeyFiles.make(tmp_path / "keys", world.clock), KeyFiles(tmp_path / "keys", world.clock))
        prepare = keys.prepare

        def overtaken(purpose: str, from_us: int) -> NewKey:
            new = prepare(purpose, from_us)
            other.install(other.prepare(purpose, from_us))
            return new

        keys.prepare = overtaken  # type: ignore[method-assign]
        before = await world.stores.tenant(TENANT).read(CONTROL)
        with pytest.raises(Conflict, match=r"`kid_\w+` changed meanwhile; list the keys and rotate again"):
            await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        assert await world.stores.tenant(TENANT).read(CONTROL) == before
        world.close()

    run(go())


@pytest.mark.parametrize(
    ("module", "call", "recorded"),
    [(os, "open", False), (os, "fsync", False), (fcntl, "flock", True), (os, "replace", True)],
)
def test_a_rotation_that_cannot_write_leaves_no_file_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, call: str, recorded: bool
) -> None:
    real = getattr(module, call)

    def fails(*given: Any) -> Any:
        reads = (call == "open" and not given[1] & os.O_CREAT) or (call == "flock" and given[1] != fcntl.LOCK_EX)
        if not reads:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given)

    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        before, files = keys.listed(), sorted((tmp_path / "keys").iterdir())
        with monkeypatch.context() as full:
            full.setattr(module, call, fails)
            with pytest.raises(InvalidSettings, match=r"No space left on device; .* rotate again"):
                await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        assert (keys.listed(), sorted((tmp_path / "keys").iterdir())) == (before, files)
        kinds = [line.kind for line in await world.stores.tenant(TENANT).read(CONTROL)]
        assert ("key.rotated" in kinds) == recorded
        new = await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        assert keys.sign("head", b"x")[0] == new.kid
        world.close()

    run(go())


def test_a_key_that_is_listed_is_kept_though_the_rotation_failed_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        keys = KeyFiles.make(tmp_path / "keys", world.clock)
        install = keys.install

        def fails(new: NewKey) -> None:
            install(new)
            raise InvalidSettings(Problem("/keys", "unwritable", "the directory is not on disk"))

        monkeypatch.setattr(keys, "install", fails)
        with pytest.raises(InvalidSettings):
            await rotate_key(world.deployment, keys, [TENANT], "head", by=world.actor())
        [new, _old] = keys.kids("head")
        assert keys.sign("head", b"x")[0] == new
        world.close()

    run(go())
