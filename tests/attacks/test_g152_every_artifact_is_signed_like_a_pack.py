"""G152: a policy bundle, a catalog, a profile or rules of models is signed, published, shown and withdrawn as a pack
is, and refused for what a pack is refused for.

The attackers: who has no key of an author, who alters what was signed or says that it is of another kind, who brings an
older version back, and the author of another tenant.
Source: docs/security.md, "Keys".
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from contextos.control.artifacts import (
    INTENTS_TYPE,
    MODELS,
    PACK_TYPE,
    POLICY_TYPE,
    PROFILE_TYPE,
    ROUTING_TYPE,
    SPECS_TYPE,
)
from tests.attacks.shop import Shop
from tests.modelled import profile, rules
from tests.unit.control.example import pack_json, policy_json
from tests.world import TENANT

ONE_STORE = pytest.mark.parametrize("stores", ["sqlite"], indirect=True)

LAYER = pack_json()["decision_layer"]
BARE: dict[str, dict[str, Any]] = {
    POLICY_TYPE: policy_json(tenant=TENANT),
    INTENTS_TYPE: {
        "catalog_id": "intent-catalog.support",
        "version": "3.0.0",
        "tenant": TENANT,
        "intents": LAYER["intents"],
        "task_templates": LAYER["task_templates"],
    },
    SPECS_TYPE: {
        "catalog_id": "decision-catalog.support",
        "version": "2.2.0",
        "tenant": TENANT,
        "decision_specs": LAYER["decision_specs"],
    },
    PROFILE_TYPE: profile(),
    ROUTING_TYPE: rules(),
}
CHANGED: dict[str, dict[str, Any]] = {
    POLICY_TYPE: policy_json(rule_id="R_OTHER", tenant=TENANT),
    INTENTS_TYPE: {**BARE[INTENTS_TYPE], "task_templates": []},
    SPECS_TYPE: {**BARE[SPECS_TYPE], "decision_specs": []},
    PROFILE_TYPE: profile(context_window=100_000),
    ROUTING_TYPE: rules(operation="judge.score"),
}
REFS = {
    POLICY_TYPE: "POLICY_HOUSE@1.0.0",
    INTENTS_TYPE: "intent-catalog.support@3.0.0",
    SPECS_TYPE: "decision-catalog.support@2.2.0",
    PROFILE_TYPE: "model.large@1.0.0",
    ROUTING_TYPE: "routing.support@1.0.0",
}


@pytest.fixture
def author(initialised: Shop, tmp_path: Path) -> Path:
    """The key of an author, whose public half the deployment lists for the purpose `pack`."""
    key = tmp_path / "author.key"
    public = initialised.say("key", "new", str(key)).json
    keys = initialised.path / "keys" / "runtime.json"
    listed = json.loads(keys.read_text())
    listed["keys"].append({"purpose": "pack", "activated_at_us": 0, "retired_at_us": None, **public})
    keys.write_text(json.dumps(listed))
    return key


def publish_named(shop: Shop, path: Path, kind: str, author: Path) -> None:
    """Publish what routing rules name."""
    if kind == ROUTING_TYPE:
        assert published(shop, signed(shop, path, BARE[PROFILE_TYPE], author, "named.json")) == (0, "")


def signed(shop: Shop, path: Path, document: Any, key: Path, name: str = "signed.json") -> Path:
    bare, out = path / f"bare-{name}", path / name
    bare.write_text(json.dumps(document))
    said = shop.say("pack", "sign", str(bare), "--key", str(key), "--out", str(out))
    assert said.code == 0, said
    return out


def published(shop: Shop, file: Path) -> tuple[int, str]:
    said = shop.say("pack", "publish", str(file), *shop.by)
    problems = said.json.get("error", {}).get("problems") or [{}] if said.code else [{}]
    return said.code, str(problems[0].get("code", said.json.get("error", {}).get("code", "")))


def test_every_kind_is_here() -> None:
    assert {*BARE, PACK_TYPE} == {*MODELS}


@ONE_STORE
@pytest.mark.parametrize("kind", BARE)
def test_it_is_signed_published_shown_and_withdrawn_by_command(
    initialised: Shop, author: Path, tmp_path: Path, kind: str
) -> None:
    file, ref = signed(initialised, tmp_path, BARE[kind], author), REFS[kind]
    publish_named(initialised, tmp_path, kind, author)
    assert json.loads(file.read_text())["payloadType"] == kind
    assert published(initialised, file) == (0, "")
    shown = initialised.say("pack", "published", ref).json
    assert (shown["document"], shown["publisher"]) == (BARE[kind], "user_operator_5")
    assert ref in {one["ref"] for one in initialised.say("pack", "published").json["artifacts"]}
    version = initialised.say("pack", "list").json["version"]
    assert initialised.say("pack", "retire", ref, "--expect", str(version), *initialised.by).code == 0
    (gone,) = [one for one in initialised.say("pack", "published").json["artifacts"] if one["ref"] == ref]
    assert gone["withdrawn"]
    assert initialised.say("verify").code == 0


@ONE_STORE
@pytest.mark.parametrize("kind", BARE)
def test_what_its_author_did_not_sign_is_published_by_nobody(
    initialised: Shop, author: Path, tmp_path: Path, kind: str
) -> None:
    envelope = json.loads(signed(initialised, tmp_path, BARE[kind], author).read_text())
    stranger = signed(
        initialised, tmp_path, BARE[kind], initialised.path / "keys" / "user_operator_5.key", "other.json"
    )
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(BARE[kind]))
    content = json.loads(base64.b64decode(envelope["payload"]))
    altered = base64.b64encode(json.dumps({**content, "version": "9.9.9"}).encode()).decode()
    other_kind = next(one for one in BARE if one != kind)
    assert published(initialised, bare) == (2, "not_signed")
    assert published(initialised, stranger) == (3, "signature_invalid")
    for changed in ({"signatures": []}, {"payload": altered}, {"payloadType": other_kind}, {"payloadType": PACK_TYPE}):
        file = tmp_path / "changed.json"
        file.write_text(json.dumps({**envelope, **changed}))
        assert published(initialised, file) == (3, "signature_invalid"), changed
    refs = {one["ref"] for one in initialised.say("pack", "published").json["artifacts"]}
    assert REFS[kind] not in refs


@ONE_STORE
@pytest.mark.parametrize("kind", BARE)
def test_a_version_has_one_content_and_one_tenant_and_does_not_come_back(
    initialised: Shop, author: Path, tmp_path: Path, kind: str
) -> None:
    file, ref = signed(initialised, tmp_path, BARE[kind], author), REFS[kind]
    publish_named(initialised, tmp_path, kind, author)
    other = signed(initialised, tmp_path, {**BARE[kind], "tenant": "tenant_other"}, author, "other.json")
    assert published(initialised, other) == (2, "other_tenant")
    assert published(initialised, file) == (0, "")
    changed = signed(initialised, tmp_path, CHANGED[kind], author, "changed.json")
    assert published(initialised, changed) == (2, "ref_taken")
    version = initialised.say("pack", "list").json["version"]
    assert initialised.say("pack", "retire", ref, "--expect", str(version), *initialised.by).code == 0
    assert published(initialised, file) == (0, ""), "the same content again changes nothing"
    version = str(version + 1)
    if kind == POLICY_TYPE:
        said = initialised.say("policies", "activate", ref, "--expect", version, *initialised.by)
    else:
        words = ["pack", "pin", "ctxpack.support@5.2.0", ref, "--intent", "support.refund", "--expect", version]
        said = initialised.say(*words, *initialised.by)
    assert (said.code, said.json["error"]["code"]) == (2, "not_found"), "a replay of what was withdrawn is in force"


@ONE_STORE
def test_a_signed_file_is_signed_again_as_the_kind_that_it_is(initialised: Shop, author: Path, tmp_path: Path) -> None:
    """A policy that says of itself in its envelope that it is a catalog is signed as neither."""
    envelope = json.loads(signed(initialised, tmp_path, BARE[POLICY_TYPE], author).read_text())
    file = tmp_path / "other.json"
    file.write_text(json.dumps({**envelope, "payloadType": SPECS_TYPE}))
    assert initialised.say("pack", "sign", str(file), "--key", str(author)).code == 2
