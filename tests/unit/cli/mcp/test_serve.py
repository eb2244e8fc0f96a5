"""`contextos mcp serve`: options that say nothing, or contradict each other, are refused before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.cli import run_command_line
from tests.mcp_face import refund_workspace, serve_words

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
    (tmp_path / "token").write_text("short")
    for more, said in (
        (["--agent", "agt_nobody"], "does not know the user"),
        (["--delegation", "tok_nobody"], "knows no delegation by this token"),
        (["--intent", "support.refunds"], "the tenant has no pin for the intent"),
        (["--context", str(tmp_path / "list.json")], "it is no JSON object"),
        ([*HTTP, "--token-file", str(tmp_path / "token")], "use a random token"),
        (["--http", "0.0.0.0:0"], "other machines can reach it"),
    ):
        assert run_command_line([*serve_words(workspace), *more]) == 2, more
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.out == ""
