"""Facts as blocks: distinct, in one order, under ids of their own; and the quick form equals the canonical one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextos.context.blocks import escape_misleading, evidence_priority, fact_block, identified
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import MalformedJson
from tests.unit.context import samples
from tests.unit.context.test_injection import JSON


def content(value: Any) -> str:
    item = samples.fact(1).model_copy(update={"value": value})
    return str(fact_block("ev", "evidence", item, 0)["content"])


@given(JSON)
@example({"é": 1, "z": 2.0})
@example({"\U00010000": 1, "\uffff": 2})
@example([1.0, 1e21, 1e16, -0.0, 5e-324])
@example({"null": "0.5", "a": [None, "7e1"]})
def test_the_content_of_a_fact_is_its_canonical_form(value: Any) -> None:
    ref = "kg:order:ord_1#snapshot_7"
    said = {"subject": "order:ord_1", "predicate": "status", "value": value, "evidence_ref": ref}
    assert content(value) == escape_misleading(canonical(said).decode())


@given(JSON)
def test_a_fact_reads_the_same_after_a_stay_in_the_journal(value: Any) -> None:
    assert content(json.loads(canonical(value))) == content(value)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {1: "a"}, 2**53, {"a", "b"}, "\ud800"])
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(MalformedJson):
        content(value)


KEY = st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "a.2", "", "x" * 201]))


@given(st.lists(KEY, max_size=12), st.randoms())
def test_every_distinct_fact_has_one_id_whatever_the_order(keys: list[tuple[int, str | None]], random: Any) -> None:
    items = [samples.fact(number, name=name) for number, name in keys]
    found = identified(items, "ev_")
    assert len({block_id for block_id, _ in found}) == len(found) == len(set(keys))
    assert all(len(block_id) <= 256 for block_id, _ in found)
    random.shuffle(items)
    assert identified(items, "ev_") == found


def test_one_fact_under_two_references_is_two_blocks() -> None:
    one, two = samples.fact(1), samples.fact(1, evidence_ref="kg:order:ord_1#snapshot_8")
    assert [block_id for block_id, _ in identified([two, one], "ev_")] == [
        f"ev_{one.digest[7:23]}",
        f"ev_{one.digest[7:23]}.2",
    ]


def test_required_comes_before_named_and_near_before_far() -> None:
    facts = [samples.fact(1, name="a"), samples.fact(2, name="b"), *(samples.fact(3, hop=hop) for hop in (0, 1, 4, 9))]
    assert [evidence_priority(item, item.name == "a") for item in facts] == [1000, 800, 500, 400, 100, 0]
