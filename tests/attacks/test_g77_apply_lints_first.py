"""Neither `apply` nor `install` nor `in_memory` puts in force what `pack lint --adapters` refuses, and nothing of it is
published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.errors import InvalidArtifact
from contextos.testing import TEST_OPERATOR, Person, in_memory
from tests.deployers import TENANT, people

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


def test_a_program_installs_nothing_that_lint_refuses() -> None:
    @contextos.write(risk="irreversible", idempotency="none", destinations=[])
    def pay(order: str) -> str:
        """Pay an order."""
        return "paid"

    tools = [contextos.toolset("bank", [pay])]

    def declared(version: str, approver: str) -> Any:
        return contextos.pack(
            "acme.bank", version=version, tenant=TENANT, tools=tools, who=["deployer"], approver=approver
        )

    by = Person(TEST_OPERATOR).actor()
    with in_memory(packs=[declared("1.0.0", "approver")], directory=people()) as app:
        with pytest.raises(InvalidArtifact) as refused:
            app.install(declared("1.1.0", "aprover"), by=by)
        assert {"nobody_holds"} == {one.code for one in refused.value.problems}
        assert refused.value.problems[0].pointer == "/approver", "where its author wrote it"
        assert app.install(declared("1.0.0", "approver"), by=by) == []
        assert "1.1.0" in str(app.install(declared("1.1.0", "approver"), by=by))
    with pytest.raises(InvalidArtifact, match="holds the role"):
        in_memory(packs=[declared("1.0.0", "aprover")], directory=people()).__enter__()
