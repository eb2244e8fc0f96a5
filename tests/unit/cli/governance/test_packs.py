"""`contextos apply` and `contextos pack`: what is done, and what is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REF = "ctxpack.support@5.2.0"


def test_apply_again_does_nothing(shop: Any) -> None:
    said = shop.say("apply", *shop.by)
    assert (said.code, said.out) == (0, "everything is done already\n")
    assert shop.say("pack", "list", "--json").json["version"] == 2


def test_a_retired_pack_has_no_pin_and_gets_none(shop: Any) -> None:
    done = shop.say("pack", "retire", REF, "--expect", "2", "--reason", "recalled", *shop.by, "--json")
    assert (done.json["packs"], done.json["withdrawn"], done.json["version"]) == ([], [REF], 3)
    assert f"withdrawn  {REF}" in shop.say("pack", "list").out
    pin = shop.say("pack", "pin", REF, "--intent", "support.refund", "--expect", "3", *shop.by, "--json")
    assert (pin.code, pin.json["error"]["code"]) == (2, "not_found")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["pin", REF, "--intent", "support.nothing"], "unknown_intent"),
        (["pin", "POLICY_X@1.0.0", "--intent", "support.refund"], "not_found"),
        (["withdraw", REF, "--intent", "support.other"], "not_found"),
        (["withdraw", REF, "--intent", "support.refund", "--environment", "service"], "not_found"),
        (["retire", "ctxpack.other@1.0.0"], "not_found"),
    ],
)
def test_what_cannot_be_pinned_or_withdrawn_is_refused(shop: Any, words: list[str], code: str) -> None:
    said = shop.say("pack", *words, "--expect", "2", *shop.by, "--json")
    assert said.code == 2
    problems = said.json["error"].get("problems") or [{"code": said.json["error"]["code"]}]
    assert problems[0]["code"] == code
    assert shop.say("pack", "list", "--json").json["version"] == 2


@pytest.fixture
def deployed(say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line in a workspace that `init` made, before anything was applied."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert say("init", str(tmp_path / "w")).code == 0
    monkeypatch.chdir(tmp_path / "w")
    return say


BY = ("--by", "otto", "--key", "keys/otto.key")


def test_the_short_form_of_a_pack_is_signed_published_and_pinned_once(deployed: Any) -> None:
    said = deployed("apply", *BY)
    assert said.out.splitlines() == [
        "published acme.deploy@1.0.0",
        "put 0 policies in force",
        "pinned acme.deploy@1.0.0 for acme.deploy in embedded",
    ]
    assert deployed("apply", *BY).out == "everything is done already\n"


def test_another_text_under_the_same_version_is_refused(deployed: Any) -> None:
    assert deployed("apply", *BY).code == 0
    file = Path("packs/deploy.yaml")
    file.write_text(file.read_text("utf-8").replace("> 20", "> 10"), "utf-8")
    said = deployed("apply", *BY, "--json")
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "ref_taken")
    file.write_text(file.read_text("utf-8").replace("1.0.0", "1.1.0"), "utf-8")
    assert "published acme.deploy@1.1.0" in deployed("apply", *BY).out


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("deploy.scale, ", "deploy.nosuch, "), "`deploy.yaml`: "),
        (("tools: [deploy.ci_status, deploy.impact, deploy.scale, deploy.rollback]\n", ""), "the file names no tools"),
        (("name: acme.deploy", "name: ["), "`deploy.yaml`: the document is neither JSON nor YAML"),
    ],
    ids=["an unknown tool", "no tools", "no yaml"],
)
def test_a_wrong_short_form_publishes_nothing_and_is_named(deployed: Any, edit: tuple[str, str], said: str) -> None:
    file = Path("packs/deploy.yaml")
    file.write_text(file.read_text("utf-8").replace(*edit), "utf-8")
    done = deployed("apply", *BY)
    assert done.code == 2
    assert said in done.err
    assert deployed("pack", "list").out.startswith("no pack is pinned")


def test_a_runtime_without_the_key_for_packs_signs_no_short_form(deployed: Any) -> None:
    listed = json.loads(Path("keys/runtime.json").read_text("utf-8"))["keys"]
    [kid] = [one["kid"] for one in listed if one["purpose"] == "pack"]
    Path("keys", f"{kid}.key").unlink()
    said = deployed("apply", *BY, "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "invalid_settings")
    assert deployed("pack", "list").out.startswith("no pack is pinned")


def test_who_may_not_publish_applies_no_short_form(deployed: Any) -> None:
    said = deployed("apply", "--by", "olga", "--key", "keys/olga.key", "--json")
    assert (said.code, said.json["error"]["code"]) == (1, "approval_refused")
    assert deployed("pack", "list").out.startswith("no pack is pinned")


def test_a_short_form_of_another_tenant_is_left_to_it(deployed: Any) -> None:
    file = Path("packs/deploy.yaml")
    file.write_text(file.read_text("utf-8").replace("tenant: acme", "tenant: other"), "utf-8")
    assert deployed("apply", *BY).out == "put 0 policies in force\n"
