"""The short form of a pack on the command line: written, expanded with origins, and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from contextos.cli.demo.init import WORKSPACE_TEMPLATES

DECLARED = """\
name: mini.refund
version: 1.0.0
tenant: tenant_acme_prod
who: [support_agent]
approver: finance_lead
tools: [adp_orders.lookup, adp_policy.eval, adp_payments.issue_refund]
budget: {max_cost_cents: 25}
permissions:
  issue_refund: {without_sum: a person is asked about each call}
intents:
  mini.refund:
    deny:
      - when: evidence.policy.eval.eligible == False
        because: the returns policy says no
"""


@pytest.fixture
def short(shop) -> Path:
    path = shop.path / "mini.yaml"
    path.write_text(DECLARED)
    return path


def test_a_short_form_expands_to_a_pack_that_lints(shop, short: Path) -> None:
    said = shop.say("pack", "expand", str(short))
    assert said.code == 0, said.err
    whole = shop.path / "whole.json"
    whole.write_text(said.out)
    assert json.loads(said.out)["pack_meta"]["pack_id"] == "mini.refund"
    assert shop.say("pack", "lint", str(whole), "--adapters").code == 0


def test_a_short_form_is_linted_as_its_expansion_is(shop, short: Path) -> None:
    assert shop.say("pack", "lint", str(short), "--adapters").out == f"{short}: fine\n"
    written = shop.path / "mini.json"
    written.write_text(json.dumps(yaml.safe_load(DECLARED)))
    assert shop.say("pack", "lint", str(written)).out == f"{written}: fine\n"
    short.write_text(DECLARED.replace("eligible == False", "eligibel == False"))
    said = shop.say("pack", "lint", str(short))
    assert said.code == 2
    assert said.out.startswith(f"{short}: unknown_fact at `/intents/mini.refund/deny/0/when`: line ")
    assert ": the condition about" in said.out
    assert "Traceback" not in said.out + said.err


def test_a_role_that_nobody_holds_is_reported_where_its_author_wrote_it(shop, short: Path) -> None:
    short.write_text(DECLARED.replace("finance_lead", "finance_lad"))
    said = shop.say("pack", "lint", str(short), "--adapters")
    assert said.out.startswith(f"{short}: nobody_holds at `/approver`: ")
    assert "write `finance_lead`" in said.out


def test_a_pack_is_written_expanded_and_linted_before_the_first_one_is_published(
    say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WORKSPACE_TEMPLATES["deploy"](tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    before = sorted(Path().rglob("*"))
    lint = say("pack", "lint", "packs/deploy.yaml", "--adapters")
    assert (lint.code, lint.out) == (0, "packs/deploy.yaml: fine\n")
    assert say("pack", "expand", "packs/deploy.yaml").code == 0
    assert say("pack", "diff", "packs/deploy.yaml", "packs/deploy.yaml").code == 0
    assert sorted(Path().rglob("*")) == before, "asking makes no store"
    assert say("pack", "new", "acme.orders", "--who", "deployer").code == 0
    assert yaml.safe_load(Path("acme.orders.yaml").read_text())["tenant"] == "acme"


def test_each_field_is_shown_with_its_origin(shop, short: Path) -> None:
    said = shop.say("pack", "expand", str(short), "--origins")
    assert 'written  /pack_meta/pack_id "mini.refund"' in said.out.splitlines()
    assert "default  /pack_meta/run_budget/max_tool_calls 20" in said.out.splitlines()
    document = shop.say("pack", "expand", str(short), "--json").json
    assert document["origins"]["/pack_meta/safety_ceiling"] == "derived"


def test_what_differs_is_shown_by_field(shop, short: Path) -> None:
    other, whole = shop.path / "other.yaml", shop.path / "whole.json"
    whole.write_text(shop.say("pack", "expand", str(short)).out)
    assert shop.say("pack", "diff", str(short), str(whole)).out == "the packs are equal\n"
    other.write_text(DECLARED.replace("eligible == False", "eligible != True").replace("1.0.0", "1.1.0"))
    said = shop.say("pack", "diff", str(whole), str(other))
    assert said.code == 1
    assert '~ /pack_meta/pack_version: "1.0.0" -> "1.1.0"' in said.out.splitlines()
    assert 'evidence.policy.eval.eligible != True"' in said.out
    assert shop.say("pack", "diff", str(shop.path / "pack.json"), str(shop.path / "packs" / "support.json")).code == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DECLARED.replace("evidence.policy", "evidence.polcy"), "evidence.policy.eval.eligible"),
        (DECLARED.replace("tools:", "toolz:"), "toolz"),
        (DECLARED.replace("adp_policy.eval, ", ""), "/intents/mini.refund/deny/0/when"),
        ("".join(one + "\n" for one in DECLARED.splitlines() if "tools" not in one), "list them in `tools`"),
        ("a: &a [x]\nb: *a\n", "aliases are not allowed"),
        ("- a\n", "not a declaration"),
    ],
    ids=["a misspelt fact", "a misspelt field", "evidence of no tool", "no tools", "an alias", "a list"],
)
def test_a_faulty_short_form_is_one_sentence(shop, text: str, says: str) -> None:
    path = shop.path / "faulty.yaml"
    path.write_text(text)
    said = shop.say("pack", "expand", str(path))
    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err


WITH_LINES = """{
  "format": "contextos.adapter_file.v1",
  "connection": {},
  "definition": {},
  "operatons": {}
}
"""


@pytest.mark.parametrize("words", [("sign", "FILE", "--key", "keys/user_operator_5.key"), ("diff", "FILE", "FILE")])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is neither an artifact nor an adapter file; name a pack, a policy bundle, a catalog, "),
        ("[]", "it is neither an artifact nor an adapter file; name a pack, a policy bundle, a catalog, "),
        ('{"a": 1}', "it is neither an artifact nor an adapter file; name a pack, a policy bundle, a catalog, "),
        (WITH_LINES, "line 5, column 3: there is no `operatons` here; did you mean `operations`?"),
        (
            WITH_LINES.replace("file.v1", "file.v2"),
            "line 2, column 3: it is not one of the allowed values; did you mean `contextos.adapter_file.v1`?",
        ),
        (
            '{"format": "contextos.adapter_file.v2"}',
            "line 1, column 2: it is not one of the allowed values; did you mean `contextos.adapter_file.v1`?",
        ),
        ('{"pack_metaa": {}}', "there is no `pack_metaa` here; did you mean `pack_meta`?"),
        ('{"bundel": {}}', "there is no `bundel` here; did you mean `bundle`?"),
    ],
)
def test_a_file_is_refused_as_the_kind_that_it_is_most_like(
    shop, words: tuple[str, ...], text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.path)
    Path("mine.json").write_text(text)
    for group in ("adapters", "pack"):
        said = shop.say(group, *("mine.json" if one == "FILE" else one for one in words))
        assert (said.code, "begin with `name:`" in said.err) == (2, False)
        assert says in said.err
        assert "`mine.json`" in said.err


def test_the_json_of_a_short_form_with_intents_is_a_pack_also_where_it_is_compared(shop, short: Path) -> None:
    written = shop.path / "mini.json"
    written.write_text(json.dumps(yaml.safe_load(DECLARED)))
    assert shop.say("pack", "diff", str(short), str(written)).code == 0
