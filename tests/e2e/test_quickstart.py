"""An agent's tools are governed in twenty lines: two tools, a pack, an approval, a run to its DecisionRecord.

The workspace has people and keys and no pack. What follows is all that its user writes, and its lines are counted.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.errors import ApprovalRefused, InvalidArtifact
from tests.deployers import SEEDS, TENANT, ana, approver, make_workspace, people

MOST_LINES = 20

QUICKSTART = '''\
import contextos

@contextos.read(integrity="trusted", produces="ci")
def ci_status(service: str) -> bool:
    """Whether the newest build of a service is green."""
    return True

@contextos.write(risk="irreversible", idempotency="keyed")
def rollback(service: str, key: contextos.Key) -> str:
    """Put the build before back into service."""
    return f"{service} is back"

tools = contextos.toolset("deploy", [ci_status, rollback])
red = {"when": "evidence.ci.result == False", "because": "a red build stays"}
deploy = contextos.pack("deploy", version="1.0.0", tenant="tenant_dev", tools=[tools], who=["deployer"], deny=[red])

with contextos.open(".", adapters=[tools], dev=True) as app:
    app.install(deploy, by=contextos.Actor.with_key("olga", olga))
    gate = app.gate(session="s1", user=ana, agent="agt_deploy")
    gate.call("deploy.ci_status", {"service": "api"}, call_id="1")
    question = gate.call("deploy.rollback", {"service": "api"}, call_id="2")
    approve(app, gate, question)
    done = gate.call("deploy.rollback", {"service": "api"}, call_id="2")
    record = gate.finish("approved").record
'''


IN_MEMORY = (
    QUICKSTART.split("with contextos.open")[0].replace(
        "import contextos\n", "import contextos\nfrom contextos.testing import Person, in_memory\n"
    )
    + """\
with in_memory(packs=[deploy], directory=people) as app:
    gate = app.gate(session="s1", user=ana, agent="agt_deploy")
    gate.call("deploy.ci_status", {"service": "api"}, call_id="1")
    gate.call("deploy.rollback", {"service": "api"}, call_id="2")
    app.call(Person("omar").answer, app, gate.view())
    done = gate.call("deploy.rollback", {"service": "api"}, call_id="2")
    record = gate.finish("approved").record
"""
)
"""The same without a workspace: what its user's test is."""


def approve(app: Any, gate: Any, question: Any) -> None:
    """What the person does who is asked, with a key of their own."""
    assert question.waits_for == "approval", question
    assert question.question["gate_id"] == "GATE_DEPLOY_DEPLOY_ROLLBACK_ASK"
    app.call(
        contextos.answer_approval,
        app.deployment,
        TENANT,
        gate.run_id,
        approver_id="omar",
        verdict="approved",
        reason="checked",
        binding_digest=question.question["binding_digest"],
        vouch=contextos.answer_signer(SEEDS["omar"]),
    )


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run a text as the file `quickstart.py` of a new workspace, and return its module."""
    make_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> Any:
        (tmp_path / "quickstart.py").write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location("quickstart", tmp_path / "quickstart.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        unlisted = {TENANT: {**people()[TENANT], "approvers": [{**approver("omar", "approver"), "keys": []}]}}
        vars(module).update(olga=SEEDS["olga"], ana=ana(), approve=approve, people=unlisted)
        monkeypatch.setitem(sys.modules, "quickstart", module)
        spec.loader.exec_module(module)
        return module

    return run


@pytest.mark.parametrize("text", [QUICKSTART, IN_MEMORY], ids=["in a workspace", "in memory"])
def test_two_tools_a_pack_an_approval_and_a_record_in_twenty_lines(
    text: str, play: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    written = [line for line in text.splitlines() if line.strip()]
    module = play(text)
    with capsys.disabled():
        print(f"\nquickstart: {len(written)} lines, 5 concepts (tool, pack, policy, approval, run)")
    assert len(written) <= MOST_LINES
    assert module.record["outcome"] == "approved"
    assert module.record["approvals"][0]["approver"] == "omar"
    assert module.done.output == {"result": "api is back"}


def test_the_policy_of_the_quickstart_binds(play: Callable[[str], Any]) -> None:
    told = QUICKSTART.replace("return True", "return False").replace("    approve(app, gate, question)\n", "")
    module = play(told.replace('gate.finish("approved")', 'gate.finish("denied")'))
    assert [one.code for one in module.question.reasons] == ["policy_denied"]
    assert module.record["outcome"] == "denied"


def test_a_pack_is_installed_once_by_a_person_who_may(play: Callable[[str], Any]) -> None:
    module = play(QUICKSTART)
    publisher, nobody = (contextos.Actor.with_key(name, SEEDS[name]) for name in ("olga", "omar"))
    with contextos.open(".", adapters=[module.tools], dev=True) as app:
        assert app.install(module.deploy, by=publisher) == []
        newer = contextos.pack("deploy", version="1.0.1", tenant=TENANT, tools=[module.tools], who=["deployer"])
        with pytest.raises(ApprovalRefused):
            app.install(newer, by=nobody)
        other = contextos.pack("deploy", version="1.0.0", tenant=TENANT, tools=[module.tools], who=["sre"])
        with pytest.raises(InvalidArtifact) as caught:
            app.install(other, by=publisher)
        assert caught.value.problems[0].code == "ref_taken"
    with contextos.open(".", dev=True) as app, pytest.raises(InvalidArtifact) as caught:
        app.install(module.deploy, by=publisher)
    assert caught.value.problems[0].code == "no_such_adapter"
