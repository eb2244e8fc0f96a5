"""The page of the pack has every field by its path, and examples that are cut from the shipped packs."""

from __future__ import annotations

import json
from pathlib import Path

from contextos.contracts.envelopes.pack import ContextPack
from contextos.packs.declaration import PackDeclaration
from docsgen import reference

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_pack_has_every_field_and_examples_that_are_in_the_shipped_packs() -> None:
    page = reference.reference_pages()["reference/pack.md"]
    short, whole = page.split("\n## The whole pack")
    assert all(f"\n| `{name}` |" in short for name in PackDeclaration.model_fields)
    assert all(f"\n### `{name}`\n" in whole for name in ContextPack.model_fields)
    for path in (
        "pack_meta.run_budget.bucket_tokens.policy",
        "policy_layer.policy_bundles[].policy_dsl.rules[].then.arg_constraints.<name>.max",
        "policy_layer.policy_bundles[].policy_dsl.rules[].if",
        "tooling_layer.permissions[].evidence_args",
        "decision_layer.task_templates[].context_slots[].slot.minItems",
    ):
        assert f"\n| `{path}` |" in whole
    shipped = [
        (ROOT / "examples" / name).read_text()
        for name in (
            "data_export/pack.yaml",
            "deploy_rollback/packs/deploy.yaml",
            "deploy_by_model/packs/deploy.yaml",
            "support_refund/short.yaml",
        )
    ]
    snippets = [block.split("\n```")[0] for block in short.split("```yaml\n")[1:]]
    assert all(f"\n{name}:\n" in "\n".join(snippets) for name in ("intents", "evidence", "permissions"))
    assert all(any(snippet in text for text in shipped) for snippet in snippets)
    refund = json.loads((ROOT / "examples" / "support_refund" / "pack.json").read_text())
    layers = [json.loads(block.split("\n```")[0]) for block in whole.split("```json\n")[1:]]
    assert [name for layer in layers for name in layer] == list(ContextPack.model_fields)
    assert {"pack_meta": refund["pack_meta"]} in layers
