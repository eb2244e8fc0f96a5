"""One reader of YAML: an author's document has one meaning, and a foreign one that of version 1.2."""

from __future__ import annotations

import pytest

from contextos.contracts.encoding.yaml_text import read_yaml, write_yaml
from contextos.errors import MalformedJson


def test_an_author_learns_the_line_and_what_to_write() -> None:
    with pytest.raises(MalformedJson, match="line 2"):
        read_yaml("a: 1\nb: 010\n", max_depth=5, max_nodes=9)
    assert read_yaml("a: 1\nb: 010\n", max_depth=5, max_nodes=9, foreign=True) == {"a": 1, "b": 10}


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
