"""`contextos apply` and `contextos pack`: what is done, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

REF = "ctxpack.support@5.2.0"


def test_init_again_does_nothing(shop: Any) -> None:
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
