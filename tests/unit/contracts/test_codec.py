"""The strict loader, the canonical form and the way into a model."""

import json
import struct
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError, field_validator

from contextos.contracts.encoding import jcs
from contextos.contracts.encoding.codec import loads, parse, problems_of
from contextos.contracts.encoding.jcs import MAX_INT, canonical, content_address, digest
from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.contracts.model import Model, Seq
from contextos.errors import InvalidEnvelope, MalformedJson, Problem

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS = st.integers(-MAX_INT, MAX_INT)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
REREADABLE = FLOATS.filter(lambda x: abs(x) <= MAX_INT or abs(x) >= 1e21)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def grown(kids: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(kids, max_size=4) | st.dictionaries(TEXT, kids, max_size=4)

    return st.recursive(leaves, grown, max_leaves=12)


LEAVES = st.none() | st.booleans() | INTS | TEXT


def refused(raw: bytes | str, **caps: int) -> tuple[Problem, ...]:
    with pytest.raises(MalformedJson) as caught:
        loads(raw, **caps)
    return caught.value.problems


def codes(raw: bytes | str, **caps: int) -> list[tuple[str, str]]:
    return [(each.code, each.pointer) for each in refused(raw, **caps)]


@given(trees(LEAVES | REREADABLE))
def test_what_is_written_canonically_is_read_back_and_written_the_same(value: Any) -> None:
    raw = canonical(value)
    assert loads(raw) == value
    assert canonical(loads(raw)) == raw


@given(trees(LEAVES | REREADABLE), st.booleans(), st.sampled_from([None, 1]))
def test_spelling_of_text_and_space_does_not_change_what_is_read(value: Any, escaped: bool, indent: int | None) -> None:
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
def test_what_is_not_json_is_refused_with_its_place(raw: str) -> None:
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


@given(trees(LEAVES))
def test_values_without_floats_are_canonical_as_the_oracle_has_them(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(trees(LEAVES | FLOATS))
@settings(max_examples=200)
def test_values_with_floats_are_canonical_as_the_oracle_has_them(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(st.sampled_from("a\u0080\u07ff\ue000\uffff\U00010000\U0010ffff"), max_size=3), INTS))
def test_keys_sort_by_utf16_code_units(value: dict[str, int]) -> None:
    assert list(json.loads(canonical(value))) == sorted(value, key=lambda key: key.encode("utf-16-be"))
    assert canonical(value) == rfc8785.dumps(value)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=300)
def test_every_double_is_spelled_as_the_oracle_spells_it(bits: int) -> None:
    (value,) = struct.unpack(">d", bits.to_bytes(8))
    if value - value == 0:
        assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_of_rfc_8785_appendix_b(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical([value]) == f"[{text}]".encode()


def test_the_example_of_rfc_8785_section_3_2() -> None:
    raw = r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    assert canonical(loads(raw)).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_the_key_order_of_rfc_8785_section_3_2_3() -> None:
    names = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    assert list(json.loads(canonical(names)).values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


@given(st.text(st.characters(max_codepoint=0x9F) | st.sampled_from('\u2028\u2029\ufeff/\\"'), max_size=20))
def test_text_is_escaped_only_where_it_must_be(text: str) -> None:
    assert canonical(text) == rfc8785.dumps(text)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 9


def test_tuples_are_arrays_and_subclasses_are_their_content() -> None:
    assert canonical({"b": (1, (Colour.RED,)), Colour.RED: Size.BIG}) == b'{"b":[1,["red"]],"red":9}'
    assert canonical((1.0, True, None)) == b"[1,true,null]"


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "code", "where"),
    [
        ({"a": [float("nan")]}, "number_not_finite", "/a/0"),
        ({"a": {"b": float("-inf")}}, "number_not_finite", "/a/b"),
        ([0, MAX_INT + 1], "integer_too_large", "/1"),
        ({"x": -MAX_INT - 1, "y": 0.5}, "integer_too_large", "/x"),
        ([10**400], "integer_too_large", "/0"),
        ([None, True, 1, "ok", "\ud800"], "lone_surrogate", "/4"),
        ({"k": {"\udc00": 1}}, "lone_surrogate", "/k"),
        ({"a": {1: 2}}, "key_not_text", "/a"),
        ({None: 2}, "key_not_text", ""),
        ([{1, 2}], "not_json", "/0"),
        ({"a": b"bytes"}, "not_json", "/a"),
        ([object()], "not_json", "/0"),
        ([st], "not_json", "/0"),
        ([Problem("", "", "")], "not_json", "/0"),
    ],
)
def test_what_has_no_canonical_form_is_refused_and_pointed_at(value: Any, code: str, where: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        canonical(value)
    assert [(each.code, each.pointer) for each in caught.value.problems] == [(code, where)]


@pytest.mark.parametrize("value", [LOOP, DEEP, {"a": LOOP}, [0.5, DEEP]])
def test_nesting_without_end_is_refused_by_type(value: Any) -> None:
    with pytest.raises(MalformedJson) as caught:
        canonical(value)
    assert caught.value.problems[0].code == "too_deep"


def test_keys_that_become_equal_are_refused() -> None:
    class Loud(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(MalformedJson, match="same text"):
        canonical({Loud("a"): 1, Loud("a"): 2})


def test_depth_limit_of_the_canonical_form_does_not_depend_on_the_way_taken() -> None:
    def nested(depth: int, leaf: Any) -> Any:
        for _ in range(depth):
            leaf = [leaf]
        return leaf

    for leaf in (1, 0.5):
        assert canonical(nested(jcs.MAX_CANONICAL_DEPTH, leaf))
        with pytest.raises(MalformedJson):
            canonical(nested(jcs.MAX_CANONICAL_DEPTH + 1, leaf))


def test_addresses_name_their_algorithm() -> None:
    assert digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert content_address({"b": 1, "a": 2}) == content_address({"a": 2.0, "b": 1}) == digest(b'{"a":2,"b":1}')


DOCUMENT: dict[str, Any] = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
    "nil": None,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/nil", None),
    ],
)
def test_pointers_of_rfc_6901_section_5(text: str, value: Any) -> None:
    assert resolve_pointer(DOCUMENT, text) == value


@pytest.mark.parametrize(
    "text",
    [
        "foo",
        "/foo/2",
        "/foo/-",
        "/foo/-1",
        "/foo/00",
        "/foo/01",
        "/foo/1e0",
        "/foo/\u0661",
        "/foo/0/0",
        "/nope",
        "/m~n",
        "/m~2n",
        "/nil/x",
        "/foo/" + "9" * 5000,
        "/foo/0\n",
        "#/foo",
    ],
)
def test_a_pointer_at_nothing_is_missing_and_not_null(text: str) -> None:
    assert resolve_pointer(DOCUMENT, text) is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"
    assert MISSING is not None


@given(st.lists(TEXT, max_size=5), st.integers())
def test_a_pointer_finds_the_path_it_was_made_of(path: list[str], leaf: int) -> None:
    value: Any = leaf
    for step in reversed(path):
        value = {step: value}
    assert resolve_pointer(value, pointer(path)) == leaf


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
