"""Slots at the command line: what a person does with artifacts and picks, and what never reaches the terminal raw."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos.cli.demo import workspace
from contextos.cli.demo.workspace import make_workspace
from contextos.control.artifacts import PACK_TYPE
from contextos.trust.seal import kid_of
from tests.agentspec.planted import EXAMPLE
from tests.world import public_key

ICP = "@cinatra-ai/marketing-icp-artifact"
AGENT = ["email_outreach/cinatra/oas.json", "offeringContext", "--actor", "email_outreach/actor.json"]
FOR = ["--run", "run_1", "--package", "@contextos-examples/email-outreach-agent"]
SEED = b"u" * 32
HOSTILE = "good\u202etxt.exe\u200b<script>\x1b[2J"

BY = ["--by", "user_operator_5", "--key", "keys/user_operator_5.key"]

Cli = Callable[..., tuple[int, Any]]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    make_workspace(tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", ".")
    Path("icp.md").write_text("whom to write to\n", encoding="utf-8")

    def call(*words: str) -> tuple[int, Any]:
        code = run_command_line(["slots", *words])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in words else shown.out + shown.err

    return call


def filled(cli: Cli, title: str = "Enterprise ICP") -> None:
    assert cli("register-extension", ICP, *BY)[0] == 0
    assert cli("add-artifact", "icp", "--org", "org_acme", "--title", title, "--owner", "user:user_ann", *BY)[0] == 0
    assert cli("add-revision", "icp", "--org", "org_acme", "--file", "icp.md", *BY)[0] == 0
    assert cli("classify", "icp", ICP, "--org", "org_acme", *BY)[0] == 0


def test_a_person_is_asked_answers_badly_and_is_asked_again(cli: Cli) -> None:
    filled(cli)
    code, offered = cli("select", *AGENT, *FOR, "--json")
    (ref,) = offered["offered"]["refs"]
    assert code == 5
    answer = {"slotId": "offeringContext", "resolutionMode": "accumulate", "selectedRefs": [ref, ref]}
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")
    code, refused = cli("select", *AGENT, *FOR, "--answer", "answer.json")
    assert (code, "duplicate_ref" in refused) == (1, True)
    Path("answer.json").write_text(json.dumps(answer | {"selectedRefs": [ref]}), encoding="utf-8")
    code, done = cli("select", *AGENT, *FOR, "--answer", "answer.json", "--json")
    assert (code, done["wrote"], done["contextRefs"][0]["refs"]) == (0, True, [ref])
    assert cli("select", *AGENT, *FOR, "--answer", "answer.json", "--json")[1]["wrote"] is False


def test_a_pinned_artifact_reads_the_same_after_its_end(cli: Cli) -> None:
    filled(cli)
    (ref,) = cli("resolve", *AGENT, "--json")[1]["refs"]
    answer = {"slotId": "offeringContext", "resolutionMode": "accumulate", "selectedRefs": [ref]}
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")
    cli("select", *AGENT, *FOR, "--answer", "answer.json")
    before = cli("selections", "run_1", "--org", "org_acme", "--content", "--json")
    assert cli("archive", "icp", ICP, "--org", "org_acme", *BY)[0] == 0
    assert cli("tombstone", "icp", "--org", "org_acme", *BY)[0] == 0
    assert cli("selections", "run_1", "--org", "org_acme", "--content", "--json") == before
    assert "whom to write to" in cli("selections", "run_1", "--org", "org_acme", "--content")[1]
    assert cli("resolve", *AGENT, "--json")[1]["refs"] == []
    assert cli("tombstone", "icp", "--org", "org_acme", *BY)[0] == 2


def test_a_hostile_title_is_shown_with_its_hidden_characters(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    filled(cli, HOSTILE)
    (ref,) = cli("resolve", *AGENT, "--json")[1]["refs"]
    answer = {"slotId": "offeringContext", "resolutionMode": "accumulate", "selectedRefs": [ref | {"title": HOSTILE}]}
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")
    for words in (
        ["resolve", *AGENT],
        ["select", *AGENT, *FOR],
        ["select", *AGENT, *FOR, "--answer", "answer.json"],
        ["select", *AGENT, *FOR, "--answer", "answer.json"],
        ["selections", "run_1", "--org", "org_acme"],
        ["selections", "run_1", "--org", "org_acme", "--content"],
    ):
        shown = cli(*words)[1]
        assert "good\\u202etxt.exe\\u200b<script>\\u001b[2J" in shown
        assert not set("\u202e\u200b\x1b") & set(shown)
    assert run_command_line(["slots", "resolve", *AGENT, "--json"]) == 0
    assert capsys.readouterr().out.isascii()


def picked_in_a_run(pack: dict[str, Any]) -> dict[str, Any]:
    """The example's pack, whose templates ask the user for an ICP."""
    slot = {
        "slotId": "icp",
        "acceptedArtifactExtensions": [ICP],
        "selectionMode": "interactive",
        "resolutionMode": "accumulate",
    }
    for template in pack["decision_layer"]["task_templates"]:
        template["context_slots"] = [{"slot": slot}]
    return pack


Asked = tuple[Callable[..., tuple[int, str]], str, dict[str, Any]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    """A run that waits for a pick: how to call commands, its id, and the answer that picks what it offers."""
    sealed = workspace._seal
    monkeypatch.setattr(
        workspace,
        "_seal",
        lambda kind, made, keys: sealed(kind, picked_in_a_run(made) if kind == PACK_TYPE else made, keys),
    )
    place = make_workspace(tmp_path / "w")
    monkeypatch.chdir(place.path)
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", ".")
    directory = json.loads(Path("directory.json").read_text("utf-8"))
    for user in directory[place.tenant_id]["users"]:
        user["organization_id"] = "org_acme"
    Path("usr_771.key").write_text(SEED.hex(), encoding="ascii")
    Path("usr_771.key").chmod(0o600)
    public = public_key(SEED)
    key = {"kid": kid_of(public), "public_key": public.hex()}
    directory[place.tenant_id]["approvers"].append(
        {"approver_id": "usr_771", "roles": [], "granted_by": {}, "keys": [key]}
    )
    Path("directory.json").write_text(json.dumps(directory), encoding="utf-8")

    def call(*words: str) -> tuple[int, str]:
        code = run_command_line(list(words))
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    assert call("apply", "--by", "user_operator_5", "--key", "keys/user_operator_5.key")[0] == 0
    Path("icp.md").write_text("whom to write to\n", encoding="utf-8")
    for words in (
        ["register-extension", ICP, *BY],
        [
            "add-artifact",
            "icp",
            "--org",
            "org_acme",
            "--title",
            HOSTILE,
            "--owner",
            "organization:org_acme",
            "--visibility",
            "org",
            *BY,
        ],
        ["add-revision", "icp", "--org", "org_acme", "--file", "icp.md", *BY],
        ["classify", "icp", ICP, "--org", "org_acme", *BY],
    ):
        assert call("slots", *words)[0] == 0
    request = sorted(Path("requests").iterdir())[0]
    code, shown = call("compile", str(request))
    assert (code, "fills slot `icp`" in shown) == (1, True)
    code, shown = call("invoke", str(request))
    assert (code, "waits for usr_771 to fill slot icp" in shown) == (5, True)
    run_id = shown.split()[0]
    offered = json.loads(call("slots", "answer", run_id, "--by", "usr_771", "--json")[1])["offered"]
    return call, run_id, {"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": offered["refs"]}


def test_a_run_asks_its_user_alone_shows_nothing_raw_and_takes_the_answer(asked: Asked) -> None:
    call, run_id, answer = asked
    code, shown = call("slots", "answer", run_id, "--by", "mallory")
    assert (code, "good" in shown, "only `" in shown) == (1, False, True)
    code, shown = call("slots", "answer", run_id, "--by", "usr_771")
    assert (code, "good\\u202etxt.exe\\u200b<script>\\u001b[2J" in shown) == (5, True)
    assert not set("\u202e\u200b\x1b") & set(shown)
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")
    words = ("slots", "answer", run_id, "--by", "usr_771", "--answer", "answer.json")
    code, shown = call(*words)
    assert (code, "named and not proved" in shown, "only named" in shown) == (1, True, True)
    code, shown = call(*words, "--key", "usr_771.key")
    assert (code, "recorded" in shown) == (0, True)
    shown = " ".join(call("runs", "show", run_id)[1].split())
    assert "slot icp holds good\\u202etxt.exe\\u200b<script>\\u001b[2J (organization); usr_771 picked" in shown
    assert shown.isascii()
    assert call("slots", "answer", run_id, "--by", "usr_771")[0] == 1


def test_a_stronger_assertion_is_kept_and_the_weaker_is_refused(cli: Cli) -> None:
    filled(cli)
    code, shown = cli("classify", "icp", ICP, "--org", "org_acme", *BY, "--as", "agent")
    assert (code, "user_operator_5 asserted otherwise as user, which is stronger" in shown) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ["register-extension", "Not A Package", *BY],
        ["classify", "icp", "@no/such", "--org", "org_acme", *BY],
        ["add-artifact", "a b", "--org", "o", "--title", "t", "--owner", "user:x", *BY],
        ["add-artifact", "a", "--org", "o", "--title", "t", "--owner", "planet:x", *BY],
        ["add-artifact", "a", "--org", "o", "--title", "t", "--owner", "team:x", *BY],
        ["add-revision", "none", "--org", "org_acme", "--file", "icp.md", *BY],
        ["resolve", AGENT[0], "noSuchSlot", *AGENT[2:]],
        ["resolve", "icp.md", *AGENT[1:]],
        ["resolve", *AGENT[:3], "icp.md"],
        ["select", *AGENT, "--run", "a b", "--package", "p"],
        ["archive", "none", ICP, "--org", "org_acme", *BY],
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(cli: Cli, words: list[str]) -> None:
    if words[0] == "classify":
        filled(cli)
    code, shown = cli(*words)
    assert (code, "error: " in shown, "Traceback" in shown) == (2, True, False)


def test_the_demo_plays_to_its_end_and_says_why_each_was_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["slots", "demo"]) == 0
    shown = capsys.readouterr().out
    for said in (
        "the narrowest scope that has any wins",
        "foreign_ref",
        "an answer of nothing is an answer",
        "All 5 acts of the run replay to the same bytes",
    ):
        assert said in shown


def test_a_token_file_that_holds_no_text_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_bytes(b"\xff\xfe" * 20)
    make_workspace(tmp_path / "w")
    actor, place = str(EXAMPLE / "actor.json"), str(tmp_path / "w")
    assert (
        run_command_line(
            [
                "slots",
                "serve",
                "--actor",
                actor,
                "--workspace",
                place,
                "--http",
                "127.0.0.1:0",
                "--token-file",
                str(tmp_path / "token"),
            ]
        )
        == 2
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert "does not hold a token" in said.err
    assert "Traceback" not in said.err
