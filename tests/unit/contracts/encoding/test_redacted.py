"""The marks of redaction are found wherever a value holds them, and nothing else is."""

from __future__ import annotations

from contextos.contracts.encoding.redacted import redacted_places


def test_each_mark_is_named_with_its_place_and_its_kinds() -> None:
    value = {
        "a": ["x", "[redacted:pan] and [redacted:email] and [redacted:pan]"],
        "b/c": {"[redacted:secret]": 1},
        "d": "[redacted] [redacted:] redacted:pan",
        "e": 4111111111111111,
    }
    assert redacted_places(value) == {"/a/1": ["email", "pan"], "/b~1c": ["secret"]}


def test_a_value_without_marks_has_none() -> None:
    assert redacted_places({"a": [None, True, 1.5, "x"]}) == {}
    assert redacted_places("[redacted:pan]") == {"": ["pan"]}
