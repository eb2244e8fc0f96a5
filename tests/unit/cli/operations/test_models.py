"""`contextos models`: what is published, what it costs, and a check."""

from __future__ import annotations

from typing import Any

from tests.modelled import PROFILE, RULES, sealed_models


def publish(shop: Any) -> None:
    for path in sealed_models(shop.path):
        said = shop.say("pack", "publish", str(path), *shop.by)
        assert said.code == 0, said.err


def test_published_models_are_listed_with_who_uses_them(shop: Any) -> None:
    assert shop.say("models", "list").out == "no model is published\n"
    publish(shop)
    assert shop.say("models", "list").out.splitlines() == [
        PROFILE,
        "  scripted large, up to RESTRICTED, in eu",
        "  used by no pinned pack",
        RULES,
        f"  rules for judge.plan: {PROFILE}",
        "  used by no pinned pack",
    ]
    first = shop.say("models", "list", "--limit", "1", "--json").json
    rest = shop.say("models", "list", "--cursor", first["cursor"], "--json").json
    assert [one["ref"] for one in (*first["items"], *rest["items"])] == [PROFILE, RULES]


def test_costs_say_how_many_runs_were_read(shop: Any) -> None:
    lines = shop.say("models", "cost").out.splitlines()
    assert lines[0] == "no model was called"
    assert lines[1].endswith(" runs were read")
    found = shop.say("models", "cost", "--from", "2026-01-01T00:00:00Z", "--limit", "1", "--json").json
    assert (found["costs"], found["runs_read"], found["unread"], found["complete"]) == ([], 1, [], False)
    assert "raise --limit" in shop.say("models", "cost", "--limit", "1").out
    none = shop.say("models", "cost", "--before", "2020-01-01T00:00:00Z", "--json").json
    assert (none["runs_read"], none["complete"]) == (0, True)
    wrong = shop.say("models", "cost", "--from", "yesterday")
    assert (wrong.code, "`yesterday` of `--from` is not a time" in wrong.err) == (2, True)


def test_a_check_is_an_act_and_its_exit_code_says_whether_the_model_answers(shop: Any) -> None:
    publish(shop)
    said = shop.say("models", "check", PROFILE, *shop.by)
    assert said.code == 1
    assert said.out.splitlines()[0].startswith(f"{PROFILE} failed or could not be reached: this deployment speaks no")
    assert said.out.splitlines()[-2:] == ["usage: none reported", "cost: 0 US cents"]
    found = shop.say("models", "check", PROFILE, *shop.by, "--json").json
    assert (found["outcome"], found["most_cost_usd_cents"]) == ("unavailable", 0.768)
    little = shop.say("models", "check", PROFILE, "--max-cost-cents", "0.1", *shop.by)
    assert (little.code, "can cost 0.768 US cents, and 0.1 are allowed" in little.err) == (2, True)
    for ref, code in ((RULES, 2), ("model.other@1.0.0", 2)):
        assert shop.say("models", "check", ref, *shop.by).code == code
