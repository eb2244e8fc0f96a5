"""A command that names no workspace uses the nearest one from the current directory upwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.cli.workspace_search import DEFAULT_NAME, find_workspace
from contextos.errors import InvalidSettings
from contextos.workspace.settings import SETTINGS_FILE
from tests.unit.cli.conftest import Shop


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS_FILE).write_text("")
    return folder


def test_a_command_below_a_workspace_uses_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTEXTOS_WORKSPACE")
    expected = shop.say("runs", "list", "-w", str(shop.path)).out
    for folder in (shop.path, shop.path / "requests"):
        monkeypatch.chdir(folder)
        assert shop.say("runs", "list").out == expected
        assert shop.say("verify").code == 0, "with the same witness"


def test_the_nearest_one_wins_and_a_directory_wins_over_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = made(tmp_path / DEFAULT_NAME)
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert find_workspace(None) == outer
    inner = made(tmp_path / "a" / DEFAULT_NAME)
    assert find_workspace(None) == inner
    assert find_workspace(made(tmp_path / "a")) == find_workspace(None) == tmp_path / "a"


def test_the_option_wins_over_the_variable_and_the_variable_over_the_search(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made(tmp_path / "here"))
    assert shop.say("runs", "list").code == 0, "the variable names the shop"
    assert shop.say("runs", "list", "-w", str(tmp_path / "none")).code == 2
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(tmp_path / "none"))
    assert shop.say("runs", "list").code == 2
    assert shop.say("runs", "list", "-w", str(shop.path)).code == 0


def test_the_error_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSettings) as raised:
        find_workspace(None)
    (problem,) = raised.value.problems
    assert (problem.code, f"`{tmp_path}`" in problem.detail) == ("no_workspace", True)
    assert "contextos init DIR" in problem.remedy
