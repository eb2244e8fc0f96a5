"""G162: where the settings list authors of adapter files, a file that none of them signed is refused when it is
published and when a deployment opens, by the commands that sign, compare and publish packs.

The attacker can write the files of the workspace and their digests.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.cli import run_command_line
from contextos.contracts.encoding.codec import MAX_BYTES
from contextos.contracts.encoding.jcs import digest
from contextos.control.artifacts import ADAPTER_TYPE, PACK_TYPE
from contextos.errors import InvalidSettings
from contextos.trust.seal import KeyRing, listed_key, seal
from contextos.workspace.foreign_adapters import load_adapter_file
from contextos.workspace.settings import Settings
from tests.servers.adapters import agent_at
from tests.servers.processes import hostile_skill

AUTHOR, OTHER = b"\x11" * 32, b"\x22" * 32
AUTHORS = [listed_key(AUTHOR)["public_key"]]


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """An adapter file as it was drafted and reviewed."""
    with hostile_skill(read=True) as (agent, adapter):
        operations = {name: one.to_json() for name, one in adapter._operations.items()}
        return {
            "format": "contextos.adapter_file.v1",
            "connection": agent_at(agent.url),
            "definition": adapter.describe().to_json(),
            "operations": operations,
        }


def sealed(content: Any, key: bytes = AUTHOR, kind: str = ADAPTER_TYPE) -> dict[str, Any]:
    return seal(kind, json.dumps(content).encode(), KeyRing({"pack": key}), "pack")


def loaded(folder: Path, document: Any, authors: list[str]) -> Any:
    raw = json.dumps(document).encode()
    (folder / "lab.json").write_bytes(raw)
    return load_adapter_file("lab.json", digest(raw), root=folder, authors=authors)


def test_a_file_that_an_author_signed_is_the_adapter_that_was_signed(tmp_path: Path, content: dict[str, Any]) -> None:
    found = loaded(tmp_path, sealed(content), AUTHORS)
    assert found.source.to_json() == content
    assert loaded(tmp_path, content, []).source.to_json() == content, "where nobody asks for a signature"


def changed(content: dict[str, Any]) -> dict[str, Any]:
    envelope = sealed(content)
    other = json.loads(json.dumps(content))
    other["connection"]["url"] = other["connection"]["url"].replace("/a2a", "/b2b")
    return {**envelope, "payload": base64.b64encode(json.dumps(other).encode()).decode()}


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        (lambda one: one, "not_signed"),
        (lambda one: sealed(one, OTHER), "bad_signature"),
        (lambda one: sealed(one, kind=PACK_TYPE), "bad_signature"),
        (changed, "bad_signature"),
        (lambda one: {**sealed(one), "signatures": []}, "bad_signature"),
        (lambda one: {**one, **sealed(one, OTHER)}, "bad_signature"),
        (lambda one: {**one, "signatures": sealed(one)["signatures"]}, "not_signed"),
    ],
)
def test_what_no_author_signed_is_refused_whatever_its_digest(
    tmp_path: Path, content: dict[str, Any], attack: Any, code: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        loaded(tmp_path, attack(content), AUTHORS)
    assert refused.value.problems[0].code == code
    assert refused.value.problems[0].remedy


def test_a_signature_that_nobody_can_judge_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match="nobody says whose signatures count"):
        loaded(tmp_path, sealed(content), [])


@pytest.mark.parametrize(("signer", "code"), [(None, "not_signed"), (OTHER, "bad_signature")])
def test_a_workspace_with_authors_does_not_open_over_a_file_that_none_of_them_signed(
    tmp_path: Path, content: dict[str, Any], signer: bytes | None, code: str
) -> None:
    place = tmp_path / "w"
    assert run_command_line(["init", str(place), "--from", "refund"]) == 0
    raw = json.dumps(sealed(content, signer) if signer else content).encode()
    (place / "lab.json").write_bytes(raw)
    settings = place / "contextos.toml"
    adapter = f'\n[[adapters]]\npath = "lab.json"\ndigest = "{digest(raw)}"\n'
    text = f"adapter_authors = {json.dumps(AUTHORS)}\n" + settings.read_text("utf-8") + adapter
    settings.write_text(text, "utf-8")

    async def opened() -> None:
        async with contextos.open(place):
            raise AssertionError("it was opened")

    with pytest.raises(InvalidSettings) as refused:
        asyncio.run(opened())
    assert [one.code for one in refused.value.problems] == [code]


def test_a_large_file_can_be_signed_as_well(
    tmp_path: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    large = json.loads(json.dumps(content))
    fill = [f"{at:04d}" + "x" * 996 for at in range(1_000)]
    large["definition"]["capabilities"][0]["input_schema"]["properties"]["text"]["enum"] = fill
    assert 1_000_000 < len(json.dumps(large)) < MAX_BYTES
    assert loaded(tmp_path, large, []).source.to_json() == large
    assert loaded(tmp_path, sealed(large), AUTHORS).source.to_json() == large
    at = (str(tmp_path / "lab.json"), str(tmp_path / "lab.json"), "--workspace", str(tmp_path))
    assert run_command_line(["adapters", "diff", *at]) == 0, capsys.readouterr().err
    large["definition"]["capabilities"][0]["input_schema"]["properties"]["text"]["enum"] *= 2
    with pytest.raises(InvalidSettings, match="larger than"):
        loaded(tmp_path, sealed(large), AUTHORS)
    with pytest.raises(InvalidSettings, match="larger than"):
        loaded(tmp_path, large, [])


def test_a_fault_in_what_was_signed_has_no_line_of_the_envelope(tmp_path: Path, content: dict[str, Any]) -> None:
    wrong = {**content, "connection": {**content["connection"], "kind": "mcp"}}
    for document, placed in ((wrong, True), (sealed(wrong), False)):
        with pytest.raises(InvalidSettings) as refused:
            loaded(tmp_path, document, AUTHORS if "payload" in document else [])
        assert ("line 1" in str(refused.value), "`/definition/type`" in str(refused.value)) == (placed, True)


def test_the_commands_sign_compare_and_publish_it(
    tmp_path: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "w"
    assert run_command_line(["init", str(place), "--from", "refund"]) == 0
    capsys.readouterr()
    assert run_command_line(["key", "new", str(tmp_path / "author.key"), "--json"]) == 0
    public = json.loads(capsys.readouterr().out)["public_key"]
    settings = place / "contextos.toml"
    settings.write_text(f'adapter_authors = ["{public}"]\n' + settings.read_text("utf-8"), "utf-8")
    plain, signed = place / "lab.json", place / "lab.signed.json"
    plain.write_text(json.dumps(content), "utf-8")
    at = ("--workspace", str(place))
    assert run_command_line(["adapters", "publish", str(plain), *at]) != 0
    assert "contextos adapters sign" in capsys.readouterr().err
    key = ("--key", str(tmp_path / "author.key"))
    assert run_command_line(["adapters", "sign", str(plain), *key, "--out", str(signed), *at]) == 0
    assert run_command_line(["adapters", "diff", str(plain), str(signed), *at]) == 0
    assert run_command_line(["adapters", "publish", str(signed), *at]) == 0, capsys.readouterr().err
    assert Settings.read(place).adapters[-1].path == "lab.signed.json"
    bad = json.loads(json.dumps(content))
    bad["definition"]["capabilities"][0]["description"] = "says\u200b"
    plain.write_text(json.dumps(bad), "utf-8")
    capsys.readouterr()
    assert run_command_line(["adapters", "diff", str(plain), str(signed), *at]) == 1
    assert "description" in capsys.readouterr().out
    assert run_command_line(["adapters", "sign", str(plain), *key, *at]) != 0, "what would not load is not signed"
    assert "a reader does not see" in capsys.readouterr().err


@pytest.mark.parametrize("author", ["kid_1", "", "ab" * 31, "AB" * 32, 7])
def test_an_author_is_a_public_key(tmp_path: Path, author: Any) -> None:
    (tmp_path / "contextos.toml").write_text(f"adapter_authors = [{json.dumps(author)}]\n", "utf-8")
    with pytest.raises(InvalidSettings, match="adapter_authors"):
        Settings.read(tmp_path)
