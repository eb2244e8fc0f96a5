"""G77: a store that was restored elsewhere is recorded as restored, although the directory is newer than the backup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextos.adapters.signed_directory import sign_directory
from contextos.cli.demo.workspace import EXAMPLE_OPERATOR_ID
from contextos.trust.seal import listed_key
from contextos.workspace import read_seed, write_seed
from tests.attacks.backups import backup_of_file
from tests.attacks.shop import Shop
from tests.postgres import Database
from tests.world import TENANT, public_key

KEEPER = b"k" * 32


class Plain:
    """The directory file of the workspace, which somebody edits."""

    def __init__(self, path: Path) -> None:
        self.path = path / "directory.json"

    def now(self, body: dict[str, object]) -> None:
        self.path.write_text(json.dumps(body))


class Signed(Plain):
    """A signed directory, whose versions count up."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.version, settings = 0, path / "contextos.toml"
        self.now(json.loads(self.path.read_text()))
        lines = settings.read_text().replace('"unsafe_local_directory", ', "").splitlines()
        lines = [one for one in lines if not one.startswith("directory")]
        named = (
            f'[directory]\nkind = "signed"\npath = "directory.dsse.json"\nsigners = ["{public_key(KEEPER).hex()}"]\n'
        )
        settings.write_text("\n".join(lines) + "\n" + named)

    def now(self, body: dict[str, object]) -> None:
        self.version += 1
        self.path.with_name("directory.dsse.json").write_bytes(sign_directory(body, self.version, KEEPER))


@pytest.fixture(params=[Plain, Signed])
def directory(request: pytest.FixtureRequest, fresh: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plain:
    """The directory of the workspace, which names a witness, before it is initialised."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fresh.settings(f'witness = "{tmp_path / "heads.jsonl"}"\n')
    made: Plain = request.param(fresh.path)
    return made


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, stores: str, fresh: Shop) -> Iterator[Callable[[], Callable[[], None]]]:
    """Takes a backup, and returns what restores it: a file in its place, a database beside the lost one."""
    if stores == "sqlite":
        yield lambda: backup_of_file(fresh.path)
        return
    lost: Database = request.getfixturevalue("database")
    made: list[Database] = []

    def backup() -> Callable[[], None]:
        made.append(lost.server.database(like=lost.name))
        settings = fresh.path / "contextos.toml"
        return lambda: settings.write_text(settings.read_text().replace(lost.name, made[0].name)) and None

    yield backup
    for one in made:
        one.drop()


def newer(shop: Shop) -> dict[str, object]:
    """The directory with another key of the operator, whose file is the new one from now on."""
    body = json.loads((shop.path / "directory.json").read_text())
    key = shop.path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key"
    key.rename(key.with_suffix(".old"))
    for one in body[TENANT]["approvers"]:
        if one["approver_id"] == EXAMPLE_OPERATOR_ID:
            one["keys"] = [listed_key(write_seed(key))]
    assert read_seed(key) != read_seed(key.with_suffix(".old"))
    return body


def test_it_is_recorded_and_work_goes_on(
    directory: Plain, initialised: Shop, elsewhere: Callable[[], Callable[[], None]]
) -> None:
    assert initialised.say("invoke", str(initialised.request("small"))).code == 0
    restore = elsewhere()
    assert initialised.say("invoke", str(initialised.request("large"))).code == 5
    restore()
    directory.now(newer(initialised))
    refused = initialised.say("invoke", str(initialised.request("next")))
    assert refused.code == 3, refused
    recorded = initialised.say("store", "restored", *initialised.by)
    assert recorded.code == 0, recorded
    assert initialised.say("verify").code == 0
    assert initialised.say("invoke", str(initialised.request("next"))).code == 5
    assert initialised.say("verify").code == 0
