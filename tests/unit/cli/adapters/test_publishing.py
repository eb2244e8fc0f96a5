"""`adapters publish` and `adapters list`: what is active, and that an operator sees a definition that changed."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.adapters.test_adding import command


def test_an_operator_sees_a_definition_that_changed(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.say("adapters", "add", "mcp", "lab", "--local", *command("description", shop.path)).code == 0
    file = shop.path / "adapters" / "lab.json"
    drafted = json.loads(file.read_text("utf-8"))
    drafted["connection"]["env"] = ["LATER"]
    file.write_text(json.dumps(drafted), encoding="utf-8")
    published = shop.say("adapters", "publish", str(file))
    assert (published.code, "is published with the digest sha256:" in published.out) == (0, True)

    monkeypatch.setenv("LATER", "0")
    same = shop.say("adapters", "list")
    assert (same.code, "matches" in same.out) == (0, True)
    monkeypatch.setenv("LATER", "1")
    changed = shop.say("adapters", "list")
    assert changed.code == 1
    assert "say changed; nothing is sent to it" in changed.out
    assert "IGNORE" not in changed.out + changed.err


def test_a_file_with_hidden_text_is_refused_and_shown_escaped(shop) -> None:
    assert shop.say("adapters", "add", "mcp", "lab", "--local", *command("plain", shop.path)).code == 0
    file = shop.path / "adapters" / "lab.json"
    file.write_text(file.read_text("utf-8").replace("Says a", "Says \u202ea"), encoding="utf-8")
    said = shop.say("adapters", "publish", "adapters/lab.json")
    assert said.code == 2
    assert "\\u202e" in said.err
    assert "\u202e" not in said.err
