"""D27: a workspace is found from the current directory upwards only if it is the user's own.

A workspace names the code that a command loads. One that somebody left in a directory above, such as `/tmp`, would run
as the victim, who only typed a command below it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Shop, command, kept, say, shop

__all__ = ["command", "kept", "say", "shop"]

PLANTED = '\nimport pathlib\npathlib.Path("{marker}").write_text("ran")\n'


@pytest.fixture
def below(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory below the workspace, and no variable that names the workspace."""
    monkeypatch.delenv("CONTEXTOS_WORKSPACE")
    folder = shop.path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def refused(shop: Shop, *words: str) -> str:
    said = shop.say(*words, "--json")
    assert said.code == 2
    problem = said.json["error"]["problems"][0]
    assert problem["code"] == "not_own_workspace"
    assert "-w DIR" in problem["remedy"]
    return str(problem["detail"])


def test_a_workspace_of_another_user_runs_no_code(shop: Shop, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = shop.path.parent / "marker"
    with (shop.path / "shop.py").open("a") as code:
        code.write(PLANTED.format(marker=marker))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "another user" in refused(shop, "runs", "list")
    assert not marker.exists()


def test_a_workspace_that_everybody_can_write_into_is_not_found(shop: Shop, below: Path) -> None:
    shop.path.chmod(0o1777)
    assert "every user can write" in refused(shop, "runs", "list")
    shop.path.chmod(0o700)
    assert shop.say("runs", "list").code == 0


def test_settings_that_everybody_can_write_are_not_found(shop: Shop, below: Path) -> None:
    (shop.path / "contextos.toml").chmod(0o666)
    assert "every user can write" in refused(shop, "runs", "list")


def test_a_link_to_the_victims_own_settings_lends_no_trust(shop: Shop, below: Path) -> None:
    planted = shop.path / "a"
    (planted / "contextos.toml").symlink_to(shop.path / "contextos.toml")
    planted.chmod(0o1777)
    assert str(planted) in refused(shop, "runs", "list"), "the nearest one counts, and none above it is used instead"


def test_a_named_workspace_is_used_as_it_is(
    shop: Shop, below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.path.chmod(0o777)
    assert shop.say("runs", "list", "-w", str(shop.path)).code == 0
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(shop.path))
    assert shop.say("runs", "list").code == 0
    shutil.rmtree(below)
    assert shop.say("runs", "list").code == 0, "a directory that is gone matters only to the search"
    monkeypatch.delenv("CONTEXTOS_WORKSPACE")
    assert "does not exist any more" in shop.say("runs", "list").err
