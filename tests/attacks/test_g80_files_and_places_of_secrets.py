"""G80: files of tokens that everybody can read, and stores whose address hides where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.adapters.openapi.calls import CredentialSource
from contextos.adapters.openapi.secrets import ConnectionSecrets
from contextos.cli import run_command_line
from contextos.cli.demo.workspace import make_workspace
from contextos.errors import InvalidSettings
from contextos.workspace.logins.development_tokens import development_fault
from contextos.workspace.settings import Settings

TOKEN = "a-token-that-is-long-enough-to-be-one"


def _token(folder: Path, mode: int) -> Path:
    file = folder / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o660])
@pytest.mark.parametrize("door", ["mcp", "slots"])
def test_a_token_file_that_others_can_read_serves_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], door: str, mode: int
) -> None:
    make_workspace(tmp_path / "shop")
    (tmp_path / "actor.json").write_text('{"principal_id": "usr_771"}')
    words = {
        "mcp": ["mcp", "serve", "--agent", "agt_support", "--user", "usr_771", "--session", "s1"],
        "slots": ["slots", "serve", "--actor", str(tmp_path / "actor.json")],
    }[door]
    options = ["--workspace", str(tmp_path / "shop"), "--http", "127.0.0.1:0"]
    assert run_command_line([*words, *options, "--token-file", str(_token(tmp_path, mode))]) == 2
    said = capsys.readouterr().err
    assert "`token` can be read by others" in said
    assert "chmod 600" in said
    assert TOKEN not in said


def test_a_file_of_a_connection_that_others_can_read_makes_no_adapter(tmp_path: Path) -> None:
    sources = {"c": CredentialSource(place="bearer", file="token")}
    _token(tmp_path, 0o640)
    with pytest.raises(InvalidSettings, match="can be read by others") as refused:
        ConnectionSecrets(sources, {}, tmp_path)
    assert refused.value.problems[0].pointer == "/connection/credentials/c"
    _token(tmp_path, 0o600)
    ConnectionSecrets(sources, {}, tmp_path)


@pytest.mark.parametrize(
    "store",
    [
        "postgresql:///x?service=elsewhere",
        "postgresql://localhost/x?service=elsewhere",
        "postgresql:///x?SERVICE=elsewhere",
        "postgresql:///x?servicefile=/tmp/s&service=elsewhere",
        "postgresql:///x?host=localhost&hostaddr=10.0.0.7",
        "postgresql:///x?host=localhost&host=db",
        "postgresql:///x?host=",
        "postgresql://a@db.example:5432,@localhost/x",
        "postgresql://localhost:5432,db.example/x",
        "postgresql://a:b@[::1]:5432,db.example:5432/x",
    ],
)
def test_an_address_that_hides_its_place_is_none_of_this_machine(tmp_path: Path, store: str) -> None:
    assert "another machine" in (development_fault(Settings(tmp_path, store=store)) or "")


@pytest.mark.parametrize("variable", ["PGHOST", "PGSERVICE"])
def test_a_variable_that_names_the_place_is_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "db.example")
    assert "another machine" in (development_fault(Settings(tmp_path, store="postgresql:///x")) or "")
    assert development_fault(Settings(tmp_path, store="postgresql://localhost/x")) is None
