"""One reader of YAML: an author's document has one meaning, and a foreign one that of version 1.2."""

from __future__ import annotations

import pytest

from contextos.contracts.encoding.yaml_text import in_lines, read_yaml, write_yaml
from contextos.errors import MalformedJson, Problem


def test_an_author_learns_the_line_and_what_to_write() -> None:
    with pytest.raises(MalformedJson, match="line 2"):
        read_yaml("a: 1\nb: 010\n", max_depth=5, max_nodes=9)
    assert read_yaml("a: 1\nb: 010\n", max_depth=5, max_nodes=9, foreign=True) == {"a": 1, "b": 10}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: é\nb: éé\x1b[2J\n", "line 2, column 6: U+001B is a control character"),
        ("\x00", "line 1, column 1: U+0000 is a control character"),
        ("a: 1\r\n" * 9_000 + "b: \x9f", "line 9001, column 4: U+009F is a control character"),
    ],
)
def test_a_control_character_has_its_line(text: str, says: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        read_yaml(text, max_depth=5, max_nodes=99_999)
    assert [(one.detail, one.remedy) for one in caught.value.problems] == [(says, "remove it")]


def test_what_is_in_an_envelope_has_no_line() -> None:
    problem = Problem("/pack_meta", "missing", "it is missing", "add it")
    sealed = b'{"payload": "e30=", "payloadType": "application/json", "signatures": []}'
    assert in_lines([problem], sealed) == (problem,)
    assert in_lines([problem], b"{}")[0].detail == "line 1, column 1: it is missing"


@pytest.mark.parametrize(("text", "code"), [("[" * 9 + "]" * 9, "too_deep"), ("[1,2,3,4,5,6,7,8,9]", "too_many_nodes")])
def test_a_limit_is_kept(text: str, code: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        read_yaml(text, max_depth=5, max_nodes=9)
    assert caught.value.problems[0].code == code


def test_an_alias_counts_as_what_it_means() -> None:
    text = "a: &a [1, 2, 3]\nb: [*a, *a]\n"
    assert read_yaml(text, max_depth=5, max_nodes=99, foreign=True)["b"] == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(MalformedJson):
        read_yaml(text, max_depth=5, max_nodes=12, foreign=True)


def test_what_is_written_has_no_alias_and_is_read_back() -> None:
    shared = ["010", 10, True, None, 1.5]
    value = {"a": shared, "b": shared}
    assert "*" not in write_yaml(value)
    assert read_yaml(write_yaml(value), max_depth=5, max_nodes=99) == value
