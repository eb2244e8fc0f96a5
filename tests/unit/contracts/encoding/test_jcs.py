"""Canonical JSON: the bytes of RFC 8785, against another implementation as the oracle, and the digests of them."""

from __future__ import annotations

import json
import struct
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.contracts.encoding import jcs
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import MAX_INT, canonical, canonical_of_texts, content_address, digest
from contextos.errors import MalformedJson, Problem
from tests.unit.contracts.encoding.json_values import FLOATS, INTS, LEAVES, trees


@given(trees(LEAVES))
def test_values_without_floats_are_canonical_as_the_oracle_has_them(value: Any) -> None:
    assert canonical(value) == canonical_of_texts(value) == rfc8785.dumps(value)


@given(trees(LEAVES | FLOATS))
@settings(max_examples=200)
def test_values_with_floats_are_canonical_as_the_oracle_has_them(value: Any) -> None:
    assert canonical(value) == canonical_of_texts(value) == rfc8785.dumps(value)


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
def test_a_value_without_a_canonical_form_is_refused_with_a_pointer(value: Any, code: str, where: str) -> None:
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
