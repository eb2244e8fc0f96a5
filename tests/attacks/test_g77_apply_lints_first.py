"""`apply` puts nothing in force that `pack lint --adapters` refuses, and nothing of it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BY = ("--by", "otto", "--key", "keys/otto.key")

FAULTS: dict[str, tuple[tuple[str, str], str, str]] = {
    "a role that nobody holds": (("role: oncall\n", "role: on-call\n"), "nobody_holds", "/ask/0/role"),
    "an approver that nobody is": (("approver: oncall", "approver: on-call"), "nobody_holds", "/approver"),
    "users that are nobody": (("who: [deployer]", "who: [deplyer]"), "nobody_holds", "/who"),
    "an argument that is free": ((", service: {any: true}, env", ", env"), "argument_open", "/auto_approve/0/bounds"),
}


@pytest.fixture
def deployed(say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line in a workspace that `init` made, before anything was applied."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert say("init", str(tmp_path / "w")).code == 0
    monkeypatch.chdir(tmp_path / "w")
    return say


@pytest.mark.parametrize("name", FAULTS)
def test_apply_refuses_what_lint_refuses(name: str, deployed: Any) -> None:
    (old, new), code, place = FAULTS[name]
    file = Path("packs/deploy.yaml")
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    linted = deployed("pack", "lint", "--adapters", str(file), "--json")
    applied = deployed("apply", *BY, "--json")
    assert (linted.code, applied.code) == (2, 2)
    for problems in (linted.json["problems"], applied.json["error"]["problems"]):
        assert any((one["code"], one["pointer"][: len(place)]) == (code, place) for one in problems), problems
    assert "no pack is pinned" in deployed("pack", "list").out
    file.write_text(text, "utf-8")
    assert deployed("apply", *BY).code == 0
    assert deployed("apply", *BY).out == "everything is done already\n"
