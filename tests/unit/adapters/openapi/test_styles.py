"""Styles: the pairs of a query or a form, or a refusal. Each style is in `test_requests.py`."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.openapi.styles import pairs_of
from contextos.errors import InvalidInput


@pytest.mark.parametrize("style", ["form", "spaceDelimited", "pipeDelimited"])
@pytest.mark.parametrize("explode", [False, True])
def test_an_empty_list_is_written_as_nothing(style: str, explode: bool) -> None:
    assert pairs_of("v", "v", [], style, explode, ()) == []


@pytest.mark.parametrize("value", [{"a": 1}, {"x]": 1}, {"[": 1}])
def test_no_member_of_a_deep_object_is_another_parameter_or_deeper(value: Any) -> None:
    with pytest.raises(InvalidInput):
        pairs_of("v", "v", value, "deepObject", True, {"v[a]"})
