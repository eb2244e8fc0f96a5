"""`contextos init`: what it makes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.cli.demo.init import WORKSPACE_TEMPLATES


def test_the_first_template_is_the_default(say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = say("init", "shop", "--json")
    assert (said.code, said.json["template"]) == (0, "deploy")
    assert {"contextos.toml", "deploy.py", "directory.json", "keys/", "packs/", ".gitignore"} <= set(said.json["files"])
    assert "deploy.yaml" in [one.name for one in (tmp_path / "shop" / "packs").iterdir()]


@pytest.mark.parametrize("template", WORKSPACE_TEMPLATES)
def test_what_was_made_is_named(template: str, say, tmp_path: Path) -> None:
    said = say("init", str(tmp_path / "w"), "--from", template)
    assert said.code == 0
    assert "README.md, " in said.out
    assert (tmp_path / "w" / "README.md").is_file()


def test_an_unknown_template_makes_nothing(say, tmp_path: Path) -> None:
    said = say("init", str(tmp_path / "w"), "--from", "depoly")
    assert said.code == 2
    assert "there is no template `depoly`" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_is_not_made_twice(say, tmp_path: Path) -> None:
    place = str(tmp_path / "w")
    assert say("init", place, "--from", "empty").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file()}
    said = say("init", place, "--json")
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "not_a_directory")
    assert {path: path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file()} == before


def test_an_empty_workspace_has_a_publisher_and_an_approver_with_keys(
    say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert say("init", str(tmp_path / "w"), "--from", "empty").code == 0
    monkeypatch.chdir(tmp_path / "w")
    said = say("apply", "--by", "dev", "--key", "keys/dev.key")
    assert (said.code, said.out) == (0, "put 0 policies in force\n")
    approvers = json.loads(Path("directory.json").read_text())["tenant_dev"]["approvers"]
    assert [(one["approver_id"], len(one["keys"])) for one in approvers] == [("dev", 1), ("lead", 1)]
    assert Path("keys/lead.key").is_file()
