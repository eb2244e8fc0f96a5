"""Whole runs by a model behind each real wire: the official SDK, a server that speaks the protocol, and the runtime.

A plan that the Critic refuses goes back over the wire with what it found. A process that is killed while its run waits
for a person leaves a conversation that another process goes on with, and no call is made twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextos.adapters.function.loading import source_digest
from contextos.audit.verify import verify_tenant
from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.contracts.envelopes.models import ModelWire
from tests.model_wires import UNITS_OF_AN_ANSWER, WORDS, Conversation, RealWire, calling, conversation, planning
from tests.modelled import modelled, profile, rules
from tests.processes import ended
from tests.world import TENANT

ROOT = Path(__file__).resolve().parents[2]
KEY = "planted-key-of-the-provider"
SDKS = {"openai": "openai", "openai_responses": "openai", "anthropic": "anthropic"}
WIRES = [pytest.param(one, marks=() if one == "openai" else pytest.mark.slow) for one in WORDS]


@pytest.mark.parametrize("wire", WIRES)
def test_a_refund_is_planned_after_the_critic_sent_a_plan_back(wire: ModelWire) -> None:
    turns = [planning(tool="adp_payments.drain"), planning()]
    with conversation(wire, turns) as model:
        artifacts = [profile(**model.profile()), rules()]
        models, egress = RealWire(wire, model.host, KEY), {TENANT: [model.host]}
        with modelled(models=models, artifacts=artifacts, egress=egress) as world:
            view = world.run()
            assert view.state == "completed", view
            assert [one["verdict"] for one in world.entries(view, "plan.verified")] == ["replan", "ok"]
            costs = [one["cost_units"] for one in world.entries(view, "model.answered")]
            assert costs == [UNITS_OF_AN_ANSWER] * 2
            told = model.text(0), model.text(1)
            assert world.replay(view).record_hash == view.record["record_hash"]
            assert world.app.call(
                verify_tenant, world.app.deployment.ports.stores.tenant(TENANT), TENANT, world.app.keys
            )
    assert len(model.bodies) == 2, "a replay asks nobody"
    finding = "`adp_payments.drain` is not in the tool manifest"
    assert finding not in told[0]
    assert finding in told[1]


SERVICE, FREE = {"service": "checkout", "env": "prod"}, {"service": "newsletter", "env": "prod"}
TEN_CALLS: Sequence[Sequence[tuple[str, Mapping[str, Any]]]] = [
    [("deploy.ci_status", {"service": "checkout"}), ("deploy.impact", SERVICE)],
    [("deploy.ci_status", {"service": "newsletter"}), ("deploy.impact", FREE)],
    [("deploy.ci_status", {"service": "payroll"}), ("deploy.impact", {"service": "payroll", "env": "prod"})],
    [("deploy.rollback", {"service": "payroll", "env": "prod"})],
    [("deploy.scale", {**FREE, "replicas": 3})],
    [("deploy.impact", {"service": "newsletter", "env": "staging"})],
    [("deploy.rollback", SERVICE)],
    [("finish", {"outcome": "approved", "reason": "checkout is back; payroll is frozen"})],
]
"""Ten calls of tools: one rollback is refused, and the other is asked about."""
MADE = 9


def workspace(folder: Path, model: Conversation, **pack: Any) -> Path:
    """A workspace of `contextos init --from agent` with a provider, whose tools write down each call that is made."""
    WORKSPACE_TEMPLATES["agent"](folder)
    tools = (folder / "deploy.py").read_text("utf-8")
    noted = """\
def _cluster():
    with CLUSTER.with_name("calls.log").open("a") as log:
        log.write(sys._getframe(1).f_code.co_name + "\\n")
"""
    tools = tools.replace("import os\n", "import os\nimport sys\n").replace("def _cluster():\n", noted)
    (folder / "deploy.py").write_text(tools, "utf-8")
    (adapter,) = tomllib.loads((folder / "contextos.toml").read_text("utf-8"))["adapters"]
    text = f"""\
unsafe = ["unsafe_local_directory", "unsafe_local_keys"]
[[adapters]]
path = "{adapter["path"]}"
digest = "{source_digest(adapter["path"], root=folder)}"
[models]
internal = ["{model.host}"]
[[models.keys]]
name = "main"
secret_env = "PROVIDER_KEY"
[egress]
acme = ["{model.host}"]
"""
    (folder / "contextos.toml").write_text(text, "utf-8")
    for name, changes in (("large", {**model.profile(), "credential": "main"}), ("deploy", pack)):
        path = folder / "packs" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text("utf-8")) | changes), "utf-8")
    return folder


def driver(folder: Path, act: str, *modules: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.e2e.model_driver", str(folder), act, *modules]
    environment = {**os.environ, "PROVIDER_KEY": KEY, "XDG_STATE_HOME": str(folder.parent / "state")}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def begun_and_killed(folder: Path, wire: ModelWire) -> dict[str, Any]:
    """What a process told of its run before it was killed, while the run waits or after its end."""
    with ended(driver(folder, "begin", SDKS[wire])) as process:
        assert process.stdout is not None
        told: dict[str, Any] = json.loads(process.stdout.readline())
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    return told


def told_by(folder: Path, act: str, *modules: str) -> dict[str, Any]:
    with ended(driver(folder, act, *modules)) as process:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
    told: dict[str, Any] = json.loads(out)
    return told


def calls_made(folder: Path) -> Counter[str]:
    """How often the tools read the cluster, by function; a write is `_apply`."""
    return Counter((folder / "calls.log").read_text("utf-8").splitlines())


LIMITS = {"max_cost_cents": 50, "max_replan_attempts": 1}


@pytest.mark.slow
@pytest.mark.parametrize("wire", WORDS)
def test_a_rollback_is_planned_after_the_critic_sent_a_plan_back(wire: ModelWire, tmp_path: Path) -> None:
    steps = [{"tool": "ci_status"}, {"tool": "impact"}, {"tool": "rollback"}]
    planned = {"intents": {"acme.deploy": {"steps": steps}}, "budget": LIMITS}
    with conversation(wire, [planning(tool="deploy.destroy"), planning()]) as model:
        folder = workspace(tmp_path / "shop", model, **planned)
        request = json.loads((folder / "request.json").read_text("utf-8"))
        request["input"]["context"] = FREE
        (folder / "request.json").write_text(json.dumps(request), "utf-8")
        told = begun_and_killed(folder, wire)
    assert told["state"] == "completed", told
    audited = told_by(folder, "audit")
    assert audited["replayed"] == told["record"]["record_hash"]
    assert [one["verdict"] for one in audited["bodies"]["plan.verified"]] == ["replan", "ok"]
    finding = "`deploy.destroy` is not in the tool manifest"
    assert [finding in model.text(number) for number in range(len(model.bodies))] == [False, True]
    assert calls_made(folder) == {"ci_status": 1, "impact": 1, "_apply": 1}
    assert told["record"]["budget_usage"]["model_calls"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("wire", WORDS)
def test_ten_calls_that_a_model_chooses_outlive_a_process_that_is_killed_while_they_wait(
    wire: ModelWire, tmp_path: Path
) -> None:
    turns = [calling(number, *calls) for number, calls in enumerate(TEN_CALLS)]
    with conversation(wire, turns) as model:
        folder = workspace(tmp_path / "shop", model, budget=LIMITS)
        waiting = begun_and_killed(folder, wire)
        assert (waiting["state"], waiting["waiting"]["for"]) == ("waiting", "approval"), waiting
        assert waiting["waiting"]["shown"]["args"] == SERVICE
        assert len(model.bodies) == len(turns) - 1
        assert calls_made(folder) == {"ci_status": 3, "impact": 4, "_apply": 1}
        done = told_by(folder, "answer", SDKS[wire])
    assert (done["run_id"], done["state"]) == (waiting["run_id"], "completed"), done
    assert len(model.bodies) == len(turns)
    assert all(KEY in one for one in model.heads)
    audited = told_by(folder, "audit")
    assert (audited["replayed"], audited["repeated"]) == (done["record"]["record_hash"], [])
    assert audited["verified"] > 0
    bodies = audited["bodies"]
    # What an approval rests on is read again when it is given and when it is used: two reads each.
    assert calls_made(folder) == {"ci_status": 3 + 2, "impact": 4 + 2, "_apply": 2}
    assert len(bodies["tool.dispatching"]) == MADE
    assert len(bodies["call.asked"]) == 10
    statuses = ["done"] * 6 + ["refused"] + ["done"] * 3
    assert [one["status"] for one in bodies["call.answered"]] == statuses
    refusal = "policy denies: denied_by_rule by `R_ACME_DEPLOY_DEPLOY_ROLLBACK_DENY_1`"
    assert [refusal in model.text(number) for number in range(len(turns))] == [False] * 4 + [True] * 4
    assert [one["cost_units"] for one in bodies["model.answered"]] == [UNITS_OF_AN_ANSWER] * len(turns)
    used = done["record"]["budget_usage"]
    assert (used["model_calls"], used["tool_calls"]) == (len(turns), MADE)
    assert used["cost_usd_cents"] == UNITS_OF_AN_ANSWER * len(turns) / 10_000
    services = json.loads((folder / "cluster.json").read_text("utf-8"))["services"]
    assert [services[one]["live"]["prod"] for one in ("checkout", "payroll")] == ["b41", "b9"]
    assert services["newsletter"]["replicas"]["prod"] == 3
