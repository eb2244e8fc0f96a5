"""G75: a program that opens a store which was put back asks the witness first, as every command does."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.directory import FileDirectory
from contextos.cli.demo.workspace import APPROVER, make_workspace
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, Integrity
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.seal import kid_of
from contextos.workspace import read_seed
from tests.attacks.backups import Backup
from tests.attacks.shop import Shop
from tests.world import TENANT, public_key, request


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def fresh(fresh: Shop, tmp_path: Path, stores: str) -> Shop:
    """The workspace with payments that have no keys, and on PostgreSQL with a witness that its settings name."""
    shutil.rmtree(fresh.path)
    make_workspace(fresh.path, "none")
    settings = fresh.path / "contextos.toml"
    if stores != "sqlite":
        settings.write_text(f'store = "{stores}"\nwitness = "{tmp_path / "heads.jsonl"}"\n' + settings.read_text())
    return fresh


def paid(path: Path) -> int:
    with closing(sqlite3.connect(path / "shop.db")) as books:
        return int(books.execute("SELECT count(*) FROM refunds").fetchone()[0])


async def approve(path: Path, app: Any, run_id: str, binding: str) -> None:
    """Give the signed answer of the finance lead, and drive the run on."""
    seed = read_seed(path / "keys" / f"{APPROVER}.key")

    def vouch(said: Any) -> dict[str, Any]:
        return {"kind": "jws", "token": sign_approval(seed, kid_of(public_key(seed)), said)}

    await operator.answer_approval(
        app.deployment,
        TENANT,
        run_id,
        approver_id=APPROVER,
        verdict="approved",
        reason="test",
        binding_digest=binding,
        vouch=vouch,
    )
    await app.deployment.advance(TENANT, run_id)


async def paid_once_and_put_back(shop: Shop, backup: Backup) -> tuple[str, str]:
    """A question waits in the backup, and is approved and paid after it."""
    async with contextos.open(shop.path) as app:
        waiting = await app.deployment.invoke(request(4200, "req_1"))
        binding = waiting.waiting["binding_digest"]
    put_back = await asyncio.to_thread(backup, shop.path)
    async with contextos.open(shop.path) as app:
        await approve(shop.path, app, waiting.run_id, binding)
        assert (await app.deployment.view(TENANT, waiting.run_id)).state == "completed"
    assert paid(shop.path) == 1
    await asyncio.to_thread(put_back)
    return waiting.run_id, binding


def test_the_same_signed_answer_pays_once(initialised: Shop, backup: Backup) -> None:
    async def go() -> None:
        run_id, binding = await paid_once_and_put_back(initialised, backup)
        with pytest.raises(Integrity, match="was witnessed"):
            async with contextos.open(initialised.path) as app:
                await approve(initialised.path, app, run_id, binding)
        assert paid(initialised.path) == 1

    asyncio.run(go())
    assert initialised.say("store", "restored", *initialised.by).code == 0
    with contextos.open(initialised.path) as app:
        assert app.tenants() == (TENANT,)
    assert paid(initialised.path) == 1


class Unlisted:
    """A directory of a program, with what the port asks for and nothing else."""

    def __init__(self, path: Path) -> None:
        inner = FileDirectory(path / "directory.json")
        self.unsafe = inner.unsafe
        self.knows_tenant, self.resolve, self.delegation = inner.knows_tenant, inner.resolve, inner.delegation
        self.approver, self.held_roles = inner.approver, inner.held_roles


def test_a_directory_that_lists_no_tenants_hides_none(initialised: Shop, backup: Backup) -> None:
    async def go() -> None:
        run_id, binding = await paid_once_and_put_back(initialised, backup)
        async with contextos.open(initialised.path, directory=Unlisted(initialised.path)) as app:
            for act in (
                approve(initialised.path, app, run_id, binding),
                app.deployment.advance(TENANT, run_id),
                app.deployment.invoke(request(900, "req_2")),
            ):
                with pytest.raises((Integrity, ApprovalRefused)):
                    await act
            with pytest.raises(Integrity, match="was witnessed"):
                await app.deployment.invoke(request(900, "req_2"))
        assert paid(initialised.path) == 1

    asyncio.run(go())


def test_a_witness_that_does_not_answer_is_said_and_asked_once(
    initialised: Shop, stores: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if stores == "sqlite":
        initialised.settings(f'witness = "{tmp_path / "heads.jsonl"}"\n')
    (tmp_path / "heads.jsonl").unlink(missing_ok=True)
    (tmp_path / "heads.jsonl").mkdir()
    with contextos.open(initialised.path) as app:
        for number in range(2):
            assert app.deployment.invoke(request(900 + number, f"req_{number}")).state == "completed"
    assert [one.message for one in caplog.records].count("witness not asked") == 1


def test_what_a_silent_witness_missed_is_found_when_it_answers_again(
    initialised: Shop, backup: Backup, stores: str, tmp_path: Path
) -> None:
    """A known limit: a store that was put back is used for as long as its witness does not answer."""

    async def go() -> None:
        await paid_once_and_put_back(initialised, backup)
        [heads] = (tmp_path / "state").rglob("*.jsonl") if stores == "sqlite" else [tmp_path / "heads.jsonl"]
        away = heads.rename(tmp_path / "away")
        heads.mkdir()
        async with contextos.open(initialised.path) as app:
            assert (await app.deployment.invoke(request(900, "req_2"))).state == "completed"
        assert paid(initialised.path) == 2
        heads.rmdir()
        away.rename(heads)
        with pytest.raises(Integrity, match="was witnessed"):
            async with contextos.open(initialised.path):
                pass

    asyncio.run(go())
