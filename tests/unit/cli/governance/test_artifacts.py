"""Lint and schemas: faults come with their place and remedy, drift with exit code 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def changed(shop, change) -> str:
    pack: dict[str, Any] = json.loads((shop.path / "pack.json").read_text())
    change(pack)
    path = shop.path / "changed.json"
    path.write_text(json.dumps(pack))
    return str(path)


def rules(pack: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pack["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"]
    return found


def test_the_example_pack_is_fine_bare_signed_and_against_its_adapters(shop) -> None:
    signed = str(shop.path / "packs" / "support.json")
    assert shop.say("pack", "lint", str(shop.path / "pack.json")).code == 0
    assert shop.say("pack", "lint", signed).code == 0
    assert shop.say("pack", "lint", "--adapters", signed).code == 0


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda pack: pack.pop("pack_meta"), "/pack_meta"),
        (
            lambda pack: pack["decision_layer"]["intents"][0].update(eligible_task_templates=["task_nobody"]),
            "/decision_layer/intents/0/eligible_task_templates/0",
        ),
        (
            lambda pack: rules(pack)[7]["then"].update(requires_approval_gate="GATE_NOBODY"),
            "/policy_layer/policy_bundles/0/policy_dsl/rules/7/then/requires_approval_gate",
        ),
        (
            lambda pack: rules(pack)[0].update({"if": {"nosuch": [1]}}),
            "/policy_layer/policy_bundles/0/policy_dsl/rules/0/if",
        ),
        (
            lambda pack: pack["policy_layer"]["guardrails"].update(must_refuse=["R_NOBODY"]),
            "/policy_layer/guardrails/must_refuse/0",
        ),
    ],
)
def test_a_fault_is_named_with_its_place_and_remedy(shop, change, pointer: str) -> None:
    said = shop.say("pack", "lint", changed(shop, change), "--json")
    assert said.code == 2
    found = [one for one in said.json["problems"] if one["pointer"].startswith(pointer)]
    assert found, said.json["problems"]
    assert all(one["remedy"] for one in found)


def test_a_schema_that_cannot_be_read_is_named(say, tmp_path: Path) -> None:
    assert say("schemas", "--out", str(tmp_path)).code == 0
    (tmp_path / "context-pack.v2.schema.json").write_bytes(b"\xff")
    assert say("schemas", "--check", "--out", str(tmp_path)).code == 3
    (tmp_path / "context-pack.v2.schema.json").unlink()
    (tmp_path / "context-pack.v2.schema.json").mkdir()
    said = say("schemas", "--check", "--out", str(tmp_path), "--json")
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "unreadable")


def test_schemas_are_written_and_drift_is_an_integrity_failure(say, tmp_path: Path) -> None:
    assert say("schemas", "--out", str(tmp_path)).code == 0
    assert say("schemas", "--check", "--out", str(tmp_path)).code == 0
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == say("schemas", "--json").json["schemas"]
    (tmp_path / written[0]).write_text("{}")
    (tmp_path / "gone.schema.json").write_text("{}")
    said = say("schemas", "--check", "--out", str(tmp_path), "--json")
    assert said.code == 3
    assert written[0] in said.json["error"]["detail"]
    assert "gone.schema.json" in said.json["error"]["detail"]
