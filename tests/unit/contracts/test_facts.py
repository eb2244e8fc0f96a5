"""The vocabulary of facts: what is declared, what a pack adds, and the nearest right name."""

from __future__ import annotations

from contextos.contracts.facts import FACTS, NO_SUCH, Vocabulary, declared_fact, property_type, supplied

FLAG = {"type": "object", "additionalProperties": False, "properties": {"eligible": {"type": "boolean"}}}
KNOWN = Vocabulary({"adp.pay": FLAG}, {"policy.eval": FLAG, "verified": None}, complete=True)


def kind(path: str, vocabulary: Vocabulary = KNOWN, capability: str | None = None) -> str | None:
    found = vocabulary.find(path, capability)
    return "absent" if found is None else found.type


def test_each_path_is_declared_once() -> None:
    assert len({fact.path for fact in FACTS}) == len(FACTS)
    assert declared_fact("user.role") in FACTS
    assert declared_fact("request.context.any.thing") == declared_fact("request.context.other")
    assert [declared_fact(path) for path in ("user", "user.rol", "request.context", "history")] == [None] * 4


def test_an_undeclared_value_is_not_supplied() -> None:
    assert supplied("user", {"role": "x", "password": "y"}) == {"role": "x"}
    assert supplied("request", {"context": {"a": 1}, "attachments": []}) == {"context": {"a": 1}}


def test_a_pack_says_the_types_of_its_arguments_and_evidence() -> None:
    assert kind("args.eligible", capability="adp.pay") == "boolean"
    assert kind("args.other") == kind("provenance.other") == "absent"
    assert kind("provenance.eligible") == "string"
    assert kind("evidence.policy.eval.eligible") == "boolean"
    assert kind("evidence.policy.eval.other") == kind("evidence.other") == "absent"
    assert kind("evidence.verified.anything") is None


def test_what_is_not_known_yet_is_not_refused_unless_it_is_a_slip() -> None:
    early = Vocabulary(evidence={"change_freeze": None})
    assert kind("evidence.order_lookup", early) is None
    assert kind("args.anything", early) is None
    assert kind("evidence.change_freez", early) == "absent"
    assert kind("evidence.other", KNOWN.above_the_pack()) is None


def test_the_nearest_name_is_one_that_exists() -> None:
    assert KNOWN.nearest("user.rol") == "user.role"
    assert KNOWN.nearest("evidence.policy.eval.eligble") == "evidence.policy.eval.eligible"
    assert KNOWN.nearest("zzz") is None


def test_types_follow_the_schema_and_stop_where_it_says_nothing() -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "all": {"type": "array"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "either": {"type": ["string", "null"]},
        },
    }
    assert [property_type(schema, path.split(".")) for path in ("tags", "all", "deep", "deep.n", "either", "x")] == [
        "array<string>",
        "array",
        "object",
        "number",
        None,
        None,
    ]
    assert property_type({**schema, "additionalProperties": False}, ["x"]) == NO_SUCH
    assert property_type(schema, ["deep", "n", "m"]) == NO_SUCH
