"""G103: what is stricter replaces what is looser: a version of a pack, and the first rule of a list of the tenant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks.faults import TENANT, Workspace
from tests.attacks.shop import Shop

OLD, NEW = "ctxpack.support@5.2.0", "ctxpack.support@5.3.0"


def stricter(workspace: Workspace) -> None:
    """The next version of the pack, under which nobody refunds more than INR 10."""
    workspace.pack["pack_meta"]["pack_version"] = "5.3.0"
    workspace.tools["permissions"][2]["arg_constraints"]["amount_inr"]["max"] = 10


def with_version(shop: Shop, change: Any) -> None:
    workspace = Workspace.read(shop.path)
    change(workspace)
    workspace.write(shop.path)


def pinned(shop: Shop) -> list[str]:
    return [ref for pin in shop.say("pack", "list").json["packs"] for ref in pin["refs"]]


@pytest.mark.parametrize("list_of", ['[redaction]\n{tenant} = ["email"]\n', '[egress]\n{tenant} = ["api.example"]\n'])
def test_the_first_rule_of_a_list_voids_what_waits(list_of: str, initialised: Shop) -> None:
    waiting = initialised.say("invoke", str(initialised.request("large")))
    assert waiting.code == 5
    settings = initialised.path / "contextos.toml"
    settings.write_text(settings.read_text() + "\n" + list_of.format(tenant=TENANT))
    key = initialised.path / "keys" / "user_finance_lead_77.key"
    run, digest = waiting.json["run_id"], waiting.json["waiting"]["binding_digest"]
    lead = ("--as", "user_finance_lead_77", "--key", str(key))
    answered = initialised.say("approvals", "approve", run, "--binding", digest, *lead)
    assert answered.code != 0
    assert "changed or was withdrawn" in answered.out
    assert initialised.runs()[0]["state"] == "waiting"


def test_apply_replaces_the_version_before(initialised: Shop) -> None:
    with_version(initialised, stricter)
    applied = initialised.say("apply", *initialised.by).json
    assert f"withdrew {OLD} for support.refund in dev" in applied["done"]
    assert pinned(initialised) == [NEW]
    assert initialised.say("invoke", str(initialised.request("small"))).code != 0
    assert initialised.say("apply", *initialised.by).json == {"done": [], "unmatched": []}


def test_keeping_both_is_asked_for_and_said(initialised: Shop) -> None:
    with_version(initialised, stricter)
    kept = initialised.say("apply", "--keep", *initialised.by).json
    assert pinned(initialised) == [OLD, NEW]
    for told in (kept, initialised.say("policies", "list").json):
        assert [(one["ref"], one["code"]) for one in told["unmatched"]] == [(NEW, "beside")]
        assert f"`{OLD}`" in told["unmatched"][0]["detail"]
    assert pinned(initialised) == [OLD, NEW]
    assert initialised.say("apply", *initialised.by).json["unmatched"] == []
    assert pinned(initialised) == [NEW]


def test_an_act_that_pins_says_what_stays_choosable(initialised: Shop) -> None:
    with_version(initialised, stricter)
    envelope = str(initialised.path / "packs" / "support.json")
    assert initialised.say("pack", "publish", envelope, *initialised.by).code == 0
    version = str(initialised.say("pack", "list").json["version"])
    said = initialised.say("pack", "pin", NEW, "--intent", "support.refund", "--expect", version, *initialised.by)
    assert [one["code"] for one in said.json["unmatched"]] == ["beside"]


def test_of_two_versions_in_the_workspace_the_newer_one_is_pinned(initialised: Shop) -> None:
    old = (initialised.path / "packs" / "support.json").read_text()
    with_version(initialised, stricter)
    (initialised.path / "packs" / "before.json").write_text(old)
    assert initialised.say("apply", *initialised.by).code == 0
    assert pinned(initialised) == [NEW]
    assert initialised.say("apply", *initialised.by).json == {"done": [], "unmatched": []}
