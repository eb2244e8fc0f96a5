"""`contextos apply` and `contextos pack`: what is done, and what is refused with a reason."""

from __future__ import annotations

import base64
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
        (["withdraw", REF, "--intent", "support.refund", "--environment", "prod"], "not_found"),
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
        "pinned acme.deploy@1.0.0 for acme.deploy in dev",
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


def test_a_short_form_of_a_tenant_that_nobody_knows_is_refused(deployed: Any) -> None:
    file = Path("packs/deploy.yaml")
    file.write_text(file.read_text("utf-8").replace("tenant: acme", "tenant: other"), "utf-8")
    said = deployed("apply", *BY)
    assert (said.code, said.out) == (2, "")
    assert "the directory has no tenant `other`; use one of acme" in said.err


@pytest.fixture
def author(deployed: Any) -> tuple[str, ...]:
    """The options of an author whose key the runtime trusts for packs."""
    made = deployed("key", "new", "author.key", "--json").json
    ring = Path("keys/runtime.json")
    listed = json.loads(ring.read_text("utf-8"))
    listed["keys"].append({"purpose": "pack", "activated_at_us": 0, "retired_at_us": None, **made})
    ring.write_text(json.dumps(listed), "utf-8")
    return ("--key", "author.key")


SHORT = "packs/deploy.yaml"


def test_what_an_author_signs_is_the_whole_pack_and_is_published_as_it_was_signed(
    deployed: Any, author: tuple[str, ...]
) -> None:
    said = deployed("pack", "sign", SHORT, *author, "--out", "signed.json")
    assert said.code == 0
    assert "signed by kid_" in said.out
    assert deployed("pack", "diff", SHORT, "signed.json").out == "the packs are equal\n"
    printed = json.loads(deployed("pack", "sign", SHORT, *author).out)
    assert printed == json.loads(Path("signed.json").read_text("utf-8")), "the same input gives the same bytes"
    file = Path(SHORT)
    file.write_text(file.read_text("utf-8").replace("> 20", "> 2000"), "utf-8")
    assert deployed("pack", "publish", "signed.json", *BY).code == 0
    changed = deployed("apply", *BY, "--json")
    assert changed.json["error"]["problems"][0]["code"] == "ref_taken", "the edit is another pack than the signed one"


def test_the_short_form_beside_what_its_author_signed_is_not_signed_again(
    deployed: Any, author: tuple[str, ...]
) -> None:
    assert deployed("pack", "sign", SHORT, *author, "--out", "packs/deploy.json").code == 0
    listed = json.loads(Path("keys/runtime.json").read_text("utf-8"))["keys"]
    own, _ = [one["kid"] for one in listed if one["purpose"] == "pack"]
    Path("keys", f"{own}.key").unlink()
    assert "published acme.deploy@1.0.0" in deployed("apply", *BY).out, "the runtime holds no key to sign it with"


@pytest.mark.parametrize("where", ["payload", "signature", "type"])
def test_a_signed_pack_that_was_changed_is_not_published(deployed: Any, author: tuple[str, ...], where: str) -> None:
    envelope = json.loads(deployed("pack", "sign", SHORT, *author).out)
    if where == "payload":
        pack = json.loads(base64.b64decode(envelope["payload"]))
        pack["pack_meta"]["run_budget"]["max_tool_calls"] = 10_000
        envelope["payload"] = base64.b64encode(json.dumps(pack).encode()).decode()
    elif where == "signature":
        sig = base64.b64decode(envelope["signatures"][0]["sig"])
        envelope["signatures"][0]["sig"] = base64.b64encode(sig[::-1]).decode()
    else:
        envelope["payloadType"] = "application/vnd.contextos.policy-bundle+json"
    Path("changed.json").write_text(json.dumps(envelope), "utf-8")
    said = deployed("pack", "publish", "changed.json", *BY, "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "signature_invalid")
    assert deployed("pack", "list").out.startswith("no pack is pinned")


def test_the_signature_of_a_key_that_nobody_trusts_for_packs_does_not_count(deployed: Any) -> None:
    signed = deployed("pack", "sign", SHORT, "--key", "keys/otto.key", "--out", "signed.json")
    assert signed.code == 0
    said = deployed("pack", "publish", "signed.json", *BY, "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "signature_invalid")


def test_what_cannot_be_signed_is_refused_with_its_name(deployed: Any, author: tuple[str, ...]) -> None:
    Path("there.json").write_text("{}", "utf-8")
    assert deployed("pack", "sign", SHORT, *author, "--out", "there.json").code == 2
    assert Path("there.json").read_text("utf-8") == "{}"
    assert deployed("pack", "sign", SHORT, "--key", "nosuch.key").code == 2
    assert deployed("pack", "sign", SHORT, "--key", SHORT).code == 2
    assert deployed("pack", "sign", "nosuch.yaml", *author).code == 2
    whole = json.loads(deployed("pack", "expand", SHORT).out)
    whole["business_context"]["summary"] = "token sk-" + "a1B2" * 10
    Path("leaky.json").write_text(json.dumps(whole), "utf-8")
    leaky = deployed("pack", "sign", "leaky.json", *author)
    assert leaky.code == 2
    assert "leaky.json" in leaky.err


def test_a_pin_for_an_environment_that_does_not_exist_is_refused_and_the_default_is_the_workspaces(
    deployed: Any,
) -> None:
    assert deployed("apply", *BY).code == 0
    pin = ("acme.deploy@1.0.0", "--intent", "acme.deploy", "--expect", "2", *BY, "--json")
    said = deployed("pack", "pin", *pin, "--environment", "stagin")
    (problem,) = said.json["error"]["problems"]
    assert (said.code, problem["code"], problem["remedy"]) == (2, "unknown_environment", "did you mean `staging`?")
    assert [one["environment"] for one in deployed("pack", "pin", *pin).json["packs"]] == ["dev"]


def test_a_pack_that_nobody_signed_is_not_published_and_the_way_is_named(deployed: Any) -> None:
    whole = Path("whole.json")
    whole.write_text(deployed("pack", "expand", SHORT).out, "utf-8")
    for name in (SHORT, "whole.json"):
        said = deployed("pack", "publish", name, *BY)
        assert said.code == 2
        assert f"`{name}`: it is not a signed envelope" in said.err
        assert "name the file that `contextos pack sign PACK --out FILE` wrote" in said.err
