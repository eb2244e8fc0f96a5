"""G101: over a store that was put back, a newer signed directory writes nothing before the witness is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import contextos
from contextos.contracts.journal import CONTROL
from contextos.errors import Integrity
from contextos.workspace.build import open_unchecked
from contextos.workspace.settings import Settings
from tests.attacks.backups import Backup
from tests.attacks.shop import Shop
from tests.attacks.test_g77_a_restore_with_a_newer_directory_is_recorded import Signed
from tests.world import TENANT


def controlled(path: Path) -> list[str]:
    """The kinds in the control stream of the tenant, read without anything being written."""

    async def read() -> list[str]:
        app = await open_unchecked(Settings.read(path), read_only=True)
        try:
            return [one.kind for one in await app.stores.tenant(TENANT).read(CONTROL)]
        finally:
            app.close()

    return asyncio.run(read())


def by_program(shop: Shop) -> None:
    with pytest.raises(Integrity, match="was witnessed"), contextos.open(shop.path):
        pass


def by_command(shop: Shop) -> None:
    assert shop.say("apply", *shop.by).code == 3


@pytest.mark.parametrize("door", [by_program, by_command])
def test_the_store_that_was_put_back_stays_as_it_is(
    door: Callable[[Shop], None], fresh: Shop, backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fresh.settings(f'witness = "{tmp_path / "heads.jsonl"}"\n')
    directory = Signed(fresh.path)
    assert fresh.say("apply", *fresh.by).code == 0
    put_back = backup(fresh.path)
    assert fresh.say("invoke", str(fresh.request("small"))).code in (0, 1, 5)
    put_back()
    before = controlled(fresh.path)
    directory.now(json.loads((fresh.path / "directory.json").read_text()))
    door(fresh)
    assert controlled(fresh.path) == before
    assert fresh.say("store", "restored", *fresh.by).code == 0
    assert fresh.say("apply", *fresh.by).code == 0
    assert controlled(fresh.path).count("directory.used") == before.count("directory.used") + 1
