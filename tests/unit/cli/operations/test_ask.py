"""`contextos ask` asks each operation of the table, whether it has a command of its own or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.service.operations.table import OPERATION_TABLE

SUBJECT = "subject=customer:cus_77"
FACT = (
    SUBJECT,
    "predicate=tier",
    'value="gold"',
    "source=artifact:crm_1#rev_1",
    "integrity=trusted",
    "classification=INTERNAL",
)


def test_a_list_is_read_a_page_at_a_time(shop: Any) -> None:
    whole = shop.say("ask", "facts.list", SUBJECT, "--json").json["items"]
    first = shop.say("ask", "facts.list", SUBJECT, "limit=1")
    more = first.out.splitlines()[-1].removeprefix("more: ")
    rest = shop.say("ask", "facts.list", SUBJECT, more, "--json").json["items"]
    assert first.out.splitlines()[0] == whole[0]["fact_id"]
    assert (len(whole), rest) == (2, whole[1:])
    assert shop.say("ask", "facts.list", "subject=customer:nobody").out == "there is nothing\n"


def test_what_is_signed_is_an_act_of_who_asks(shop: Any) -> None:
    made = shop.say("ask", "facts.set", *FACT, *shop.by, "--json").json
    assert (made["predicate"], made["value"]) == ("tier", "gold")
    assert "tier" in shop.say("facts", "list", "customer:cus_77").out
    unnamed = shop.say("ask", "facts.set", *FACT)
    assert (unnamed.code, "name them with --by" in unnamed.err) == (2, True)
    another = ("predicate=level", *(one for one in FACT if "predicate" not in one))
    forged = shop.say("ask", "facts.set", *another, "--by", "usr_771", *shop.by[2:])
    assert (forged.code, "level" in shop.say("facts", "list", "customer:cus_77").out) == (1, False), forged.err


def test_an_operation_on_a_run_takes_its_name(shop: Any) -> None:
    replayed = shop.say("ask", "runs.replay", "req_large", "--json").json
    assert (replayed["equal"], replayed["status"]) == (True, "DECIDED")
    assert "lacks its `run`" in shop.say("ask", "runs.replay").err
    assert shop.say("ask", "runs.replay", "req_other").code == 2


def test_an_answer_in_bytes_is_printed_as_it_is(shop: Any) -> None:
    listed = shop.path / "runs.json"
    listed.write_text('["req_large"]', "utf-8")
    said = shop.say("ask", "exports.make", f"runs=@{listed}", *shop.by)
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert (said.code, "manifest" in lines[0]) == (0, True)


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        (("fact.list",), "did you mean `facts.list`?"),
        (("facts.list", "subjekt=customer:cus_77"), "`subjekt` is not a field of `facts.list`"),
        (("facts.list", SUBJECT, SUBJECT), "is there twice"),
        (("facts.list",), "at `/subject`"),
        (("facts.list", SUBJECT, "limit=many"), "`many` is not a JSON value"),
        (("facts.list", SUBJECT, "limit=100000"), "at `/limit`"),
        (("facts.list", SUBJECT, "limit=@nowhere.json"), "cannot be read"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_done(shop: Any, words: tuple[str, ...], detail: str) -> None:
    said = shop.say("ask", *words)
    assert (said.code, said.out, detail in said.err) == (2, "", True), said.err


@pytest.mark.parametrize("name", [operation.name for operation in OPERATION_TABLE])
def test_ops_says_of_each_operation_what_it_takes(say: Any, name: str) -> None:
    (shown,) = say("ops", name, "--json").json["operations"]
    said = say("ops", name)
    assert (said.code, shown["name"]) == (0, name)
    assert all(f"\n  {field}: " in said.out for field in shown["input_schema"].get("properties", {}))
