"""`pack new`: over the tools of the workspace, and over those of an MCP server, whose adapter is drafted with it."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from tests.openapi_documents import document, post
from tests.servers.adapters import FOLDER, calls, hostile


def desk(folder: Path, *more: str) -> str:
    """The command of the server of the help desk, as it is typed."""
    return shlex.join([sys.executable, str(FOLDER / "desk_server.py"), str(folder), *more])


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new workspace without tools, which is the current directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    WORKSPACE_TEMPLATES["empty"](tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def test_a_new_pack_has_the_tools_of_the_workspace_and_expands(shop) -> None:
    path = shop.path / "new.yaml"
    made = ("pack", "new", "mini.new", "--who", "support_agent", "--approver", "finance_lead", "--out", str(path))
    assert shop.say(*made).code == 0
    assert "adp_payments.issue_refund" in path.read_text()
    said = shop.say("pack", "expand", str(path))
    assert said.code == 0, said.err
    assert json.loads(said.out)["decision_layer"]["task_templates"][0]["chosen_by"] == "agent"
    assert shop.say(*made).code == 2, "a file that is there is left alone"


def test_without_tools_nothing_is_written_and_the_next_run_works(say, empty: Path) -> None:
    made = ("pack", "new", "acme.shop", "--who", "developer")
    none = say(*made)
    assert (none.code, "`--from-mcp`" in none.err, "[[adapters]]" in none.err) == (2, True, True)
    (empty / "api.json").write_bytes(document(post({"type": "object"})))
    assert say("adapters", "add", "openapi", "shop_api", "api.json").code == 0
    drafted = say(*made)
    assert (drafted.code, "`contextos adapters publish adapters/shop_api.json`" in drafted.err) == (2, True)
    assert not list(empty.glob("*.yaml")), "no half file stands in the way of the next run"
    assert say("adapters", "publish", "adapters/shop_api.json").code == 0
    said = say(*made)
    assert said.code == 0, said.err
    assert yaml.safe_load((empty / "acme.shop.yaml").read_text())["tools"] == ["shop_api.send"]


def test_a_file_that_cannot_be_written_whole_is_not_left_behind(
    shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "new.yaml"
    said = shop.say("pack", "new", "mini.new", "--who", "support_agent", "--out", str(out))
    assert said.code == 2
    assert "no space left on device" in said.err
    assert list(tmp_path.glob("*new*")) == []


@pytest.mark.requirement("P-FROM-MCP")
def test_a_server_becomes_an_adapter_and_a_pack_at_their_strictest_and_nothing_is_active(say, empty: Path) -> None:
    said = say("pack", "new", "acme.desk", "--who", "developer", "--local", "--from-mcp", desk(empty))
    assert said.code == 0, said.err
    assert said.out.count("unknown: at its strictest") == 2
    assert "contextos adapters publish adapters/desk.json" in said.out
    declared = yaml.safe_load((empty / "packs" / "acme.desk.yaml").read_text())
    assert declared["tools"] == ["desk.read_note", "desk.send"]
    assert declared["budget"] == {"max_tool_calls": 200, "wall_clock_ms": 600_000}, "a client works for minutes"
    assert (declared["tenant"], declared["who"], declared["approver"]) == ("tenant_dev", ["developer"], "approver")
    drafted = json.loads((empty / "adapters" / "desk.json").read_text())["definition"]["capabilities"]
    assert {(one["kind"], one["approval_mode"]) for one in drafted} == {("write", "destructive")}
    assert say("adapters", "list").out == "the workspace has no adapters\n"
    refused = say("apply", "--by", "dev", "--key", "keys/dev.key")
    assert (refused.code, "no tools" in refused.err) == (2, True), "a pack is not published before its adapter is"


def test_a_draft_states_no_budget_above_that_of_the_deployment(say, empty: Path) -> None:
    settings = empty / "contextos.toml"
    settings.write_text(settings.read_text().replace("max_tool_calls = 200", "max_tool_calls = 3"))
    said = say("pack", "new", "acme.desk", "--who", "developer", "--local", "--from-mcp", desk(empty))
    assert said.code == 0, said.err
    declared = yaml.safe_load((empty / "packs" / "acme.desk.yaml").read_text())
    assert declared["budget"] == {"max_tool_calls": 3, "wall_clock_ms": 600_000}


def test_after_both_are_published_the_pack_asks_about_every_call(say, empty: Path) -> None:
    assert say("pack", "new", "acme.desk", "--who", "developer", "--local", "--from-mcp", desk(empty)).code == 0
    assert say("adapters", "publish", "adapters/desk.json").code == 0
    assert say("apply", "--by", "dev", "--key", "keys/dev.key").code == 0
    whole = json.loads(say("pack", "expand", "packs/acme.desk.yaml").out)
    [template] = whole["decision_layer"]["task_templates"]
    assert template["chosen_by"] == "agent"
    gates = whole["policy_layer"]["approval_gates"]
    assert {one["required_approver_role"] for one in gates} == {"approver"}
    assert len(gates) == 2
    assert say("pack", "lint", "packs/acme.desk.yaml", "--adapters").code == 0, "somebody holds each role"


def test_what_a_person_states_of_the_server_is_drafted(say, empty: Path) -> None:
    stated = ["--read", "read_note", "--egress", "mail.example:25", "--resource", "mail://inbox/1", "--observe"]
    said = say("pack", "new", "desk", "--who", "developer", *stated, "--from-mcp", desk(empty), "--json")
    assert said.code == 0, said.err
    assert {row["tool"]: row["kind"] for row in said.json["tools"]} == {
        "read_note": "read",
        "send": "write",
        "(resources)": "read",
    }
    declared = yaml.safe_load((empty / "packs" / "desk.yaml").read_text())
    assert (declared["egress"], declared["mode"]) == (["mail.example:25"], "observe")


def test_a_pack_over_published_tools_that_leave_the_machine_can_be_published(say, empty: Path) -> None:
    (empty / "api.json").write_bytes(document(post({"type": "object"})))
    assert say("adapters", "add", "openapi", "orders", "api.json").code == 0
    assert say("adapters", "publish", "adapters/orders.json").code == 0
    settings = empty / "contextos.toml"
    settings.write_text(settings.read_text() + '\n[egress]\ntenant_dev = ["api.example:443"]\n')
    out = empty / "packs" / "acme.orders.yaml"
    out.parent.mkdir(exist_ok=True)
    made = say("pack", "new", "acme.orders", "--who", "developer", "--out", str(out))
    assert made.code == 0, made.err
    assert yaml.safe_load(out.read_text())["egress"] == ["api.example:443"]
    applied = say("apply", "--by", "dev", "--key", "keys/dev.key")
    assert applied.code == 0, applied.err
    out.write_text(out.read_text().replace("egress:\n- api.example:443\n", "egress: []\n"))
    said = say("pack", "lint", str(out), "--adapters")
    assert (said.code, "add it to `egress` of the pack" in said.out, "tooling_layer.egress" in said.out) == (
        2,
        True,
        False,
    )


def test_a_pack_of_a_server_with_many_tools_can_be_used(say, empty: Path) -> None:
    words = ["--who", "developer", "--local", "--from-mcp", desk(empty, "wide")]
    said = say("pack", "new", "wide", *words)
    assert (said.code, "58 tools are not in the pack, which can have 64" in said.out) == (0, True), said.err
    assert "# - wide.tool_119" in (empty / "packs" / "wide.yaml").read_text()
    assert say("adapters", "publish", "adapters/wide.json").code == 0
    assert say("apply", "--by", "dev", "--key", "keys/dev.key").code == 0
    import contextos

    with contextos.open(empty) as app:
        assert len(app.gate(session="s", user="dev", token="tok_dev", agent="agt_dev").tools) == 64


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--local"], "--local says something of an MCP server"),
        (["--read", "send"], "--read says something of an MCP server"),
        (["--from-mcp", "python 'server.py"], "close the quotation marks"),
        (["--from-mcp", ""], "`--from-mcp` is empty; name the URL or the command"),
        (["--from-mcp", "", "--local"], "`--from-mcp` is empty"),
        (["--from-mcp", "ftp://desk.example/mcp"], "name it with `https://`"),
        (["--from-mcp", "DESK"], "nobody stated what the server reaches; add `--local` or `--egress HOST:PORT`"),
        (["--from-mcp", "http://127.0.0.1:1/mcp", "--internal"], "nobody stated what the server reaches"),
        (["--from-mcp", "no-such-program", "--local"], "no such program"),
        (["--from-mcp", "http://desk.example/mcp"], "the connection is not encrypted"),
        (["--from-mcp", "http://127.0.0.1:1/mcp", "--internal", "--local", "--env", "A"], "gets no environment"),
        (["--from-mcp", "DESK", "--local", "--read", "nothing"], "lists no tool `nothing`"),
    ],
)
def test_a_draft_that_is_refused_leaves_no_file(say, empty: Path, words: list[str], says: str) -> None:
    words = [word.replace("DESK", desk(empty)) for word in words]
    said = say("pack", "new", "acme.desk", "--who", "developer", *words)
    assert said.code in (2, 4)
    assert says in said.err
    assert "Traceback" not in said.err
    assert not list(empty.glob("**/*desk*"))


@pytest.mark.parametrize("name", ["../desk", "acme.", "a/b", "-x"])
def test_a_name_that_is_none_leaves_no_file(say, empty: Path, name: str) -> None:
    before = sorted(empty.parent.rglob("*"))
    said = say("pack", "new", "--who", "developer", "--local", "--from-mcp", desk(empty), "--", name)
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert [one for one in sorted(empty.parent.rglob("*")) if one not in before and one.is_file()] == []


def test_a_draft_never_replaces_a_file_and_starts_no_server_then(say, empty: Path) -> None:
    (empty / "adapters").mkdir()
    (empty / "adapters" / "lab.json").write_text("mine")
    command = shlex.join(hostile("exits_at_once", empty)["command"])
    said = say("pack", "new", "acme.lab", "--who", "developer", "--local", "--from-mcp", command)
    assert (said.code, "exists" in said.err) == (2, True)
    assert (empty / "adapters" / "lab.json").read_text() == "mine"
    assert not (empty / "packs" / "acme.lab.yaml").exists()


def test_no_tool_of_the_server_is_called(say, empty: Path) -> None:
    command = shlex.join(hostile("plain", empty)["command"])
    assert say("pack", "new", "acme.lab", "--who", "developer", "--local", "--from-mcp", command).code == 0
    assert calls(empty) == []
