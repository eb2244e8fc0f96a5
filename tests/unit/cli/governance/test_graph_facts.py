"""`contextos facts`: what is stated, replaced and retracted is what a run reads, under the writer's signature."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from contextos.cli.governance.graph_facts import CLASSIFICATIONS, INTEGRITY
from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel

SUBJECT = ("customer:cus_77", "tier")
STATED = ("--source", "artifact:crm_1#rev_1", "--integrity", "trusted", "--classification", "INTERNAL")


def values(shop: Any, *words: str) -> list[Any]:
    return [one["value"] for one in shop.say("facts", "list", *SUBJECT, *words, "--json").json["facts"]]


def test_the_help_names_the_levels_that_there_are() -> None:
    assert get_args(IntegrityLevel) == INTEGRITY
    assert get_args(Classification) == CLASSIFICATIONS


def test_a_fact_is_set_replaced_and_retracted_and_the_past_stays(shop: Any) -> None:
    first = shop.say("facts", "set", *SUBJECT, '"gold"', *STATED, *shop.by, "--json")
    assert (first.code, first.json["value"], first.json["source"]) == (0, "gold", "artifact:crm_1#rev_1")
    assert shop.say("facts", "set", *SUBJECT, '"gold"', *STATED, *shop.by).code == 0, "the same again"
    other = shop.say("facts", "set", *SUBJECT, '"silver"', *STATED, *shop.by, "--json")
    assert (other.code, other.json["error"]["problems"][0]["code"]) == (2, "fact_exists")
    assert shop.say("facts", "replace", *SUBJECT, '{"level": 2}', *STATED, *shop.by).code == 0
    assert values(shop) == [{"level": 2}]
    assert shop.say("facts", "retract", *SUBJECT, "--source", "artifact:crm_2#rev_1", *shop.by).code == 0
    assert values(shop) == []
    assert shop.say("facts", "list", *SUBJECT).out == "no such fact holds\n"
    assert values(shop, "--snapshot", first.json["snapshot"]) == ["gold"]
    assert shop.say("verify").code == 0


def test_everything_that_is_said_of_a_subject_is_listed_in_pages(shop: Any) -> None:
    subject = "customer:cus_many"
    for number in range(3):
        assert shop.say("facts", "set", subject, f"p{number}", str(number), *STATED, *shop.by).code == 0
    whole = shop.say("facts", "list", subject, "--json").json
    assert sorted(one["predicate"] for one in whole["facts"]) == ["p0", "p1", "p2"]
    assert whole["next_after"] is None
    first = shop.say("facts", "list", subject, "--limit", "2", "--json").json
    rest = shop.say("facts", "list", subject, "--limit", "2", "--after", first["next_after"], "--json").json
    assert (first["facts"] + rest["facts"], rest["next_after"]) == (whole["facts"], None)
    assert f"more: --after {first['next_after']}" in shop.say("facts", "list", subject, "--limit", "2").out


def test_who_may_not_write_facts_writes_none(shop: Any) -> None:
    other = ("--by", "user_finance_lead_77", "--key", str(shop.path / "keys" / "user_finance_lead_77.key"))
    said = shop.say("facts", "set", *SUBJECT, "1", *STATED, *other, "--json")
    assert (said.code, said.json["error"]["code"]) == (1, "approval_refused")
    assert values(shop) == []


@pytest.mark.parametrize("text", ["gold", "", "{", "1 2", '"a" "b"', "NaN"])
def test_a_value_that_is_no_json_is_refused_with_how_to_write_it(shop: Any, text: str) -> None:
    said = shop.say("facts", "set", *SUBJECT, text, *STATED, *shop.by, "--json")
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "no_json")
    assert "in quotes" in said.json["error"]["problems"][0]["remedy"]


def test_a_file_of_nodes_and_edges_is_one_commit_and_once(shop: Any) -> None:
    first = shop.say("facts", "load", str(shop.path / "graph.json"), *shop.by, "--json")
    assert (first.code, first.json) == (0, {"snapshot": "kg_1"}), "the demo wrote the same"
    more = shop.path / "more.json"
    edge = json.loads((shop.path / "graph.json").read_text("utf-8"))["edges"][0] | {"predicate": "also"}
    more.write_text(json.dumps({"nodes": [], "edges": [edge]}), "utf-8")
    assert shop.say("facts", "load", str(more), *shop.by, "--json").json == {"snapshot": "kg_2"}


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{}", '{"nodes": []}', '{"nodes": {}, "edges": []}', '{"nodes": [], "edges": [], "x": 1}', "x"),
        *('{"nodes": [], "edges": [{}]}', '{"nodes": [1], "edges": []}'),
    ],
)
def test_a_file_that_is_no_graph_writes_nothing_and_is_named(shop: Any, text: str) -> None:
    (shop.path / "wrong.json").write_text(text, "utf-8")
    said = shop.say("facts", "load", str(shop.path / "wrong.json"), *shop.by)
    assert said.code == 2
    assert "wrong.json" in said.err
