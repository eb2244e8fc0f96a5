"""The edge: whatever a person gets wrong is one typed error, an exit code and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import COMMANDS, command_line
from contextos.cli.layout import folded
from contextos.cli.runs import requests
from contextos.cli.terminal import EXIT_CODES, Heading, colourful, print_note
from contextos.contracts.encoding.display_escape import displayed_json
from contextos.workspace import make_keys

STATED = ["--source", "artifact:a#rev_1", "--integrity", "trusted", "--classification", "PUBLIC"]

WRONG = [
    (["nosuch"], "usage"),
    (["runs", "show"], "usage"),
    (["memory"], "usage"),
    (["runs", "list", "--limit", "0"], "usage"),
    (["runs", "list", "--limit", "many"], "usage"),
    (["invoke", "/nonexistent"], "invalid_input"),
    (["invoke", "/"], "invalid_input"),
    (["runs", "show", "req_nobody"], "not_found"),
    (["runs", "show", "run_0000000000000000"], "not_found"),
    (["runs", "show", "\x1b[2J"], "not_found"),
    (["approvals", "approve", "req_large", "--as", "x"], "invalid_input"),
    (["approvals", "approve", "req_large", "--as", "x", "--key", "/nonexistent"], "invalid_settings"),
    (["runs", "settle", "req_large", "--evidence", "e", "--as", "b", "--key", "k"], "invalid_input"),
    (
        ["runs", "settle", "req_large", "--happened", "--did-not", "--evidence", "e", "--as", "b", "--key", "k"],
        "invalid_input",
    ),
    (["runs", "settle", "req_large", "--did-not", "--evidence", "e", "--as", "b", "--output", "{}"], "invalid_input"),
    (["runs", "settle", "req_large", "--happened", "--evidence", "e", "--as", "b", "--output", "[]"], "invalid_input"),
    (["runs", "settle", "req_large", "--did-not", "--evidence", "e", "--as", "b"], "invalid_input"),
    (["demo", "--payments", "maybe"], "invalid_input"),
    (["init"], "usage"),
    (["init", "new", "--from", "nosuch"], "invalid_input"),
    (["init", "/"], "invalid_input"),
    (["key", "new"], "usage"),
    (["key", "new", "/proc/x.key"], "invalid_input"),
    (["key", "new", "keys/user_finance_lead_77.key"], "invalid_input"),
    (["key", "new", "keys", "--runtime"], "invalid_input"),
    (["key", "new", "x.key", "--passphrase-file", "x"], "invalid_input"),
    (["key", "new", "x.pem", "--pkcs8"], "invalid_input"),
    (["key", "new", "x.pem", "--pkcs8", "--passphrase-file", "/nonexistent"], "invalid_settings"),
    (["facts", "list", "nobody", "tier", "--snapshot", "kg_x"], "not_found"),
    (["facts", "set", "customer:c", "tier", "gold", *STATED, "--by", "x"], "invalid_input"),
    (["facts", "set", "customer:c", "tier", "1", "--by", "x"], "usage"),
    (["facts", "load", "/nonexistent", "--by", "x"], "invalid_input"),
    (["facts", "retract", "customer:c", "tier", "--source", "artifact:a#rev_1", "--by", "x"], "not_found"),
    (["facts", "replace", "customer:c", "tier", "1", *STATED, "--by", "x"], "not_found"),
    (["completion"], "usage"),
    (["completion", "powershell"], "invalid_input"),
    (["approvals", "list", "--limit", "0"], "usage"),
    (["approvals", "list", "--cursor", "x"], "invalid_input"),
    (["verify", "--trusted-key", "00"], "invalid_input"),
    (["runs", "export", "req_nobody", "--out", "/nonexistent/x", "--by", "x"], "not_found"),
    (["runs", "export", "req_small", "--out", "x", "--by", "x", "--key", "/nonexistent"], "invalid_settings"),
    (["pack", "lint", "/nonexistent"], None),
    (["adapters"], "usage"),
    (["adapters", "add"], "usage"),
    (["adapters", "add", "mcp"], "usage"),
    (["adapters", "add", "mcp", "x"], "invalid_input"),
    (["adapters", "add", "mcp", "x", "--url", "ftp://x"], "invalid_input"),
    (["adapters", "add", "mcp", "x", "--url", "http://192.0.2.1/mcp"], "invalid_input"),
    (["adapters", "add", "mcp", "x", "--url", "https://x/", "--", "y"], "invalid_input"),
    (["adapters", "add", "mcp", "x", "--env", "a b", "--", "y"], "invalid_envelope"),
    (["adapters", "publish", "/nonexistent"], "invalid_input"),
    (["adapters", "publish", "adapters/nobody.json"], "invalid_settings"),
    (["adapters", "publish", "directory.json"], "invalid_settings"),
    (["schemas", "--check", "--out", "/nonexistent"], "invalid_input"),
    (["memory", "review", "mwp_0", "--promote", "--by", "x"], "not_found"),
    (["memory", "review", "mwp_0", "--by", "x"], "invalid_input"),
    (["runs", "list", "--workspace", "/nonexistent"], "invalid_settings"),
]


NOT_UTF8 = os.fsdecode(b"x\xff")
"""How Python gives such an argument to a program."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "show", NOT_UTF8],
        ["replay", NOT_UTF8],
        ["runs", "list", "--tenant", NOT_UTF8],
        ["verify", "--tenant", NOT_UTF8],
        ["runs", "export", "req_small", NOT_UTF8, "--out", "x", "--by", "x"],
        ["memory", "review", NOT_UTF8, "--promote", "--by", "x"],
        ["slots", "tombstone", NOT_UTF8, "--org", "org_acme", "--by", "x"],
        ["slots", "archive", "icp", "@a/b", "--org", NOT_UTF8, "--by", "x"],
        ["slots", "selections", NOT_UTF8, "--org", "org_acme"],
        ["slots", "register-extension", "@a/b", "--satisfies", NOT_UTF8, "--by", "x"],
        ["runs", "cancel", "req_small", "--by", NOT_UTF8, "--reason", "x"],
    ],
    ids=lambda given: " ".join(given).replace(NOT_UTF8, "NOT_UTF8"),
)
def test_an_argument_that_is_no_text_is_one_typed_error_with_exit_code_2(shop, arguments: list[str]) -> None:
    as_json = shop.say(*arguments, "--json")
    assert (as_json.code, as_json.json["error"]["problems"][0]["code"]) == (2, "not_utf8")
    said = shop.say(*arguments)
    assert (said.code, said.out) == (2, "")
    assert "`x\\udcff` is not UTF-8" in said.err


def test_a_wrong_option_that_is_no_text_is_a_wrong_option(shop) -> None:
    for arguments in ([NOT_UTF8], ["runs", "show", f"--{NOT_UTF8}"], ["runs", "list", "--limit", NOT_UTF8]):
        assert shop.say(*arguments, "--json").json["error"]["code"] == "usage"
        assert "\udcff" not in shop.say(*arguments).err


def test_a_path_may_be_any_bytes(shop) -> None:
    place = Path(os.fsdecode(b"caf\xe9.json"))
    said = shop.say("pack", "lint", str(place), "--json")
    assert (said.code, "cannot be read" in said.out) == (2, True)


@pytest.mark.parametrize(("arguments", "code"), WRONG, ids=[" ".join(map(repr, one)) for one, _ in WRONG])
def test_wrong_input_is_one_typed_error_with_exit_code_2(
    shop, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str | None
) -> None:
    # Names of files are relative, and no test makes a key in the checkout.
    monkeypatch.chdir(shop.path)
    as_json = shop.say(*arguments, "--json")
    assert as_json.code == 2
    assert as_json.err == ""
    if code:
        assert as_json.json["error"]["code"] == code
        assert as_json.json["error"]["exit_code"] == 2
    said = shop.say(*arguments)
    assert said.code == 2
    assert "Traceback" not in said.err + said.out
    assert "\x1b" not in said.err


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("directory.json", "{"),
        ("directory.json", "[]"),
        ("contextos.toml", "x ="),
        ("contextos.toml", "nosuch = 1"),
        ("contextos.toml", "unsafe = ['unsafe_everything']"),
        ("contextos.db", "junk"),
        ("shop.py", "adapters = 1"),
        ("keys/runtime.json", "zz"),
        ("packs/support.json", "{}"),
    ],
)
def test_a_broken_workspace_does_not_start_by_half(shop, file: str, text: str) -> None:
    (shop.path / file).write_text(text)
    said = shop.say("apply", *shop.by, "--json")
    assert said.code in (2, 3)
    assert set(said.json) == {"error"}


def test_a_key_that_others_can_read_is_refused(shop) -> None:
    next((shop.path / "keys").glob("kid_*.key")).chmod(0o644)
    assert "chmod 600" in shop.say("runs", "list").err


def test_a_pack_that_nobody_trusted_signed_is_refused(shop) -> None:
    keys = shop.path / "keys"
    for path in (*keys.glob("kid_*.key"), keys / "runtime.json"):
        path.unlink()
    make_keys(keys)
    said = shop.say("apply", *shop.by, "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "signature_invalid")


def test_with_several_tenants_a_command_needs_the_name_of_one(shop) -> None:
    path = shop.path / "directory.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"tenant_b": {"users": [], "agents": [], "approvers": []}})
    )
    assert shop.say("runs", "list", "--json").json["error"]["problems"][0]["code"] == "tenant_required"
    assert len(shop.say("runs", "list", "--tenant", "tenant_acme_prod", "--json").json["runs"]) == 2
    assert shop.say("runs", "list", "--tenant", "tenant_b", "--json").json["runs"] == []


def test_a_request_of_another_tenant_than_the_named_one_is_refused(shop) -> None:
    said = shop.say("invoke", shop.request("next"), "--tenant", "tenant_b", "--json")
    assert said.json["error"]["problems"][0]["code"] == "other_tenant"


def test_a_defect_is_one_line_and_exit_code_70_and_its_text_is_printed_nowhere(
    say, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(requests, "read_file", broken)
    said = say("invoke", "x")
    assert said.code == 70
    assert said.err.startswith("error: unexpected `RuntimeError`\n")
    assert say("invoke", "x", "--json").json["error"]["code"] == "defect"
    monkeypatch.setenv("CONTEXTOS_DEBUG", "1")
    caplog.clear()
    again = say("invoke", "x")
    assert again.code == 70
    (logged,) = [one for one in caplog.records if one.name == "contextos.cli"]
    traceback = vars(logged)["traceback"]
    assert traceback[0] == "RuntimeError"
    assert any(line.endswith("broken") for line in traceback)
    assert "hunter2" not in again.out + again.err + repr(vars(logged)) + said.err


def test_a_reader_that_left_is_no_defect(shop, command) -> None:
    start, environment = command
    process = subprocess.Popen(
        [*start, "runs", "show", "req_large", "--json"],
        env=environment | {"CONTEXTOS_WORKSPACE": str(shop.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert said == b""


def test_the_exit_codes_are_those_of_the_specification() -> None:
    assert list(EXIT_CODES) == [0, 1, 2, 3, 4, 5, 70, 130]


def test_a_request_is_read_from_stdin(shop, command) -> None:
    start, environment = command
    done = subprocess.run(
        [*start, "invoke", "-", "--json"],
        input=Path(shop.request("small")).read_bytes(),
        capture_output=True,
        check=False,
        env=environment | {"CONTEXTOS_WORKSPACE": str(shop.path)},
    )
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "completed")


def shape(command: Any) -> dict[str, Any]:
    """The options of a command, and of those under it."""
    under = {name: shape(one) for name, one in getattr(command, "commands", {}).items()}
    return {"help": command.help, "options": [(one.name, one.opts, one.required) for one in command.params]} | under


@pytest.mark.parametrize("word", sorted({name.partition(" ")[0] for name in COMMANDS}))
def test_the_parser_of_one_word_is_that_of_all_commands_for_it(word: str) -> None:
    whole, one = command_line().commands, command_line(word).commands
    assert shape(one[word]) == shape(whole[word])
    for name in (name for name in COMMANDS if name.partition(" ")[0] == word):
        command: Any = command_line(word)
        for part in name.split():
            command = command.commands[part]
        assert command.callback is not None, name
    assert [(name, one[name].get_short_help_str(60)) for name in one] == [
        (name, whole[name].get_short_help_str(60)) for name in whole
    ]


def test_a_word_behind_two_dashes_is_a_command(say) -> None:
    assert say("--", "ops", "--json").json["operations"]


def test_help_costs_no_more_than_the_parser() -> None:
    heavy = {
        "pydantic",
        "rich",
        "cryptography",
        "orjson",
        "sqlite3",
        "asyncio",
        "contextos.workspace",
        "contextos.runtime.loop",
    }
    code = (
        "import sys; from contextos.cli import run_command_line; run_command_line(['--help']); "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stderr.split())


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colourful(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colourful(Terminal())  # type: ignore[arg-type]
    assert Heading("a") == "a"


def test_long_text_folds_within_80_columns_and_values_are_cut_only_where_that_is_asked() -> None:
    lines = list(folded("  evidence   ", "word " * 60))
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert displayed_json({"a": "x" * 500}, 20).endswith("...")
    assert len(displayed_json({"a": "x" * 500}, None)) > 500


def test_every_command_is_a_verb_with_a_sentence() -> None:
    expected = [
        "init",
        "demo",
        "apply",
        "invoke",
        "compile",
        "worker",
        "serve",
        "mcp serve",
        "approvals list",
        "approvals approve",
        "approvals deny",
        "approvals reask",
        "runs list",
        "runs show",
        "runs decision",
        "why",
        "runs sessions",
        "runs resume",
        "runs cancel",
        "runs settle",
        "runs resolve",
        "runs reopen",
        "runs close",
        "runs dead-letters",
        "runs retry",
        "runs export",
        "runs erase",
        "adapters add mcp",
        "adapters add openapi",
        "adapters add a2a",
        "adapters sign",
        "adapters diff",
        "adapters publish",
        "pin-code",
        "adapters list",
        "adapters release",
        "verify",
        "replay",
        "context show",
        "pack list",
        "pack new",
        "pack expand",
        "pack diff",
        "pack observations",
        "pack mine",
        "pack test",
        "pack lint",
        "pack sign",
        "pack publish",
        "pack published",
        "pack pin",
        "pack withdraw",
        "pack retire",
        "policies list",
        "policies facts",
        "policies activate",
        "policies deactivate",
        "facts list",
        "facts set",
        "facts replace",
        "facts retract",
        "facts load",
        "memory list",
        "memory review",
        "slots demo",
        "slots register-extension",
        "slots add-artifact",
        "slots add-revision",
        "slots classify",
        "slots resolve",
        "slots select",
        "slots answer",
        "slots selections",
        "slots archive",
        "slots tombstone",
        "slots agent",
        "slots lint",
        "slots serve",
        "models list",
        "models cost",
        "models check",
        "key new",
        "key list",
        "key rotate",
        "store migrate",
        "store restored",
        "breakers list",
        "completion",
        "token",
        "ops",
        "ask",
        "schemas",
    ]
    assert list(COMMANDS) == expected
    assert all((command.__doc__ or "").strip().endswith(".") for command, _ in COMMANDS.values())


def test_a_remark_that_nobody_reads_any_more_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8", buffering=1) as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        for said in ("the heartbeat: it is away", "once more"):
            assert print_note(said) is None, "it came back"
        with pytest.raises(BrokenPipeError):
            os.write(write, b"so a print_note really met a broken pipe")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["verfy"], "verify"),
        (["runs", "shwo"], "show"),
        (["runs", "list", "--limt", "3"], "--limit"),
        (["runs", "show", "req_lagre"], "req_large"),
        (["replay", "req_smal"], "req_small"),
        (["init", "new", "--from", "depoly"], "deploy"),
        (["completion", "zhs"], "zsh"),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_a_misspelt_name_is_answered_with_the_nearest(shop, words: list[str], meant: str) -> None:
    said = shop.say(*words)
    assert said.code == 2
    assert "did you mean" in said.err.lower() or "possible options" in said.err.lower()
    assert meant in said.err


def test_a_run_id_that_was_cut_is_answered_with_the_whole_one(shop) -> None:
    run_id = shop.say("runs", "list", "--json").json["runs"][0]["run_id"]
    said = shop.say("runs", "show", run_id[:-2])
    assert (said.code, f"did you mean `{run_id}`?" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "meant"), [('pakcs = ["x"]', "packs"), ("[limits]\nmax_tool_call = 3", "max_tool_calls")]
)
def test_a_misspelt_setting_is_answered_with_the_nearest(shop, line: str, meant: str) -> None:
    settings = shop.path / "contextos.toml"
    text = settings.read_text("utf-8")
    settings.write_text(f"{text}\n{line}\n" if line.startswith("[") else f"{line}\n{text}", "utf-8")
    said = shop.say("runs", "list")
    assert (said.code, f"did you mean `{meant}`?" in said.err) == (2, True)


def test_a_misspelt_intent_of_a_pin_is_answered_with_the_nearest(shop) -> None:
    words = ["pin", "ctxpack.support@5.2.0", "--intent", "support.refnud", "--expect", "2"]
    assert "did you mean `support.refund`?" in shop.say("pack", *words, *shop.by).err
