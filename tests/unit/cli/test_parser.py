"""The help of the command line, and what it relies on in typer."""

from __future__ import annotations

import pytest
import typer
from typer.exceptions import TyperException

from contextos.cli import command_line, run_command_line
from contextos.cli.commands import COMMAND_GROUPS, COMMANDS, NESTED


def help_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run_command_line(["--help"]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_help_shows_every_command_once_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_lines(capsys)
    for heading, group in COMMAND_GROUPS.items():
        begin = lines.index(f"{heading}:") + 1
        section = lines[begin : lines.index("", begin)]
        assert [line.split()[0] for line in section] == list(dict.fromkeys(name.split()[0] for name in group))
    assert {name.rpartition(" ")[0] for name in COMMANDS} - {""} == set(NESTED)


def test_no_command_is_described_by_half_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line for line in help_lines(capsys)[1:] if line.endswith("...")] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["runs", "list", "--limit", "many"],
        ["runs", "show"],
        ["runs", "list", "--nothing"],
        ["memory", "nothing"],
        ["runs", "list", "a"],
    ],
)
def test_each_error_of_the_parser_is_the_public_class_of_typer(arguments: list[str]) -> None:
    with pytest.raises(TyperException) as raised:
        command_line()(arguments, standalone_mode=False)
    assert raised.value.format_message()
    assert raised.value.ctx.command_path, "the message names the command whose help to read"


def test_a_callback_can_refuse_a_value_with_the_same_class() -> None:
    assert issubclass(typer.BadParameter, TyperException)
