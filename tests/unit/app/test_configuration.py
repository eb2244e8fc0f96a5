"""What the settings name and nothing in the workspace or the directory has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contextos.app.build import open_for_authors
from contextos.app.configuration import Configuration
from contextos.cli.demo.workspace import make_workspace
from contextos.errors import Integrity, Problem
from contextos.settings import Settings
from tests.world import TENANT


def problems(path: Path) -> list[Problem]:
    async def found() -> list[Problem]:
        app = await open_for_authors(Settings.read(path))
        try:
            return list(Configuration(app.settings, app.deployment, app.listed_tenants).of_settings())
        finally:
            app.close()

    return asyncio.run(found())


def test_a_folder_and_a_tenant_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    make_workspace(path)
    assert problems(path) == []
    settings = path / "contextos.toml"
    said = settings.read_text("utf-8")
    kept = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("packs"))
    settings.write_text(f'packs = ["nowhere"]\n{kept}\n[redaction]\ntenant_nobody = ["email"]\n{TENANT} = ["email"]\n')
    assert [(one.code, one.pointer) for one in problems(path)] == [
        ("no_folder", "/packs/0"),
        ("no_tenant", "/redaction/tenant_nobody"),
    ]


def test_a_check_that_fails_later_is_said_and_does_not_keep_the_answer_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop"
    make_workspace(path)

    async def altered(*_: object) -> None:
        raise Integrity("a policy was altered")

    async def act() -> list[str]:
        app = await open_for_authors(Settings.read(path))
        try:
            configuration = Configuration(app.settings, app.deployment, app.listed_tenants)
            monkeypatch.setattr("contextos.app.configuration.pinned_packs", altered)
            assert configuration.latest() == ()
            assert configuration._checking is not None
            await configuration._checking
            return [one.code for _, one in configuration.latest()]
        finally:
            app.close()

    assert asyncio.run(act()) == ["not_checked"]
