"""An agent's tools are governed in twenty lines: two tools, a pack, an approval, a run to its DecisionRecord.

The workspace has people and keys and no pack. What follows is all that its user writes, and its lines are counted.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.app import make_keys
from contextos.errors import ApprovalRefused, InvalidArtifact
from contextos.trust.seal import kid_of
from tests.world import public_key

TENANT = "tenant_dev"
SEEDS = {"olga": bytes(range(32)), "omar": bytes(range(1, 33))}
MOST_LINES = 20

QUICKSTART = '''\
import contextos

@contextos.read(produces="ci")
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


def approver(name: str, *roles: str) -> dict[str, Any]:
    public = public_key(SEEDS[name])
    key = {"kid": kid_of(public), "public_key": public.hex()}
    return {"approver_id": name, "roles": roles, "granted_by": dict.fromkeys(roles, "ceo"), "keys": [key]}


def people() -> dict[str, Any]:
    """A directory with a user, an agent, a publisher and an approver."""
    agent = {
        "agent_id": "agt_deploy",
        "agent_urn": "agent:acme/deploy@1.0.0",
        "workload_identity": "spiffe://acme/agents/deploy",
        "role": "deploy",
        "owner": "boss",
        "lifecycle": "active",
        "ceiling": "destructive",
        "scopes": [],
    }
    token = {"subject": "ana", "agent_id": "agt_deploy", "scopes": [], "expires_at": 4102444800}
    listed = {
        "users": [{"user_id": "ana", "role": "deployer", "roles": ["deployer"], "scopes": [], "delegation_live": True}],
        "agents": [agent],
        "delegations": {"tok_ana": token},
        "approvers": [approver("olga", "publisher", "policy_admin"), approver("omar", "approver")],
    }
    return {TENANT: listed}


def make_workspace(folder: Path) -> None:
    """A workspace whose three people have keys that the test knows."""
    make_keys(folder / "keys")
    (folder / "directory.json").write_text(json.dumps(people()), "utf-8")
    (folder / "contextos.toml").write_text('witness = "off"\n', "utf-8")


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


def ana() -> Any:
    from contextos.contracts.envelopes.identity import UserClaims

    token = {"auth_type": "oauth2", "scopes": [], "subject": "ana", "token_ref": "tok_ana"}
    return UserClaims.model_validate({"user_id": "ana", "delegation": token})


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
