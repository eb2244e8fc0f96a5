"""`contextos ask` asks each operation of the table, whether it has a command of its own or not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.deployment.queries.model_costs import ERASED_RUN
from contextos.service.operations.table import OPERATION_TABLE, named_operation

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
    assert shop.say("ask", "facts.list", "subject=customer:nobody").out.startswith("there is nothing\n")


def test_what_is_signed_is_an_act_of_who_asks(shop: Any) -> None:
    made = shop.say("ask", "facts.set", *FACT, *shop.by, "--json").json
    assert (made["predicate"], made["value"]) == ("tier", "gold")
    assert "tier" in shop.say("facts", "list", "customer:cus_77").out
    unnamed = shop.say("ask", "facts.set", *FACT)
    assert (unnamed.code, "name who asks with --by" in unnamed.err) == (2, True)
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


def test_a_signed_act_on_a_run_takes_the_run_on(shop: Any) -> None:
    shop.say("invoke", shop.request("cancel"))
    said = shop.say("ask", "runs.cancel", "req_cancel", *shop.by, "--json")
    assert (said.code, said.json["state"]) == (0, "cancelled"), said.err


def test_an_act_with_a_form_of_its_own_is_pointed_to_its_command(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PAYMENTS", "none")
    monkeypatch.setenv("SHOP_FAILPOINT", "lose_reply")
    assert shop.say("invoke", shop.request("lost")).code == 5
    evidence = "evidence_ref=kg:order:ord_881#snapshot_kg_1"
    said = shop.say("ask", "runs.settle", "req_lost", "happened=false", evidence, *shop.by)
    assert (said.code, said.out) == (2, "")
    assert "contextos runs" in said.err


def test_what_an_answer_says_besides_its_list_is_said_too(shop: Any) -> None:
    version = shop.say("ask", "pins.list", "--json").json["version"]
    assert f"version: {version}" in shop.say("ask", "pins.list").out


def test_an_answer_that_is_not_a_list_is_said_field_by_field(shop: Any) -> None:
    document = shop.say("ask", "runs.replay", "req_large", "--json").json
    said = shop.say("ask", "runs.replay", "req_large").out.splitlines()
    assert [line.partition(":")[0] for line in said if not line.startswith(" ")] == list(document)
    assert f"run_id: {document['run_id']}" in said


def test_an_option_that_would_do_nothing_is_refused(shop: Any) -> None:
    listed = shop.path / "runs.json"
    listed.write_text('["req_large"]', "utf-8")
    for words, unused in (
        (("facts.list", SUBJECT, *shop.by[2:]), "--key"),
        (("facts.list", SUBJECT, *shop.by[:2]), "--by"),
        (("exports.make", f"runs=@{listed}", *shop.by, "--json"), "--json"),
    ):
        said = shop.say("ask", *words)
        assert (said.code, f"leave {unused} out" in said.out + said.err) == (2, True), said.err


def test_an_answer_that_finds_a_fault_has_the_exit_code_of_the_fault() -> None:
    replay, check = (named_operation(name).exit_code for name in ("runs.replay", "models.check"))
    assert [replay(SimpleNamespace(equal=equal)) for equal in (True, False)] == [0, 3]
    assert [check(SimpleNamespace(outcome=one)) for one in ("answered", "refused")] == [0, 1]
    cost = named_operation("models.cost").exit_code
    unread = [SimpleNamespace(reason=one) for one in (ERASED_RUN, "changed")]
    assert [cost(SimpleNamespace(unread=one)) for one in ((), unread[:1], unread)] == [0, 0, 3]
