"""The strict loader, and `parse` from bytes to a model."""

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, field_validator

from contextos.contracts.encoding.codec import loads, parse, problems_of
from contextos.contracts.encoding.jcs import MAX_INT, canonical
from contextos.contracts.model import Model, Seq
from contextos.errors import InvalidEnvelope, MalformedJson, Problem
from tests.unit.contracts.encoding.json_values import LEAVES, REREADABLE, trees


def refused(raw: bytes | str, **caps: int) -> tuple[Problem, ...]:
    with pytest.raises(MalformedJson) as caught:
        loads(raw, **caps)
    return caught.value.problems


def codes(raw: bytes | str, **caps: int) -> list[tuple[str, str]]:
    return [(each.code, each.pointer) for each in refused(raw, **caps)]


@given(trees(LEAVES | REREADABLE))
def test_canonical_output_is_read_back_and_written_the_same(value: Any) -> None:
    raw = canonical(value)
    assert loads(raw) == value
    assert canonical(loads(raw)) == raw


@given(trees(LEAVES | REREADABLE), st.booleans(), st.sampled_from([None, 1]))
def test_escapes_and_white_space_do_not_change_the_value_read(value: Any, escaped: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=escaped, indent=indent)
    assert loads(text) == loads(text.encode()) == value


@given(st.binary(max_size=40) | st.text('{}[]",:\\u0d8e1-+. ', max_size=40).map(str.encode))
@example(b'"\\')
@example(b'{"a":"\\ud800')
@example(b"-")
def test_any_bytes_are_read_as_the_standard_library_reads_them_or_refused_by_type(raw: bytes) -> None:
    try:
        value = loads(raw)
    except MalformedJson:
        return
    assert value == json.loads(raw)


@given(trees(LEAVES), st.integers(1, 30), st.integers(0, 8))
def test_caps_hold_exactly(value: Any, max_nodes: int, max_depth: int) -> None:
    def nodes(node: Any) -> int:
        kids = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        return 1 + sum(map(nodes, kids))

    def depth(node: Any) -> int:
        kids = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else None
        return 0 if kids is None else 1 + max(map(depth, kids), default=0)

    fits = nodes(value) <= max_nodes and depth(value) <= max_depth
    for raw in (canonical(value), json.dumps(value, indent=1).encode()):
        if fits:
            assert loads(raw, max_nodes=max_nodes, max_depth=max_depth) == value
        else:
            assert codes(raw, max_nodes=max_nodes, max_depth=max_depth)[0][0] in {"too_many_nodes", "too_deep"}


def test_byte_cap_counts_bytes_and_not_characters() -> None:
    assert loads('"é"', max_bytes=4) == "é"
    assert codes('"é"', max_bytes=3) == codes(b'"ab"', max_bytes=3) == [("too_large", "")]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"[" * 99_999, "too_deep"),
        (b'{"a":' * 99_999 + b"1" + b"}" * 99_999, "too_deep"),
        (b"[" * 500_000 + b"]" * 500_000, "too_many_nodes"),
        (b'[[{"a":[' * 20 + b"]}]]" * 20, "too_deep"),
        (b"[" + b"1," * 499_999 + b"1]", "too_many_nodes"),
        (b"[" + b"[]," * 300_000 + b"1]", "too_many_nodes"),
        (b'{"a":"' + b"x" * 20_000_000 + b'"}', "too_large"),
        (b'"' + b'\\"' * 500_000, "syntax"),
        (b"[" * 65 + b'"' + b'\\"' * 500_000, "too_deep"),
        (b'"' * 1_000_000, "syntax"),
        (b"9" * 1_000_000, "integer_too_large"),
        (b"-" + b"9" * 1_000_000, "integer_too_large"),
        (b"0." + b"1" * 1_000_000, "number_out_of_range"),
        (b"1e" + b"9" * 1_000_000, "number_out_of_range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bomb_is_refused_by_type(raw: bytes, code: str) -> None:
    assert codes(raw) == [(code, "")]


def test_a_million_nodes_are_refused_also_where_bytes_allow_them() -> None:
    assert codes(b"[" + b"1," * 999_999 + b"1]", max_bytes=4_000_000) == [("too_many_nodes", "")]


@pytest.mark.parametrize("raw", [b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000 + b"1e999" + b"}" * 50_000])
def test_recursion_never_escapes_even_where_a_caller_lifts_the_depth_cap(raw: bytes) -> None:
    assert codes(raw, max_depth=10**6) == [("too_deep", "")]


def test_brackets_and_commas_inside_text_are_no_structure() -> None:
    text = '[{,"' * 200
    assert loads(json.dumps({"a": text}), max_depth=1, max_nodes=2) == {"a": text}


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b'{"a":1,"a":1}', "/a"),
        (b'{"a":1,"\\u0061":2}', "/a"),
        (b'[{"x":{"m/n":1,"m~n":2,"m/n":3}}]', "/0/x/m~1n"),
        (b'{"":0,"":1}', "/"),
    ],
)
def test_a_duplicate_key_is_refused_and_pointed_at(raw: bytes, where: str) -> None:
    assert codes(raw) == [("duplicate_key", where)]


@pytest.mark.parametrize(
    ("literal", "code"),
    [
        ("NaN", "number_not_finite"),
        ("Infinity", "number_not_finite"),
        ("-Infinity", "number_not_finite"),
        ("1e400", "number_out_of_range"),
        ("-1e400", "number_out_of_range"),
        ("1" + "0" * 400 + ".5", "number_out_of_range"),
        (str(2**53), "integer_too_large"),
        (str(-(2**53)), "integer_too_large"),
        ("9" * 17, "integer_too_large"),
        ("9007199254740992.0", "integer_too_large"),
        ("1e20", "integer_too_large"),
        ("-1E+16", "integer_too_large"),
    ],
)
def test_a_number_that_readers_disagree_on_is_refused_and_pointed_at(literal: str, code: str) -> None:
    assert codes(f'{{"a":[true,{literal}]}}') == [(code, "/a/1")]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (str(MAX_INT), MAX_INT),
        (str(-MAX_INT), -MAX_INT),
        ("-0", 0),
        ("1e21", 1e21),
        ("1E30", 1e30),
        ("1e-400", 0.0),
        ("4.50", 4.5),
        ("0.1", 0.1),
        ("5e-324", 5e-324),
    ],
)
def test_a_number_that_every_reader_keeps_is_read(literal: str, value: float) -> None:
    got = loads(literal)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "\\ud83dx", "\\ude00\\ud83d", "\\udbff\\u0041"])
def test_half_a_character_is_refused_and_pointed_at(half: str) -> None:
    assert codes(f'{{"a":["x","{half}"]}}') == [("lone_surrogate", "/a/1")]
    assert codes(f'{{"a":{{"{half}":1}}}}') == [("lone_surrogate", "/a")]


def test_escaped_pairs_and_the_text_of_an_escape_are_whole() -> None:
    assert loads(b'"\\ud83d\\ude00 \\\\ud800"') == "\U0001f600 \\ud800"


def test_raw_half_characters_are_refused() -> None:
    assert codes('"\ud800"') == [("lone_surrogate", "")]
    assert codes(b'"\xed\xa0\x80"') == [("not_utf8", "")]


@pytest.mark.parametrize("raw", [b'"\xff"', b'"\xc0\x80"', '{"a":1}'.encode("utf-16"), '{"é":1}'.encode("latin-1")])
def test_other_encodings_are_refused(raw: bytes) -> None:
    assert codes(raw)[0][0] == "not_utf8"


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf{}", "\ufeff{}"])
def test_a_byte_order_mark_is_refused(raw: bytes | str) -> None:
    assert codes(raw) == [("byte_order_mark", "")]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        " ",
        "{",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        "[1] x",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "0x1",
        "\t\x0b1",
        '"\n"',
        '"\x00"',
        '"\\x41"',
        '"\\u12"',
        "tru",
        "nul",
        "[1 2]",
        '{"a" 1}',
        "{1:2}",
        "/**/1",
        "\u00a01",
        "\uff11",
        '{"status":"ok",\n},\n}',
    ],
)
def test_bytes_that_are_not_json_are_refused_with_their_place(raw: str) -> None:
    (problem,) = refused(raw)
    assert (problem.code, problem.pointer) == ("syntax", "")
    assert "line" in problem.detail
    assert problem.remedy


def test_all_refused_values_are_reported_up_to_fifty() -> None:
    assert codes('{"a":NaN,"b":[1e400,"\\ud800"],"a":1}') == [
        ("number_not_finite", "/a"),
        ("number_out_of_range", "/b/0"),
        ("lone_surrogate", "/b/1"),
        ("duplicate_key", "/a"),
    ]
    assert len(refused("[" + "NaN," * 999 + "NaN]")) == 50


def test_a_refusal_does_not_repeat_a_long_number() -> None:
    (problem,) = refused("9" * 5000)
    assert len(str(problem)) < 120
    assert problem.remedy == "carry it as a string"


class Step(Model):
    step_id: str
    limit: int | None = None


class Left(Model):
    kind: Literal["left"]
    size: int


class Right(Model):
    kind: Literal["right"]
    size: str


class Order(Model):
    steps: Seq[Step] = ()
    side: Annotated[Left | Right, Field(discriminator="kind")] | None = None
    amount: int | Literal["all"] = 0
    notes: dict[str, str] = {}
    even: int = 0

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("Odd numbers are refused")
        return value


def misfit(raw: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidEnvelope) as caught:
        parse(Order, raw)
    return [(each.pointer, each.code) for each in caught.value.problems]


def test_bytes_text_and_loaded_objects_become_the_same_model() -> None:
    raw = b'{"steps":[{"step_id":"s1"}],"side":{"kind":"left","size":1}}'
    assert parse(Order, raw) == parse(Order, raw.decode()) == parse(Order, loads(raw))


def test_every_misfit_is_reported_with_the_place_in_the_input() -> None:
    assert misfit('{"steps":[{"step_id":"s1"},{"limit":"x"}],"a/b~c":1,"notes":{"n":1}}') == [
        ("/steps/1/step_id", "missing"),
        ("/steps/1/limit", "int_type"),
        ("/notes/n", "string_type"),
        ("/a~1b~0c", "extra_forbidden"),
    ]


def test_a_place_names_no_branch_of_a_union() -> None:
    assert misfit({"side": {"kind": "left", "size": "x"}}) == [("/side/size", "int_type")]
    assert misfit({"side": {"kind": "left"}}) == [("/side/size", "missing")]
    assert {where for where, _ in misfit({"amount": "some"})} == {"/amount"}


def test_nothing_is_coerced_on_the_way_in() -> None:
    assert misfit({"amount": "1"}) != []
    assert misfit({"even": True}) == [("/even", "int_type")]
    assert misfit({"even": 2.0}) == [("/even", "int_type")]


def test_a_misfit_says_what_to_do_and_repeats_no_input() -> None:
    secret = "sk_live_" + "x" * 100
    with pytest.raises(InvalidEnvelope) as caught:
        parse(Order, {"side": {"kind": secret}, "even": 3, "amount": secret, "steps": [{"step_id": 1}]})
    for problem in caught.value.problems:
        assert secret not in str(problem)
        assert problem.remedy
        assert problem.detail[0].islower()
    assert "odd numbers are refused" in [problem.detail for problem in caught.value.problems]


def test_without_the_input_a_place_is_what_pydantic_says() -> None:
    with pytest.raises(ValidationError) as caught:
        Order.model_validate({"side": {"kind": "left", "size": "x"}})
    assert [each.pointer for each in problems_of(caught.value)] == ["/side/left/size"]


def test_misfits_are_capped_at_fifty() -> None:
    assert len(misfit({f"k{index}": 0 for index in range(80)})) == 50


def test_caps_and_malformed_bytes_are_refused_before_the_model_is_asked() -> None:
    with pytest.raises(MalformedJson):
        parse(Order, b'{"even":2,"even":4}')
    with pytest.raises(MalformedJson):
        parse(Order, b'{"even":2}', max_bytes=5)
    assert misfit(b"[]") == [("", "model_type")]
