"""Adapter files of a workspace: publishing changes the settings by one entry, and nothing is active before."""

from __future__ import annotations

import asyncio
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from contextos.cli.adapters.publishing import list_adapters_command
from contextos.errors import InvalidInput, InvalidSettings, Unavailable
from contextos.workspace import make_keys, open_app
from contextos.workspace.adapter_files import draft_a2a, draft_mcp, list_adapters, publish_adapter_file
from contextos.workspace.settings import Settings
from tests.servers.adapters import drafted, hostile
from tests.servers.hostile_agent import hostile_agent

STATED: dict[str, Any] = {"reads": [], "resources": [], "egress": [], "local": True}
SETTINGS = '# ours\nunsafe = ["unsafe_local_directory", "unsafe_local_keys"] # why\nstore = "x.db"\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "contextos.toml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "contextos.toml").chmod(0o640)
    (tmp_path / "adapters").mkdir()
    return tmp_path


def write(workspace: Path, mode: str = "plain", name: str = "lab", **stated: Any) -> Path:
    file = asyncio.run(drafted(hostile("plain", workspace), workspace, **stated))
    file["connection"] = hostile(mode, workspace)
    file["definition"]["adapter_id"] = name
    place = workspace / "adapters" / f"{name}.json"
    place.write_text(json.dumps(file), encoding="utf-8")
    return place


def test_a_published_file_is_an_entry_of_the_settings_and_a_change_replaces_its_digest(workspace: Path) -> None:
    place = write(workspace)
    first = publish_adapter_file(workspace, Path("adapters/lab.json"))
    text = (workspace / "contextos.toml").read_text("utf-8")
    assert text.startswith(SETTINGS)
    assert tomllib.loads(text)["adapters"] == [first]
    assert (workspace / "contextos.toml").stat().st_mode & 0o777 == 0o640

    write(workspace, name="other")
    other = publish_adapter_file(workspace, workspace / "adapters" / "other.json")
    place.write_text(place.read_text("utf-8") + "\n", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="adapters publish"):
        asyncio.run(list_adapters(workspace))
    second = publish_adapter_file(workspace, place)
    assert second["digest"] != first["digest"]
    assert tomllib.loads((workspace / "contextos.toml").read_text("utf-8"))["adapters"] == [second, other]
    assert publish_adapter_file(workspace, place) == second
    assert (workspace / "contextos.toml").read_text("utf-8").count("[[adapters]]") == 2


def test_settings_that_cannot_be_edited_are_left_alone(workspace: Path) -> None:
    write(workspace)
    inline = SETTINGS + 'adapters = [{path = "x.json", digest = "sha256:0"}]\n'
    (workspace / "contextos.toml").write_text(inline, encoding="utf-8")
    with pytest.raises(InvalidInput):
        publish_adapter_file(workspace, Path("adapters/lab.json"))
    (workspace / "contextos.toml").write_text(SETTINGS + "adapters = []\n", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="by hand"):
        publish_adapter_file(workspace, Path("adapters/lab.json"))
    assert (workspace / "contextos.toml").read_text("utf-8") == SETTINGS + "adapters = []\n"


def test_two_files_with_one_id_are_refused(workspace: Path) -> None:
    place = write(workspace)
    publish_adapter_file(workspace, place)
    (workspace / "copy.json").write_bytes(place.read_bytes())
    with pytest.raises(InvalidInput, match="`lab` too"):
        publish_adapter_file(workspace, workspace / "copy.json")


def test_a_file_that_is_not_valid_is_not_published(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = write(workspace)
    place.write_text(place.read_text("utf-8").replace("Says a text.", "Says\\u200b a text."), encoding="utf-8")
    with pytest.raises(InvalidSettings, match="does not see"):
        publish_adapter_file(workspace, place)
    outside = tmp_path_factory.mktemp("outside") / "lab.json"
    outside.write_bytes(b"{}")
    with pytest.raises(InvalidInput, match="workspace"):
        publish_adapter_file(workspace, outside)
    assert (workspace / "contextos.toml").read_text("utf-8") == SETTINGS


def test_the_list_says_whether_each_server_still_lists_what_was_published(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode in ("plain", "schema", "exits_at_once"):
        publish_adapter_file(workspace, write(workspace, mode, name=mode))
    found = asyncio.run(list_adapters(workspace))
    assert [(one["adapter_id"], one["state"], one["drifted"]) for one in found] == [
        ("plain", "matches", []),
        ("schema", "matches", []),
        ("exits_at_once", "unavailable", []),
    ]
    for mode in ("plain", "schema", "exits_at_once"):
        place = workspace / "adapters" / f"{mode}.json"
        file = json.loads(place.read_text("utf-8"))
        file["connection"]["env"] = ["LATER"]
        place.write_text(json.dumps(file), encoding="utf-8")
        publish_adapter_file(workspace, place)
    monkeypatch.setenv("LATER", "1")
    assert [one["state"] for one in asyncio.run(list_adapters(workspace))] == ["matches", "changed", "unavailable"]


def test_the_list_names_the_tools_that_may_be_called_on_an_older_list(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(workspace, reads=["say"])
    file = json.loads(place.read_text("utf-8"))
    file["operations"]["say"]["definition_max_age_s"] = 60
    place.write_text(json.dumps(file), encoding="utf-8")
    publish_adapter_file(workspace, place)
    [one] = asyncio.run(list_adapters(workspace))
    assert (one["state"], one["definition_max_age_s"]) == ("matches", {"say": 60})
    list_adapters_command(workspace)
    assert "say is called on a list of tools that is up to 60 s old" in capsys.readouterr().out


def test_files_beside_an_adapter_file_are_refused(workspace: Path) -> None:
    entry = '[[adapters]]\npath = "a.json"\ndigest = "sha256:0"\nfiles = {"b.py" = "sha256:0"}\n'
    (workspace / "contextos.toml").write_text(SETTINGS + entry, encoding="utf-8")
    with pytest.raises(InvalidSettings) as error:
        Settings.read(workspace)
    assert error.value.problems[0].pointer == "/adapters/0/files"


def test_a_draft_names_what_the_process_wrote_last(workspace: Path) -> None:
    said = {"kind": "mcp", "command": ["/bin/sh", "-c", "echo no such module >&2; exit 1"]}
    with pytest.raises(Unavailable, match="no such module"):
        asyncio.run(draft_mcp(workspace, "lab", said, **STATED))


def test_an_agent_is_drafted_published_and_listed_until_its_card_changes(workspace: Path) -> None:
    with hostile_agent() as agent:
        file, [row] = asyncio.run(draft_a2a("lab", agent.url, internal=True, token_env="", reads=["say"]))
        assert (row["tool"], row["kind"], agent.asked) == ("say", "read", [])
        place = workspace / "adapters" / "lab.json"
        place.write_text(json.dumps(file), encoding="utf-8")
        publish_adapter_file(workspace, place)
        found = []
        for agent.mode in ("plain", "tags", "card_gone"):
            [listed] = asyncio.run(list_adapters(workspace))
            found.append((listed["kind"], listed["state"], listed["drifted"]))
    assert found == [("a2a", "matches", []), ("a2a", "changed", ["say"]), ("a2a", "unavailable", [])]


def test_an_agent_is_not_drafted_from_a_url_that_nobody_stated_to_be_internal() -> None:
    with hostile_agent() as agent:
        with pytest.raises(InvalidInput, match="not a public address"):
            asyncio.run(draft_a2a("lab", agent.url, internal=False, token_env="", reads=[]))
        assert agent.seen == []


def test_a_deployment_opens_with_its_published_adapter_and_refuses_another_file(workspace: Path) -> None:
    make_keys(workspace / "keys")
    shutil.copy(Path(__file__).resolve().parents[3] / "examples" / "empty" / "directory.json", workspace)
    place = write(workspace)
    publish_adapter_file(workspace, place)

    async def adapters() -> list[str]:
        app = await open_app(Settings.read(workspace))
        try:
            return list(app.deployment.ports.adapters("tenant_acme_prod"))
        finally:
            app.close()

    assert asyncio.run(adapters()) == ["lab"]
    place.write_text(place.read_text("utf-8") + " ", encoding="utf-8")
    with pytest.raises(InvalidSettings, match="digest"):
        asyncio.run(adapters())


def test_the_list_says_how_calls_authenticate_and_asks_no_server_that_needs_a_user(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(workspace, name="static")
    file = json.loads(place.read_text("utf-8"))
    file["connection"]["env"] = ["SHOP_TOKEN"]
    place.write_text(json.dumps(file), encoding="utf-8")
    publish_adapter_file(workspace, place)
    publish_adapter_file(workspace, write(workspace, name="none"))
    place = write(workspace, name="exchange")
    file = json.loads(place.read_text("utf-8"))
    url = {"url": "https://tools.example/mcp", "audience": "https://tools.example"}
    file["connection"] = {"kind": "mcp", **url}
    file["definition"] |= {"external": True, "egress": ["tools.example:443"]}
    for one in file["definition"]["capabilities"]:
        one["required_scopes"] = ["tools:use"]
    place.write_text(json.dumps(file), encoding="utf-8")
    publish_adapter_file(workspace, place)
    monkeypatch.setenv("SHOP_TOKEN", "0123456789abcdef")
    found = {one["adapter_id"]: one for one in asyncio.run(list_adapters(workspace))}
    assert {name: next(iter(one["auth"].values())) for name, one in found.items()} == {
        "static": {"mode": "static", "credentials": ["env:SHOP_TOKEN"]},
        "none": {"mode": "none"},
        "exchange": {"mode": "exchange", "audience": "https://tools.example"},
    }
    assert found["exchange"]["state"] == "not asked"
