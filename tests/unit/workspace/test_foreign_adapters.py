"""Only the pinned bytes of an adapter file are loaded, and its code digest says what it runs on."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from contextos.contracts.encoding.jcs import digest
from contextos.errors import InvalidSettings
from contextos.workspace.foreign_adapters import SDKS, load_adapter_file
from tests.unit.adapters.foreign.test_adapter_file import file


def test_only_the_pinned_bytes_are_loaded(tmp_path: Path) -> None:
    raw = json.dumps(file()).encode()
    (tmp_path / "lab.json").write_bytes(raw)
    loaded = load_adapter_file("lab.json", digest(raw), root=tmp_path, authors=())
    assert (loaded.made, loaded.adapters[0].describe().adapter_id) == (True, "lab")
    with pytest.raises(InvalidSettings, match="adapters publish") as error:
        load_adapter_file("lab.json", digest(raw + b" "), root=tmp_path, authors=())
    assert error.value.problems[0].code == "digest_mismatch"


@pytest.mark.parametrize(("path", "code"), [("none.json", "unreadable"), ("../lab.json", "outside_root")])
def test_a_file_that_is_not_there_is_refused(path: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as error:
        load_adapter_file(path, None, root=tmp_path, authors=())
    assert error.value.problems[0].code == code


def test_a_kind_that_nothing_makes_is_refused(tmp_path: Path) -> None:
    said = file(connection={"kind": "custom"}, definition={"type": "custom"})
    (tmp_path / "lab.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(InvalidSettings) as error:
        load_adapter_file("lab.json", None, root=tmp_path, authors=())
    assert error.value.problems[0].code == "unknown_kind"


@pytest.mark.parametrize("kind", SDKS)
def test_what_an_adapter_runs_on_is_installed_with_its_extra(kind: str) -> None:
    assert all(metadata.version(name) for name in SDKS[kind])


def test_the_code_digest_names_the_version_of_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.json").write_text(json.dumps(file()), encoding="utf-8")
    before = load_adapter_file("lab.json", None, root=tmp_path, authors=()).code_digest
    assert load_adapter_file("lab.json", None, root=tmp_path, authors=()).code_digest == before
    monkeypatch.setattr(metadata, "version", lambda _name: "0.0.1")
    assert load_adapter_file("lab.json", None, root=tmp_path, authors=()).code_digest != before
