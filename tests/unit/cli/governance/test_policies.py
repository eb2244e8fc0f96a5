"""`contextos policies` shows what is in force, and changes it by one policy at a time."""

from __future__ import annotations

from typing import Any

HOUSE = "POLICY_HOUSE@1.0.0"


def test_policies_are_activated_and_deactivated_one_by_one(shop: Any) -> None:
    assert shop.say("policies", "list").out == "no policy is in force\nversion 2\n"
    assert shop.say("pack", "publish", str(shop.path / "policies" / "house.json"), *shop.by).code == 0
    said = shop.say("policies", "activate", HOUSE, "--expect", "2", *shop.by).out.splitlines()
    assert (said[0], said[-1]) == (f"tenant    {HOUSE}", "version 3")
    # Nobody of the example is an intern yet.
    assert [line for line in said if "no user of the tenant holds the role `intern`" in line] == said[1:-1] != []
    again = shop.say("policies", "activate", HOUSE, "--expect", "3", *shop.by, "--json")
    assert (again.code, again.json["error"]["problems"][0]["code"]) == (2, "duplicate")
    done = shop.say("policies", "deactivate", HOUSE, "--expect", "3", *shop.by, "--json")
    assert done.json == {"version": 4, "policies": [], "unmatched": []}


def test_what_is_not_in_force_or_no_policy_is_refused(shop: Any) -> None:
    for words in (["deactivate", HOUSE], ["activate", HOUSE]):
        said = shop.say("policies", *words, "--expect", "2", *shop.by, "--json")
        assert (said.code, said.json["error"]["code"]) == (2, "not_found")
    pack = shop.say("policies", "activate", "ctxpack.support@5.2.0", "--expect", "2", *shop.by, "--json")
    assert pack.json["error"]["problems"][0]["code"] == "not_a_policy"
    level = ["--level", "galaxy", "--expect", "2", *shop.by, "--json"]
    assert shop.say("policies", "activate", "ctxpack.support@5.2.0", *level).code == 2
