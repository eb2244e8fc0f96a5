"""An MCP server changes a tool and changes it back: what processes of a workspace, and the people before them, see."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.contracts.ports.gates import Done, Refused
from contextos.workspace.adapter_files import publish_adapter_file
from contextos.workspace.foreign_adapters import load_adapter_file
from tests.deployers import SEEDS, TENANT, ana, make_workspace
from tests.servers.adapters import calls, drafted, hostile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
OTHER_PROCESS = """
import sys
import contextos
from tests.e2e.test_quarantine import say
with contextos.open(sys.argv[1], dev=True) as app:
    print(repr(say(app, sys.argv[2])))
"""


def say(app: Any, session: str) -> Any:
    """One call of the tool, in a session of its own that ends with it."""
    gate = app.gate(session=session, user=ana(), agent="agt_deploy")
    answer = gate.call("lab.say", {"text": "a"}, call_id="1")
    gate.finish("escalated")
    return answer


def other_process(workspace: Path, session: str) -> str:
    command = [sys.executable, "-c", OTHER_PROCESS, str(workspace), session]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=120).stdout


def command(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "contextos.cli", *words, "-w", str(workspace)]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)


class Lab:
    """A workspace with the adapter of a server that a file tells to list another tool."""

    def __init__(self, path: Path) -> None:
        self.path, self.server = path / "workspace", path / "server"
        self.server.mkdir()
        self.path.mkdir()
        make_workspace(self.path)
        directory = json.loads((self.path / "directory.json").read_text("utf-8"))
        [olga] = [one for one in directory[TENANT]["approvers"] if one["approver_id"] == "olga"]
        olga["roles"].append("operator")
        olga["granted_by"]["operator"] = "ceo"
        (self.path / "directory.json").write_text(json.dumps(directory), "utf-8")
        unsafe = ["unsafe_local_directory", "unsafe_local_keys", "unsafe_local_operators"]
        (self.path / "contextos.toml").write_text(f'witness = "off"\nunsafe = {json.dumps(unsafe)}\n', "utf-8")
        self.file = self.path / "adapters" / "lab.json"
        self.file.parent.mkdir()
        file = asyncio.run(drafted(hostile("flag", self.server), self.server, reads=["say"]))
        self.file.write_text(json.dumps(file), "utf-8")
        self.pinned = publish_adapter_file(self.path, self.file)

    def install(self, app: Any) -> None:
        [adapter] = load_adapter_file(self.pinned["path"], self.pinned["digest"], root=self.path, authors=()).adapters
        pack = contextos.pack("lab", version="1.0.0", tenant=TENANT, tools=[adapter], who=["deployer"])
        app.install(pack, by=contextos.Actor.with_key("olga", SEEDS["olga"]))

    def drift(self, app: Any, session: str) -> None:
        """The server changes its tool, a call meets that, and the server changes it back."""
        flag = self.server / "calls.changed"
        flag.touch()
        met = say(app, session)
        flag.unlink()
        assert isinstance(met, Done)
        assert met.error is not None
        assert met.error.code == "definition_drift"

    def asked(self) -> int:
        """How often the server was asked for its tools."""
        return len((self.server / "calls.lists").read_text("utf-8").splitlines())


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def is_quarantined(answer: Any) -> bool:
    return isinstance(answer, Refused) and [one.code for one in answer.reasons] == ["quarantined"]


def test_a_quarantine_holds_in_every_process_until_the_file_is_published_again(lab: Lab) -> None:
    with contextos.open(lab.path, dev=True) as app:
        lab.install(app)
        assert say(app, "s1").output == {"texts": ["a"], "omitted": 0}
        lab.drift(app, "s2")
        asked = lab.asked()
        assert is_quarantined(say(app, "s3"))
        assert "code='quarantined'" in other_process(lab.path, "s4")
    with contextos.open(lab.path, dev=True) as app:
        assert is_quarantined(say(app, "s5"))
        assert (lab.asked(), len(calls(lab.server))) == (asked, 1)
        runs = [app.gate(session=one, user=ana(), agent="agt_deploy").run_id for one in ("s2", "s3", "s4")]
        for run_id in runs:
            view = app.deployment.view(TENANT, run_id)
            assert app.call(replay, app.deployment, TENANT, run_id).record_hash == view.record["record_hash"]

    listed = command(lab.path, "adapters", "list")
    assert (listed.returncode, f"say is in quarantine for {TENANT}" in listed.stdout) == (1, True), listed
    [one] = json.loads(command(lab.path, "adapters", "list", "--json").stdout)["adapters"]
    [held] = one["quarantined"]
    assert (one["state"], held["tenant"], held["tool"], held["run_id"]) == ("matches", TENANT, "say", runs[0])
    assert "IGNORE" not in listed.stdout + listed.stderr

    reviewed = json.loads(lab.file.read_text("utf-8"))
    reviewed["definition"]["capabilities"][0]["description"] = "Says a text; reviewed again."
    lab.file.write_text(json.dumps(reviewed), "utf-8")
    assert command(lab.path, "adapters", "publish", str(lab.file)).returncode == 0
    assert command(lab.path, "adapters", "list").returncode == 0
    assert "Done(" in other_process(lab.path, "s6")


def test_an_operator_releases_a_tool_from_another_process(lab: Lab) -> None:
    with contextos.open(lab.path, dev=True) as app:
        lab.install(app)
        lab.drift(app, "s1")
        words = ["adapters", "release", "lab.say", "--by", "olga"]
        assert command(lab.path, *words, "--reason", "").returncode == 2
        assert is_quarantined(say(app, "s2"))
        released = command(lab.path, *words, "--reason", "the vendor put it back")
        assert (released.returncode, released.stdout) == (0, "lab.say is no longer in quarantine (1 incident)\n"), (
            released
        )
        assert say(app, "s3").output == {"texts": ["a"], "omitted": 0}
    assert command(lab.path, *words, "--reason", "again").returncode == 2
    assert command(lab.path, "adapters", "list").returncode == 0
    assert command(lab.path, "verify").returncode == 0
