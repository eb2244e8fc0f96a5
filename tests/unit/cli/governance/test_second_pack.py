"""A second pack beside the first: who is stopped by it is said before anything is published."""

from __future__ import annotations

from pathlib import Path

import pytest

import contextos
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.errors import InvalidInput

BY = ("--by", "otto", "--key", "keys/otto.key")
PLAN = """\
name: acme.plan
version: 1.0.0
tenant: acme
who: [deployer]
approver: oncall
tools: [deploy.ci_status]
intents: {acme.look: {steps: [{tool: ci_status}]}}
"""


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    WORKSPACE_TEMPLATES["deploy"](tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    first = say("apply", *BY)
    assert (first.code, first.err) == (0, ""), "the first pack stops nobody"
    return tmp_path / "w"


def second(deploy: Path) -> None:
    text = (deploy / "packs" / "deploy.yaml").read_text("utf-8").replace("acme.deploy", "acme.second")
    (deploy / "packs" / "second.yaml").write_text(text, "utf-8")


def opened(session: str, **named: str) -> str:
    with contextos.open(".") as app:
        return app.gate(session=session, user="ana", token="tok_ana", agent="agt_deploy", **named).run_id


def test_what_a_second_intent_stops_is_said_before_it_is_published(say, deploy: Path) -> None:
    before = opened("s1")
    second(deploy)
    said = say("apply", *BY)
    assert said.code == 0
    assert "a session that names no intent is one of `acme.deploy` now; with `acme.second` beside it" in said.err
    assert "--intent" in said.err
    assert opened("s1") == before, "a session that is open goes on"
    with pytest.raises(InvalidInput, match="name one as `intent`"):
        opened("s2")
    assert opened("s2", intent="acme.deploy")
    assert say("apply", *BY).err == "", "nothing changes by it any more"


def test_it_is_said_before_a_pin_too(say, deploy: Path) -> None:
    pin = ("acme.deploy@1.0.0", "--intent", "acme.deploy")
    assert say("pack", "withdraw", *pin, "--expect", "2", *BY).code == 0
    second(deploy)
    assert say("apply", *BY).code == 0
    assert say("pack", "withdraw", *pin, "--expect", "5", *BY).code == 0
    said = say("pack", "pin", *pin, "--expect", "6", *BY)
    assert (said.code, "is one of `acme.second` now; with `acme.deploy` beside it" in said.err) == (0, True)


def test_a_fixed_plan_beside_it_stops_no_session(say, deploy: Path) -> None:
    (deploy / "packs" / "plan.yaml").write_text(PLAN, "utf-8")
    said = say("apply", *BY)
    assert (said.code, said.err) == (0, "")
    assert opened("s2"), "a request for a fixed plan is not a session, so there is still one intent for sessions"


def test_a_pack_of_a_tenant_that_nobody_knows_is_named_and_nothing_is_published(say, deploy: Path) -> None:
    second(deploy)
    path = deploy / "packs" / "second.yaml"
    path.write_text(path.read_text("utf-8").replace("tenant: acme", "tenant: acmee"), "utf-8")
    said = say("apply", *BY)
    assert said.code == 2
    assert "the directory has no tenant `acmee`; did you mean `acme`?" in said.err
    assert "acme.second" not in say("pack", "published", "--json").out
