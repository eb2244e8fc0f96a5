"""`contextos mcp serve`: options that say nothing, or contradict each other, are refused before anything is opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.cli import run_command_line
from contextos.server import serving
from tests.mcp_face import refund_workspace, serve_words


async def ended(*_: object) -> None:
    """A server that ends at once."""


HTTP = ["--http", "127.0.0.1:0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", "ana"], "add --session NAME"),
        ([], "add --user USER and --session NAME"),
        ([*HTTP, "--session", "s1"], "leave out --session"),
        ([*HTTP, "--delegation", "tok"], "leave out --session, --delegation"),
        ([*HTTP, "--token-file", "token"], "leave out --session, --delegation and --token-file"),
        (["--user", "ana", "--session", "s1", "--token-file", "token"], "add --http"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["mcp", "serve", "--agent", "agt_support", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == "", "stdout is the protocol's"


def test_what_cannot_be_opened_is_said_before_a_client_connects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("short")
    for more, said in (
        (["--agent", "agt_nobody"], "does not know the user"),
        (["--delegation", "tok_nobody"], "knows no delegation by this token"),
        (["--intent", "support.refunds"], "the tenant has no pin for the intent"),
        (["--context", str(tmp_path / "list.json")], "it is not a JSON object"),
        ([*HTTP, "--token-file", str(tmp_path / "token")], "use a random token"),
        ([*HTTP, "--token-file", str(tmp_path / "nothing")], "no such file"),
        (["--http", "0.0.0.0:0"], "other machines can reach it"),
        (["--http", "foo"], "it is not `HOST:PORT`"),
        (["--http", ":99999"], "cannot serve on"),
        (["--link", "https://acme.example/"], "it would show no run"),
        (["--pack", "suport@1.0.0"], "the tenant has no pin for the pack `suport@1.0.0`"),
        (["--session", "bad name/"], "`bad name/` is not a name of a session; write up to 128 letters"),
    ):
        assert run_command_line([*serve_words(workspace), *more]) == 2, more
        shown = capsys.readouterr()
        assert said in shown.err
        assert "is run" not in shown.err
        assert len(shown.err.splitlines()) == 1, "one sentence says what is wrong"
        assert shown.out == ""
    assert run_command_line(["runs", "list", "-w", str(workspace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [], "what cannot be served leaves no open session"


def test_a_name_that_another_session_has_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = refund_workspace(tmp_path / "shop")
    words = serve_words(workspace)
    monkeypatch.setattr(serving, "serve_http", ended)
    assert run_command_line([*words, *HTTP]) == 0
    assert run_command_line([*words, *HTTP, "--message", "Another task."]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "`/message` was " in said
    assert "when the session `s1` was opened; open it with that, or open one of another name" in said
