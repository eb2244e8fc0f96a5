"""The example of a deployment agent: what its pack allows, asks and denies, with the real tools over a real file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import contextos
from contextos.operations.gate.gate import Done, Refused, Waiting
from tests.examples.people import EXAMPLES, answer, install, lines_of, modules_of, opened

MOST_LINES = 120


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """A workspace of the example, as the current directory, with its two modules."""
    monkeypatch.chdir(tmp_path)
    with modules_of("deploy_rollback", tmp_path, "deploy", "agent") as modules:
        yield modules


def live(service: str, env: str) -> str:
    build: str = json.loads(Path("cluster.json").read_text("utf-8"))["services"][service]["live"][env]
    return build


def test_the_user_writes_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    written = lines_of("deploy_rollback", "deploy.py", "pack.yaml", "agent.py")
    with capsys.disabled():
        print(f"\ndeploy example: {written} lines")
    assert written <= MOST_LINES


def test_below_the_blast_radius_nobody_is_asked(example: list[ModuleType]) -> None:
    deploy, agent = example
    with opened(deploy.TOOLS) as app:
        install(app, deploy.PACK)
        said, record = agent.roll_back(app, "s1", "newsletter", "prod")
        assert isinstance(said, Done)
        assert (record["status"], record["approvals"]) == ("DECIDED", [])
    assert live("newsletter", "prod") == "b6"


def test_above_it_the_oncall_is_asked_and_the_agent_goes_on_in_another_process(example: list[ModuleType]) -> None:
    deploy, agent = example
    with opened(deploy.TOOLS) as app:
        install(app, deploy.PACK)
        waiting, record = agent.roll_back(app, "s2", "checkout", "prod")
        assert isinstance(waiting, Waiting)
        assert record is None
        assert waiting.question["required_role"] == "oncall"
        run_id = app.gate(session="s2", user="ana", token="tok_ana", agent="agt_deploy").run_id
    assert live("checkout", "prod") == "b42"
    with opened(deploy.TOOLS) as app:
        answer(app, waiting, run_id)
        said, record = agent.roll_back(app, "s2", "checkout", "prod")
        assert isinstance(said, Done)
        assert record["approvals"][0]["approver"] == "olga"
        replayed = app.call(contextos.replay, app.deployment, "acme", run_id)
        assert replayed.record_hash == record["record_hash"]
    assert live("checkout", "prod") == "b41"


@pytest.mark.parametrize(
    ("service", "user", "code"), [("payroll", "ana", "policy_denied"), ("checkout", "ivan", "policy_denied")]
)
def test_what_is_denied_changes_nothing(example: list[ModuleType], service: str, user: str, code: str) -> None:
    deploy, agent = example
    with opened(deploy.TOOLS) as app:
        install(app, deploy.PACK)
        said, record = agent.roll_back(app, "s3", service, "prod", user)
        assert isinstance(said, Refused)
        assert code in [one.code for one in said.reasons]
        assert record["outcome"] == "denied"
    untouched = json.loads((EXAMPLES / "deploy_rollback" / "cluster.json").read_text())["services"][service]["live"][
        "prod"
    ]
    assert live(service, "prod") == untouched


def test_a_rollback_without_looking_first_is_refused(example: list[ModuleType]) -> None:
    deploy, _ = example
    with opened(deploy.TOOLS) as app:
        install(app, deploy.PACK)
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
