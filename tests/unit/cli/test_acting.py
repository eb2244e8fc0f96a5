"""An actor signs with the key in a file; without one they are only named, and the terminal says so when they act."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.cli.acting import named_actor, person_key
from contextos.errors import InvalidInput, InvalidSettings
from contextos.workspace import make_person_key, write_seed


def test_a_key_file_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seed(tmp_path / "ann.key")
    assertion = named_actor("ann", tmp_path / "ann.key").vouch({"kind": "x"})
    assert (assertion["kind"], assertion["token"].count(".")) == ("jws", 2)
    assert capsys.readouterr().err == ""


def test_without_a_key_the_terminal_says_so_when_the_actor_acts(capsys: pytest.CaptureFixture[str]) -> None:
    actor = named_actor("ann\x1b[2J", None)
    assert capsys.readouterr().err == ""
    assert actor.vouch({}) == {"kind": "unsafe_local"}
    said = capsys.readouterr().err
    assert "named and not proved" in said
    assert "\x1b" not in said


def test_an_encrypted_key_signs_with_the_passphrase_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = make_person_key(tmp_path / "ann.pem", b"correct horse")
    (tmp_path / "secret").write_text("correct horse\n")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("CONTEXTOS_PASSPHRASE_FILE", str(tmp_path / "secret"))
    assert person_key(tmp_path / "ann.pem") == raw
    (tmp_path / "secret").write_text("another\n")
    with pytest.raises(InvalidSettings) as caught:
        person_key(tmp_path / "ann.pem")
    assert caught.value.problems[0].code == "wrong_passphrase"
    monkeypatch.delenv("CONTEXTOS_PASSPHRASE_FILE")
    with pytest.raises(InvalidInput, match="no terminal to ask"):
        person_key(tmp_path / "ann.pem")


def test_a_plain_key_needs_no_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTOS_PASSPHRASE_FILE", str(tmp_path / "nothing"))
    raw = make_person_key(tmp_path / "ann.key")
    assert person_key(tmp_path / "ann.key") == raw


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.key").write_text("zz")
    (tmp_path / "ann.key").chmod(0o600)
    with pytest.raises(InvalidSettings):
        named_actor("ann", tmp_path / "ann.key")
