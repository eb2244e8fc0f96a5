"""`contextos why` over the shipped examples: denied, gated, approved, refused and hidden, each with its entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import contextos
from contextos.cli import run_command_line
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.workspace import read_seed
from tests.examples.people import answer

Why = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The agent of the example of deployments, in its workspace."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    WORKSPACE_TEMPLATES["deploy"](tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.syspath_prepend(str(tmp_path / "shop"))
    with contextos.open(".") as app:
        app.initialise("acme", by=contextos.Actor.with_key("otto", read_seed(Path("keys/otto.key"))))
    return import_module("agent")


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str]) -> Why:
    def asked(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert run_command_line(["why", *arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["fault"] is None
        run_command_line(["runs", "show", arguments[0], "--json"])
        kinds = {one["seq"]: one["kind"] for one in json.loads(capsys.readouterr().out)["entries"]}
        assert all(kinds[one["entry"]] == one["kind"] for one in found["reasons"])
        reasons: list[dict[str, Any]] = found["reasons"]
        return reasons

    return asked


def texts(reasons: list[dict[str, Any]], topic: str) -> str:
    return "\n".join(one["text"] for one in reasons if one["topic"] == topic)


def test_a_call_in_a_freeze_window_was_denied_by_the_rule_and_the_fact(agent: ModuleType, why: Why) -> None:
    with contextos.open(".") as app:
        agent.roll_back(app, "s1", "payroll", "prod")
    reasons = why("s1", "--tool", "deploy.rollback")
    assert "nothing changes in a freeze window" in texts(reasons, "policy")
    assert "read `evidence.impact.frozen`, which was true" in texts(reasons, "fact")
    assert "`deploy.rollback` was refused" in texts(reasons, "call")
    assert "agt_deploy acted for ana" in texts(reasons, "authority")
    assert {one["tool"] for one in reasons} == {"deploy.rollback", None}


def test_a_gate_names_its_rule_the_fact_and_who_approved(agent: ModuleType, why: Why) -> None:
    with contextos.open(".") as app:
        waiting, _ = agent.roll_back(app, "s2", "checkout", "prod")
        run_id = app.gate(session="s2", user="ana", token="tok_ana", agent="agt_deploy").run_id
        answer(app, waiting, run_id, seed=read_seed(Path("keys/olga.key")))
        agent.roll_back(app, "s2", "checkout", "prod")
    reasons = why("s2", "--tool", "deploy.rollback")
    assert "has to approve `deploy.rollback`: R_ACME_DEPLOY_DEPLOY_ROLLBACK_ASK_1 asks for it" in texts(reasons, "gate")
    assert "asked an oncall about" in texts(reasons, "gate")
    assert "read `evidence.impact.customers`, which was " in texts(reasons, "fact")
    assert "olga approved it" in texts(reasons, "authority")
    assert "olga held oncall" in texts(reasons, "authority")
    assert "under the approval appr_" in texts(reasons, "call")


def test_a_tool_that_was_hidden_says_by_which_rule_and_for_whom(agent: ModuleType, why: Why) -> None:
    with contextos.open(".") as app:
        agent.roll_back(app, "s3", "checkout", "prod", "ivan")
    reasons = why("s3", "--tool", "deploy.scale")
    assert "`deploy.scale` was hidden" in texts(reasons, "shown")
    assert "who is not named may not" in texts(reasons, "policy")
    assert "read `user.role`, which was intern" in texts(reasons, "fact")
    assert "tool_not_in_manifest" in texts(why("s3"), "call")


def test_refunds_need_nobody_or_an_approver_as_the_demo_left_them(shop, capsys: pytest.CaptureFixture[str]) -> None:
    small = shop.say("why", "req_small").out
    assert "R_LOW_VALUE_DELEGATED" in small
    assert "nobody had to be asked" in " ".join(small.split())
    large = " ".join(shop.say("why", "req_large", "--tool", "adp_payments.issue_refund").out.split())
    assert "R_HIGH_VALUE_REQUIRES_APPROVAL asks for it" in large
    assert "user_finance_lead_77 approved it" in large
    assert "(approval.answered)" in large
    assert all(len(line) <= 80 for line in small.splitlines())


def test_a_run_and_a_tool_that_are_not_there_name_the_nearest(shop) -> None:
    for arguments in (("req_smal",), ("req_small", "--tool", "adp_payments.isue_refund"), ("req_small", "--tool", "")):
        said = shop.say("why", *arguments)
        assert said.code == 2
        assert said.out == ""
    assert "did you mean" in shop.say("why", "req_small", "--tool", "adp_payments.isue_refund").err
