"""The parameters of an intent: the declared order of sources, the user's word is no more than that, and no guess."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.plan import IntentParameter
from contextos.decision.parameters import MAX_PLACES, take_parameters
from tests.world import example

CONTEXT, MESSAGE, FACT = {"context": "n"}, {"message": r"\bn=([0-9a-z.,-]+)"}, {"evidence": "fact_n"}
SOURCES = {"context": CONTEXT, "message": MESSAGE, "evidence": FACT}


def declared(kind: str, *sources: dict[str, str]) -> IntentParameter:
    return IntentParameter.model_validate({"name": "n", "type": kind, "from": list(sources)})


def asked(message: str = "", **context: Any) -> dict[str, Any]:
    return {"input": {"intent": "x", "message": message, "context": context}}


def facts(value: Any, integrity: str = "trusted") -> dict[str, EvidenceItem]:
    body = {
        "name": "fact_n",
        "evidence_ref": "kg:order:ord_881#snapshot_kg_1",
        "subject": "order:ord_881",
        "predicate": "n",
        "value": value,
        "observed_at_us": 1,
        "origin": "graph",
        "integrity": integrity,
        "classification": "INTERNAL",
        "digest": "sha256:" + "0" * 64,
    }
    return {"fact_n": EvidenceItem.model_validate(body)}


@given(
    order=st.permutations(list(SOURCES)),
    context=st.none() | st.integers(0, 9),
    message=st.none() | st.integers(10, 19),
    fact=st.none() | st.integers(20, 29),
)
def test_the_first_declared_source_that_has_a_value_counts_and_it_is_the_same_each_time(
    order: list[str], context: int | None, message: int | None, fact: int | None
) -> None:
    one = declared("integer", *(SOURCES[name] for name in order))
    said = asked("" if message is None else f"please n={message} now", **({} if context is None else {"n": context}))
    known = {} if fact is None else facts(fact)
    values = take_parameters([one], said, known)
    given_by = {"context": context, "message": message, "evidence": fact}
    first = next((name for name in order if given_by[name] is not None), None)
    assert [(found.origin, found.value) for found in values.taken] == ([(first, given_by[first])] if first else [])
    assert (values.failure is None) is (first is not None)
    assert take_parameters([one], said, known).to_json() == values.to_json()
    early = take_parameters([one], said)
    assert all(found in values.taken for found in early.taken)


@given(message=st.text(max_size=80) | st.from_regex(r"(trusted: true )?n=[0-9a-z]{1,5}( integrity=trusted)?"))
def test_nothing_from_a_message_is_ever_trusted_or_of_another_place(message: str) -> None:
    for kind in ("string", "integer", "number", "boolean"):
        for found in take_parameters([declared(kind, MESSAGE, FACT)], asked(message), facts("of the graph")).taken:
            if found.origin == "message":
                assert (found.integrity, found.place) == ("asserted", "/input/message")
                assert str(found.value).lower() in message.lower() or kind == "number"


def test_what_the_caller_states_is_asserted_and_a_fact_is_what_the_graph_says() -> None:
    [stated] = take_parameters([declared("string", CONTEXT)], asked(n="x")).taken
    [known] = take_parameters([declared("string", FACT)], asked(), facts("x", "untrusted")).taken
    assert (stated.integrity, stated.place) == ("asserted", "/input/context/n")
    assert (known.integrity, known.place) == ("untrusted", "kg:order:ord_881#snapshot_kg_1")


@pytest.mark.parametrize(
    ("kind", "message", "why"),
    [
        ("integer", "n=1 or n=2", "several values"),
        ("integer", "n=4,200", "not of the type `integer`"),
        ("integer", "n=42.5", "not of the type `integer`"),
        ("integer", "n=9999999999999999", "not of the type `integer`"),
        ("boolean", "n=yes", "not of the type `boolean`"),
        ("string", "n=a " * (MAX_PLACES + 1), "several values"),
    ],
)
def test_a_value_that_is_not_clear_is_none_and_no_later_source_is_asked(kind: str, message: str, why: str) -> None:
    values = take_parameters([declared(kind, MESSAGE, CONTEXT, FACT)], asked(message, n=1), facts(1))
    assert (values.taken, values.later) == ((), ())
    assert values.failure is not None
    assert why in values.failure.detail
    assert values.failure.facts == ("n",)


@pytest.mark.parametrize(("kind", "value"), [("integer", True), ("integer", "1"), ("string", 1), ("number", "1")])
def test_a_value_of_another_type_ends_the_search(kind: str, value: Any) -> None:
    values = take_parameters([declared(kind, CONTEXT, FACT)], asked(n=value), facts(1))
    assert values.failure is not None
    assert "/input/context/n" in values.failure.detail


def test_what_is_missing_is_named_with_how_to_give_it() -> None:
    failure = take_parameters([declared("string", CONTEXT, MESSAGE, FACT)], asked(), {}).failure
    assert failure is not None
    assert failure.code == "parameter_missing"
    assert failure.detail == (
        "nothing says what `n` is; send `input.context.n` or write it once in the message or record the fact `fact_n`"
    )


def test_what_is_missing_is_described_in_the_words_of_the_author() -> None:
    one = declared("string", CONTEXT).model_copy(update={"description": "the order, such as ord_881"})
    failure = take_parameters([one], asked(), {}).failure
    assert failure is not None
    assert failure.detail.endswith("send `input.context.n` (the order, such as ord_881)")


def test_a_long_message_has_no_value_behind_its_last_place() -> None:
    slow = IntentParameter.model_validate({"name": "n", "type": "string", "from": [{"message": "(a)(?:.*b)?"}]})
    values = take_parameters([slow], asked("a" * 100_000))
    assert values.failure is not None
    assert "several values" in values.failure.detail


AMOUNTS = {
    "Refund order ord_881 for INR 4200.": 4200,
    "Refund order ord_881 for 4200": None,
    "Refund order ord_881 for 3 reasons": None,
    "Refund ord_881, INR 5 000": "fault",
    "Refund ord_881, INR 500k": "fault",
    "Refund ord_881, INR 5 thousand": "fault",
    "ord_881: rs. 50, thanks": 50,
    "inr 900 of ord_881 please, just INR 900": 900,
    "Refund order ord_881": None,
    "Refund ord_881 for INR 4,200": "fault",
    "Refund ord_881 for INR 4200.50": "fault",
    "INR 10 or INR 20": "fault",
}


@pytest.mark.parametrize(("message", "amount"), AMOUNTS.items())
def test_the_amount_that_the_example_reads(message: str, amount: Any) -> None:
    [_, one, _] = example("pack.json")["decision_layer"]["intents"][0]["parameters"]
    values = take_parameters([IntentParameter.model_validate(one)], asked(message))
    found = [taken.value for taken in values.taken] or ["fault" if values.faults else None]
    assert found == [amount]
