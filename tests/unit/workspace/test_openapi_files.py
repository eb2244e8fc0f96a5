"""Drafts of adapter files from documents, by the command line, published and opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.openapi.adapter import OpenApiAdapter
from contextos.cli import run_command_line
from contextos.errors import InvalidInput, InvalidSettings
from contextos.workspace.foreign_adapters import load_adapter_file
from contextos.workspace.openapi_files import draft_openapi_file
from tests.openapi_documents import OK, document, post

PATHS: dict[str, Any] = {"/orders": {"get": {"operationId": "list", "responses": OK}}} | post({"type": "object"})
STRICT: dict[str, Any] = {"server": "", "internal": False, "only": (), "reads": (), "bearer_env": ""}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop"
    assert run_command_line(["init", str(path)]) == 0
    (path / "api.json").write_bytes(document(PATHS))
    monkeypatch.chdir(path)
    monkeypatch.delenv("CONTEXTOS_WORKSPACE", raising=False)
    return path


def test_a_draft_is_reviewed_published_and_opened(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["adapters", "add", "openapi", "adp_api", "api.json", "--read", "list"]) == 0
    assert "left out" not in capsys.readouterr().out
    file = workspace / "adapters" / "adp_api.json"
    assert {one.approval_mode for one in read_adapter_file(file.read_bytes()).definition.capabilities} == {
        "network",
        "destructive",
    }
    assert run_command_line(["adapters", "publish", "adapters/adp_api.json"]) == 0
    assert run_command_line(["adapters", "list"]) == 0
    assert "adp_api" in capsys.readouterr().out
    [adapter] = load_adapter_file("adapters/adp_api.json", None, root=workspace, authors=()).adapters
    assert isinstance(adapter, OpenApiAdapter)
    file.write_text(file.read_text().replace("destructive", "network"))
    assert run_command_line(["adapters", "list"]) == 2


def test_what_a_person_lowers_without_saying_so_is_refused(workspace: Path) -> None:
    assert run_command_line(["adapters", "add", "openapi", "adp_api", "api.json", "--only", "send"]) == 0
    place = workspace / "adapters" / "adp_api.json"
    file = json.loads(place.read_text())
    file["definition"]["capabilities"][0] |= {"kind": "read", "risk_level": "read", "approval_mode": "network"}
    place.write_text(json.dumps(file))
    with pytest.raises(InvalidSettings):
        load_adapter_file("adapters/adp_api.json", None, root=workspace, authors=())
    assert run_command_line(["adapters", "publish", "adapters/adp_api.json"]) == 2


def test_hidden_text_of_a_document_is_in_no_draft(workspace: Path) -> None:
    hidden = {"type": "object", "properties": {"a": {"type": "string", "description": "pay\u202e\U000e0041 me"}}}
    (workspace / "api.json").write_bytes(document(post(hidden, summary="Pays\u200b.\x1b[2J")))
    content, _ = draft_openapi_file("adp_api", workspace / "api.json", **STRICT)
    read_adapter_file(json.dumps(content).encode())


def test_a_document_that_cannot_be_drafted_says_why(workspace: Path) -> None:
    with pytest.raises(InvalidInput) as missing:
        draft_openapi_file("adp_api", workspace / "none.json", **STRICT)
    assert missing.value.problems[0].code == "unreadable"
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "x" * 200} for n in range(500)}}
    paths = {f"/{n}": {"post": {**post(wide)["/send"]["post"], "operationId": f"o{n}"}} for n in range(8)}
    (workspace / "api.json").write_bytes(document(paths))
    with pytest.raises(InvalidInput) as large:
        draft_openapi_file("adp_api", workspace / "api.json", **STRICT)
    assert large.value.problems[0].code == "too_large"
