"""Where the witness of an embedded workspace is without a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.store.witness.default import default_witness_path, make_state_folder


def test_the_file_is_named_after_the_stores_real_path_and_its_first_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    path = default_witness_path(tmp_path / "shop" / "contextos.db", "kid_1")
    assert path.parent == tmp_path / "state" / "contextos"
    assert default_witness_path(tmp_path / "link" / "contextos.db", "kid_1") == path
    assert default_witness_path(tmp_path / "shop" / "contextos.db", "kid_2") != path
    assert default_witness_path(tmp_path / "other" / "contextos.db", "kid_1") != path
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("named", ["", "state"])
def test_without_an_absolute_state_folder_it_is_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_witness_path(tmp_path / "a.db", "kid").parent == tmp_path / ".local" / "state" / "contextos"
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(InvalidSettings, match="there is no home") as refused:
        default_witness_path(tmp_path / "a.db", "kid")
    assert refused.value.problems[0].code == "no_state_folder"


def test_the_folder_is_for_its_owner_alone_and_an_obstacle_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state" / "contextos" / "witness.jsonl"
    make_state_folder(file)
    make_state_folder(file)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert not file.exists()
    (tmp_path / "obstacle").write_text("")
    with pytest.raises(InvalidSettings, match="cannot be written") as refused:
        make_state_folder(tmp_path / "obstacle" / "contextos" / "witness.jsonl")
    assert refused.value.problems[0].code == "unwritable"
