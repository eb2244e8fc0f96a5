"""The example of a deployment agent: what its pack allows, asks and denies, with the real tools over a real file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

import contextos
from contextos.cli import run_command_line
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.workspace import read_seed
from tests.examples.people import EXAMPLES, answer, lines_of

MOST_LINES = 120


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The agent of a workspace that `contextos init` made, which is the current directory and has its pack in force."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    WORKSPACE_TEMPLATES["deploy"](tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.syspath_prepend(str(tmp_path / "shop"))
    with contextos.open(".") as app:
        app.initialise("acme", by=contextos.Actor.with_key("otto", read_seed(Path("keys/otto.key"))))
    return importlib.import_module("agent")


def live(service: str, env: str) -> str:
    build: str = json.loads(Path("cluster.json").read_text("utf-8"))["services"][service]["live"][env]
    return build


def test_the_user_writes_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    written = lines_of("deploy_rollback", "deploy.py", "packs/deploy.yaml", "agent.py", "contextos.toml")
    with capsys.disabled():
        print(f"\ndeploy example: {written} lines")
    assert written <= MOST_LINES


def test_below_the_blast_radius_nobody_is_asked(agent: ModuleType) -> None:
    with contextos.open(".") as app:
        said, record = agent.roll_back(app, "s1", "newsletter", "prod")
        assert isinstance(said, Done)
        assert (record["status"], record["approvals"]) == ("DECIDED", [])
    assert live("newsletter", "prod") == "b6"


def test_above_it_the_oncall_is_asked_and_the_agent_goes_on_in_another_process(
    agent: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextos.open(".") as app:
        waiting, record = agent.roll_back(app, "s2", "checkout", "prod")
        assert isinstance(waiting, Waiting)
        assert record is None
        assert waiting.question["required_role"] == "oncall"
        run_id = app.gate(session="s2", user="ana", token="tok_ana", agent="agt_deploy").run_id
    assert live("checkout", "prod") == "b42"
    with contextos.open(".") as app:
        answer(app, waiting, run_id, seed=read_seed(Path("keys/olga.key")))
        said, record = agent.roll_back(app, "s2", "checkout", "prod")
        assert isinstance(said, Done)
        assert record["approvals"][0]["approver"] == "olga"
        replayed = app.call(contextos.replay, app.deployment, "acme", run_id)
        assert replayed.record_hash == record["record_hash"]
    assert live("checkout", "prod") == "b41"
    assert run_command_line(["runs", "show", "s2"]) == 0
    assert "asks an oncall about deploy.rollback" in " ".join(capsys.readouterr().out.split())


def test_the_command_line_drives_an_approved_call_and_the_agent_finds_its_answer(
    agent: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextos.open(".") as app:
        waiting, _ = agent.roll_back(app, "s5", "checkout", "prod")
    signed = ["--as", "olga", "--key", "keys/olga.key", "--binding", waiting.question["binding_digest"]]
    assert run_command_line(["approvals", "approve", "s5", *signed]) == 5, "the session has not ended"
    assert "waits for its agent" in capsys.readouterr().out
    assert run_command_line(["runs", "show", "s5"]) == 0
    assert "waits for its agent" in capsys.readouterr().out
    assert live("checkout", "prod") == "b41"
    before = Path("cluster.json").read_bytes()
    with contextos.open(".") as app:
        _, record = agent.roll_back(app, "s5", "checkout", "prod")
    assert (record["status"], Path("cluster.json").read_bytes()) == ("DECIDED", before)


@pytest.mark.parametrize(
    ("service", "user", "because"),
    [("payroll", "ana", "nothing changes in a freeze window"), ("checkout", "ivan", "who is not named may not")],
)
def test_what_is_denied_changes_nothing_and_says_why(
    agent: ModuleType, service: str, user: str, because: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextos.open(".") as app:
        said, record = agent.roll_back(app, "s3", service, "prod", user)
        assert isinstance(said, Refused)
        assert "policy_denied" in [one.code for one in said.reasons]
        assert because in str(said)
        assert record["outcome"] == "denied"
    untouched = json.loads((EXAMPLES / "deploy_rollback" / "cluster.json").read_text())["services"][service]["live"][
        "prod"
    ]
    assert live(service, "prod") == untouched
    assert run_command_line(["runs", "show", "s3"]) == 0
    assert because in " ".join(capsys.readouterr().out.split())


def test_a_rollback_without_looking_first_is_refused(agent: ModuleType) -> None:
    with contextos.open(".") as app:
        gate = app.gate(session="s4", user="ana", token="tok_ana", agent="agt_deploy")
        other = gate.call("deploy.impact", {"service": "newsletter", "env": "staging"}, call_id="other")
        assert isinstance(other, Done)
        said = gate.call("deploy.rollback", {"service": "newsletter", "env": "prod"}, call_id="blind")
        assert isinstance(said, Refused)
        assert said.reasons[0].code in ("missing_evidence", "policy_eval_error")
        scaled = gate.call("deploy.scale", {"service": "newsletter", "env": "staging", "replicas": 3}, call_id="more")
        assert isinstance(scaled, Done)
        most = gate.call("deploy.scale", {"service": "newsletter", "env": "staging", "replicas": 12}, call_id="most")
        assert isinstance(most, Waiting)
    assert json.loads(Path("cluster.json").read_text())["services"]["newsletter"]["replicas"]["staging"] == 3
