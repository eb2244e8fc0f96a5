"""An actor signs with the key in a file; without one they are only named, and the terminal says so when they act."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.app import write_seed
from contextos.cli.acting import named_actor
from contextos.errors import InvalidSettings


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


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.key").write_text("zz")
    (tmp_path / "ann.key").chmod(0o600)
    with pytest.raises(InvalidSettings):
        named_actor("ann", tmp_path / "ann.key")
